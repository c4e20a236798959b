"""The run, as an agent sees it: every durable thing it does goes through here.

`step` and `parallel` are ordinary calls. `step` takes its place in the log when it is called and returns a
coroutine, so that what is gathered, shielded or awaited later keeps the order of the author's code.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  (only for streams that are seeded by the run)
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime
from functools import partial
from logging import LoggerAdapter
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from milepost.agent import gates
from milepost.agent.branch import current_branch, in_step
from milepost.agent.chance import stream
from milepost.agent.facts import Fact, read_facts
from milepost.agent.gates import Decision
from milepost.agent.groups import Group
from milepost.agent.journal import Journal
from milepost.agent.parallel import side_by_side
from milepost.agent.replaying import replaying_log
from milepost.agent.standing import check_end
from milepost.agent.steps import UNSET, Options, Retry, Seconds, Step, StepGranularity
from milepost.api.names import step_component, step_id
from milepost.checkpoint import codec
from milepost.errors import AgentError, Misuse, StepFailed

__all__ = ["Run"]

A = TypeVar("A")
K = TypeVar("K")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Key = str | int


class Run:
    """One run of an agent, handed to it as its first argument."""

    def __init__(self, journal: Journal, *, retry: Retry | None = None) -> None:
        started = journal.state.started
        assert started is not None, "record 1 is `started`"
        self._journal = journal
        self._retry = retry or Retry()
        self.log: LoggerAdapter[Any] = replaying_log(self)
        self.started_version = journal.state.began_with
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
        inputs: Any = UNSET,
        attempts: int | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        requires: Callable[[], Awaitable[object]] | None = None,
        valid: Callable[[T], Awaitable[bool]] | None = None,
        summary: str | Callable[[T], str] = "",
        granularity: StepGranularity | None = None,
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
        inputs: Any = UNSET,
        attempts: int | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        requires: Callable[[], Awaitable[object]] | None = None,
        valid: Callable[[T], Awaitable[bool]] | None = None,
        summary: str | Callable[[T], str] = "",
        granularity: StepGranularity | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    def step(  # type: ignore[misc]  # mypy does not match `*args: *Ts` with `*args: Any`
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: Key | None = None,
        inputs: Any = UNSET,
        attempts: int | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        requires: Callable[[], Awaitable[object]] | None = None,
        valid: Callable[[Any], Awaitable[bool]] | None = None,
        summary: str | Callable[[Any], str] = "",
        granularity: StepGranularity | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run `fn(*args)` as the durable step `name`, or give back what it returned when it was recorded.

        `args` are the step's inputs, unless `inputs` says what else stands for them. `key` names the step
        where its number among those of the same name would depend on timing. `attempts`, or else
        `retry.attempts`, or else the manifest says how often it is tried, and `timeout` how many seconds one
        try has. A plain function runs in a thread.

        `requires` is awaited before the function runs, and not when the step is recorded: where it raises, or
        says False, the try has failed. `valid` is asked about the recorded result by a resume that
        revalidates. With granularity `tool-call` calls without an effect are recorded one by one, too.
        `summary`, or what it makes of the result, tells people what came of the step; `meta` is kept with its
        record and may hold whatever is storable.

        Raises KeyNeeded, Misuse, and NotStorable for what `meta` holds, at the call; the coroutine raises
        StepFailed once the attempts are used up, Denied and Expired where the tool that it calls needs an
        approval, and NotStorable where an argument has no lossless form.
        """
        if not isinstance(name, str) or not name:
            raise Misuse(f"a step needs a name, which is a string, not {name!r}")
        if key is not None and not isinstance(key, str | int):
            raise Misuse(f"the key of step {name!r} must be a string or a number, not {key!r}")
        if not callable(fn):
            raise Misuse(f"step {name!r} needs a function and its arguments, not {fn!r}; do not call it")
        options = Options(
            inputs=inputs,
            retry=retry or self._retry,
            attempts=attempts,
            timeout=timeout,
            requires=requires,
            valid=valid,
            summary=summary,
            granularity=granularity,
            meta=_meta(name, meta),
        )
        options.check(name)
        self._check_place(f"step {name!r}")
        branch = current_branch.get()
        place = branch.place(name, key)
        return self._journal.awaited(place.id, Step(self._journal, branch, place, fn, args, options).result())

    def skip(self, name: str, reason: str, /, *, key: Key | None = None) -> Coroutine[Any, Any, None]:
        """Record that the step `name` will not be executed, and why. It counts as no finished step.

        Raises KeyNeeded and Misuse at the call.
        """
        if not isinstance(reason, str):
            raise Misuse(f"why step {name!r} is skipped is a text, not {reason!r}")
        self._check_place(f"step {name!r}")
        place = current_branch.get().place(name, key)
        return self._journal.awaited(place.id, self._journal.skip(place, reason))

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
        if not isinstance(branches, Iterable):
            if asyncio.iscoroutine(branches):
                branches.close()
            raise Misuse(f"parallel takes a list of coroutines, or a mapping, not {branches!r}")
        keyed = dict(branches) if isinstance(branches, Mapping) else dict(enumerate(branches))
        coroutines = list(keyed.values())
        try:
            self._check_place("parallel")
            if strangers := [each for each in coroutines if not asyncio.iscoroutine(each)]:
                raise Misuse(f"parallel takes coroutines, such as run.step(...), not {strangers[0]!r}")
            if not isinstance(limit, int) or limit < 1:
                raise Misuse(f"parallel with limit={limit!r} would run nothing; it is a whole number")
            places = current_branch.get().fork(list(keyed))
        except AgentError:
            for each in coroutines:
                if asyncio.iscoroutine(each):
                    each.close()
            raise
        # Branches of one parallel are named alike, up to their keys.
        place = f"the parallel of {places[0].path}" if places else "a parallel of nothing"
        running = side_by_side(
            list(keyed),
            coroutines,
            places,
            limit,
            swallow=return_exceptions,
            sequence=not isinstance(branches, Mapping),
            begin=partial(self._journal.begun, place),
            begun_before=partial(self._journal.begun_before, coroutines, [each.path for each in places]),
            end=partial(check_end, self._journal),
        )
        return self._journal.awaited(place, running, coroutines)

    @overload
    def approval(
        self,
        name: str,
        /,
        *,
        request: Any,
        answer: type[A],
        key: Key | None = None,
        expires: Seconds | datetime | None = None,
    ) -> Coroutine[Any, Any, Decision[A]]: ...
    @overload
    def approval(
        self,
        name: str,
        /,
        *,
        request: Any,
        key: Key | None = None,
        expires: Seconds | datetime | None = None,
    ) -> Coroutine[Any, Any, Decision[None]]: ...
    def approval(
        self,
        name: str,
        /,
        *,
        request: Any,
        answer: Any = None,
        key: Key | None = None,
        expires: Seconds | datetime | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Wait until a person has approved exactly `request`, and return who did, when, and the answer.

        `answer` is the type that the answer has to be of. `expires` is when it is too late: seconds from the
        moment when the run comes here first, or a time with its zone. While the run waits no process of it is
        alive: this call does not return, and the next process comes here again.

        Raises KeyNeeded and Misuse at the call; the coroutine raises Denied, Expired, and NotStorable where
        `request` has no lossless form.
        """
        self._check_place(f"approval {name!r}")
        branch = current_branch.get()
        place = branch.gate(name, key)
        return self._journal.awaited(
            place.id,
            gates.approval(self._journal, branch, place, request=request, answer=answer, expires=expires),
        )

    def event(
        self,
        name: str,
        type: type[A],  # noqa: A002  (by position only: nobody writes it)
        /,
        *,
        key: Key | None = None,
        expires: Seconds | datetime | None = None,
    ) -> Coroutine[Any, Any, A]:
        """Wait for the event of this name and key, and return what came with it, of the given type.

        It may have been sent before: each event is kept until the run comes for it, and taken once, in the
        order in which they were sent. Raises KeyNeeded and Misuse at the call; the coroutine raises Expired.
        """
        self._check_place(f"event {name!r}")
        branch = current_branch.get()
        place = branch.gate(name, key, again=True)
        return self._journal.awaited(
            place.id, gates.event(self._journal, branch, place, type, expires=expires)
        )

    def sleep(
        self, delay: Seconds | None = None, /, *, until: datetime | None = None, key: Key | None = None
    ) -> Coroutine[Any, Any, None]:
        """Wait for so many seconds, or until a time that names its zone, with no process alive meanwhile.

        The time counts from when the run comes here first. Raises KeyNeeded and Misuse at the call.
        """
        self._check_place("sleep")
        if (delay is None) == (until is None):
            raise Misuse("sleep takes either a delay or until=, a time with its zone")
        if until is not None and not isinstance(until, datetime):
            raise Misuse(f"sleep cannot last until {until!r}; that is a datetime with its zone")
        branch = current_branch.get()
        place = branch.gate("sleep", key)
        return self._journal.awaited(
            place.id, gates.sleep(self._journal, branch, place, delay=delay, until=until)
        )

    def phase(
        self,
        name: str,
        /,
        *,
        inputs: Mapping[K, T | StepFailed | None] | None = None,
        at_least: int | None = None,
        granularity: Literal["step", "phase"] | None = None,
    ) -> Group[K, T]:
        """Return a context that makes the steps in it the phase `name`: `async with run.phase(...) as phase`.

        With granularity `phase` they are recorded together when it closes, and all repeated if the process is
        lost before. `inputs` are what earlier steps made, with a StepFailed or None where one is missing;
        `phase.inputs` are those that are there. Where some are missing the phase is recorded as degraded, as
        long as `at_least` so many are there (default: all); else entering it raises TooFewInputs.
        """
        self._check_place(f"phase {name!r}")
        return Group(self._journal, name, inputs=inputs or {}, at_least=at_least, granularity=granularity)

    def facts(self) -> Coroutine[Any, Any, list[Fact]]:
        """Return what an earlier execution of this run had recorded before it was restarted with context.

        Empty where it was not. The same each time, also for steps that this execution has adopted.
        """
        return read_facts(self._journal)

    @property
    def memory(self) -> MutableMapping[str, Any]:
        """What the agent would like to keep knowing: storable values by name.

        It begins empty, or as it was when the run was restarted with context; the agent's own code makes it
        what it is, on a resume again. A copy of it is written to the store every few steps. A value that is
        read is a copy, too: to change it, set it anew. Setting a value raises NotStorable where it has no
        lossless form without a declared type, and Misuse inside a step.
        """
        return self._journal.memory

    def now(self) -> datetime:
        """Return the time, in UTC, of the last record that this branch has consumed: the same on a resume."""
        return current_branch.get().now

    def random(self, name: str = "", /) -> random.Random:
        """Return a stream of random numbers, the same on a resume; another one for each name and call.

        Raises Misuse inside a step, which a resume does not execute: its chance is in its result.
        """
        if in_step.get():
            raise Misuse(
                f"run.random is called inside the step {in_step.get()}, which a resume does not execute, so "
                "that all later streams would be others; use random itself there, or draw before the step"
            )
        branch = current_branch.get()
        return stream(self._journal.key_root, branch.path, name, branch.draw(name))

    @property
    def replaying(self) -> bool:
        """Whether this branch has recorded steps ahead, so that its code has run up to there before."""
        return self._journal.replaying(current_branch.get().path)

    def recorded(self, name: str, /, *, key: Key) -> bool:
        """Tell whether the step of this name and key, in this branch, has ended in the log: well or for good.

        It is for code that decides which step to start next, and should take up what is recorded before it
        starts anything new. What the agent does may not depend on it otherwise: a step that is not recorded
        now is recorded on a resume.
        """
        step = step_id(current_branch.get().path, step_component(name, key=key))
        tries = self._journal.state.failed.get(step, [])
        return step in self._journal.state.completed or (bool(tries) and tries[-1].final)

    def progress(self, *, total: int) -> None:
        """Say how many steps the run will have, so that people see `3/10`. Recorded with the next step."""
        if not isinstance(total, int) or total < 0:
            raise Misuse(f"the number of steps is a whole number, not {total!r}")
        self._journal.plan(total)

    def tasks(self, graph: Mapping[str, Sequence[str]], /, *, replanned: bool = False) -> None:
        """Say which tasks there are and what each depends on. Recorded with the next step, for people.

        `replanned` counts one more change of plan.
        """
        self._journal.plan_tasks({task: tuple(needs) for task, needs in graph.items()}, replanned=replanned)

    def _check_place(self, what: str) -> None:
        if in_step.get():
            raise Misuse(
                f"{what} is started inside the step {in_step.get()}, where it could not be found again on a "
                "resume; start it from the agent's own code"
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._journal.waits.get_loop():
            raise Misuse(f"{what} is started in a thread; start it from the agent's own async code")
        if current_branch.get(None) is None:
            raise Misuse(
                f"{what} is started in a task that a thread has begun; start it from the agent's own"
            )


def _meta(step: str, meta: Mapping[str, Any] | None) -> dict[str, codec.JSON]:
    if meta is None:
        return {}
    given: object = meta
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise Misuse(f"what meta= of step {step!r} holds has names, which are strings, not {given!r}")
    return {name: codec.encode(value, path=f"meta {name}") for name, value in given.items()}
