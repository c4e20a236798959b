"""Run one step: give back what is recorded, or try until it is done or has used up its attempts.

What the author gets is always the decoded copy of what was recorded, live as on a resume, so that code
which works once works again. A step counts its attempts in the log, across pods; a pod that was lost at it
by the agent's own fault counts as one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from milepost.agent.journal import Journal
from milepost.agent.tools import Call, Tool, current_caller
from milepost.api.names import idempotency_key
from milepost.checkpoint import codec
from milepost.checkpoint.records import (
    ErrorData,
    Input,
    StepCompleted,
    StepFailure,
    StepPlace,
    ToolCalled,
)
from milepost.errors import KeyNeeded, Misuse, NotStorable, Permanent, StepFailed

__all__ = ["Retry", "Step", "qualified"]

T = TypeVar("T")

Seconds: TypeAlias = float | timedelta

MAX_MESSAGE: Final = 2000
MAX_CHAIN: Final = 8

_FINAL: Final = (Permanent, NotStorable, Misuse, KeyNeeded)


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
        whole = min(_seconds(self.max_wait), _seconds(self.wait) * self.factor ** min(attempt - 1, 64))
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

    async def result(self) -> Any:
        """Return the step's result. Raises StepFailed once its attempts are used up."""
        recorded = self.journal.state.completed.get(self.place.id)
        if recorded is not None:
            return codec.decode(await self.journal.read(recorded.result), self._declared())
        failed = self.journal.state.failed.get(self.place.id, [])
        if failed and failed[-1].final:
            raise _step_failed(failed[-1])
        inputs = self._inputs()
        attempt = (failed[-1].attempt if failed else 0) + self.journal.state.totals.lost_tries + 1
        if attempt > self.limit:
            await self._give_up(attempt - 1, inputs)
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

    def _declared(self) -> Any:
        return codec.declared_result(self.fn.fn if isinstance(self.fn, Tool) else self.fn)

    def _inputs(self) -> tuple[Input, ...]:
        fn = self.fn.fn if isinstance(self.fn, Tool) else self.fn
        declared = list(codec.declared_parameters(fn))
        if isinstance(self.fn, Tool) and self.fn.takes_call:
            declared = declared[1:]
        inputs = []
        for index, value in enumerate(self.arguments):
            kind = declared[index] if index < len(declared) else Any
            kind = type(value) if kind is Any else kind
            data = codec.encode(value, kind, path=f"argument {index + 1} of step {self.place.id}")
            inputs.append(self.journal.input(data))
        return tuple(inputs)

    async def _try(self, attempt: int, inputs: tuple[Input, ...]) -> Any:
        tries = _Try(self.journal, self.place.id, attempt)
        began = self.journal.clock().isoformat()
        try:
            value = await tries.run(self.fn, self.arguments)
            data, copy = codec.store(value, self._declared(), path="result")
        except Exception as error:  # noqa: BLE001  (whatever the author's code raises is the step's failure)
            failure = StepFailure(
                step=self.place,
                attempt=attempt,
                final=attempt >= self.limit or not self.retry.applies(error),
                inputs=inputs,
                error=_error_data(error),
                started_at=began,
                ended_at=self.journal.clock().isoformat(),
            )
            await self.journal.commit(*tries.events, failure)
            return failure
        completed = StepCompleted(
            step=self.place,
            attempt=attempt,
            inputs=inputs,
            declared=_name_of(self._declared()),
            result=await self.journal.keep(data),
            result_digest=codec.digest(data),
            started_at=began,
            ended_at=self.journal.clock().isoformat(),
        )
        await self.journal.commit(*tries.events, completed)
        return copy

    async def _give_up(self, attempts: int, inputs: tuple[Input, ...]) -> None:
        now = self.journal.clock().isoformat()
        message = "its pod was lost by the agent's own fault each time"
        failure = StepFailure(
            step=self.place,
            attempt=attempts,
            final=True,
            inputs=inputs,
            error=ErrorData(kind="milepost.PodLost", message=message),
            started_at=now,
            ended_at=now,
        )
        await self.journal.commit(failure)
        raise _step_failed(failure)


