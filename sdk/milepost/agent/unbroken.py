"""Work that a cancellation of whoever waits for it does not stop in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["unbroken"]

T = TypeVar("T")


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work gives. A cancellation meanwhile is raised once the work has ended."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
