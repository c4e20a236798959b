from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.api.resource import Phase
from milepost.api.summary import GateSummary, HeadSummary, Outcome
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import Gate, GateOpened, GateType
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, consistently, load, read_head, summarize
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import OPERATOR, Event, Halted, Planned, Usage, Value
from milepost.checkpoint.store import Found, Unchanged
from milepost.errors import Corrupt, Missing
from tests.support.histories import (
    KEYS,
    NOON,
    a_claim,
    a_new_head,
    a_step,
    after,
    an_end,
    an_outcome,
    begin,
    commits,
    take,
)
from tests.support.store_doubles import Numbers
from tests.support.watched_store import WatchedStore


def stored(*events: Event) -> tuple[MemoryStore, Head]:
    """Return a store that holds the segments of this history, and its newest head."""
    store = MemoryStore()
    head = a_new_head(entropy=Numbers())
    for commit in commits(*events):
        for key, body in commit.objects:
            store.put_new(key, body, {})
        head = commit.head
    return store, head


def long_run(steps: int) -> list[Event]:
    return [a_claim(1), *(a_step(f"step-{number}", "x" * 1600) for number in range(steps))]


def test_there_is_no_head_before_the_run_begins() -> None:
    assert read_head(MemoryStore(), KEYS) is None


def test_a_head_is_read_only_if_it_changed() -> None:
    store = MemoryStore()
    begun = begin(store, entropy=Numbers())

    assert read_head(store, KEYS) == begun
    assert read_head(store, KEYS, unless_etag=begun.etag) == Unchanged()
    assert read_head(store, KEYS, unless_etag='"older"') == begun


@pytest.mark.req("C1", "D2")
def heads_of_a_run_that_goes_on(gone: set[int]) -> tuple[int | None, list[int]]:
    """Read consistently what is gone by heads of these numbers; return the head it was read by, and all."""
    entropy = Numbers()
    store = MemoryStore()
    begin(store, entropy=entropy)
    seen: list[int] = []

    def go_on(number: int, _: str) -> None:
        take(store, number, entropy=entropy)

    def read(at: HeadAt) -> int:
        seen.append(at.head.seq)
        if at.head.seq in gone:
            raise Missing("k", "it is gone")
        return at.head.seq

    return consistently(WatchedStore(store, after=go_on), KEYS, read), seen


def test_what_is_gone_is_looked_for_by_the_newest_head() -> None:
    assert heads_of_a_run_that_goes_on({1, 2}) == (3, [1, 2, 3])


def test_what_is_gone_by_one_head_after_the_other_is_damage() -> None:
    with pytest.raises(Missing):
        heads_of_a_run_that_goes_on(set(range(100)))


def test_a_damaged_head_is_reported() -> None:
    store = MemoryStore()
    begun = begin(store, entropy=Numbers())
    store.put_if(KEYS.head, begun.head.body()[:-1], {}, etag=begun.etag)

    with pytest.raises(Corrupt):
        read_head(store, KEYS)


@pytest.mark.req("D1")
@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from([10, 1600, 9000, 40_000]), max_size=60))
def test_the_state_read_back_is_the_state_that_was_folded_while_writing(sizes: list[int]) -> None:
    events: list[Event] = [
        a_claim(1),
        *(a_step(f"step-{number}", "x" * size) for number, size in enumerate(sizes)),
    ]
    store, head = stored(*events)
    live = State()
    live.apply_all(a_new_head(entropy=Numbers()).records(), "k")
    for commit in commits(*events):
        live.apply(commit.record, commit.head.chain, "k")

    assert load(store, head) == live


@pytest.mark.req("D2", "F-D7")
def test_a_segment_that_is_gone_is_reported_by_its_key_and_never_skipped() -> None:
    store, head = stored(*long_run(60))
    for segment in head.segments:
        key = KEYS.segment(segment.epoch, segment.first, segment.last, segment.nonce)
        found = store.get(key)
        assert isinstance(found, Found)
        store.delete(key)
        with pytest.raises(Missing, match=f"records {segment.first} to {segment.last}") as caught:
            load(store, head)
        assert caught.value.key == key
        store.put_new(key, found.body, {})
    assert load(store, head).seq == 62


