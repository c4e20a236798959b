"""Gates, as an agent's code meets them: it waits for a person, an event or a time, and no process is alive.

A gate that was passed gives what is recorded of it. Else its answer is in the run's inbox, or it is opened on
record, and frozen: this process never comes back to it, and nothing of the author's code is unwound. Once
nothing else is under way the process ends, and the next one comes here again. Nothing here looks at a clock
to tell whether it is late: that, too, is an answer.

An answer that does not fit is never taken. It stays where it is, as everything in an inbox; the run halts
until the code takes it or a person says that it be left out, and then the gate asks again, under another id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, Generic, NoReturn, TypeVar

from milepost.agent.asking import ask
from milepost.agent.branch import Branch
from milepost.agent.events import named
from milepost.agent.journal import Journal
from milepost.agent.parallel import current_lane
from milepost.agent.shown import shown, shown_call
from milepost.agent.wanted import Unfit, Wanted
from milepost.api.names import gate_component, step_id
from milepost.checkpoint import codec
from milepost.checkpoint.gates import AnswerType, Decided, Gate, GateOpened, GateType
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.records import StepPlace
from milepost.errors import Corrupt, Denied, Expired, KeyNeeded, Misuse

__all__ = ["Decision", "approval", "approve_call", "event", "sleep"]

A = TypeVar("A")

_TAKES: Final = {
    GateType.APPROVAL: (AnswerType.APPROVE, AnswerType.DENY, AnswerType.EXPIRED),
    GateType.EVENT: (AnswerType.EVENT, AnswerType.EXPIRED),
    GateType.SLEEP: (AnswerType.DUE,),
}


@dataclass(frozen=True)
class Decision(Generic[A]):
    """What was decided at a gate: by whom, when, why, and the answer, of the type that was asked for."""

    by: str
    at: datetime
    reason: str
    answer: A


def approval(
    journal: Journal,
    branch: Branch,
    place: StepPlace,
    *,
    request: Any,
    answer: Any,
    expires: float | timedelta | datetime | None,
) -> Coroutine[Any, Any, Decision[Any]]:
    """Return who approved the request, once somebody has. Raises Denied, Expired; Misuse at the call."""
    what = f"approval {place.name!r}"
    limit = _limit(journal, expires, f"{what} cannot expire")
    gate = _Gate(journal, branch, place, GateType.APPROVAL, Wanted(answer, what), limit)

    async def approved() -> Decision[Any]:
        journal.begun(place.id)
        return await gate.approved(shown(request, f"request of {what}"))

    return approved()


async def approve_call(
    journal: Journal, branch: Branch, place: StepPlace, fn: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """Return once somebody has approved the call that a step is about to make. Raises Denied, Expired.

    What a step did and was declared to stand no more is approved anew.
    """
    component = gate_component(place.id.rpartition("/")[2])
    anew = journal.state.generations.get(place.id, 0)
    of_gate = step_id(place.branch, f"{component}~{anew}" if anew else component)
    gate = _Gate(
        journal,
        branch,
        place.model_copy(update={"id": of_gate}),
        GateType.APPROVAL,
        Wanted(None, f"the approval of step {place.id}"),
    )
    await gate.approved(shown_call(fn, arguments))


def event(
    journal: Journal,
    branch: Branch,
    place: StepPlace,
    kind: Any,
    *,
    expires: float | timedelta | datetime | None,
) -> Coroutine[Any, Any, Any]:
    """Return what came with the event that this gate waits for. Raises Expired; the rest at the call."""
    what = f"event {place.name!r}"
    if branch.path and place.key is None:
        raise KeyNeeded(
            place.name,
            f"{what} is waited for in a branch, which nobody who sends it can name; give it a key, by which "
            f'it is sent: run.event("{place.name}", ..., key=...)',
        )
    limit = _limit(journal, expires, f"{what} cannot expire")
    gate = _Gate(journal, branch, place, GateType.EVENT, Wanted(kind, what), limit)
    coming = journal.events.of(place, branch)

    async def came() -> Any:
        journal.begun(place.id)
        with coming.waiting(place) as ids:
            decided, value = await gate.passed(ids, None)
            coming.number += 1
        if decided.type is AnswerType.EXPIRED:
            raise Expired(named(place), _decision(decided))
        return value

    return came()


def sleep(
    journal: Journal,
    branch: Branch,
    place: StepPlace,
    *,
    delay: float | timedelta | None,
    until: datetime | None,
) -> Coroutine[Any, Any, None]:
    """Return once the time has come. Raises Misuse at the call."""
    limit = _limit(journal, delay if until is None else until, "sleep cannot last")
    gate = _Gate(journal, branch, place, GateType.SLEEP, Wanted(None, "sleep"), limit)

    async def woken() -> None:
        journal.begun(place.id)
        await gate.passed(gate.ids(""), None)

    return woken()


@dataclass(frozen=True)
class _Gate:
    """A gate at its place. `limit` is when it expires, or is passed by itself: a time, or a time from now."""

    journal: Journal
    branch: Branch
    place: StepPlace
    type: GateType
    wanted: Wanted
    limit: datetime | timedelta | None = None

    def ids(self, digest: str) -> Iterator[str]:
        """Yield the gate's id, and then those under which it asks again."""
        yield self.journal.gate_id(self.type, self.place.id, digest)
        for again in count(2):
            yield self.journal.gate_id(self.type, self.place.id, f"{digest}/{again}")

    async def approved(self, request: codec.JSON) -> Decision[Any]:
        """Return the decision about this request. Raises Denied, Expired."""
        decided, value = await self.passed(self.ids(codec.digest(request)), request)
        if decided.type is AnswerType.EXPIRED:
            raise Expired(named(self.place), _decision(decided))
        if decided.type is AnswerType.DENY:
            raise Denied(named(self.place), _decision(decided))
        return _decision(decided, value)

    async def passed(self, ids: Iterator[str], request: codec.JSON) -> tuple[Decided, Any]:
        """Return how the gate was passed, and the answer, under the first id whose answer is not left out."""
        for gate in ids:
            if gate in self.journal.state.decisions:
                return await self._recorded(gate)
            if not self._is_left_out(gate):
                taken = await self._taken(gate, request)
                if taken is not None:
                    return taken
        raise AssertionError("ids do not run out")

    async def _recorded(self, gate: str) -> tuple[Decided, Any]:
        decided = await self.journal.decision(gate)
        self.branch.consumed(decided.at)
        if not _says_yes(decided.type):
            return decided, None
        path, value = f"answer at gate {self.place.id}", None
        if decided.answer is not None:
            value = await self.journal.read(decided.answer, self.wanted.declared, path=path)
        try:
            self.wanted.check(value)
        except Unfit as error:
            await self.journal.halt(
                "RecordedTypeChanged",
                f"gate {self.place.id}: {error}; it was given for a type that this code does not declare any "
                "more",
            )
        return decided, value

    async def _taken(self, gate: str, request: codec.JSON) -> tuple[Decided, Any] | None:
        """Return what the inbox has for the gate; None if it is left out. While it has nothing, freeze."""
        answer = await self.journal.answer(gate)
        if answer is None:
            await self._open(gate, request)
            await _freeze(self.journal, gate)
        if isinstance(answer, Corrupt):
            await self._leave_out(gate, "", Unfit(str(answer)))
            return None
        try:
            encoded, value = self._fit(answer, request)
        except Unfit as error:
            await self._leave_out(gate, answer.by, error)
            return None
        await self.journal.may_go_on()
        decided = await self.journal.decided(replace(answer, answer=encoded), self.place.id)
        await self.journal.commit(decided)
        self.branch.consumed(decided.at)
        return decided, value

    async def _open(self, gate: str, request: codec.JSON) -> None:
        """Record that the run waits here, unless an earlier process has: the times in that record hold."""
        if gate in self.journal.state.gates:
            return
        since = self.journal.clock()
        asked = None if self.type is not GateType.APPROVAL else await self.journal.keep(request)
        await self.journal.may_go_on()
        await self.journal.commit(
            GateOpened(
                gate=Gate(
                    id=gate,
                    type=self.type,
                    place=self.place.id,
                    name=self.place.name,
                    key=self.place.key,
                    request=asked,
                    request_digest="" if asked is None else codec.digest(request),
                    answer_schema=self.wanted.schema,
                    since=since.isoformat(),
                    until="" if self.limit is None else _at(self.limit, since).isoformat(),
                )
            )
        )

    def _fit(self, answer: Answer, request: codec.JSON) -> tuple[codec.JSON, Any]:
        """Return the answer as it is recorded, and as the author gets it. Raises Unfit."""
        if answer.type not in _TAKES[self.type]:
            raise Unfit(f"it says {answer.type}, which is no answer to this")
        if answer.request_digest and answer.request_digest != codec.digest(request):
            raise Unfit(f"it is about another request, of digest {answer.request_digest[:12]}")
        try:
            dated = datetime.fromisoformat(answer.at).utcoffset() is not None
        except ValueError:
            dated = False
        if not dated:
            raise Unfit(f"its time, {answer.at!r}, is no time with its zone")
        if not _says_yes(answer.type):
            return None, None
        return self.wanted.fit(answer.answer)

    def _is_left_out(self, gate: str) -> bool:
        halt = self.journal.gate_id(GateType.HALT, self.place.id, codec.digest(_about(gate)))
        return halt in self.journal.state.decisions

    async def _leave_out(self, gate: str, giver: str, why: Unfit) -> None:
        """Return once a person has said that the answer be left out; until then halt."""
        by = f", by {giver}," if giver else ""
        again = "wait for the next one" if self.type is GateType.EVENT else "ask again"
        await ask(
            self.journal,
            "AnswerInvalid",
            f"the answer{by} at gate {named(self.place)}, which stands at {self.place.id}, does not fit: "
            f"{why}. Accept that it is left out, to {again}; or let the code take it, and go on",
            place=self.place.id,
            about=_about(gate),
            options=(AnswerType.ACCEPT,),
        )


