"""The run, as an agent sees it: every durable thing it does goes through here.

`step` and `parallel` are ordinary calls. `step` takes its place in the log when it is called and returns a
coroutine, so that what is gathered, shielded or awaited later keeps the order of the author's code.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from milepost.agent.attempt import in_step
from milepost.agent.branch import Branch, current_branch
from milepost.agent.journal import Journal
from milepost.agent.steps import Retry, Step
from milepost.checkpoint import codec
from milepost.errors import AgentError, Misuse, StepFailed

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
        self.id = journal.run_id
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
        summary: str | Callable[[T], str] = "",
        meta: Mapping[str, Any] | None = None,
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
        summary: str | Callable[[T], str] = "",
        meta: Mapping[str, Any] | None = None,
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
        summary: str | Callable[[Any], str] = "",
        meta: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run `fn(*args)` as the durable step `name`, or give back what it returned when it was recorded.

        `args` are the step's inputs. `key` names the step where its number among those of the same name
        would depend on timing. `attempts`, or else `retry.attempts`, or else the manifest says how often
        it is tried. A plain function runs in a thread. `summary`, or what it makes of the result, tells
        people what came of the step; `meta` is kept with its record and may hold whatever is storable.

        Raises KeyNeeded and Misuse at the call; the coroutine raises StepFailed once the attempts are used
        up, and NotStorable where an argument, or what `meta` holds, has no lossless form.
        """
        if not isinstance(name, str) or not name:
            raise Misuse(f"a step needs a name, which is a string, not {name!r}")
        if key is not None and not isinstance(key, str | int):
            raise Misuse(f"the key of step {name!r} must be a string or a number, not {key!r}")
        if not callable(fn):
            raise Misuse(f"step {name!r} needs a function and its arguments, not {fn!r}; do not call it")
        policy = retry or Retry()
        limits = (attempts, policy.attempts, self._step_attempts)
        limit = next(limit for limit in limits if limit is not None)
        if limit < 1:
            raise Misuse(f"step {name!r} cannot have {limit} attempts; 1 means that it is tried once")
        self._check_place(f"step {name!r}")
        place = current_branch.get().place(name, key)
        notes = {name: codec.encode(value, path=f"meta {name}") for name, value in (meta or {}).items()}
        return Step(self._journal, place, fn, args, policy, limit, summary, notes).result()

    # A Mapping is an Iterable of its keys, but none has coroutines for keys, so the overlaps are harmless.
    @overload
    def parallel(  # type: ignore[overload-overlap]  # as said above
        self,
        branches: Mapping[K, Coroutine[Any, Any, T]],
        *,
        limit: int = 10,
        return_exceptions: Literal[False] = False,
    ) -> Coroutine[Any, Any, dict[K, T]]: ...
    @overload
    def parallel(
        self,
        branches: Iterable[Coroutine[Any, Any, T]],
        *,
        limit: int = 10,
        return_exceptions: Literal[False] = False,
    ) -> Coroutine[Any, Any, list[T]]: ...
    # A Mapping is an Iterable of its keys, but none has coroutines for keys, so the overlaps are harmless.
    @overload
    def parallel(  # type: ignore[overload-overlap]  # as said above
        self,
        branches: Mapping[K, Coroutine[Any, Any, T]],
        *,
        limit: int = 10,
        return_exceptions: Literal[True],
    ) -> Coroutine[Any, Any, dict[K, T | StepFailed]]: ...
    @overload
    def parallel(
        self, branches: Iterable[Coroutine[Any, Any, T]], *, limit: int = 10, return_exceptions: Literal[True]
    ) -> Coroutine[Any, Any, list[T | StepFailed]]: ...
    def parallel(
        self, branches: Any, *, limit: int = 10, return_exceptions: bool = False
    ) -> Coroutine[Any, Any, Any]:
        """Run coroutines side by side, at most `limit` at once, each in a branch of its own.

        Returns their results in the same shape. Where one fails no further one is started, those under way
        are waited for, and the error of the first in order is raised; with `return_exceptions` a StepFailed
        stands in its branch's place instead, and all are run. The keys of a mapping name the branches, so
        they have to be the same on a resume. Raises Misuse at the call.
        """
        keyed = dict(branches) if isinstance(branches, Mapping) else dict(enumerate(branches))
        coroutines = list(keyed.values())
        try:
            self._check_place("parallel")
            if strangers := [each for each in coroutines if not asyncio.iscoroutine(each)]:
                raise Misuse(f"parallel takes coroutines, such as run.step(...), not {strangers[0]!r}")
            if limit < 1:
                raise Misuse(f"parallel with limit={limit} would run nothing")
            places = current_branch.get().fork(list(keyed))
        except AgentError:
            for each in coroutines:
                if asyncio.iscoroutine(each):
                    each.close()
            raise
        sequence = not isinstance(branches, Mapping)
        return _shaped(list(keyed), coroutines, places, limit, swallow=return_exceptions, sequence=sequence)

    def progress(self, *, total: int) -> None:
        """Say how many steps the run will have, so that people see `3/10`. Recorded with the next step."""
        if not isinstance(total, int) or total < 0:
            raise Misuse(f"the number of steps is a whole number, not {total!r}")
        self._journal.plan(total)

    def _check_place(self, what: str) -> None:
        if in_step.get():
            raise Misuse(
                f"{what} is started inside the step {in_step.get()}, where it could not be found again on a "
                "resume; start it from the agent's own code"
            )
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise Misuse(f"{what} is started in a thread; start it from the agent's own async code") from None


async def _shaped(
    keys: list[Any],
    coroutines: list[Coroutine[Any, Any, Any]],
    places: list[Branch],
    limit: int,
    *,
    swallow: bool,
    sequence: bool,
) -> Any:
    results = await _side_by_side(coroutines, places, limit, swallow=swallow)
    return results if sequence else dict(zip(keys, results, strict=True))


async def _side_by_side(
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
