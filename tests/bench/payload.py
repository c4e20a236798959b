"""What the steps of all benches return: text that no store can make smaller, the same in every process.

It needs nothing but the standard library, so that the peers' scripts can use it in their own environments.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

__all__ = ["conversation", "size_of", "text"]

MESSAGE = 2_000


def text(number: int, size: int) -> str:
    """Return `size` characters that belong to this number."""
    raw = hashlib.shake_256(str(number).encode()).digest(size * 3 // 4 + 3)
    return base64.b64encode(raw).decode()[:size]


def conversation(size: int) -> list[dict[str, Any]]:
    """Return messages with `size` characters of content in all, by turns the user's and the model's."""
    starts = range(0, size, MESSAGE)
    return [
        {
            "role": "assistant" if index % 2 else "user",
            "content": text(-index - 1, min(MESSAGE, size - start)),
        }
        for index, start in enumerate(starts)
    ]


def size_of(messages: list[dict[str, Any]]) -> int:
    """Return the characters of content in these messages."""
    return sum(len(message["content"]) for message in messages)
