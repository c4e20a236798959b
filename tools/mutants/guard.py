"""A guard, the edit that takes it out, and the tests that have to notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Guard", "without"]


@dataclass(frozen=True)
class Guard:
    """`old` stands once in `file`; with `new` in its place a test of `tests` has to fail.

    `name` and `why` are for people: what the guard is, and what goes wrong without it.
    """

    name: str
    why: str
    file: str
    old: str
    new: str
    tests: str


def without(guard: Guard, root: Path) -> str:
    """Return the file's text without the guard. Raises ValueError where the guard is not found once."""
    text = (root / guard.file).read_text()
    if (found := text.count(guard.old)) != 1:
        raise ValueError(f"{guard.name}: its text stands {found} times in {guard.file}, not once")
    return text.replace(guard.old, guard.new)
