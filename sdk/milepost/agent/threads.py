"""Plain functions of the author's, which run in a thread so that the event loop goes on meanwhile.

No thread can be stopped from outside. So a cancellation of whoever waits is raised only once the function has
ended: nothing that comes after may find it still at work.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from milepost.agent.unbroken import unbroken

__all__ = ["called", "outcome"]


async def called(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return what a function gives, an async one or a plain one. Raises what it raises."""
    if inspect.iscoroutinefunction(fn):
        return await fn(*args, **kwargs)
    value, error = await unbroken(asyncio.to_thread(outcome, fn, args, kwargs))
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def outcome(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Any, BaseException | None]:
    """Return what a call gives, or what it raises: a StopIteration cannot leave a thread as an error."""
    try:
        return fn(*args, **kwargs), None
    except BaseException as error:  # noqa: BLE001  (raised again in the task that waits)
        return None, error
