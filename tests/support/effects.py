"""A world outside with a verified and an irreversible tool, whose calls end as a test says.

The process that makes a call can die in it: that is an error which no code of the run handles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from milepost import Call, Happened, NotHappened, Unknown, tool
from milepost.checkpoint.records import PreviousEnd

__all__ = ["Died", "Outside", "Paused", "Receipt", "proved", "unproved"]

SETTLES_WITHIN = 60.0


class Receipt(BaseModel):
    number: int


class Died(GeneratorExit):
    """Stands for the process dying here: nothing is recorded for it, and nobody can handle it."""


def proved(attempt: int) -> PreviousEnd:
    """Return how an attempt ended that cannot be at work any more."""
    return PreviousEnd(attempt=attempt, cause="Evicted", fault="disruption", proved=True)


def unproved(attempt: int) -> PreviousEnd:
    """Return how an attempt ended whose node has gone silent."""
    return PreviousEnd(attempt=attempt, cause="NodeLost", fault="disruption")


@dataclass
class Paused:
    """Notes how long the engine would wait, and does not wait."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        if seconds > 0:
            self.seconds.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Outside:
    """What happened outside, in order: calls of tools and questions about them, each with its key.

    `before` and `after` are what each next call comes to: an error, before or after its effect, or nothing.
    `says` is what each next question is answered with; without one the world itself is looked at. The next
    call hangs `before` or `after` its effect, or for a `moment`; `hangs` is called when it begins to.
    """

    before: list[BaseException | None] = field(default_factory=list)
    after: list[BaseException | None] = field(default_factory=list)
    says: list[Any] = field(default_factory=list)
    log: list[tuple[str, str, int]] = field(default_factory=list)
    applied: dict[str, int] = field(default_factory=dict)
    looking: Callable[[], None] = lambda: None
    hang: str = ""
    hangs: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        async def was_uploaded(
            call: Call, number: int, *, draft: bool = False
        ) -> Happened[Receipt] | NotHappened | Unknown:
            assert isinstance(draft, bool)
            self.log.append(("ask", call.key, number))
            said = self.says.pop(0) if self.says else None
            if isinstance(said, BaseException):
                raise said
            if said is not None:
                return said  # type: ignore[no-any-return]  # a test may say anything
            if call.key not in self.applied:
                return NotHappened()
            return Happened(Receipt(number=self.applied[call.key]), {"etag": f"e{number}"})

        @tool(effect="verified", verify=was_uploaded, settles_within=SETTLES_WITHIN, version="3")
        async def upload(call: Call, number: int, *, draft: bool = False) -> Receipt:
            call.record(external_id=f"object-{number}", draft=draft)
            return await self._apply("upload", call, number)

        @tool(effect="irreversible")
        async def mail(call: Call, number: int) -> Receipt:
            return await self._apply("mail", call, number)

        self.upload, self.mail, self.was_uploaded = upload, mail, was_uploaded

    async def _apply(self, name: str, call: Call, number: int) -> Receipt:
        self.looking()
        self.log.append((name, call.key, number))
        hang, self.hang = self.hang, ""
        if hang:
            if hang == "before":
                self.hangs()
            await asyncio.sleep(0.05 if hang == "moment" else 600 * (hang == "before"))
        if self.before and (error := self.before.pop(0)) is not None:
            raise error
        self.applied[call.key] = number
        if hang == "after":
            self.hangs()
        await asyncio.sleep(600 * (hang == "after"))
        if self.after and (error := self.after.pop(0)) is not None:
            raise error
        return Receipt(number=number)

    def calls(self, name: str) -> int:
        """Return how often a tool was called, or asked."""
        return sum(each[0] == name for each in self.log)
