"""Tools that a scripted model may call, and what reached them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from milepost import Call, Permanent, Retry, Tool, tool

__all__ = ["AT_ONCE", "Adding"]

AT_ONCE = Retry(wait=0)


@dataclass
class Adding:
    """A keyed tool that adds, and one that always fails. `received` are the keys and numbers that came."""

    received: list[tuple[str, int]] = field(default_factory=list)
    tools: list[Tool[..., Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        @tool(effect="keyed")
        async def add(call: Call, number: int) -> int:
            """Add a number to the sum, and return the sum."""
            self.received.append((call.key, number))
            return self.sum

        @tool(effect="none")
        async def fail(why: str) -> str:
            """Fail."""
            raise Permanent(why)

        self.tools = [add, fail]

    @property
    def sum(self) -> int:
        return sum(number for _, number in self.received)
