"""Text from a log, as it may be shown on a terminal.

It may hold anything, also what moves the cursor or turns the direction of writing. Whatever is no printable
character is shown as its escape, so that nobody approves what they were not shown.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["indented", "visible"]


def visible(text: str) -> str:
    """Return the text with all but its line feeds and printable characters escaped, as Python has them."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )


def indented(data: Any) -> list[str]:
    """Return JSON as lines: nothing is left out, and what is no printable character is escaped."""
    return [f"  {visible(line)}" for line in json.dumps(data, indent=2, ensure_ascii=False).split("\n")]
