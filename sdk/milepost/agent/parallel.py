"""Branches side by side: their slots, and what becomes of them when one of them fails or waits at a gate.

Each coroutine runs in a branch of its own, so that its steps are numbered apart from the others'. One that
waits at a gate gives its slot back, so that others begin; and so does one of which all that is left are
branches of its own that wait.

The surprising thing: after a failure those are still begun of which the log has something. A recorded failure
comes at once, and they were under way when it came the first time.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from functools import cache
from typing import Any, Final, TypeVar

from milepost.agent.branch import Branch, current_branch
from milepost.errors import StepFailed

__all__ = ["Lane", "current_lane", "side_by_side"]

T = TypeVar("T")


class _Crowd:
    """The branches of one parallel.

    `inside` is the lane that called it, if it stands in one, and `alone` says that this lane's code does
    nothing else meanwhile. `left` branches have not ended, of which `frozen` wait at gates; `waiting` are
    those that have no slot yet.
    """

    def __init__(self, limit: int, branches: int) -> None:
        self.slots = asyncio.Semaphore(limit)
        self.inside = current_lane.get()
        self.alone = self.inside is not None and asyncio.current_task() is self.inside.branch.main
        self.left = branches
        self.frozen = 0
        self.waiting = 0

    def look(self) -> None:
        """Let the lane around this freeze, too, where all that is left waits at gates."""
        if self.inside is not None and self.alone and 0 < self.left == self.frozen:
            self.inside.freeze()


class Lane:
    """One branch's turn in its parallel."""

    def __init__(self, crowd: _Crowd, branch: Branch) -> None:
        self.branch = branch
        self._crowd = crowd
        self._holds = False
        self._frozen = False

    async def enter(self) -> None:
        """Return once there is a slot for the branch."""
        self._crowd.waiting += 1
        try:
            await self._crowd.slots.acquire()
        finally:
            self._crowd.waiting -= 1
        self._holds = True

    def leave(self) -> None:
        """Note that the branch has ended, or will never begin."""
        self._give_back()
        self._crowd.left -= 1
        self._crowd.frozen -= self._frozen
        self._crowd.look()

    def freeze(self) -> None:
        """Note that nothing of the branch can go on but by a gate that opens."""
        self._give_back()
        if not self._frozen:
            self._frozen = True
            self._crowd.frozen += 1
            self._crowd.look()

    def thaw(self) -> None:
        """Note that the branch goes on after all, since its own code has cancelled what waited."""
        if self._frozen:
            self._frozen = False
            self._crowd.frozen -= 1
            if self._crowd.inside is not None and self._crowd.alone:
                self._crowd.inside.thaw()

    def let_go(self) -> bool:
        """Give back this slot and those of the branches around; tell whether any was waited for."""
        wanted = self._give_back()
        around = self._crowd.inside is not None and self._crowd.inside.let_go()
        return wanted or around

    def _give_back(self) -> bool:
        held, self._holds = self._holds, False
        if held:
            self._crowd.slots.release()
        return held and self._crowd.waiting > 0


current_lane: Final[ContextVar[Lane | None]] = ContextVar("milepost_lane", default=None)


async def side_by_side(
    keys: list[Any],
    coroutines: list[Coroutine[Any, Any, Any]],
    places: list[Branch],
    limit: int,
    *,
    swallow: bool,
    sequence: bool,
    begin: Callable[[], None],
    begun_before: Callable[[], list[bool]],
    end: Callable[[Branch], Awaitable[None]],
) -> Any:
    """Run a coroutine in each of the places, at most `limit` at once; `begin` is called first.

    `begun_before` tells of each whether an earlier process has begun it, and is called once one has failed.
    `end` is awaited in each branch once its code has returned.
    Returns the results by key, or, as a `sequence`, in order. With `swallow` a StepFailed is a result, too.
    """
    begin()
    results = await _all_of(coroutines, places, limit, cache(begun_before), end, swallow=swallow)
    return results if sequence else dict(zip(keys, results, strict=True))


async def _all_of(
    coroutines: list[Coroutine[Any, Any, Any]],
    places: list[Branch],
    limit: int,
    begun_before: Callable[[], list[bool]],
    end: Callable[[Branch], Awaitable[None]],
    *,
    swallow: bool,
) -> list[Any]:
    crowd = _Crowd(limit, len(places))
    failed: dict[int, BaseException] = {}

    async def one(index: int) -> Any:
        lane = Lane(crowd, places[index])
        try:
            await lane.enter()
            if failed and not swallow and not begun_before()[index]:
                return None
            return await _in_branch(_to_its_end(coroutines[index], lane.branch, end), lane)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            failed[index] = error
            return error
        finally:
            lane.leave()

    try:
        results = await asyncio.gather(*(one(index) for index in range(len(coroutines))))
    finally:
        current_branch.get().join(places)
        for each in coroutines:
            if inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
                each.close()
    fatal = [index for index in sorted(failed) if not (swallow and isinstance(failed[index], StepFailed))]
    if fatal:
        raise failed[fatal[0]]
    return results


async def _to_its_end(
    coroutine: Coroutine[Any, Any, T], branch: Branch, end: Callable[[Branch], Awaitable[None]]
) -> T:
    result = await coroutine
    await end(branch)
    return result


def _in_branch(coroutine: Coroutine[Any, Any, T], lane: Lane) -> asyncio.Task[T]:
    context = contextvars.copy_context()
    context.run(current_branch.set, lane.branch)
    context.run(current_lane.set, lane)
    lane.branch.main = asyncio.create_task(coroutine, context=context)
    return lane.branch.main
