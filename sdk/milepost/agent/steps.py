"""Run one step: give back what is recorded, or try until it is done or has used up its attempts.

What the author gets is always the decoded copy of what was recorded, live as on a resume, so that code
which works once works again. A step counts its attempts in the log, across pods; a pod that was lost at it
by the agent's own fault counts as one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import FunctionType
from typing import Any, Final, NoReturn, TypeAlias

from milepost.agent.attempt import Attempt, declared_parameters, declared_result, encoded
from milepost.agent.failures import error_data
from milepost.agent.journal import Journal
from milepost.agent.tools import Tool
from milepost.checkpoint import codec
from milepost.checkpoint.records import ErrorData, Input, StepCompleted, StepFailure, StepPlace
from milepost.errors import KeyNeeded, Misuse, NotStorable, Permanent, StepFailed

__all__ = ["Retry", "Step"]

Seconds: TypeAlias = float | timedelta

MAX_DESCRIPTION: Final = 120
"""Characters of a step's description that its record carries."""

_FINAL: Final = (Permanent, NotStorable, Misuse, KeyNeeded)
_LEAVES_AT_ONCE: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)

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
        if isinstance(error, _FINAL):
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


@dataclass
class Step:
    """One step of the agent's code. `arguments` are its inputs."""

    journal: Journal
    place: StepPlace
    fn: Callable[..., Any]
    arguments: tuple[Any, ...]
    retry: Retry
    limit: int
    summary: str | Callable[[Any], str] = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    async def result(self) -> Any:
        """Return the step's result. Raises StepFailed once its attempts are used up."""
        state = self.journal.state
        recorded = await self.journal.recorded(self.place.id)
        if recorded is not None:
            path = f"result of step {self.place.id}"
            return await self.journal.read(recorded.result, self._declared(), path=path)
        failed = state.failed.get(self.place.id, [])
        if failed and failed[-1].final:
            raise _step_failed(failed[-1])
        inputs = self._inputs()
        attempt = (failed[-1].attempt if failed else 0) + state.totals.lost_tries + 1
        if attempt > self.limit:
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
            await asyncio.sleep(self.retry.pause(attempt, chance))
            attempt += 1

    def _tool(self) -> tuple[Tool[..., Any] | None, int]:
        """Return the tool that the step's function is, if it is one, and how many arguments it holds."""
        if isinstance(self.fn, Tool):
            return self.fn, 0
        if isinstance(self.fn, partial) and isinstance(self.fn.func, Tool):
            return self.fn.func, len(self.fn.args)
        return None, 0

    def _declared(self) -> Any:
        tool, _ = self._tool()
        return declared_result(tool.fn if tool else self.fn)

    def _inputs(self) -> tuple[Input, ...]:
        tool, held = self._tool()
        held += tool.takes_call if tool else 0
        declared = declared_parameters(tool.fn if tool else self.fn, held + len(self.arguments))[held:]
        return tuple(
            self.journal.input(encoded(value, kind, path=f"argument {index} of step {self.place.id}"))
            for index, (value, kind) in enumerate(zip(self.arguments, declared, strict=True), start=1)
        )

    async def _try(self, number: int, inputs: tuple[Input, ...]) -> Any:
        attempt = Attempt(self.journal, self.place.id, number)
        began = self.journal.clock().isoformat()
        declared = self._declared()
        try:
            value = await attempt.run(self.fn, self.arguments)
            data, copy = codec.store(value, declared, path="result")
            summary = self.summary if isinstance(self.summary, str) else self.summary(copy)
        except _LEAVES_AT_ONCE:
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise
            failed, final = self._judged(error, number)
            failure = StepFailure(
                step=self.place,
                attempt=number,
                final=final,
                inputs=inputs,
                error=error_data(failed),
                started_at=began,
                ended_at=self.journal.clock().isoformat(),
            )
            said = {
                "step": self.place.id,
                "attempt_of_step": number,
                "attempts": self.limit,
                "error": f"{failure.error.kind}: {failure.error.message}",
            }
            _log.warning("step-failed", extra=said, exc_info=failed)
            await self.journal.commit(*attempt.events, failure)
            return failure
        completed = StepCompleted(
            step=self.place,
            description=_description_of(self.fn),
            summary=summary,
            meta=self.meta,
            attempt=number,
            inputs=inputs,
            declared=_name_of(declared),
            result=await self.journal.keep(data),
            result_digest=codec.digest(data),
            started_at=began,
            ended_at=self.journal.clock().isoformat(),
        )
        await self.journal.commit(*attempt.events, completed, deferrable=True)
        return copy

    def _judged(self, error: BaseException, number: int) -> tuple[BaseException, bool]:
        """Return what the try is recorded to have failed with, and whether no further one is made."""
        try:
            return error, number >= self.limit or not self._worth_another(error)
        except Exception as unsure:  # noqa: BLE001  (the author's own policy; its error ends the step)
            return unsure, True

    def _worth_another(self, error: BaseException) -> bool:
        # Something that the step waited for was cancelled, which is no wish of the agent's to stop the step.
        if isinstance(error, asyncio.CancelledError):
            return True
        return isinstance(error, Exception) and self.retry.applies(error)

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
        await self.journal.may_start()
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
