"""Who answers a run that waits: people at its gates, whoever sends events, and the operator's clock.

What they do is what the command line and the operator do: they read the run, and write its inbox. They come
only where there is something for them, since else they would go again with nothing done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

from milepost.api.resource import Phase
from milepost.checkpoint.gates import AnswerType, GateType, event_gate_id
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, summarize
from milepost.checkpoint.runs import HeadSeen, Runs
from milepost.checkpoint.store import Store
from milepost.local.answering import Said, answer, choose, decide, send
from milepost.local.questions import label_of, read_questions
from tests.model.pods import Life
from tests.model.replay import Ask, Draws, Raised, Scripted, etag_of
from tests.model.tables import Tables
from tests.model.world import Call, Move, Process, World, Worlds
from tests.support.histories import NOON

__all__ = ["Answers", "Decides", "LooksAtClock", "Sends"]

_LATE: Final = NOON + timedelta(days=30)
"""When every deadline is over."""

_TOLD: Final = frozenset({"Answered", "InvalidRun"})
"""What somebody is told who comes too late, which is an answer like any other."""


class Answering(NamedTuple):
    """A person's answer at an open approval. Its result is the gate at which they are told that it stands."""

    head: int
    by: str
    says: AnswerType
    seed: str

    def run_it(self, store: Store, tables: Tables) -> str:
        with tables.code.bent():
            runs, head = _runs(store, self.seed), tables.head(self.head)
            question = choose(runs, head, _first_approval(head), GateType.APPROVAL)
            answer(runs, head, question, Said(self.says), self.by)
        return question.gate.id


class Sending(NamedTuple):
    """An event that is sent, whether the run waits for it or not. Its result is the gate that it is for."""

    head: int
    by: str
    name: str
    content: str
    seed: str

    def run_it(self, store: Store, tables: Tables) -> str:
        with tables.code.bent():
            runs, head = _runs(store, self.seed), tables.head(self.head)
            sent = send(runs, head, self.name, None, json.dumps(self.content), self.by)
        return event_gate_id(self.name, None, sent.number)


class Deciding(NamedTuple):
    """A person's decision about a call whose end nobody has seen: it is what the receiver says of it."""

    head: int
    by: str
    seed: str

    def run_it(self, store: Store, tables: Tables) -> str:
        scripted = getattr(store, "inner", store)
        assert isinstance(scripted, Scripted)
        with tables.code.bent():
            head, questions = read_questions(store, tables.head(self.head))
            asked = [each for each in questions if each.gate.type is GateType.HALT]
            if not asked:
                return ""
            said = scripted.ask(Ask(asked[0].request["key"]))
            option, result = ("done", json.dumps(said.text)) if said.kind == "found" else ("not-done", None)
            return decide(_runs(store, self.seed), head, option, result, "", self.by).gate.id


class LookingAtClock(NamedTuple):
    """The operator's look at a run that waits, at a time at which every deadline is over."""

    head: int
    seed: str

    def run_it(self, store: Store, tables: Tables) -> str:
        with tables.code.bent():
            at = HeadAt(tables.head(self.head), etag_of(self.head))
            seen = HeadSeen(summarize(at.head, store.uri), at)
            tables.code.look(_runs(store, self.seed), seen, _LATE)
        return ""


class _Comer:
    """Somebody who comes so many times; `place` counts down. They begin where `may` says so of the head.

    That they read that head is part of the move by which they begin.
    """

    def __init__(
        self,
        name: str,
        tables: Tables,
        run: str,
        act: Callable[[int, str], Any],
        may: Callable[[Head], bool],
        *,
        alone: bool = False,
    ) -> None:
        self.name = name
        self._tables = tables
        self._run = run
        self._act = act
        self._may = may
        self._alone = alone

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        process = world.actors[me]
        if process.doing is not None or not process.place:
            return
        number = dict(world.objects).get(self._tables.keys(self._run).head)
        if number is None:
            return
        head = self._tables.head(number)
        if head.phase.terminal or not self._may(head) or (self._alone and _anybody_alive(world)):
            return
        # Whoever asks what became of a call asks when nobody who made it is there any more.
        before = worlds.settled(world, me) if self._alone else world
        activity = self._act(number, f"{self.name}/{process.lives}/{process.place}")
        yield f"{self.name} begins", worlds.begin(before, me, activity, process.place - 1)

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:
        after = worlds.settle(world, me, world.actors[me].place)
        if not value:
            return after
        lies = dict(world.objects).get(self._tables.keys(self._run).answer(value), -1)
        by = "" if lies == -1 else json.loads(self._tables.bodies.thing(lies))["by"]
        wrong = f"I9: {self.name} is told that their answer stands, and {by or 'nobody'} has answered"
        return after if by == self.name else after._replace(wrong=wrong)

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:
        after = worlds.settle(world, me, world.actors[me].place)
        if error.name in _TOLD:
            return after
        return after._replace(wrong=f"{self.name} was told {error.name}: {error.message}")

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:  # noqa: ARG002
        # An answer that comes late is one whose own answer was lost.
        return None


def Answers(name: str, tables: Tables, run: str, says: AnswerType) -> _Comer:  # noqa: N802  (a kind of process)
    """Return a person who answers the first open approval."""

    def may(head: Head) -> bool:
        return _has(head, GateType.APPROVAL)

    return _Comer(name, tables, run, lambda head, seed: Answering(head, name, says, seed), may)


def Sends(  # noqa: N802
    name: str, tables: Tables, run: str, event: str, content: str, *, awaited: bool = False
) -> _Comer:
    """Return somebody who sends an event, at any time, or once it is `awaited`."""

    def may(head: Head) -> bool:
        return not awaited or _has(head, GateType.EVENT)

    return _Comer(name, tables, run, lambda head, seed: Sending(head, name, event, content, seed), may)


def Decides(name: str, tables: Tables, run: str) -> _Comer:  # noqa: N802
    """Return a person who decides about calls, once nobody is left who might have made one."""

    def may(head: Head) -> bool:
        return head.phase is Phase.HALTED and _has(head, GateType.HALT)

    return _Comer(name, tables, run, lambda head, seed: Deciding(head, name, seed), may, alone=True)


def LooksAtClock(name: str, tables: Tables, run: str) -> _Comer:  # noqa: N802
    """Return an operator whose clock shows that every deadline is over."""

    def may(head: Head) -> bool:
        return head.phase is Phase.WAITING and any(gate.until for gate in head.gates)

    return _Comer(name, tables, run, LookingAtClock, may)


def _anybody_alive(world: World) -> bool:
    lives = (actor.place for actor in world.actors if isinstance(actor.place, Life))
    return any(life.stage == "alive" for life in lives)


def _has(head: Head, kind: GateType) -> bool:
    return any(gate.type is kind for gate in head.gates)


def _first_approval(head: Head) -> str:
    """Return what people call the approval that has been open the longest."""
    return next(label_of(gate.name, gate.key) for gate in head.gates if gate.type is GateType.APPROVAL)


def _runs(store: Store, seed: str) -> Runs:
    return Runs(store, lambda: NOON, Draws(seed), deadline=float("inf"))
