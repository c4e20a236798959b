"""The examples in docs/testing.md work as they stand, with plain pytest and nothing of this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import milepost
from milepost import testing

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"

pytestmark = pytest.mark.req("S5")


@pytest.mark.timeout(300)
def test_the_examples_pass(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for name, text in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        files[name] = files.get(name, "") + text
    # As they stand they try every place, which takes a minute.
    everywhere = files["test_letters.py"].replace("answers=YES)\n", "answers=YES, max_points=3)\n")
    files["test_letters.py"] = everywhere.replace("max_points=6", "max_points=2")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = str(Path(milepost.__file__).parents[1])

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert "5 passed" in done.stdout, done.stdout


def test_the_page_names_all_that_an_author_calls() -> None:
    page = PAGE.read_text()

    functions = [name for name in testing.__all__ if name[0].islower()]
    assert [name for name in functions if f"`{name}" not in page] == []
