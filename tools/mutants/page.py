"""Write `docs/guards.md`, the list of guards for people: `python -m tools.mutants.page`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.mutants.guards import GUARDS

__all__ = ["PAGE", "text"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "guards.md"

_HEAD: Final = """# The guards of the log

Each line is a guard of the checkpoint protocol, or of what is built on it, and what goes wrong without it.
`make mutants` takes them out of the code one at a time, on a copy of it, and shows that a test fails each
time. A guard that no test misses is an error, and so is one whose text is no longer found; a test holds this
page to the list.

| guard | without it | stands in |
|---|---|---|
"""


def text() -> str:
    """Return the page."""
    return _HEAD + "".join(f"| {guard.name} | {guard.why} | `{guard.file}` |\n" for guard in GUARDS)


if __name__ == "__main__":
    PAGE.write_text(text())
