"""A committer that dies at any call of the store, in a run that seals, merges twice over and writes bases."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

import pytest
from typing_extensions import override

from milepost.api.resource import Phase
from milepost.checkpoint.base import base_key
from milepost.checkpoint.committer import Committed, Committer
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import load
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Event, Halted
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Answer, Read, Stored
from milepost.checkpoint.survey import survey
from milepost.errors import Missing, RunHalted
from tests.support.histories import KEYS, NOON, a_step, an_outcome, begin, some_patience, take
from tests.support.long_runs import bases_of, body_of, copy_of, flip, head_of, overwrite, segments_of
from tests.support.store_doubles import Crashed, FaultyStore, Numbers

pytestmark = [pytest.mark.req("C1", "I4", "I12"), pytest.mark.timeout(240)]

STEPS: Final = 130
SIZE: Final = 7000
"""Characters of a result: four of them fill a head, and a base is due after forty."""


@dataclass
class Dying(FaultyStore):
    """A store at whose call number `at` the process dies: before it is applied, or before it hears so."""

    at: int = 0
    applied: bool = True
    calls: list[str] = field(default_factory=list)

    def _call(self, what: str, call: Callable[[], Read | Answer]) -> Read | Answer:
        self.calls.append(what)
        if len(self.calls) > self.at > 0:
            raise Crashed
        if len(self.calls) == self.at:
            if self.applied:
                call()
            raise Crashed
        return call()

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        got = self._call(f"get {key}", lambda: self.inner.get(key, unless_etag=unless_etag))
        assert isinstance(got, Read)
        return got

    @override
    def _put(self, put: object) -> Answer:
        raise NotImplementedError

    @override
    def put_new(self, key: str, body: bytes, metadata: object) -> Answer:
        stored = self._call(f"put {key}", lambda: self.inner.put_new(key, body, {}))
        assert isinstance(stored, Answer)
        return stored

    @override
    def put_if(self, key: str, body: bytes, metadata: object, *, etag: str) -> Answer:
        stored = self._call(f"put {key}", lambda: self.inner.put_if(key, body, {}, etag=etag))
        assert isinstance(stored, Answer)
        return stored


class Ended(Exception):
    """Stands for the process that `on_lost` ends."""


def _lost(error: Exception) -> NoReturn:
    raise Ended from error


def events(steps: int) -> Iterator[Event]:
    for number in range(steps):
        yield a_step(f"step-{number}", "x" * SIZE)
    yield an_outcome()


@dataclass
class Life:
    """One process at work: what was acknowledged to it, and what it reported."""

    acknowledged: list[str] = field(default_factory=list)
    log: list[Committed] = field(default_factory=list)
    lost: BaseException | None = None


async def live(store: Dying, attempt: int = 1, steps: int = STEPS) -> Life:
    """Claim the run, record what is not recorded yet, and end it; or die."""
    life = Life()
    claimed = take(FaultyStore(store.inner), attempt, entropy=Numbers(1000 * attempt))
    state = load(store.inner, claimed.head)
    committer = Committer(
        store,
        claimed,
        state,
        clock=lambda: NOON,
        entropy=Numbers(5000 * attempt),
        patience=some_patience(),
        on_lost=_lost,
        on_commit=life.log.append,
    )
    try:
        for event in events(steps):
            if event.kind == "step_completed" and event.step.id in state.completed:
                continue
            await asyncio.wait_for(committer.commit(event), 30)
            life.acknowledged.append(event.step.id if event.kind == "step_completed" else "end")
    except (Ended, Crashed, RunHalted) as error:
        life.lost = error.__cause__ or error
    finally:
        committer.close()
    return life


def begun() -> MemoryStore:
    store = MemoryStore()
    begin(store, entropy=Numbers())
    return store


async def the_calls() -> list[str]:
    """Return the calls of a run that nothing disturbs."""
    store = Dying(begun())
    life = await live(store)
    assert life.acknowledged[-1] == "end"
    head = head_of(store.inner)
    assert len(head.bases) == 3
    levels = [segment.level for segment in head.segments]
    assert max(levels) == 2, "it merges at two levels"
    return store.calls


def check(store: MemoryStore, life: Life) -> Head:
    """Hold what is stored against what was acknowledged."""
    head = head_of(store)
    state = load(store, head)
    steps = [step for step in life.acknowledged if step != "end"]
    assert set(steps) <= set(state.completed)
    assert len(state.completed) <= len(steps) + 1, "at most the one that was on its way"
    seen = survey(store, KEYS)
    assert (seen.problems, seen.trusted, seen.repeats) == ((), head.seq, ())
    assert folded(store, head) == state, "from record 1 it is the same"
    return head


def folded(store: MemoryStore, head: Head) -> State:
    """Return the state folded from record 1, without any base."""
    without = copy_of(store)
    for base in head.bases:
        without.delete(base_key(KEYS, base))
    return load(without, head)


async def test_wherever_it_is_cut_off_nothing_acknowledged_is_lost_and_the_next_one_goes_on() -> None:
    calls = await the_calls()
    sealing = [
        number for number, call in enumerate(calls, start=1) if "/segments/" in call or "/bases/" in call
    ]
    # Every call of a commit that seals, merges or writes a base, and one in twelve of the plain ones.
    points = sorted(
        {*sealing, *(number + 1 for number in sealing), *range(1, len(calls) + 1, 12), len(calls)}
    )
    assert len(sealing) > 40

    for at in points:
        for applied in (False, True):
            store = Dying(begun(), at=min(at, len(calls)), applied=applied)
            life = await live(store)
            head = check(store.inner, life)
            if head.phase is Phase.SUCCEEDED:
                continue
            if at % 4 == 0:
                after = await live(Dying(store.inner), attempt=2)
                assert after.lost is None
                assert len(load(store.inner, head_of(store.inner)).completed) == STEPS


_stored: list[MemoryStore] = []


async def a_stored_run() -> MemoryStore:
    """Return a run with three bases that has not ended. It is the same each time, and made once."""
    if not _stored:
        calls = await the_calls()
        store = Dying(begun(), at=len(calls), applied=False)
        await live(store)
        assert len(head_of(store.inner).bases) == 3
        _stored.append(store.inner)
    return copy_of(_stored[0])


@pytest.mark.req("D3")
@pytest.mark.parametrize("bad", [(2,), (1, 2), (0, 1, 2), (0,), (0, 2)])
@pytest.mark.parametrize("how", ["gone", "flipped", "another's", "newer", "older", "empty"])
async def test_a_bad_base_is_replaced_by_the_one_before_it_or_by_the_records(
    bad: tuple[int, ...], how: str
) -> None:
    store = await a_stored_run()
    whole = load(store, head_of(store))
    keys = bases_of(store)
    bodies = [body_of(store, key) for key in keys]
    for number in bad:
        _spoil(store, keys[number], how, bodies[number - 1])
    told: list[str] = []

    state = load(store, head_of(store), on_damage=lambda error: told.append(error.key))

    assert state == whole
    newest_good = max((number for number in range(3) if number not in bad), default=-1)
    assert told == [keys[number] for number in range(2, newest_good, -1)]


def _spoil(store: MemoryStore, key: str, how: str, anothers: bytes) -> None:
    body = body_of(store, key)
    match how:
        case "gone":
            store.delete(key)
        case "flipped":
            flip(store, key)
        case "another's":
            overwrite(store, key, anothers)
        case "newer" | "older":
            _name_anew(
                store,
                key,
                body.replace(b'"format":2', b'"format":9' if how == "newer" else b'"format":0', 1),
            )
        case _:
            overwrite(store, key, b"")


def _name_anew(store: MemoryStore, key: str, body: bytes) -> None:
    """Put other bytes in a base's place, and let the head name them by their digest."""
    head = head_of(store)
    bases = tuple(
        replace(base, digest=hashlib.sha256(body).hexdigest()) if base_key(KEYS, base) == key else base
        for base in head.bases
    )
    overwrite(store, key, body)
    overwrite(store, KEYS.head, replace(head, bases=bases).body())


