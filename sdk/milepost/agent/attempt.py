"""One try of a step: runs its function, makes its tool calls, and collects what they record.

A call with an effect in the step's body has a record of its own at once, so that another try gets its result
back instead of calling again. A call without one, and one that failed, goes with the step's own record,
unless the step's granularity is the tool call. A call that was recorded is given back only to the same call:
of the same tool, in the same place, with the same arguments.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from milepost.agent.branch import in_step
from milepost.agent.calls import Call, PriorCall, Try
from milepost.agent.declared import declared_result, encoded_arguments
from milepost.agent.effects import Effect, about_intent, ask_for_outcome
from milepost.agent.failures import error_data
from milepost.agent.journal import Journal
from milepost.agent.recorded import call_named, ended_call, recorded_call
from milepost.agent.threads import outcome
from milepost.agent.tools import Bound, Tool, current_caller
from milepost.api.names import idempotency_key
from milepost.checkpoint import codec
from milepost.checkpoint.records import ToolCalled, Usage
from milepost.errors import Misuse, NotStorable

__all__ = ["Attempt"]

T = TypeVar("T")

_NOTHING: Final = Usage()

_log: Final = logging.getLogger("milepost.step")


@dataclass(frozen=True)
class _Asked:
    """A call of a tool as the author's code makes it. `number` is its place in the step.

    `own_record`: it does not wait for the step's. `whole`: it is the step itself, whose inputs are recorded
    with the step.
    """

    tool: Tool[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    number: int
    own_record: bool = False
    whole: bool = False


@dataclass
class Attempt:
    """The step's try `number`. `events` are the calls that have no record of their own.

    `each_call`: calls without an effect have one, too. `timeout` ends the try, where it has one.
    """

    journal: Journal
    step: str
    number: int
    each_call: bool = False
    timeout: asyncio.Timeout | None = None
    events: list[ToolCalled] = field(default_factory=list)
    _used: list[Usage] = field(default_factory=list)
    _thread: asyncio.Future[Any] | None = None
    _effects: int = 0
    _others: int = 0
    _reached: set[int] = field(default_factory=set)
    _under_way: set[asyncio.Future[None]] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop | None = None
    over: bool = False
    _untimed: int = 0
    _left: float | None = None

    async def run(self, fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Run the step's function: a tool, a coroutine function, or a plain one in a thread."""
        self._loop = asyncio.get_running_loop()
        mark = current_caller.set(self)
        inside = in_step.set(self.step)
        try:
            value = await self._run(fn, arguments)
            while self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            self._loop = None
            in_step.reset(inside)
            current_caller.reset(mark)
        await self.settle()
        return value

    async def _run(self, fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if isinstance(fn, Tool):
            return await self._call(_Asked(fn, arguments, {}, self._numbered(fn), whole=True))
        if isinstance(fn, Bound):
            tool = fn.tool
            if arguments:
                raise Misuse(
                    f"tool {tool.name} has its arguments already, and is given {len(arguments)} more"
                )
            return await self._call(_Asked(tool, (), fn.arguments, self._numbered(tool), whole=True))
        if isinstance(fn, partial) and isinstance(fn.func, Tool):
            tool = fn.func
            return await self._call(_Asked(tool, (*fn.args, *arguments), fn.keywords, self._numbered(tool)))
        if inspect.iscoroutinefunction(fn):
            return await fn(*arguments)
        self._thread = asyncio.ensure_future(asyncio.to_thread(outcome, fn, arguments))
        value, error = await asyncio.shield(self._thread)
        if error is not None:
            raise error
        return await value if inspect.isawaitable(value) else value

    @property
    def is_settling(self) -> bool:
        """Whether it is being found out what became of a call, for which the step's time does not count."""
        return self._untimed > 0

    async def ended(self, *, within: float) -> bool:
        """Tell whether the try's thread and calls, if any, have ended, waiting so many seconds for them."""
        left = {*self._under_way, *([] if self._thread is None else [self._thread])}
        if left:
            await asyncio.wait(left, timeout=within)
        return all(each.done() for each in left)

    async def settle(self) -> None:
        """Return once it is known what became of every call that the step was about to make.

        Those that this try has come to are settled; of the others a person has to say.
        """
        intents = self.journal.state.intents.get(self.step)
        for number, intent in sorted(intents.items()) if intents else ():
            if number not in self._reached:
                why = "the step was about to make it, and its code does not come to it any more"
                about = about_intent(intent, None)
                await ask_for_outcome(self.journal, intent, about, why, Any, today="")

    @property
    def usage(self) -> Usage:
        """What the try has used up of models so far."""
        return sum(self._used, _NOTHING)

    def use(self, used: Usage) -> None:
        """Count what a model used up. Raises Misuse where the step has ended."""
        if self._loop is None:
            raise Misuse(f"usage is recorded when step {self.step}, whose usage it is, has ended")
        # A list, since an author's threads may count at once.
        self._used.append(used)

    def seen(self) -> Try:
        """Return which try this is, and what those before it have called."""
        recorded = sorted(self.journal.state.calls.get(self.step, {}).items())
        return Try(self.step, self.number, tuple(_prior(called) for _, called in recorded))

    def call(
        self, tool: Tool[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, T]:
        """Call a tool in the step's body; one with an effect has a record of its own."""
        own = tool.has_effect or self.each_call
        return self._call(_Asked(tool, args, kwargs, self._numbered(tool), own_record=own))

    def _numbered(self, tool: Tool[..., Any]) -> int:
        if tool.has_effect:
            self._effects += 1
            return self._effects
        self._others -= self.each_call
        return self._others

    async def _call(self, asked: _Asked) -> Any:
        if not asked.tool.has_effect:
            return await self._call_once(asked)
        self._check_place(asked.tool)
        self._reached.add(asked.number)
        done = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            return await self._call_once(asked)
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def _call_once(self, asked: _Asked) -> Any:
        tool, number = asked.tool, asked.number
        arguments = encoded_arguments(tool, asked.args, asked.kwargs)
        call = Call(key=self._key(tool, number), attempt=self.number)
        template = self._template(asked, call, arguments)
        known = await recorded_call(self.journal, template, tool)
        if known is not None:
            if known.result is not None:
                return await self.journal.read(known.result, declared_result(tool.fn), path=_path(tool))
            if tool.has_intent:
                # It happened, and may not happen again.
                raise NotStorable(_path(tool), f"{call_named(known)} had one that could not be stored")
        if broken := self.journal.breaches(tool):
            await self.journal.halt("PolicyChanged", "; ".join(broken))
        if tool.deprecated:
            _log.warning("deprecated-tool", extra={"step": self.step, "tool": tool.name})
        if tool.has_intent:
            return await self._effect(asked, call, template, arguments).result()
        return await self._make(asked, call, template)

    def _effect(
        self,
        asked: _Asked,
        call: Call,
        template: ToolCalled,
        arguments: tuple[list[codec.JSON], dict[str, codec.JSON]],
    ) -> Effect:
        return Effect(
            self.journal,
            asked.tool,
            call,
            asked.args,
            asked.kwargs,
            template,
            arguments,
            declared_result(asked.tool.fn),
            self.journal.commit if asked.own_record else self._with_step,
            self._without_timeout,
        )

    @contextmanager
    def _without_timeout(self) -> Iterator[None]:
        """Let the try's timeout not run meanwhile."""
        until = None if self.timeout is None else self.timeout.when()
        if self.timeout is not None and until is not None:
            left = until - asyncio.get_running_loop().time()
            if left > 0:
                self._left = left
                self.timeout.reschedule(None)
        self._untimed += 1
        try:
            yield
        finally:
            self._untimed -= 1
            if self.timeout is not None and self._left is not None and not self._untimed:
                # It may be over: the try has failed meanwhile for another reason.
                with suppress(RuntimeError):
                    self.timeout.reschedule(asyncio.get_running_loop().time() + self._left)
                self._left = None

    async def _with_step(self, called: ToolCalled) -> None:
        self.events.append(called)

    async def _make(self, asked: _Asked, call: Call, template: ToolCalled) -> Any:
        """Make a call that may be repeated, and record it."""
        tool = asked.tool
        if tool.has_effect:
            # A step that was only handed over may be lost and end otherwise next time: the key of this call
            # would come back with other arguments.
            await self.journal.settle()
        # In an event loop of another thread nothing can be recorded at once.
        own_record = asked.own_record and asyncio.get_running_loop() is self._loop
        began = self.journal.clock()
        try:
            value = await tool.invoke(call, asked.args, asked.kwargs)
            # The result of a step's own function is stored with the step.
            data, copy = (
                codec.store(value, declared_result(tool.fn), path=_path(tool))
                if own_record
                else (None, value)
            )
        except Exception as error:
            self.events.append(ended_call(self.journal, template, call, began, error=error_data(error)))
            raise
        if own_record:
            result = await self.journal.keep(data)
            await self.journal.commit(ended_call(self.journal, template, call, began, result=result))
        else:
            self.events.append(ended_call(self.journal, template, call, began))
        return copy

    def _template(
        self, asked: _Asked, call: Call, arguments: tuple[list[codec.JSON], dict[str, codec.JSON]]
    ) -> ToolCalled:
        """Return the record of a call, but for what comes of it."""
        positional, named = ([], {}) if asked.whole else arguments
        return ToolCalled(
            step=self.step,
            call=asked.number,
            tool=asked.tool.name,
            version=asked.tool.version,
            effect=asked.tool.effect,
            key=call.key if asked.tool.has_effect else "",
            arguments=codec.digest([*arguments]),
            inputs=tuple(map(self.journal.input, positional)),
            named={name: self.journal.input(value) for name, value in named.items()},
            attempt=self.number,
            started_at=self.journal.clock().isoformat(),
            duration_s=0.0,
        )

    def _key(self, tool: Tool[..., Any], number: int) -> str:
        again = self.journal.state.generations.get(self.step, 0)
        # What an irreversible tool did stands, whatever is declared of its step.
        step = f"{self.step}~{again}" if again and tool.effect != "irreversible" else self.step
        return idempotency_key(self.journal.key_root, step, max(number, 1))

    def _check_place(self, tool: Tool[..., Any]) -> None:
        if self._loop is None:
            raise Misuse(f"tool {tool.name} is called when step {self.step}, whose call it is, has ended")
        if asyncio.get_running_loop() is not self._loop:
            raise Misuse(
                f"tool {tool.name} has an effect and is called in an event loop of another thread, where it "
                f"cannot be recorded; make the function of step {self.step} async"
            )


def _prior(called: ToolCalled) -> PriorCall:
    return PriorCall(
        number=called.call,
        tool=called.tool,
        version=called.version,
        key=called.key,
        error="" if called.error is None else f"{called.error.kind}: {called.error.message}",
        unconfirmed=called.unconfirmed,
        external_id=called.external_id,
        evidence=called.evidence,
    )


def _path(tool: Tool[..., Any]) -> str:
    return f"result of tool {tool.name}"
