"""The product's own code as the model's processes call it. A seeded break replaces one of these functions.

Nothing is decided here: each function hands its arguments to the product, with a clock that stands still and
patience without end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime

from typing_extensions import override

from milepost.api.names import Entropy, StoreKeys, idempotency_key
from milepost.checkpoint import claim as claiming
from milepost.checkpoint import history, values
from milepost.checkpoint.answers import Purpose
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.deletion import Sweeper
from milepost.checkpoint.fold import State
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import Claimed, Event, Halted, Value
from milepost.checkpoint.runs import HeadSeen, Runs
from milepost.checkpoint.store import Store
from milepost.checkpoint.sweep import Living
from milepost_operator.shell.stores import _look_into_inbox
from tests.model.passes import CLUSTER, one_pass, resource_in
from tests.model.replay import PATIENT, Draws, Put, Reply, honest
from tests.support.histories import NOON

__all__ = ["Code", "Written"]


@dataclass(frozen=True)
class Written:
    """A commit as the committer reports it: the head that stands, the state after it, and damage it met."""

    at: HeadAt
    state: State
    damage: str


def claim(store: Store, keys: StoreKeys, claimed: Claimed, entropy: Entropy) -> claiming.Claim:
    return claiming.claim(store, keys, claimed, at=NOON, entropy=entropy, patience=PATIENT)


def load(store: Store, at: HeadAt) -> State:
    return history.load(store, at.head)


def commit(store: Store, at: HeadAt, state: State, events: tuple[Event, ...], entropy: Entropy) -> Written:
    """Write one record as the committer's own thread does, and fold it in as its event loop does."""

    def lost(error: Exception) -> None:
        raise error

    committer = Committer(
        store,
        at,
        state,
        clock=lambda: NOON,
        entropy=entropy,
        patience=PATIENT,
        on_lost=lost,  # type: ignore[arg-type]  # it does not return
    )
    committed = committer._write(events)
    state.apply(committed.record, committed.head.chain, committed.head.keys.head)
    damage = committer._damage
    return Written(committer._at, state, f"{type(damage).__name__}: {damage}" if damage else "")


def halt(store: Store, at: HeadAt, reason: str, entropy: Entropy) -> None:
    """Record that a history cannot be read, as an executor's session does."""
    claiming.replace_head(
        store,
        at,
        (Halted(reason=reason, message=""),),
        at=NOON,
        entropy=entropy,
        patience=PATIENT,
        purpose=Purpose.COMMIT,
    )


def read(store: Store, keys: StoreKeys) -> State | None:
    """Read a run's history beside its writers, as whoever shows its log does."""

    def whole(seen: HeadAt) -> State:
        return history.load(store, seen.head)

    return history.consistently(store, keys, whole)


class _Clocked(Sweeper):
    """A sweeper that is told the store's time: everything in the store was written at 0."""

    now: float = 0.0

    @override
    def store_time(self) -> float:
        return self.now


@dataclass(frozen=True)
class _Cluster:
    """The API server, as the sweeper asks it. Its one resource is an object of the bucket."""

    store: Store

    def living(self) -> Living:
        resource = resource_in(self.store)
        return Living(CLUSTER, frozenset([resource.uid] if resource else []))

    def exists(self, namespace: str, name: str, uid: str) -> bool:  # noqa: ARG002  (there is but one)
        return uid in self.living().uids


def sweep(store: Store, now: float, entropy: Entropy) -> None:
    """Look through the store once, `now` seconds after everything was written, and do what is to be done."""
    runs = Runs(store, lambda: NOON, entropy, deadline=float("inf"))
    sweeper = _Clocked(runs, _Cluster(store))
    object.__setattr__(sweeper, "now", now)
    for finding in list(sweeper.look()):
        sweeper.carry_out(finding)


def keep(store: Store, keys: StoreKeys, result: str) -> Value:
    return values.Values(store, keys, PATIENT).keep(result)


def key(root: str, step: str, epoch: int) -> str:  # noqa: ARG001  (a break makes it part of the key)
    return idempotency_key(root, step)


def recorded(state: State, step: str) -> bool:
    return step in state.completed


def operate(store: Store, entropy: Draws) -> str:
    return one_pass(store, entropy, again=True)


def look(runs: Runs, head: HeadSeen, now: datetime) -> bool:
    return _look_into_inbox(runs, head, now)


def itself(store: Store) -> Store:
    return store


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Code:
    """What the processes of a scenario run: the product, but for what a break replaces.

    `store` is what stands between the product and its store, `bucket` how the store answers a write. In
    `bent` whole executors, and the people around them, do what they do.
    """

    claim: Callable[[Store, StoreKeys, Claimed, Entropy], claiming.Claim] = claim
    load: Callable[[Store, HeadAt], State] = load
    commit: Callable[[Store, HeadAt, State, tuple[Event, ...], Entropy], Written] = commit
    halt: Callable[[Store, HeadAt, str, Entropy], None] = halt
    read: Callable[[Store, StoreKeys], State | None] = read
    sweep: Callable[[Store, float, Entropy], None] = sweep
    one_pass: Callable[[Store, Draws], str] = operate
    keep: Callable[[Store, StoreKeys, str], Value] = keep
    key: Callable[[str, str, int], str] = key
    recorded: Callable[[State, str], bool] = recorded
    look: Callable[[Runs, HeadSeen, datetime], bool] = look
    store: Callable[[Store], Store] = itself
    bucket: Callable[[dict[str, int], Put], Reply] = honest
    bent: Callable[[], AbstractContextManager[None]] = as_it_is
