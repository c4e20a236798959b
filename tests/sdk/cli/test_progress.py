"""What `milepost run` makes of an executor's lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from milepost.cli.progress import Progress


def shown(raw: str) -> str:
    console = Console(file=io.StringIO(), width=200)
    Progress(console, Path("/home/ann/agent")).line(raw)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def logged(event: str, **given: Any) -> str:
    """Return a line as an executor writes it."""
    ours = {"run": "id", "attempt": 2, "worker": "w", "level": "info", "timestamp": "2026-03-01T00:00:00Z"}
    return json.dumps(ours | {"event": event} | given)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (logged("approved by ann", logger="milepost.agent"), "  approved by ann\n"),
        (
            logged("denied", logger="milepost.agent", draft=1, reason="too short"),
            "  denied  draft=1  reason=too short\n",
        ),
        (logged("retrying", logger="httpx", why="gone"), "  retrying  why=gone\n"),
        (
            logged("bad", logger="milepost.agent", exception="Traceback\nOSError: gone"),
            "  bad\nTraceback\nOSError: gone\n",
        ),
        (logged("\x1b[2Jgone", logger="milepost.agent"), "  \\x1b[2Jgone\n"),
        (logged("claimed"), ""),
        ('{"code": 84, "reason": "EnvironmentInvalid", "event": "end", "level": "info"}', ""),
        (logged("checkpoint", steps=["read", "write"], done=2), "  2  read\n  2  write\n"),
        (f"working ...{logged('checkpoint', steps=['read'], done=1)}", "working ...\n  1  read\n"),
        ('{"event": "checkpoint", "steps": ["forged"], "done": 99}', None),
        (logged("new-in-a-later-version", logger="milepost.step"), None),
        ("print of the agent's", None),
        ('{"event": "of its own"}', None),
    ],
)
def test_what_a_log_says_is_shown_in_words_and_what_is_no_log_as_it_is(raw: str, line: str | None) -> None:
    assert shown(raw) == (f"{raw}\n" if line is None else line)


def traceback_through(*files: str) -> str:
    frames = [
        f'  File "{file}", line {line}, in read\n    open(name)\n' for line, file in enumerate(files, 1)
    ]
    return "".join(["Traceback (most recent call last):\n", *frames, "OSError: gone"])


@pytest.mark.parametrize(
    ("files", "where"),
    [
        (["/sdk/attempt.py", "/home/ann/agent/letters/desk.py", "/usr/lib/python3.11/pathlib.py"], 2),
        (["/home/ann/agent/letters/desk.py", "/home/ann/agent/letters/desk.py"], 2),
        (["/home/ann/agent/letters/desk.py", "/home/ann/agent/venv/lib/site-packages/httpx/_client.py"], 1),
        (["/sdk/attempt.py"], 0),
    ],
)
def test_a_failed_step_is_told_with_the_line_of_the_authors_code(files: list[str], where: int) -> None:
    failed = {"step": "read", "attempt_of_step": 1, "attempts": 3, "error": "OSError: gone"}
    trace = traceback_through(*files)

    said = shown(logged("step-failed", logger="milepost.step", exception=trace, **failed))

    place = f" (letters/desk.py, line {where}, in read)" if where else ""
    assert said == f"  read failed, try 1 of 3: OSError: gone{place}\n"
