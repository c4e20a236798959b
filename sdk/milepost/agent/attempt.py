"""One try of a step: runs its function, makes its tool calls, and collects what they record.

A call with an effect in the step's body has a record of its own at once, so that another try gets its result
back instead of calling again. A call without one, and one that failed, goes with the step's own record.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import FunctionType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from milepost.agent.failures import error_data
from milepost.agent.journal import Journal
from milepost.agent.tools import Call, Tool, current_caller
from milepost.api.names import idempotency_key
from milepost.checkpoint import codec
from milepost.checkpoint.records import ToolCalled, Usage
from milepost.errors import Misuse

__all__ = ["Attempt", "declared_parameters", "declared_result", "encoded", "in_step"]

T = TypeVar("T")

in_step: ContextVar[str] = ContextVar("milepost_in_step", default="")
"""The id of the step whose function is running; empty in the agent's own code."""


# Looking them up costs more than the rest of a small step. Only of plain functions: another callable may be
# made anew for each call, or change.
_results: Final[WeakKeyDictionary[FunctionType, Any]] = WeakKeyDictionary()
_parameters: Final[WeakKeyDictionary[FunctionType, dict[int, tuple[Any, ...]]]] = WeakKeyDictionary()


@dataclass
class Attempt:
    """The step's try `number`. `events` are the calls that have no record of their own.

    `each_call`: calls without an effect have one, too. `usage` is what the try has used up so far.
    """

    journal: Journal
    step: str
    number: int
    each_call: bool = False
    events: list[ToolCalled] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    _thread: asyncio.Future[Any] | None = None
    _calls: int = 0
    _loop: asyncio.AbstractEventLoop | None = None

    async def run(self, fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Run the step's function: a tool, a coroutine function, or a plain one in a thread."""
        self._loop = asyncio.get_running_loop()
        mark = current_caller.set(self)
        inside = in_step.set(self.step)
        try:
            if isinstance(fn, Tool):
                return await self._call(fn, arguments, {}, self._numbered(fn), in_body=False)
            if isinstance(fn, partial) and isinstance(fn.func, Tool):
                tool = fn.func
                args = (*fn.args, *arguments)
                return await self._call(tool, args, fn.keywords, self._numbered(tool))
            if inspect.iscoroutinefunction(fn):
                return await fn(*arguments)
            self._thread = asyncio.ensure_future(asyncio.to_thread(_outcome, fn, arguments))
            value, error = await asyncio.shield(self._thread)
            if error is not None:
                raise error
            return await value if inspect.isawaitable(value) else value
        finally:
            self._loop = None
            in_step.reset(inside)
            current_caller.reset(mark)

    async def ended(self, *, within: float) -> bool:
        """Tell whether the try's thread, if it has one, has ended, waiting so many seconds for it."""
        if self._thread is not None:
            await asyncio.wait([self._thread], timeout=within)
        return self._thread is None or self._thread.done()

    def call(
        self, tool: Tool[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, T]:
        """Call a tool in the step's body; one with an effect has a record of its own."""
        return self._call(tool, args, kwargs, self._numbered(tool), own_record=tool.has_effect)

    def _numbered(self, tool: Tool[..., Any]) -> int:
        self._calls += tool.has_effect
        return self._calls if tool.has_effect else 0

    async def _call(
        self,
        tool: Tool[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        number: int,
        *,
        own_record: bool = False,
        in_body: bool = True,
    ) -> Any:
        self._check_place(tool)
        path = f"result of tool {tool.name}"
        positional, named = _arguments(tool, args, kwargs)
        arguments = codec.digest([positional, named])
        known = self.journal.state.calls.get(self.step, {}).get(number) if number else None
        if known is not None:
            self._check_same(known, tool, arguments)
            if known.error is None and known.result is not None:
                return await self.journal.read(known.result, declared_result(tool.fn), path=path)
        if tool.has_effect:
            # A step that was only handed over may be lost and end otherwise next time: the key of this call
            # would come back with other arguments.
            await self.journal.settle()
        call = Call(key=idempotency_key(self.journal.key_root, self.step, number or 1), attempt=self.number)
        began = self.journal.clock()
        asked = ToolCalled(
            step=self.step,
            call=number,
            tool=tool.name,
            version=tool.version,
            effect=tool.effect,
            key=call.key if number else "",
            arguments=arguments,
            # The arguments of a step's own function are the step's inputs, and recorded as these.
            inputs=tuple(map(self.journal.input, positional)) if in_body else (),
            named={name: self.journal.input(value) for name, value in named.items()},
            attempt=self.number,
            started_at=began.isoformat(),
            duration_s=0.0,
        )
        try:
            value = await tool.invoke(call, args, kwargs)
            # The result of a step's own function is stored with the step.
            data, copy = (
                codec.store(value, declared_result(tool.fn), path=path) if own_record else (None, value)
            )
        except Exception as error:
            self.events.append(self._answered(asked, call, began, error=error_data(error)))
            raise
        if own_record:
            await self.journal.commit(
                self._answered(asked, call, began, result=await self.journal.keep(data))
            )
        else:
            self.events.append(self._answered(asked, call, began))
        return copy

    def _answered(self, asked: ToolCalled, call: Call, began: datetime, **outcome: Any) -> ToolCalled:
        changes = {
            "external_id": call.external_id,
            "evidence": call.evidence,
            "duration_s": (self.journal.clock() - began).total_seconds(),
        }
        return asked.model_copy(update=changes | outcome)

    def _check_place(self, tool: Tool[..., Any]) -> None:
        if not tool.has_effect:
            return
        if self._loop is None:
            raise Misuse(f"tool {tool.name} is called when step {self.step}, whose call it is, has ended")
        if asyncio.get_running_loop() is not self._loop:
            raise Misuse(
                f"tool {tool.name} has an effect and is called in an event loop of another thread, where it "
                f"cannot be recorded; make the function of step {self.step} async"
            )

    def _check_same(self, known: ToolCalled, tool: Tool[..., Any], arguments: str) -> None:
        if (known.tool, known.arguments) != (tool.name, arguments):
            raise Misuse(
                f"call {known.call} of step {self.step} was {known.tool} with other arguments when it was "
                f"recorded; the key {known.key} stands for those and cannot be used for {tool.name} again"
            )


def declared_result(fn: Callable[..., Any]) -> Any:
    """Return the type that a function declares for its result, or `Any`."""
    if not isinstance(fn, FunctionType):
        return codec.declared_result(fn)
    if fn not in _results:
        _results[fn] = codec.declared_result(fn)
    return _results[fn]


def declared_parameters(fn: Callable[..., Any], count: int) -> tuple[Any, ...]:
    """Return the types that a function declares for its first `count` arguments, `Any` where it does not."""
    if not isinstance(fn, FunctionType):
        return codec.declared_parameters(fn, count)
    known = _parameters.setdefault(fn, {})
    if count not in known:
        known[count] = codec.declared_parameters(fn, count)
    return known[count]


def encoded(value: Any, declared: Any, *, path: str) -> codec.JSON:
    """Return an argument's JSON. Where no type is declared for it, its own is taken."""
    return codec.encode(value, type(value) if declared is Any else declared, path=path)


def _outcome(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    # As a value: a StopIteration that leaves a thread as an error never reaches who waits for it.
    try:
        return fn(*arguments), None
    except BaseException as error:  # noqa: BLE001  (raised again in the step's own task)
        return None, error


def _arguments(
    tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[codec.JSON], dict[str, codec.JSON]]:
    """Return the arguments' JSON, those by place and those by name."""
    declared = declared_parameters(tool.fn, len(args) + tool.takes_call)[tool.takes_call :]
    positional = [
        encoded(value, kind, path=f"argument {index} of tool {tool.name}")
        for index, (value, kind) in enumerate(zip(args, declared, strict=True), start=1)
    ]
    named = {
        name: encoded(value, Any, path=f"argument {name} of tool {tool.name}")
        for name, value in kwargs.items()
    }
    return positional, named
