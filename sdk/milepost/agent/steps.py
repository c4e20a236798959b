"""Run one step: give back what is recorded, or try until it is done or has used up its attempts.

What the author gets is always the decoded copy of what was recorded, live as on a resume, so that code
which works once works again. A step counts its attempts in the log, across pods; a pod that was lost at it
by the agent's own fault counts as one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import partial
from types import FunctionType
from typing import Any, Final, Literal, NoReturn, TypeAlias

from milepost.agent import gates
from milepost.agent.attempt import Attempt
from milepost.agent.branch import Branch
from milepost.agent.declared import declared_parameters, declared_result, encoded
from milepost.agent.failures import error_data, leaves
from milepost.agent.journal import Journal
from milepost.agent.standing import adopt, check_order, standing
from milepost.agent.tools import Bound, Tool, bound_tool
from milepost.agent.unbroken import unbroken
from milepost.checkpoint import codec
from milepost.checkpoint.records import ErrorData, Input, StepCompleted, StepFailure, StepPlace, Usage
from milepost.errors import KeyNeeded, Misuse, NotStorable, Permanent, RequirementNotMet, StepFailed

__all__ = ["UNSET", "Options", "Retry", "Seconds", "Step", "StepGranularity"]

Seconds: TypeAlias = float | timedelta
StepGranularity: TypeAlias = Literal["tool-call", "step"]


class _Unset(Enum):
    UNSET = "unset"


UNSET: Final = _Unset.UNSET
"""Stands where the author has given nothing: None is something."""

MAX_DESCRIPTION: Final = 120
"""Characters of a step's description that its record carries."""

_FINAL: Final = (Permanent, NotStorable, Misuse, KeyNeeded)
_LEAVES_AT_ONCE: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)

_WAIT_OUT: Final = 30.0
"""Seconds that a thread has to end after its step's timeout."""

_CANCELLED_FOR: Final = 30.0
"""Seconds after which it is said that a step waits to be cancelled once more."""

_log: Final = logging.getLogger("milepost.step")


@dataclass(frozen=True)
class Retry:
    """How a step is tried again: how often, on which errors, and after what pause.

    The pause before try n + 1 is `wait` x `factor`^(n - 1), at most `max_wait`, of which the share `jitter`
    is random. `attempts` None: what the manifest says.
    """

    attempts: int | None = None
    on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] = Exception
    wait: Seconds = 1.0
    factor: float = 2.0
    max_wait: Seconds = 60.0
    jitter: float = 0.5

    def applies(self, error: Exception) -> bool:
        """Tell whether an error of this kind is worth another try."""
        if any(isinstance(each, _FINAL) for each in leaves(error)):
            return False
        if isinstance(self.on, type | tuple):
            return isinstance(error, self.on)
        return self.on(error)

    def pause(self, attempt: int, chance: float) -> float:
        """Return the pause after try `attempt`, in seconds; `chance` in [0, 1) decides the random part."""
        longest = _seconds(self.max_wait)
        try:
            whole = min(longest, _seconds(self.wait) * self.factor ** min(attempt - 1, 64))
        except OverflowError:
            whole = longest
        return whole * (1 - self.jitter * chance)


def _seconds(value: Seconds) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _is_some_time(given: object) -> bool:
    return isinstance(given, int | float | timedelta) and _seconds(given) > 0


@dataclass(frozen=True)
class Options:
    """What `run.step` takes beside the function and its arguments; see there."""

    inputs: Any = UNSET
    retry: Retry = field(default_factory=Retry)
    attempts: int | None = None
    timeout: Seconds | None = None
    requires: Callable[[], Awaitable[object]] | None = None
    valid: Callable[[Any], Awaitable[bool]] | None = None
    summary: str | Callable[[Any], str] = ""
    granularity: StepGranularity | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def check(self, step: str) -> None:
        """Raise Misuse where an option of this step makes no sense."""
        if not isinstance(self.retry, Retry):
            raise Misuse(f"step {step!r} cannot have retry={self.retry!r}; it is a Retry(...)")
        limit = self.attempts if self.attempts is not None else self.retry.attempts
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise Misuse(f"step {step!r} cannot have {limit!r} attempts; 1 means that it is tried once")
        if self.timeout is not None and not _is_some_time(self.timeout):
            raise Misuse(
                f"step {step!r} cannot end within {self.timeout!r}; a timeout is seconds, more than 0"
            )
        if self.granularity not in (None, "tool-call", "step"):
            raise Misuse(f"step {step!r} cannot have granularity {self.granularity!r}: tool-call, or step")
        for option, given in (("requires", self.requires), ("valid", self.valid)):
            if given is not None and not callable(given):
                raise Misuse(f"step {step!r} cannot have {option}={given!r}; it is an async function")
        if not isinstance(self.summary, str) and not callable(self.summary):
            raise Misuse(
                f"step {step!r} cannot have summary={self.summary!r}; it is a text, or a function of the "
                "result that returns one"
            )