@pytest.mark.req("C1", "D2")
def test_a_segment_that_was_changed_is_reported_by_its_key() -> None:
    store, head = stored(*long_run(60))
    segment = head.segments[1]
    key = KEYS.segment(segment.epoch, segment.first, segment.last, segment.nonce)
    found = store.get(key)
    assert isinstance(found, Found)
    store.put_if(key, found.body.replace(b"xx", b"xy", 1), {}, etag=found.etag)

    with pytest.raises(Corrupt) as caught:
        load(store, head)
    assert caught.value.key == key


@pytest.mark.req("D2")
def test_a_segment_that_the_head_forgot_leaves_a_gap() -> None:
    store, head = stored(*long_run(60))

    for at in range(len(head.segments)):
        with pytest.raises(Corrupt):
            load(store, replace(head, segments=head.segments[:at] + head.segments[at + 1 :]))


@pytest.mark.req("D2")
def test_a_header_that_disagrees_with_its_records_is_damage() -> None:
    store, head = stored(*long_run(5))

    for wrong in ({"seq": head.seq + 1}, {"epoch": 2}, {"chain": "0" * 64}, {"tail": head.tail[:-1]}):
        with pytest.raises(Corrupt):
            load(store, replace(head, **wrong))


def test_a_head_without_any_record_is_damage() -> None:
    empty = replace(a_new_head(entropy=Numbers()), seq=0, tail=(), chain=State().digest)

    with pytest.raises(Corrupt, match="empty"):
        load(MemoryStore(), empty)


USED = Usage(input_tokens=70, output_tokens=7, cost_nano_usd=5)

A_GATE = Gate(
    id="g" * 20,
    type=GateType.APPROVAL,
    place="@publish=k",
    name="publish",
    key="k",
    request=Value(inline=1, size=1),
    request_digest="d" * 64,
    since=NOON.isoformat(),
)


def test_a_summary_says_all_that_the_head_knows() -> None:
    _, head = stored(
        a_claim(1),
        Planned(total=9),
        a_step("one").model_copy(update={"usage": USED}),
        a_claim(2, previous_end=an_end(1, fault="memory")),
        GateOpened(gate=A_GATE),
    )

    assert summarize(head, "memory:") == HeadSummary(
        run_id=KEYS.run_id,
        resource_uid="uid-1",
        spec_digest="spec-1",
        phase=Phase.RUNNING,
        epoch=2,
        attempt=2,
        seq=6,
        writer="pod-2",
        digest=head.chain,
        image="agent:1",
        steps_done=1,
        steps_total=9,
        oom_at_step=1,
        ends={"OOMKilled": 1},
        gates=(GateSummary("g" * 20, "Approval", "publish", "k", "d" * 64, NOON.isoformat(), ""),),
        tokens=77,
        cost_nano_usd=5,
    )


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (None, Outcome("Completed", "well")),
        (Value(inline={"n": 1}, size=7), Outcome("Completed", "well", result={"n": 1})),
        (
            Value(blob="b" * 64, size=20_000),
            Outcome("Completed", "well", result_ref=f"s3://b/p/{KEYS.blob('b' * 64)}"),
        ),
    ],
)
def test_a_summary_of_an_ended_run_says_how_and_with_what(result: Value | None, outcome: Outcome) -> None:
    _, head = stored(*long_run(3), an_outcome(message="well", result=result))

    assert summarize(head, "s3://b/p").outcome == outcome


def test_why_a_run_halted_is_known_however_often_it_was_adopted_since() -> None:
    adoptions = [a_claim(1, writer=OPERATOR) for _ in range(200)]
    _, head = stored(a_claim(1), Halted(reason="InputsInvalid", message="limit"), *adoptions)
    assert head.segments

    assert summarize(head, "memory:").outcome == Outcome("InputsInvalid", "limit")


def test_how_a_run_ended_is_known_though_its_last_record_was_sealed() -> None:
    _, head = stored(a_claim(1))
    ended = after(head, a_step("large", "x" * 50_000), an_outcome(), entropy=Numbers(99)).head
    assert ended.tail == ()

    assert summarize(ended, "memory:").outcome == Outcome("Completed", "")


def test_reading_a_claimed_run_changes_nothing() -> None:
    store = MemoryStore()
    begun = begin(store, entropy=Numbers())
    before = [(each.key, each.size) for each in store.list("")]

    head = read_head(store, KEYS)
    assert isinstance(head, HeadAt)
    load(store, head.head)

    assert [(each.key, each.size) for each in store.list("")] == before
    assert head == begun
