"""Branches side by side: their slots, and what becomes of them when one of them fails.

Each coroutine runs in a branch of its own, so that its steps are numbered apart from the others'.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

from milepost.agent.branch import Branch, current_branch
from milepost.errors import StepFailed

__all__ = ["side_by_side"]

T = TypeVar("T")


async def side_by_side(
    keys: list[Any],
    coroutines: list[Coroutine[Any, Any, Any]],
    places: list[Branch],
    limit: int,
    *,
    swallow: bool,
    sequence: bool,
) -> Any:
    results = await _all_of(coroutines, places, limit, swallow=swallow)
    return results if sequence else dict(zip(keys, results, strict=True))


async def _all_of(
    coroutines: list[Coroutine[Any, Any, Any]], places: list[Branch], limit: int, *, swallow: bool
) -> list[Any]:
    slots = asyncio.Semaphore(limit)
    failed: dict[int, BaseException] = {}

    async def one(index: int) -> Any:
        async with slots:
            if failed and not swallow:
                return None
            try:
                return await _in_branch(coroutines[index], places[index])
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                failed[index] = error
                return error

    try:
        results = await asyncio.gather(*(one(index) for index in range(len(coroutines))))
    finally:
        for each in coroutines:
            if inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
                each.close()
    fatal = [index for index in sorted(failed) if not (swallow and isinstance(failed[index], StepFailed))]
    if fatal:
        raise failed[fatal[0]]
    return results


def _in_branch(coroutine: Coroutine[Any, Any, T], place: Branch) -> asyncio.Task[T]:
    context = contextvars.copy_context()
    context.run(current_branch.set, place)
    return asyncio.create_task(coroutine, context=context)
