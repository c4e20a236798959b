"""The run, as an agent sees it: every durable thing it does goes through here.

`step` and `parallel` are ordinary calls. `step` takes its place in the log when it is called and returns a
coroutine, so that what is gathered, shielded or awaited later keeps the order of the author's code.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from milepost.agent.branch import Branch, current_branch
from milepost.agent.journal import Journal
from milepost.agent.steps import Retry, Step, in_step
from milepost.checkpoint.records import Planned
from milepost.errors import Misuse, StepFailed

__all__ = ["Run"]

T = TypeVar("T")
K = TypeVar("K")
Ts = TypeVarTuple("Ts")
Key = str | int


class Run:
    """One run of an agent, handed to it as its first argument."""

    def __init__(self, journal: Journal) -> None:
        started = journal.state.started
        assert started is not None, "record 1 is `started`"
        self._journal = journal
        self._step_attempts = started.step_attempts
        self.id = journal.key_root
        self.name = started.name
        self.namespace = started.namespace
        self.goal = started.goal or None

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[*Ts], Awaitable[T]],
        /,
        *args: *Ts,
        key: Key | None = None,
        attempts: int | None = None,
        retry: Retry | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[*Ts], T],
        /,
        *args: *Ts,
        key: Key | None = None,
        attempts: int | None = None,
        retry: Retry | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    def step(  # type: ignore[misc]  # mypy does not match `*args: *Ts` with `*args: Any`
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: Key | None = None,
        attempts: int | None = None,
        retry: Retry | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run `fn(*args)` as the durable step `name`, or give back what it returned when it was recorded.

        `args` are the step's inputs. `key` names the step where its number among those of the same name
        would depend on timing. `attempts`, or else `retry.attempts`, or else the manifest says how often
        it is tried. A plain function runs in a thread.

        Raises KeyNeeded and Misuse at the call; the coroutine raises StepFailed once the attempts are used
        up, and NotStorable where an argument has no lossless form.
        """
        if not name:
            raise Misuse("a step needs a name")
        self._outside_of_steps(f"step {name!r}")
        place = current_branch.get().place(name, key)
        policy = retry or Retry()
        limit = attempts or policy.attempts or self._step_attempts
        return Step(self._journal, place, fn, args, policy, limit).result()

    # A Mapping is an Iterable of its keys, but none has coroutines for keys, so the overlaps are harmless.
    @overload
    async def parallel(  # type: ignore[overload-overlap]
        self,
        branches: Mapping[K, Coroutine[Any, Any, T]],
        *,
        limit: int = 10,
        return_exceptions: Literal[False] = False,
    ) -> dict[K, T]: ...
    @overload
    async def parallel(
        self,
        branches: Iterable[Coroutine[Any, Any, T]],
        *,
        limit: int = 10,
        return_exceptions: Literal[False] = False,
    ) -> list[T]: ...
    # A Mapping is an Iterable of its keys, but none has coroutines for keys, so the overlaps are harmless.
    @overload
    async def parallel(  # type: ignore[overload-overlap]
        self,
        branches: Mapping[K, Coroutine[Any, Any, T]],
        *,
        limit: int = 10,
        return_exceptions: Literal[True],
    ) -> dict[K, T | StepFailed]: ...
    @overload
    async def parallel(
        self, branches: Iterable[Coroutine[Any, Any, T]], *, limit: int = 10, return_exceptions: Literal[True]
    ) -> list[T | StepFailed]: ...
    async def parallel(self, branches: Any, *, limit: int = 10, return_exceptions: bool = False) -> Any:
        """Run coroutines side by side, at most `limit` at once, each in a branch of its own.

        Returns their results in the same shape. Where one fails no further one is started, those under way
        are waited for, and the error of the first in order is raised; with `return_exceptions` a StepFailed
        stands in its branch's place instead, and all are run.
        """
        self._outside_of_steps("parallel")
        keyed = dict(branches) if isinstance(branches, Mapping) else dict(enumerate(branches))
        places = current_branch.get().fork([key if isinstance(key, int) else str(key) for key in keyed])
        results = await _side_by_side(list(keyed.values()), places, limit, swallow=return_exceptions)
        return dict(zip(keyed, results, strict=True)) if isinstance(branches, Mapping) else results

    def progress(self, *, total: int) -> None:
        """Say how many steps the run will have, so that people see `3/10`. Recorded with the next step."""
        if self._journal.state.totals.steps_total != total:
            self._journal.note(Planned(total=total))

    def _outside_of_steps(self, what: str) -> None:
        if in_step.get():
            raise Misuse(
                f"{what} is started inside the step {in_step.get()}, where it could not be found again on a "
                "resume; start it from the agent's own code"
            )


async def _side_by_side(
    coroutines: list[Coroutine[Any, Any, Any]], places: list[Branch], limit: int, *, swallow: bool
) -> list[Any]:
    slots = asyncio.Semaphore(limit)
    failed: dict[int, Exception] = {}

    async def one(index: int) -> Any:
        async with slots:
            if failed and not swallow:
                coroutines[index].close()
                return None
            try:
                return await _in_branch(coroutines[index], places[index])
            except StepFailed as error:
                failed[index] = error
                return error
            except Exception as error:  # noqa: BLE001  (raised again below, once the others have ended)
                failed[index] = error
                return None

    results = await asyncio.gather(*(one(index) for index in range(len(coroutines))))
    fatal = [index for index in sorted(failed) if not (swallow and isinstance(failed[index], StepFailed))]
    if fatal:
        raise failed[fatal[0]]
    return results


def _in_branch(coroutine: Coroutine[Any, Any, T], place: Branch) -> asyncio.Task[T]:
    context = contextvars.copy_context()
    context.run(current_branch.set, place)
    return asyncio.create_task(coroutine, context=context)
