from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.checkpoint.base import Base, base_due, base_key, make_base, parse_base
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head
from milepost.checkpoint.records import Event, Halted, Planned, Value, digest_of
from milepost.checkpoint.sealed import Segment
from milepost.errors import Corrupt, FormatTooNew
from tests.support.histories import (
    KEYS,
    a_call,
    a_claim,
    a_failure,
    a_new_head,
    a_step,
    after,
    an_end,
    an_outcome,
)
from tests.support.store_doubles import Numbers

pytestmark = pytest.mark.req("D3", "I12")

STEPS = ("one", "two", "three", "ä/0:b")


def histories() -> st.SearchStrategy[list[Event]]:
    """Return what a run may record, in an order in which it may."""
    names = st.sampled_from(STEPS)
    event: st.SearchStrategy[Event] = st.one_of(
        st.builds(a_failure, names, attempt=st.integers(1, 3), final=st.booleans()),
        st.builds(a_call, names, st.integers(1, 3)),
        st.builds(a_step, names, st.sampled_from(["x", "y", {"n": 1}])),
        st.builds(lambda total: Planned(total=total), st.integers(0, 9)),
        st.builds(
            lambda attempt, fault: a_claim(attempt, previous_end=an_end(1, fault=fault)),
            st.integers(1, 5),
            st.sampled_from(["disruption", "agent", "memory"]),
        ),
        st.just(Halted(reason="InputsInvalid", message="limit")),
    )
    return st.lists(event, max_size=25).map(_once)


def _once(events: list[Event]) -> list[Event]:
    """Leave out a second completion of a step, which no run records."""
    done: set[str] = set()
    kept = []
    for event in events:
        if event.kind == "step_completed":
            if event.step.id in done:
                continue
            done.add(event.step.id)
        kept.append(event)
    return kept


def states(events: list[Event]) -> Iterator[tuple[Head, State]]:
    """Yield each head of the run and the state at it."""
    entropy = Numbers()
    head, state = a_new_head(entropy=entropy), State()
    state.apply_all(head.records(), "k")
    yield head, state
    for event in events:
        commit = after(head, event, entropy=entropy)
        head = commit.head
        state.apply(commit.record, head.chain, "k")
        yield head, state


@settings(max_examples=60, deadline=None)
@given(histories(), st.booleans())
def test_a_base_reads_back_as_the_state_at_every_record(events: list[Event], ended: bool) -> None:  # noqa: FBT001  (drawn)
    for _, state in states([*events, an_outcome()] if ended else events):
        named, body = make_base(state, KEYS, "n")

        assert parse_base(body, named, KEYS) == state


