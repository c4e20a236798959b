"""Calls that must not be repeated blindly: those of verified and of irreversible tools.

That such a call is about to be made is on record before it is made, and what came of it afterwards. Where
the second record is missing, or the call raised, nobody knows whether the effect is there. A verified tool is
then asked, once the process that made the call has certainly ended and its effect has had time to show; for
all else the run halts, and a person says. Nothing here guesses, and nothing is called before that is settled.

The surprising thing is what a cancellation does, a step's timeout for instance: it goes on only after the
outcome of the call that it interrupted is known, and on record. Finding that out takes no time of the step's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from milepost.agent.asking import ask, is_decided
from milepost.agent.calls import Call, Happened, NotHappened, Outcome, Unknown
from milepost.agent.failures import error_data, message_of, qualified
from milepost.agent.journal import Journal
from milepost.agent.recorded import call_named, ended_call
from milepost.agent.tools import Tool
from milepost.agent.unbroken import unbroken
from milepost.agent.wanted import Unfit, Wanted
from milepost.checkpoint import codec
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.records import Input, Intended, ToolCalled
from milepost.errors import Misuse, NotApplied, NotStorable

__all__ = ["Effect", "about_intent", "ask_for_outcome"]

MAX_INLINE: Final = 2 * 1024
"""Bytes of a result that the record of its call carries itself: the step's record may carry it, too."""

_VERIFY_AGAIN: Final = (1.0, 5.0)
"""Seconds before each further time that a tool is asked, where asking it raises."""

_LEAVES_AT_ONCE: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)
_OPTIONS: Final = (AnswerType.DONE, AnswerType.NOT_DONE)


@dataclass(frozen=True)
class _Known:
    """What a call came to, as it is recorded."""

    value: Any


@dataclass
class Effect:
    """One call of a verified or an irreversible tool.

    `asked` is its record but for what comes of it, `arguments` are its arguments as JSON, by place and by
    name, and `record` puts the record where it belongs. `result_type` is what the tool declares. In `untimed`
    the step's timeout does not run.
    """

    journal: Journal
    tool: Tool[..., Any]
    call: Call
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    asked: ToolCalled
    arguments: tuple[list[codec.JSON], dict[str, codec.JSON]]
    result_type: Any
    record: Callable[[ToolCalled], Awaitable[None]]
    untimed: Callable[[], AbstractContextManager[None]]

    async def result(self) -> Any:
        """Return what the call gives, this time or an earlier one. Raises what the tool raises."""
        intent = self.journal.state.intents.get(self.asked.step, {}).get(self.asked.call)
        if intent is not None:
            known = await self._settled(intent, None)
            if known is not None:
                return known.value
        return await self._make()

    async def _make(self) -> Any:
        intent = self._intent()
        began = self.journal.clock()
        try:
            await self.journal.commit(intent)
        except asyncio.CancelledError as error:
            await self.record(self._ended(began, error=error_data(error)))
            raise
        try:
            value = await self.tool.invoke(self.call, self.args, self.kwargs)
        except _LEAVES_AT_ONCE:
            raise
        except NotApplied as error:
            await self.record(self._ended(began, error=error_data(error)))
            raise
        except BaseException as error:
            known = await self._settled(intent, error)
            if known is None or isinstance(error, asyncio.CancelledError):
                raise
            return known.value
        return (await unbroken(self._keep(value, began))).value

    def _intent(self) -> Intended:
        positional, named = self.arguments
        asked = self.asked
        return Intended(
            step=asked.step,
            call=asked.call,
            tool=asked.tool,
            version=asked.version,
            effect=asked.effect,
            key=asked.key,
            arguments=asked.arguments,
            inputs=tuple(map(self.journal.input, positional)),
            named={name: self.journal.input(value) for name, value in named.items()},
            attempt=self.journal.attempt,
            started_at=self.journal.clock().isoformat(),
            settles_within_s=self.tool.settles_within,
        )

    def _ended(self, began: datetime, **outcome: Any) -> ToolCalled:
        return ended_call(self.journal, self.asked, self.call, began, **outcome)

    async def _keep(
        self,
        value: Any,
        began: datetime,
        outcome: Literal["answered", "verified", "decided"] = "answered",
    ) -> _Known:
        """Record that the call happened, with its result: the step may still fail, and be tried again."""
        try:
            data, copy = codec.store(value, self.result_type, path=f"result of tool {self.tool.name}")
        except NotStorable:
            await self.record(self._ended(began, outcome=outcome))
            raise
        result = await self.journal.keep(data, MAX_INLINE)
        await self.record(self._ended(began, result=result, outcome=outcome))
        return _Known(copy)

    async def _settled(self, intent: Intended, error: BaseException | None) -> _Known | None:
        # The effect may show long after the step's time is over.
        with self.untimed():
            return await unbroken(self._settle(intent, error))

    async def _settle(self, intent: Intended, error: BaseException | None) -> _Known | None:
        """Find out what became of a call, and record it; None if it did not happen.

        `error` is what it raised, if that was in this process. Halts the run where nobody knows.
        """
        began = datetime.fromisoformat(intent.started_at)
        about = about_intent(intent, self.arguments)
        found: Outcome[Any] = Unknown("")
        outcome: Literal["verified", "decided"] = "verified"
        # What a person has said stands, whatever the tool would say today.
        if not await is_decided(self.journal, intent.step, about, _OPTIONS):
            found = await self._found(intent, error)
            if isinstance(found, Unknown) and error is not None:
                await self.journal.commit(self._ended(began, error=error_data(error), unconfirmed=True))
        if isinstance(found, Unknown):
            outcome = "decided"
            found = await ask_for_outcome(
                self.journal, intent, about, found.why, self.result_type, today=self.asked.arguments
            )
        if isinstance(found, Happened):
            return await self._keep(found.result, began, outcome)
        failure = error or NotApplied("it is certain that it did not happen")
        await self.journal.commit(self._ended(began, error=error_data(failure), outcome=outcome))
        return None

    async def _found(self, intent: Intended, error: BaseException | None) -> Outcome[Any]:
        """Return what can be found out without asking a person."""
        seen = "nobody has seen how it ended"
        if error is not None:
            seen = f"it raised {qualified(error)}: {message_of(error)}"
        if self.tool.verify is None:
            return Unknown(seen)
        if intent.arguments != self.asked.arguments:
            return Unknown("today's code calls it with other arguments, so the tool cannot be asked about it")
        if not self.journal.surely_ended(intent.attempt):
            return Unknown(f"executor {intent.attempt}, which made it, cannot be proved to have ended")
        settles_within = max(intent.settles_within_s, self.tool.settles_within)
        here = intent.attempt == self.journal.attempt
        waited = 0.0 if here else self.journal.monotonic() - self.journal.began
        if waited < settles_within:
            await self.journal.pause(settles_within - waited)
        return await self._verified(seen)

    async def _verified(self, seen: str) -> Outcome[Any]:
        why = ""
        for pause in (0.0, *_VERIFY_AGAIN):
            if pause:
                await self.journal.pause(pause)
            try:
                said = await self.tool.ask(self.call, self.args, self.kwargs)
                if isinstance(said, Happened):
                    self.call.record(**(said.evidence or {}))
            except Exception as error:  # noqa: BLE001  (the author's question; no answer is no knowledge)
                why = f"asking the tool raised {qualified(error)}: {message_of(error)}"
                continue
            if isinstance(said, Happened | NotHappened):
                return said
            return Unknown(f"{seen}; the tool says: {said.why if isinstance(said, Unknown) else repr(said)}")
        return Unknown(f"{seen}; {why}")