async def _freeze(journal: Journal, gate: str) -> NoReturn:
    lane = current_lane.get()
    if lane is None:
        await journal.freeze(gate, lambda: False)
    # What else the branch's code has begun by itself may go on.
    if asyncio.current_task() is lane.branch.main:
        lane.freeze()
    try:
        await journal.freeze(gate, lane.let_go)
    finally:
        lane.thaw()


def _limit(
    journal: Journal, given: float | timedelta | datetime | None, cannot: str
) -> datetime | timedelta | None:
    """Return a time, or a time from now, that the author gave. Raises Misuse where there is no such time."""
    if given is None:
        return None
    try:
        limit = _parsed(given)
        _at(limit, journal.clock())
    except (TypeError, ValueError, OverflowError) as error:
        raise Misuse(f"{cannot} {given!r}: {error}") from None
    return limit


def _parsed(given: Any) -> datetime | timedelta:
    if isinstance(given, datetime):
        if given.utcoffset() is None:
            raise ValueError("a time has to name its zone, as in datetime(..., tzinfo=UTC)")
        return given.astimezone(UTC)
    if isinstance(given, bool) or not isinstance(given, int | float | timedelta):
        raise TypeError("it is a number of seconds, a timedelta, or a datetime with its zone")
    delay = given if isinstance(given, timedelta) else timedelta(seconds=given)
    if delay <= timedelta(0):
        raise ValueError("it has to be more than nothing")
    return delay


def _at(limit: datetime | timedelta, since: datetime) -> datetime:
    return limit if isinstance(limit, datetime) else since + limit


def _says_yes(said: AnswerType) -> bool:
    return said not in (AnswerType.DENY, AnswerType.EXPIRED)


def _about(gate: str) -> codec.JSON:
    return {"answer to": gate}


def _decision(decided: Decided, answer: Any = None) -> Decision[Any]:
    return Decision(decided.by, datetime.fromisoformat(decided.at), decided.reason, answer)