@dataclass
class _Try:
    """One try of a step: makes its tool calls, numbers the effectful ones, and collects what they record."""

    journal: Journal
    step: str
    attempt: int
    events: list[ToolCalled] = field(default_factory=list)
    _calls: int = 0

    async def run(self, fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Run the step's function: a tool, a coroutine function, or a plain one in a thread."""
        mark = current_caller.set(self)
        inside = in_step.set(self.step)
        try:
            if isinstance(fn, Tool):
                return await self._call(fn, arguments, {}, self._number(fn), own_record=False)
            if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "func", None)):
                return await fn(*arguments)
            value = await asyncio.to_thread(fn, *arguments)
            return await value if inspect.isawaitable(value) else value
        finally:
            in_step.reset(inside)
            current_caller.reset(mark)

    def call(
        self, tool: Tool[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, T]:
        """Call a tool in the step's body; one with an effect has a record of its own."""
        return self._call(tool, args, kwargs, self._number(tool), own_record=tool.has_effect)

    def _number(self, tool: Tool[..., Any]) -> int:
        self._calls += tool.has_effect
        return self._calls if tool.has_effect else 0

    async def _call(
        self,
        tool: Tool[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        number: int,
        *,
        own_record: bool,
    ) -> Any:
        arguments = _arguments_digest(tool, args, kwargs)
        if number:
            known = self.journal.state.calls.get((self.step, number))
            if known is not None:
                self._check_same(known, tool, arguments)
                if known.error is None and known.result is not None:
                    return codec.decode(await self.journal.read(known.result), codec.declared_result(tool.fn))
        call = Call(key=idempotency_key(self.journal.key_root, self.step, number or 1), attempt=self.attempt)
        began = self.journal.clock()
        try:
            value = await tool.invoke(call, args, kwargs)
            data, copy = codec.store(
                value, codec.declared_result(tool.fn), path=f"result of tool {tool.name}"
            )
        except Exception as error:
            self.events.append(self._event(tool, number, call, arguments, began, error=_error_data(error)))
            raise
        result = await self.journal.keep(data) if own_record else None
        event = self._event(tool, number, call, arguments, began).model_copy(update={"result": result})
        if own_record:
            await self.journal.commit(event)
        else:
            self.events.append(event)
        return copy

    def _check_same(self, known: ToolCalled, tool: Tool[..., Any], arguments: str) -> None:
        if (known.tool, known.arguments) != (tool.name, arguments):
            raise Misuse(
                f"call {known.call} of step {self.step} was {known.tool} with other arguments when it was "
                f"recorded; the key {known.key} stands for those and cannot be used for {tool.name} again"
            )

    def _event(
        self,
        tool: Tool[..., Any],
        number: int,
        call: Call,
        arguments: str,
        began: datetime,
        *,
        error: ErrorData | None = None,
    ) -> ToolCalled:
        evidence = codec.encode(call.evidence, dict[str, Any], path=f"evidence of tool {tool.name}")
        return ToolCalled(
            step=self.step,
            call=number,
            tool=tool.name,
            version=tool.version,
            effect=tool.effect,
            key=call.key if number else "",
            arguments=arguments,
            attempt=self.attempt,
            error=error,
            external_id=call.external_id,
            evidence=evidence,
            started_at=began.isoformat(),
            duration_s=(self.journal.clock() - began).total_seconds(),
        )


in_step: ContextVar[str] = ContextVar("milepost_in_step", default="")
"""The id of the step whose function is running; empty in the agent's own code."""


def _arguments_digest(tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    declared = list(codec.declared_parameters(tool.fn))[tool.takes_call :]
    data = []
    for index, value in enumerate(args):
        kind = declared[index] if index < len(declared) else Any
        kind = type(value) if kind is Any else kind
        data.append(codec.encode(value, kind, path=f"argument {index + 1} of tool {tool.name}"))
    named = {
        name: codec.encode(value, type(value), path=f"argument {name} of tool {tool.name}")
        for name, value in kwargs.items()
    }
    return codec.digest([data, named])


def _error_data(error: BaseException) -> ErrorData:
    chain: list[str] = []
    inner = error.__cause__ or error.__context__
    while inner is not None and len(chain) < MAX_CHAIN:
        chain.append(f"{qualified(inner)}: {_cut(str(inner))}")
        inner = inner.__cause__ or inner.__context__
    return ErrorData(kind=qualified(error), message=_cut(str(error)), chain=tuple(chain))


def qualified(error: BaseException) -> str:
    """Return the error's class as a step's failure names it: `package.module.QualName`."""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " ..."


def _step_failed(failure: StepFailure) -> StepFailed:
    return StepFailed(failure.step.id, failure.error.kind, failure.error.message, failure.attempt)


def _name_of(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared).removeprefix("typing.")