@dataclass
class Step:
    """One step of the agent's code. `arguments` are its inputs, `branch` is where it stands.

    What was recorded of it before record `_stale_before` does not stand any more: when the code started the
    step it had the result of another one that was withdrawn then.
    """

    journal: Journal
    branch: Branch
    place: StepPlace
    fn: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Options
    _tries_before: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._stale_before = self.branch.stale_before
        # The tool that the step's function is, if it is one.
        self.tool: Tool[..., Any] | None = self.fn if isinstance(self.fn, Tool) else bound_tool(self.fn)

    async def result(self) -> Any:
        """Return the step's result. Raises StepFailed once its attempts are used up."""
        self.journal.begun(self.place.id)
        self.journal.reach(self.place)
        try:
            return await self._result()
        finally:
            self.journal.leave(self.place)
            withdrawn = self.journal.state.withdrawn.get(self.place.id, 0)
            self.branch.stale_before = max(self.branch.stale_before, withdrawn)

    async def _result(self) -> Any:
        state = self.journal.state
        failed = state.failed.get(self.place.id, [])
        # Before all else: a step that was stopped while it was being recorded is completed, too.
        stale_before = max(self._stale_before, state.withdrawn.get(self.place.id, 0))
        if state.failed_at.get(self.place.id, -1) >= stale_before:
            return await self._fail_again(failed[-1])
        recorded = await self._standing() if self.place.id in state.completed else None
        if recorded is not None:
            self._passed(recorded)
            return await self._read(recorded)
        inputs = self._inputs()
        await check_order(self.journal, self.branch, self.place, None)
        adopted = await adopt(self.journal, self.place, inputs) if state.facts else None
        if adopted is not None:
            self._passed(adopted)
            return await self._read(adopted)
        if self.tool is not None and self.tool.requires_approval:
            await gates.approve_call(self.journal, self.branch, self.place, self.fn, self.arguments)
        return await self._run(inputs, failed)

    async def _standing(self) -> StepCompleted | None:
        """Return the step's record, if it stands."""
        recorded = await self.journal.recorded(self.place.id)
        return await standing(
            self.journal,
            self.branch,
            recorded,
            self.place,
            inputs=self._inputs,
            read=partial(self._read, recorded),
            valid=self.options.valid,
            stale_before=self._stale_before,
            once=self.tool is not None and self.tool.effect == "irreversible",
        )

    def _passed(self, recorded: StepCompleted) -> None:
        self.branch.consumed(recorded.ended_at)
        self.journal.passed(self.place)

    async def _read(self, recorded: StepCompleted) -> Any:
        path = f"result of step {self.place.id}"
        return await self.journal.read(recorded.result, self._declared(), path=path)

    async def _fail_again(self, failure: StepFailure) -> Any:
        """Fail as it is recorded. A step that the agent's code stopped waits until it is stopped again."""
        if failure.cancelled:
            warning = asyncio.get_running_loop().call_later(
                _CANCELLED_FOR, _log.warning, "cancelled-step-awaited", {"step": self.place.id}
            )
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                warning.cancel()
        self.branch.consumed(failure.ended_at)
        raise _step_failed(failure)

    async def _run(self, inputs: tuple[Input, ...], failed: list[StepFailure]) -> Any:
        attempt = (failed[-1].attempt if failed else 0) + self.journal.state.totals.lost_tries + 1
        # What had failed for good is tried anew where a step before it was withdrawn, and so counted anew.
        if failed:
            self._tries_before = max((each.attempt for each in failed if each.final), default=0)
        # Whether a call has happened that a lost process was about to make is found out in any case.
        if attempt > self._limit() and not self.journal.state.intents.get(self.place.id):
            await self._give_up(attempt - 1, inputs, failed[-1].error if failed else None)
        while True:
            await self.journal.may_start()
            with self.journal.in_flight():
                outcome = await self._try(attempt, inputs)
            if not isinstance(outcome, StepFailure):
                return outcome
            if outcome.final:
                raise _step_failed(outcome)
            chance = self.journal.entropy(1)[0] / 256
            with self.journal.under_way():
                await self.journal.pause(self.options.retry.pause(attempt, chance))
            attempt += 1

    def _limit(self) -> int:
        limit = self.options.attempts
        if limit is None:
            limit = self.options.retry.attempts
        return self._tries_before + (self.journal.step_attempts if limit is None else limit)

    def _declared(self) -> Any:
        return declared_result(self.tool.fn if self.tool else self.fn)

    def _inputs(self) -> tuple[Input, ...]:
        path = f"inputs of step {self.place.id}"
        if self.options.inputs is not UNSET:
            return (self.journal.input(codec.encode(self.options.inputs, path=path)),)
        if isinstance(self.fn, Bound):
            return (self.journal.input(self.fn.encoded()),)
        if not self.arguments:
            return ()
        held = len(self.fn.args) if self.tool is not None and isinstance(self.fn, partial) else 0
        held += self.tool.takes_call if self.tool else 0
        declared = declared_parameters(self.tool.fn if self.tool else self.fn, held + len(self.arguments))[
            held:
        ]
        return tuple(
            self.journal.input(encoded(value, kind, path=f"argument {index} of step {self.place.id}"))
            for index, (value, kind) in enumerate(zip(self.arguments, declared, strict=True), start=1)
        )

    async def _try(self, number: int, inputs: tuple[Input, ...]) -> Any:
        each_call = (self.options.granularity or self.journal.granularity) == "tool-call"
        attempt = Attempt(self.journal, self.place.id, number, each_call=each_call)
        began = self.journal.clock().isoformat()
        declared = self._declared()
        try:
            value = await self._in_time(attempt)
            data, copy = codec.store(value, declared, path="result")
            summary = self._summary(copy)
            result = await self.journal.keep(data)
        except _LEAVES_AT_ONCE:
            raise
        except BaseException as error:
            stopped = isinstance(error, asyncio.CancelledError) and _is_being_cancelled()
            failure = self._failure(error, number, inputs, began, attempt, stopped=stopped)
            if stopped:
                # The agent's code stopped the step, which is on record before it learns that it has.
                await unbroken(self._stopped(attempt, failure))
                raise
            await self._waited_out(attempt)
            if failure.final:
                await attempt.settle()
            await self.journal.commit(*attempt.events, failure)
            self.branch.consumed(failure.ended_at)
            return failure
        completed = StepCompleted(
            step=self.place,
            description=_description_of(self.fn),
            summary=summary,
            meta=self.options.meta,
            attempt=number,
            inputs=inputs,
            declared=_name_of(declared),
            result=result,
            result_digest=codec.digest(data),
            started_at=began,
            ended_at=self.journal.clock().isoformat(),
            usage=attempt.usage,
        )
        try:
            await self.journal.commit(*attempt.events, completed, deferrable=True)
        except asyncio.CancelledError as error:
            # It is over, and the agent's code has stopped it all the same: so it does on a resume.
            failure = self._failure(error, number, inputs, began, attempt, stopped=True)
            await unbroken(self.journal.commit(failure.model_copy(update={"usage": Usage()})))
            raise
        self._passed(completed)
        return copy

    def _summary(self, result: Any) -> str:
        said = self.options.summary
        text: object = said if isinstance(said, str) else said(result)
        if not isinstance(text, str):
            raise Misuse(f"the summary of step {self.place.id} is a text, not {text!r}")
        return text

    async def _required(self) -> None:
        """Raise RequirementNotMet where what the step requires is not there."""
        if self.options.requires is None:
            return
        asked: object = self.options.requires()
        if not inspect.isawaitable(asked):
            raise Misuse(f"requires= of step {self.place.id} has to be async; it returned {asked!r}")
        if await asked is False:
            raise RequirementNotMet("what the step requires is not there")

    async def _in_time(self, attempt: Attempt) -> Any:
        """Return what the function returns, within the step's timeout and once what it requires is there."""
        if self.options.timeout is None and self.options.requires is None:
            return await attempt.run(self.fn, self.arguments)
        limit = None if self.options.timeout is None else _seconds(self.options.timeout)
        timeout = asyncio.timeout(limit)
        try:
            async with timeout:
                self._watch(attempt, timeout)
                await self._required()
                attempt.timeout = timeout
                return await attempt.run(self.fn, self.arguments)
        except TimeoutError as error:
            if timeout.expired():
                raise TimeoutError(f"no result within the step's timeout of {limit:g} s") from error
            raise
        finally:
            attempt.over = True

    def _watch(self, attempt: Attempt, timeout: asyncio.Timeout) -> None:
        """End the process where a try that ran into its timeout does not let itself be stopped."""
        loop = asyncio.get_running_loop()

        def look(*, late: bool) -> None:
            if attempt.over:
                return
            late_now = timeout.expired() and not attempt.is_settling
            if late and late_now:
                self.journal.abandon(
                    f"step {self.place.id} ran into its timeout, and its function has not ended within "
                    f"another {_WAIT_OUT:g} s; it must not catch CancelledError, or has to raise it again, "
                    "and what a plain function calls needs a timeout of its own"
                )
            loop.call_later(_WAIT_OUT, partial(look, late=late_now))

        if self.options.timeout is not None:
            loop.call_later(_seconds(self.options.timeout), partial(look, late=False))

    async def _waited_out(self, attempt: Attempt) -> None:
        """Return once nothing of the try is at work any more. A thread that does not end ends the process."""
        if not await attempt.ended(within=_WAIT_OUT):
            self.journal.abandon(
                f"step {self.place.id} was to end, and its thread has not within another {_WAIT_OUT:g} s; "
                "give what it calls a timeout of its own, or make it async"
            )

    async def _stopped(self, attempt: Attempt, failure: StepFailure) -> None:
        await self._waited_out(attempt)
        await attempt.settle()
        await self.journal.commit(*attempt.events, failure)

    def _failure(
        self,
        error: BaseException,
        number: int,
        inputs: tuple[Input, ...],
        began: str,
        attempt: Attempt,
        *,
        stopped: bool,
    ) -> StepFailure:
        failed, final = (error, True) if stopped else self._judged(error, number)
        failure = StepFailure(
            step=self.place,
            attempt=number,
            final=final,
            inputs=inputs,
            error=error_data(failed),
            started_at=began,
            ended_at=self.journal.clock().isoformat(),
            usage=attempt.usage,
            cancelled=stopped,
        )
        said = {
            "step": self.place.id,
            "attempt_of_step": number,
            "attempts": self._limit(),
            "error": f"{failure.error.kind}: {failure.error.message}",
        }
        if not stopped:
            _log.warning("step-failed", extra=said, exc_info=failed)
        return failure

    def _judged(self, error: BaseException, number: int) -> tuple[BaseException, bool]:
        """Return what the try is recorded to have failed with, and whether no further one is made."""
        try:
            return error, number >= self._limit() or not self._worth_another(error)
        except Exception as unsure:  # noqa: BLE001  (the author's own policy; its error ends the step)
            return unsure, True

    def _worth_another(self, error: BaseException) -> bool:
        # Something that the step waited for was cancelled, which is no wish of the agent's to stop the step.
        if isinstance(error, asyncio.CancelledError):
            return True
        return isinstance(error, Exception) and self.options.retry.applies(error)

    async def _give_up(self, attempts: int, inputs: tuple[Input, ...], last: ErrorData | None) -> NoReturn:
        now = self.journal.clock().isoformat()
        if last is None or self.journal.state.totals.lost_tries:
            message = "its pod was lost by the agent's own fault, the last time or each time"
            last = ErrorData(kind="milepost.PodLost", message=message)
        failure = StepFailure(
            step=self.place,
            attempt=attempts,
            final=True,
            inputs=inputs,
            error=last,
            started_at=now,
            ended_at=now,
        )
        await self.journal.may_go_on()
        with self.journal.in_flight():
            await self.journal.commit(failure)
        raise _step_failed(failure)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _step_failed(failure: StepFailure) -> StepFailed:
    return StepFailed(failure.step.id, failure.error.kind, failure.error.message, failure.attempt)


def _description_of(fn: Any) -> str:
    """Return the first line of what the step's function says of itself."""
    inner = fn.func if isinstance(fn, partial) else fn
    said = getattr(inner, "__doc__", None) if isinstance(inner, FunctionType | Tool) else None
    return said.strip().partition("\n")[0][:MAX_DESCRIPTION] if isinstance(said, str) else ""


def _name_of(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared).removeprefix("typing.")