@dataclass
class Spoiling(Dying):
    """A store that damages the next object of a kind as soon as it is written."""

    kind: str = "/bases/"
    after: int = 3
    spoilt: str = ""

    @override
    def put_new(self, key: str, body: bytes, metadata: object) -> Answer:
        stored = super().put_new(key, body, metadata)
        if self.kind in key and isinstance(stored, Stored):
            self.after -= 1
            if self.after < 0 and not self.spoilt:
                self.spoilt = key
                flip(self.inner, key)
        return stored


@pytest.mark.req("C1", "C5")
async def test_a_base_that_does_not_read_back_replaces_no_older_one() -> None:
    store = Spoiling(begun())

    life = await live(store, steps=STEPS + 60)

    head = head_of(store.inner)
    assert store.spoilt
    assert store.spoilt not in bases_of(store.inner)
    assert len(head.bases) == 3
    assert (head.phase, head.reason) == (Phase.HALTED, "Corrupt")
    assert store.spoilt in head.message
    assert isinstance(life.lost, RunHalted)
    check(store.inner, life)


async def test_a_base_of_the_end_that_does_not_read_back_is_left_out() -> None:
    store = Spoiling(begun())

    life = await live(store)

    head = head_of(store.inner)
    assert store.spoilt
    assert store.spoilt not in bases_of(store.inner)
    assert (head.phase, len(head.bases), life.lost) == (Phase.SUCCEEDED, 3, None)


@pytest.mark.req("D3")
async def test_damage_that_is_met_while_merging_halts_the_run_and_records_what_ended() -> None:
    store = Dying(begun())
    entropy = Numbers(77)
    claimed = take(FaultyStore(store.inner), 1, entropy=entropy)
    lost: list[Exception] = []

    def note(error: Exception) -> NoReturn:
        lost.append(error)
        raise Ended

    committer = Committer(
        store,
        claimed,
        load(store.inner, claimed.head),
        clock=lambda: NOON,
        entropy=entropy,
        patience=some_patience(),
        on_lost=note,
        explain=lambda error: f"explained: {error}",
    )
    done = 0
    while len(committer.head.segments) < 3:
        await committer.commit(a_step(f"step-{done}", "x" * SIZE))
        done += 1
    # What is held need not be read again: another process would not hold it.
    committer.archive._parts.clear()
    damaged = segments_of(store.inner)[1]
    flip(store.inner, damaged)

    with contextlib.suppress(Ended, RunHalted):
        while done < STEPS:
            await committer.commit(a_step(f"step-{done}", "x" * SIZE))
            done += 1
    committer.close()

    head = head_of(store.inner)
    last = [event for record, _ in head.records() for event in record.events][-1]
    assert isinstance(last, Halted)
    assert last.message == f"explained: {damaged}: it does not match the digest in the head"
    assert (head.phase, head.reason) == (Phase.HALTED, "Corrupt")
    assert damaged in segments_of(store.inner), "it is kept as it is"
    assert head.totals.steps_done == done, "what ended is recorded"
    assert [type(error) for error in lost] == [RunHalted]


async def test_a_segment_that_is_gone_is_missing_and_not_cut_off() -> None:
    store = await a_stored_run()
    key = segment_key(KEYS, head_of(store).segments[0])
    store.delete(key)

    with pytest.raises(Missing) as caught:
        load(store, head_of(store))
    assert caught.value.key == key
