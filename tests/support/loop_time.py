"""The event loop's time, which passes when a test says so: no time-out of a step races with a busy machine.

What a test gives a minute to has it, and the minute passes at once where it is to run out.
"""

from __future__ import annotations

import asyncio

__all__ = ["pass_time"]


def pass_time(seconds: float) -> None:
    """Let so many seconds pass for the running event loop: what is due by then is due in its next turn."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]  # each test has a loop of its own