def about_intent(
    intent: Intended, arguments: tuple[list[codec.JSON], dict[str, codec.JSON]] | None
) -> dict[str, codec.JSON]:
    """Return what people are shown who say what became of a call; another try of it is another question.

    `arguments` are those of today's call, if there is one. They are shown where they are the same.
    """
    about: dict[str, codec.JSON] = {
        "step": intent.step,
        "call": intent.call,
        "tool": intent.tool,
        "version": intent.version,
        "key": intent.key,
        "executor": intent.attempt,
        "started": intent.started_at,
    }
    if arguments is not None and codec.digest([*arguments]) == intent.arguments:
        positional, named = arguments
        return about | {"arguments": positional, "named": named}
    known = {name: _shown(value) for name, value in intent.named.items()}
    return about | {"arguments": [*map(_shown, intent.inputs)], "named": known}


def _shown(value: Input) -> codec.JSON:
    return value.inline.inline if value.inline is not None else {"digest": value.digest}


async def ask_for_outcome(
    journal: Journal,
    intent: Intended,
    about: dict[str, codec.JSON],
    why: str,
    result_type: Any,
    *,
    today: str,
) -> Happened[Any] | NotHappened:
    """Return what a person says became of a call. While nobody has said, halts the run and does not return.

    `today` is the digest of the arguments of the call that the code makes in its place. What a person gives
    as its result has to be of `result_type`; else the person is asked again.
    """
    wanted = _wanted(result_type, intent.tool)
    reason, message = "OutcomeUnknown", f"{call_named(intent)} may have happened or not: {why}"
    if today and intent.arguments != today:
        reason = "EffectDiffers"
    unfit = 0
    while True:
        decided = await ask(
            journal,
            reason,
            message,
            place=intent.step,
            about=about,
            options=_OPTIONS,
            answer_schema=wanted.schema,
        )
        if decided.type is AnswerType.NOT_DONE:
            return NotHappened()
        given = decided.answer
        try:
            data = None if given is None else await journal.raw(given, path="the answer")
            return Happened(wanted.fit(data)[1])
        except Unfit as error:
            reason, message = "AnswerInvalid", f"{call_named(intent)} was said to have happened, but {error}"
            unfit += 1
            about = about | {"unfit": unfit}


def _wanted(declared: Any, tool: str) -> Wanted:
    try:
        return Wanted(declared, f"tool {tool}")
    except Misuse:
        # Its result cannot be checked before the author's code has it.
        return Wanted(Any, f"tool {tool}")
