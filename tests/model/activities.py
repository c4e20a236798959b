"""The calls into the product that the model's processes make, as hashable values.

Heads, states and events are numbers of the scenario's tables, so two processes that stand at the same place
with the same knowledge are equal.
"""

from __future__ import annotations

from typing import NamedTuple

from milepost.checkpoint.claim import Ended
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import Event
from milepost.checkpoint.store import Store
from tests.model.replay import Draws, etag_of
from tests.model.tables import Tables
from tests.support.histories import a_claim

__all__ = ["Claiming", "Committing", "Halting", "Keeping", "Loading", "Reading", "Sweeping", "Written"]


class Written(NamedTuple):
    """A head that stands and the state after it, by number, and what was found damaged meanwhile."""

    head: int
    state: int
    damage: str


class Claiming(NamedTuple):
    """A pod's claim. Its result is the number of the head, or -1 where the run has ended."""

    run: str
    attempt: int
    writer: str
    seed: str

    def run_it(self, store: Store, tables: Tables) -> int:
        claimed = a_claim(self.attempt, writer=self.writer)
        taken = tables.code.claim(store, tables.keys(self.run), claimed, Draws(self.seed))
        return -1 if isinstance(taken, Ended) else tables.bodies.number(taken.head.body())


class Loading(NamedTuple):
    """The load of a claimed run. Its result is the number of the state."""

    head: int

    def run_it(self, store: Store, tables: Tables) -> int:
        return tables.states.number(tables.code.load(store, _at(self.head, tables)))


class Committing(NamedTuple):
    """One commit of a writer that knows this head and state."""

    head: int
    state: int
    events: tuple[int, ...]
    seed: str

    def run_it(self, store: Store, tables: Tables) -> Written:
        events: tuple[Event, ...] = tuple(tables.events.thing(number) for number in self.events)
        state, at = tables.state(self.state), _at(self.head, tables)
        done = tables.code.commit(store, at, state, events, Draws(self.seed))
        head = tables.bodies.number(done.at.head.body())
        assert done.at.etag == etag_of(head), "the ETag is that of the head which was written"
        return Written(head, tables.states.number(done.state), done.damage)


class Halting(NamedTuple):
    """The record of a claimed run that cannot be loaded."""

    head: int
    reason: str
    seed: str

    def run_it(self, store: Store, tables: Tables) -> None:
        tables.code.halt(store, _at(self.head, tables), self.reason, Draws(self.seed))


class Keeping(NamedTuple):
    """A result that is made durable as a blob, before its record. Its result is the number of its event."""

    run: str
    event: int

    def run_it(self, store: Store, tables: Tables) -> int:
        event = tables.events.thing(self.event)
        value = tables.code.keep(store, tables.keys(self.run), event.result.inline)
        return tables.events.number(event.model_copy(update={"result": value}))


class Reading(NamedTuple):
    """A reader's look at a whole history. Its result is the number of the state, -1 where there is no run."""

    run: str

    def run_it(self, store: Store, tables: Tables) -> int:
        state = tables.code.read(store, tables.keys(self.run))
        return -1 if state is None else tables.states.number(state)


class Sweeping(NamedTuple):
    """One sweep of the whole store, `age` seconds after everything in it was written."""

    age: float
    seed: str

    def run_it(self, store: Store, tables: Tables) -> None:
        tables.code.sweep(store, self.age, Draws(self.seed))


def _at(head: int, tables: Tables) -> HeadAt:
    return HeadAt(tables.head(head), etag_of(head))
