"""What importing the SDK costs an author: nothing that only the operator, the command line or S3 needs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import milepost

HEAVY = ("boto3", "botocore", "kopf", "kubernetes", "typer", "yaml", "aiohttp")


@pytest.mark.parametrize("module", ["milepost", "milepost.executor.__main__"])
def test_importing_loads_nothing_that_is_not_needed(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{*sys.modules}} & {set(HEAVY)}))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


@pytest.mark.parametrize("name", milepost.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(milepost, name))
