"""The example in docs/own-store.md works as it stands, with plain pytest and nothing of this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.testing.store_contract import StoreContract

PAGE = Path(__file__).parents[2] / "docs" / "own-store.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write the files of the page into a folder of their own."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    assert [name for name, _ in blocks] == ["sqlite_store.py", "test_sqlite_store.py"]
    return tmp_path


def pytest_in(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run plain pytest there, with no settings but its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        argv, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=110
    )


def test_the_example_passes_the_whole_contract(project: Path) -> None:
    done = pytest_in(project)
    tests = [name for name in dir(StoreContract) if name.startswith("test_")]

    assert f"{len(tests)} passed" in done.stdout, done.stdout
    assert done.returncode == 0


def test_the_example_without_its_condition_does_not_pass(project: Path) -> None:
    store = project / "sqlite_store.py"
    text = store.read_text()
    assert text.count("INSERT INTO objects VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING") == 1
    store.write_text(
        text.replace(
            "INSERT INTO objects VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            "REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
        )
    )
    name = "test_creating_an_object_twice_clashes_and_keeps_the_first"
    done = pytest_in(project, "-k", name)

    assert done.returncode == 1
    assert f"{name} " in done.stdout
