"""Where in a value something is, as a chain of steps that costs nothing until it is shown.

Shown as an author would write it: `result.items[3].when`, `result["odd key"]`, `result{'an element'}`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

__all__ = ["Element", "Key", "Where", "show"]

_LONGEST: Final = 300
_LONGEST_STEP: Final = 60
_LONGEST_NUMBER: Final = 10**30
_DEEPEST: Final = 2
"""Tuples and frozensets in a key or an element are shown down to this depth: they may share parts."""


@dataclass(frozen=True, slots=True)
class Element:
    """A member of a set, which has no position."""

    value: Any


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a dict, where the key itself is meant, or one that is no string."""

    value: Any


Where: TypeAlias = tuple["Where | None", str | int | Key | Element]
"""The parent and the last step; the root has no parent and holds the value's name."""


def show(where: Where) -> str:
    """Return the path as text in ASCII, shortened in the middle if it is very long."""
    steps: list[str] = []
    at: Where | None = where
    while at is not None:
        parent, step = at
        steps.append(_step(step) if parent is not None else str(step))
        at = parent
    text = "".join(reversed(steps))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"


def _step(step: str | int | Key | Element) -> str:
    match step:
        case int():
            return f"[{step}]"
        case str():
            plain = len(step) <= _LONGEST_STEP and step.isidentifier() and step.isascii()
            return f".{step}" if plain else f"[{_short(step)}]"
        case Key(value):
            return f"[{_short(value)}]"
        case Element(value):
            return f"{{{_short(value)}}}"


def _short(value: Any, depth: int = 0) -> str:
    # An author's own repr may be long, may fail and may show secrets.
    kind = type(value)
    if kind is str:
        text = json.dumps(value if len(value) <= _LONGEST_STEP else value[:_LONGEST_STEP] + "...")
    elif kind is int and abs(value) >= _LONGEST_NUMBER:  # Python refuses to write very long ones
        text = f"<int of {value.bit_length()} bits>"
    elif kind in {int, float, bool, type(None)}:
        text = repr(value)
    elif kind is bytes:
        text = repr(value[:_LONGEST_STEP])
    elif kind in {tuple, frozenset} and depth < _DEEPEST:
        text = "(" + ", ".join(_short(part, depth + 1) for part in islice(value, 4)) + ")"
    else:
        text = f"<{kind.__name__}>"
    return text if len(text) <= _LONGEST_STEP + 5 else text[:_LONGEST_STEP] + "..."
