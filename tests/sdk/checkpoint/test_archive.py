from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

import pytest
from typing_extensions import override

from milepost import Run
from milepost.checkpoint.archive import Archive, parsed
from milepost.checkpoint.head import Head, draft
from milepost.checkpoint.history import load
from milepost.checkpoint.records import Event, Started, StepCompleted, digest_of
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Read
from milepost.errors import Corrupt, Missing
from tests.support.histories import KEYS, NOON, a_claim, a_new_head, a_step
from tests.support.sessions import RunInMemory
from tests.support.store_doubles import FaultyStore, Numbers

pytestmark = pytest.mark.req("S8", "I4")


@dataclass
class Gated(FaultyStore):
    """A store that can let its readers wait."""

    gate: threading.Event | None = None
    waited_for: threading.Event = field(default_factory=threading.Event)

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        if self.gate is not None:
            self.waited_for.set()
            self.gate.wait(60)
        return super().get(key, unless_etag=unless_etag)


def history(store: Gated, steps: int = 120) -> Iterator[Head]:
    """Write a history, merging as a committer does, and yield each head."""
    entropy = Numbers()
    head = a_new_head(entropy=entropy)
    archive = Archive(store, KEYS)
    steps_done = [a_step(f"step-{number}", "x" * 1600) for number in range(steps)]
    for event in cast("list[Event]", [a_claim(1), *steps_done]):
        planned = draft(head, (event,), at=NOON, entropy=entropy)
        commit = planned.commit([(named, archive.segment(named)) for named in planned.merging])
        for key, body in commit.objects:
            store.put_new(key, body, {})
        head = commit.head
        yield head
    store.gets.clear()


@pytest.fixture
def store() -> Gated:
    return Gated()


@pytest.fixture
def head(store: Gated) -> Head:
    *_, newest = history(store)
    assert len(newest.segments) >= 3
    return newest


def test_every_record_is_found_by_its_number(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)

    found = [archive.record(head, seq) for seq in range(1, head.seq + 1)]

    assert [record.seq for record in found] == list(range(1, head.seq + 1))
    assert len(store.gets) == len(head.segments), "each segment was fetched once"


def test_what_is_in_the_head_costs_no_request(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)

    assert archive.at_hand(head, head.seq) is not None
    assert archive.record(head, head.seq).seq == head.seq
    assert archive.line(head, head.seq) == head.tail[-1]
    assert store.gets == []


def test_it_says_what_is_at_hand(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)
    first, *_ = head.segments
    assert archive.at_hand(head, first.first) is None

    archive.segment(first)

    assert archive.at_hand(head, first.first) is not None
    assert archive.at_hand(head, first.last) is not None
    assert archive.at_hand(head, first.last + 1) is None


def test_what_was_let_go_is_read_again(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS, held=1)
    first, second, *_ = head.segments

    archive.segment(first)
    archive.segment(second)
    assert archive.at_hand(head, first.first) is None, "only the newest is held beyond the bound"
    assert archive.record(head, first.first).seq == first.first

    assert store.gets == [segment_key(KEYS, each) for each in (first, second, first)]


def test_what_was_used_last_is_held_longest(store: Gated, head: Head) -> None:
    first, second, third = head.segments[:3]
    archive = Archive(store, KEYS, held=first.size + second.size + third.size - 1)

    archive.segment(first)
    archive.segment(second)
    archive.segment(first)
    archive.segment(third)

    assert archive.at_hand(head, first.first) is not None
    assert archive.at_hand(head, second.first) is None


def test_what_was_read_before_a_merge_serves_after_it() -> None:
    store = Gated()
    heads = list(history(store))
    before = next(head for head in heads if len(head.segments) == 3)
    after = next(head for head in heads if head.seq > before.seq and head.segments[0].level == 1)
    archive = Archive(store, KEYS)
    for named in before.segments:
        archive.segment(named)
        store.delete(segment_key(KEYS, named))
    store.gets.clear()

    found = [archive.record(after, seq).seq for seq in range(1, before.segments[-1].last + 1)]

    assert found == list(range(1, before.segments[-1].last + 1))
    assert store.gets == []


def test_a_record_in_a_merged_segment_is_found_there(store: Gated, head: Head) -> None:
    merged = head.segments[0]
    assert merged.level > 0
    archive = Archive(store, KEYS)

    assert archive.event(head, 1, Started, lambda _: True).name == "triage"
    step = archive.event(head, 7, StepCompleted, lambda event: event.step.id == "step-4")
    assert step.step.id == "step-4"


