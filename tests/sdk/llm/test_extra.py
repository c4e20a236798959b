"""What comes along with `milepost`, and what is said where the extra is not installed."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import milepost.llm

HEAVY = ("pydantic_ai", "genai_prices", "openai", "httpx", "opentelemetry")


@pytest.mark.parametrize("module", ["milepost", "milepost.llm"])
def test_importing_loads_no_client_of_any_model(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{*sys.modules}} & {set(HEAVY)}))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "missing = lambda name, *rest: None if name == 'pydantic_ai' else found(name, *rest)\n"
        "importlib.util.find_spec = missing\n"
        "import milepost.llm\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "milepost.llm needs pydantic_ai, so: pip install 'milepost[llm]'" in done.stderr


@pytest.mark.parametrize("name", milepost.llm.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(milepost.llm, name))