@settings(max_examples=40, deadline=None)
@given(histories(), st.data())
def test_going_on_from_a_base_is_going_on_from_the_records(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    heads = []
    stored: tuple[Base, bytes] | None = None
    whole = State()
    for number, (head, state) in enumerate(states(events)):
        if number == cut:
            stored = make_base(state, KEYS, "n")
        heads.append(head)
        whole = state
    assert stored is not None

    resumed = parse_base(stored[1], stored[0], KEYS)
    last = heads[-1]
    lines = [line for line, _ in zip(last.tail, range(last.seq), strict=True)]
    for line, (record, digest) in zip(lines, last.records(), strict=True):
        assert digest == digest_of(line)
        if record.seq > resumed.seq:
            resumed.apply(record, digest, "k")

    assert resumed == whole


def a_state() -> State:
    *_, (_, state) = states([a_claim(1), a_step("one"), a_failure("two"), a_call("two")])
    return state


def forged(**changes: Any) -> tuple[bytes, Base]:
    """Return a base with some fields changed, and a name that has its digest."""
    named, body = make_base(a_state(), KEYS, "n")
    data = {**json.loads(body), **changes}
    bent = json.dumps(data).encode()
    return bent, replace(named, digest=hashlib.sha256(bent).hexdigest(), size=len(bent))


def test_a_base_is_named_by_the_record_that_it_reaches() -> None:
    named, body = make_base(a_state(), KEYS, "n")

    assert named == Base(1, 5, "n", len(body), hashlib.sha256(body).hexdigest())
    assert base_key(KEYS, named) == KEYS.base(1, 5, "n")


def test_a_base_holds_no_result() -> None:
    *_, (_, state) = states([a_claim(1), a_step("one", "a secret of two hundred pages")])

    assert b"secret" not in make_base(state, KEYS, "n")[1]


def test_a_base_that_is_not_the_one_named_is_corrupt() -> None:
    named, body = make_base(a_state(), KEYS, "n")

    with pytest.raises(Corrupt, match="digest"):
        parse_base(body + b" ", named, KEYS)


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": "b" * 20},
        {"seq": 4},
        {"epoch": 2},
        {"chain": None},
        {"phase": "Somewhere"},
        {"totals": {"steps_done": "1"}},
        {"totals": {"steps_total": "1"}},
        {"totals": {"ends": {"Evicted": "1"}}},
        {"totals": 7},
        {"started": None},
        {"started": {"kind": "planned", "total": 1}},
        {"completed": [["one", 3]]},
        {"completed": [["one", "3", "d"]]},
        {"completed": [[["one"], 3, "d"]]},
        {"completed": {"one": 3}},
        {"open": [{"kind": "planned", "total": 1}]},
        {"open": 7},
        {"outcome": {"kind": "nothing"}},
    ],
)
def test_a_base_with_a_right_digest_and_a_wrong_shape_is_corrupt(changes: dict[str, Any]) -> None:
    body, named = forged(**changes)

    with pytest.raises(Corrupt) as caught:
        parse_base(body, named, KEYS)
    assert caught.value.key == base_key(KEYS, named)


def test_a_base_of_a_newer_format_is_refused() -> None:
    body, named = forged(format=9)

    with pytest.raises(FormatTooNew, match="the base has format 9"):
        parse_base(body, named, KEYS)


def a_segment(first: int, last: int, size: int) -> Segment:
    return Segment(1, first, last, "n", size, "0" * 64)


def a_base(seq: int, size: int) -> Base:
    return Base(1, seq, "n", size, "0" * 64)


@pytest.mark.req("S8")
@pytest.mark.parametrize("step", [200, 2000])
def test_bases_cost_a_bounded_share_of_what_the_records_do(step: int) -> None:
    """A step of so many bytes leaves 100 bytes in each base that follows it."""
    segments: list[Segment] = []
    bases: list[Base] = []
    sealed = written = longest = 0
    per_segment = max(1, 32_000 // step)
    for number in range(3000):
        first = number * per_segment + 1
        segments.append(a_segment(first, first + per_segment - 1, per_segment * step))
        sealed += per_segment * step
        after_base = bases[-1].seq if bases else 0
        longest = max(longest, sealed - after_base * step)
        if base_due(segments, bases, ending=False):
            bases.append(a_base(segments[-1].last, 100 * segments[-1].last))
            written += bases[-1].size

    assert written <= sealed / 4 + bases[-1].size
    assert len(bases) < 4 * 3000 * per_segment * step / (256 * 1024)
    assert longest <= 256 * 1024 + 4 * bases[-1].size + 64_000


def test_a_short_run_writes_no_base_before_its_end() -> None:
    assert not base_due([a_segment(1, 10, 200_000)], [], ending=False)
    assert base_due([a_segment(1, 10, 200_000)], [], ending=True)
    assert not base_due([], [], ending=True), "all of it is in the head"
    assert not base_due([a_segment(1, 10, 200_000)], [a_base(10, 100)], ending=True)


def test_merging_segments_makes_no_base_due() -> None:
    merged = [a_segment(1, 1000, 4_000_000), a_segment(1001, 1010, 32_000)]

    assert not base_due(merged, [a_base(990, 50_000)], ending=False)


def test_large_results_do_not_stay_in_the_state() -> None:
    *_, (_, state) = states([a_claim(1), *(a_step(f"s-{n}", "x" * 9000) for n in range(3))])
    value = Value(inline="x" * 9000, size=9002)

    assert len(make_base(state, KEYS, "n")[1]) < value.size