def test_an_event_that_is_not_in_its_record_is_damage(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)

    with pytest.raises(Corrupt, match="record 7 does not hold") as caught:
        archive.event(head, 7, StepCompleted, lambda event: event.step.id == "step-9")
    assert caught.value.key == segment_key(KEYS, head.segments[0])


def test_a_digest_is_the_one_that_the_next_record_carries(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)

    for seq in range(1, head.seq):
        assert archive.digest(head, seq) == archive.record(head, seq + 1).prev
    assert archive.digest(head, head.seq) == head.chain


@pytest.mark.parametrize("seq", [0, -1, 10_000])
def test_a_record_that_there_is_not_is_damage(store: Gated, head: Head, seq: int) -> None:
    with pytest.raises(Corrupt, match="no segment holds record"):
        Archive(store, KEYS).line(head, seq)


def test_a_segment_that_is_gone_or_changed_is_named(store: Gated, head: Head) -> None:
    gone, changed = head.segments[0], head.segments[1]
    store.delete(segment_key(KEYS, gone))
    store.delete(segment_key(KEYS, changed))
    store.put_new(segment_key(KEYS, changed), b"{}\n", {})
    archive = Archive(store, KEYS)

    with pytest.raises(Missing) as missing:
        archive.record(head, gone.first)
    with pytest.raises(Corrupt) as corrupt:
        archive.record(head, changed.first)

    assert (missing.value.key, corrupt.value.key) == (segment_key(KEYS, gone), segment_key(KEYS, changed))
    assert archive.at_hand(head, changed.first) is None


def test_threads_that_want_the_same_segment_fetch_it_once(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)
    first = head.segments[0]
    store.gate = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(archive.record, head, seq) for seq in range(1, 9)]
        store.gate.set()
        found = [each.result(60).seq for each in waiting]

    assert found == list(range(1, 9))
    assert store.gets == [segment_key(KEYS, first)]


def test_what_is_at_hand_does_not_wait_for_what_is_being_fetched(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)
    first, second, *_ = head.segments
    archive.segment(first)
    store.gate = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        fetching = pool.submit(archive.segment, second)
        assert store.waited_for.wait(60)

        found = pool.submit(archive.event_at_hand, head, 1, Started, lambda _: True).result(60)
        asked = pool.submit(archive.at_hand, head, second.first).result(60)

        assert (found is not None, asked, fetching.done()) == (True, None, False)
        store.gate.set()
        assert fetching.result(60) == archive.segment(second)


def test_threads_that_read_all_over_the_place_see_the_records_as_they_are(
    store: FaultyStore, head: Head
) -> None:
    archive = Archive(store, KEYS, held=head.segments[0].size)

    def read(offset: int) -> list[int]:
        return [archive.record(head, (seq * 7 + offset) % head.seq + 1).seq for seq in range(60)]

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(read, range(6)))

    assert found == [[(seq * 7 + offset) % head.seq + 1 for seq in range(60)] for offset in range(6)]


def test_lines_are_parsed_with_the_digests_that_chain_them(store: Gated, head: Head) -> None:
    lines = Archive(store, KEYS).segment(head.segments[1])

    records = parsed(lines, "k")

    assert [digest for _, digest in records] == [digest_of(line) for line in lines]
    assert [record.seq for record, _ in records] == list(
        range(head.segments[1].first, head.segments[1].last + 1)
    )


def test_loading_shares_what_it_read(store: Gated, head: Head) -> None:
    archive = Archive(store, KEYS)

    state = load(store, head, archive)
    reads = len(store.gets)
    for place in state.completed.values():
        archive.record(head, place.seq)

    assert len(store.gets) == reads


async def test_a_process_holds_nothing_of_what_it_has_merged_away() -> None:
    run = RunInMemory()

    async def agent(each: Run) -> None:
        for _ in range(200):
            await each.step("it", lambda: "x" * 1600)

    await run.go_on(agent)

    committer = run.journals[-1]._committer
    named = {(segment.first, segment.last) for segment in committer.head.segments}
    assert any(segment.level for segment in committer.head.segments), "it has merged"
    assert set(committer.archive._parts) <= named
