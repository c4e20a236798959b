"""What authors write passes strict type checkers, and what would fail at run time does not."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import milepost

ROOT = Path(__file__).parents[2]
USAGE = Path(__file__).parent / "usage.py"
REFUSED = re.compile(r"# refused\b")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep other workers away from what mypy remembers, a database that they share."""
    with (Path(tempfile.gettempdir()) / f"milepost-mypy-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mypy(file: Path) -> dict[int, str]:
    """Return what mypy says, by line."""
    with one_at_a_time():
        done = subprocess.run(
            [
                sys.executable, "-m", "mypy", "--strict", "--show-column-numbers", "--hide-error-context",
                "--no-error-summary", f"--cache-dir={ROOT / '.mypy_cache'}", str(file),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    said = (line.split(":", 4) for line in done.stdout.splitlines() if line.startswith(str(file)))
    return {int(number): text.strip() for _, number, _, kind, text in said if kind.strip() == "error"}


def pyright(file: Path) -> dict[int, str]:
    """Return what pyright says, by line."""
    config = file.parent / "pyrightconfig.json"
    config.write_text(
        json.dumps({"include": [file.name], "typeCheckingMode": "strict", "pythonVersion": "3.11"})
    )
    done = subprocess.run(
        [
            Path(sys.executable).with_name("basedpyright"), "--outputjson", "--level", "error",
            "--pythonpath", sys.executable, "--project", config,
        ],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1: each["message"] for each in found}


def statements(text: str) -> dict[int, int]:
    """Return the first line of the innermost statement around each line; a function's body is not its own."""
    starts: dict[int, int] = {}

    def walk(nodes: Iterator[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.stmt):
                decorated = getattr(node, "decorator_list", [])
                first = min([node.lineno, *(each.lineno for each in decorated)])
                starts.update(dict.fromkeys(range(first, (node.end_lineno or first) + 1), first))
            walk(ast.iter_child_nodes(node))

    walk(ast.iter_child_nodes(ast.parse(text)))
    return starts


def refused(text: str, check: Callable[[Path], dict[int, str]], folder: Path) -> tuple[set[str], set[str]]:
    """Return the statements that a checker wrongly lets pass, and those that it wrongly refuses."""
    file = folder / "usage.py"
    file.write_text(text)
    starts, lines = statements(text), text.splitlines()
    marked = {starts[number] for number, line in enumerate(lines, start=1) if REFUSED.search(line)}
    said = {starts[number]: message for number, message in check(file).items()}
    passed = {lines[number - 1].strip() for number in marked - set(said)}
    return passed, {f"{lines[number - 1].strip()}: {said[number]}" for number in set(said) - marked}


CHECKERS = pytest.mark.parametrize("check", [mypy, pyright])


@CHECKERS
def test_what_authors_write_is_accepted_and_every_mistake_is_refused(
    check: Callable[[Path], dict[int, str]], tmp_path: Path
) -> None:
    assert refused(USAGE.read_text(), check, tmp_path) == (set(), set())


@CHECKERS
def test_a_mistake_that_is_mended_and_one_that_is_not_marked_are_noticed(
    check: Callable[[Path], dict[int, str]], tmp_path: Path
) -> None:
    mended, unmarked = (
        'await run.step("wrong-type", scan, "a")',
        'await run.step("bytes", upload, "a", "text")',
    )
    text = USAGE.read_text().replace('await run.step("wrong-type", scan, 3)', mended)
    passed, wrongly = refused(text.replace(f"{unmarked}  # refused", unmarked), check, tmp_path)

    assert passed == {f"{mended}  # refused"}
    assert len(wrongly) == 1
    assert all(each.startswith(unmarked) for each in wrongly)


def test_nothing_public_is_left_out() -> None:
    imports = (each for each in ast.walk(ast.parse(USAGE.read_text())) if isinstance(each, ast.ImportFrom))
    named = {name.name for each in imports if each.module == "milepost" for name in each.names}

    assert named == set(milepost.__all__)
