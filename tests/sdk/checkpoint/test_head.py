from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.head import MAX_TAIL, Commit, Head, parse_head
from milepost.checkpoint.records import OPERATOR, Event, Halted, Record, Value, parse_line
from milepost.checkpoint.sealed import Segment, lines_of, segment_key
from milepost.errors import Corrupt, FormatTooNew, ProtocolBreach
from tests.support.histories import (
    KEYS,
    a_claim,
    a_new_head,
    a_step,
    after,
    an_end,
    an_outcome,
    commits,
)
from tests.support.store_doubles import Numbers


def last(*events: Event) -> Head:
    return list(commits(*events))[-1].head


def steps(count: int, size: int) -> list[Event]:
    return [a_step(f"step-{number}", "x" * size) for number in range(count)]


def sealed_records(written: list[Commit]) -> list[Record]:
    """Read the records of all segments that the newest head names, from what the commits wrote."""
    bodies = dict(written_object for commit in written for written_object in commit.objects)
    return [
        parse_line(line, "k")
        for named in written[-1].head.segments
        for line in lines_of(bodies[segment_key(KEYS, named)], named, KEYS)
    ]


def test_a_head_reads_back_equal() -> None:
    head = last(a_claim(1, previous_end=an_end(0, fault="memory")), *steps(60, 1000), an_outcome())
    assert len(head.segments) == 2
    assert len(head.tail) > 1

    assert parse_head(head.body(), KEYS) == head


def test_the_first_head_belongs_to_nobody_yet() -> None:
    head = a_new_head(entropy=Numbers())

    assert (head.seq, head.epoch, head.attempt, head.writer, head.phase) == (1, 0, 0, "", Phase.PENDING)


def test_the_metadata_repeats_what_a_look_needs() -> None:
    head = last(a_claim(1))

    assert head.metadata() == {"seq": "2", "epoch": "1", "phase": "Running", "nonce": head.nonce}


def test_a_claim_begins_an_epoch_in_its_writers_name() -> None:
    head = last(a_claim(1), a_claim(4, image="agent:2"))

    assert (head.epoch, head.attempt, head.writer, head.image) == (2, 4, "pod-4", "agent:2")


def test_the_operators_claim_changes_neither_phase_nor_image() -> None:
    head = last(a_claim(3), a_claim(3, writer=OPERATOR, image=""))

    assert (head.epoch, head.attempt, head.writer) == (2, 3, OPERATOR)
    assert (head.phase, head.image) == (Phase.RUNNING, "agent:1")


@pytest.mark.req("C2")
def test_no_two_heads_are_equal_in_bytes_even_if_they_say_the_same() -> None:
    entropy = Numbers()
    before = a_new_head(entropy=entropy)

    bodies = {after(before, a_claim(1), entropy=entropy).head.body() for _ in range(50)}

    assert len(bodies) == 50


def test_a_halt_is_explained_until_an_executor_goes_on() -> None:
    halted = last(a_claim(1), Halted(reason="InputsInvalid", message="limit: missing"))
    entropy = Numbers(1000)
    adopted = after(halted, a_claim(1, writer=OPERATOR), entropy=entropy).head
    resumed = after(adopted, a_claim(2), entropy=entropy).head

    assert (halted.phase, halted.reason, halted.message) == (Phase.HALTED, "InputsInvalid", "limit: missing")
    assert (adopted.phase, adopted.reason) == (Phase.HALTED, "InputsInvalid")
    assert (resumed.phase, resumed.reason, resumed.message) == (Phase.RUNNING, "", "")


@pytest.mark.parametrize("end", [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED])
def test_nothing_follows_an_end(end: Phase) -> None:
    ended = last(a_claim(1), an_outcome(end))

    for event in (a_step("late"), a_claim(2), a_claim(1, writer=OPERATOR), an_outcome(Phase.CANCELLED)):
        with pytest.raises(ProtocolBreach, match="has ended"):
            after(ended, event, entropy=Numbers())


def test_nothing_follows_an_end_within_its_record() -> None:
    with pytest.raises(ProtocolBreach, match="step_completed cannot follow"):
        after(last(a_claim(1)), an_outcome(), a_step("late"), entropy=Numbers())


@pytest.mark.req("C1", "D2")
def test_every_changed_or_missing_byte_is_found() -> None:
    head = last(a_claim(1), *steps(2, 10))
    body = head.body()
    for position in range(len(body)):
        changed = bytearray(body)
        changed[position] ^= 0x01
        with pytest.raises((Corrupt, FormatTooNew)):
            parse_head(bytes(changed), KEYS)
        with pytest.raises(Corrupt):
            parse_head(body[:position], KEYS)


@pytest.mark.req("D2")
@pytest.mark.parametrize(
    "body", [b"", b"\n", b"null\n", b"{}\n", b"[]\n", b'{"format":1}\n', b'{"format":"1"}\n', b"\xff\n"]
)
def test_what_is_no_head_is_reported(body: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        parse_head(body, KEYS)
    assert caught.value.key == KEYS.head


@pytest.mark.req("D2")
def test_the_head_of_another_run_is_refused() -> None:
    body = last(a_claim(1)).body()

    for other in (StoreKeys("team", "b" * 20), StoreKeys("other", KEYS.run_id)):
        with pytest.raises(Corrupt, match="belongs to run team/aaaa"):
            parse_head(body, other)


@pytest.mark.req("D10")
def test_a_head_of_a_newer_format_is_refused_with_both_formats_named() -> None:
    with pytest.raises(FormatTooNew) as caught:
        parse_head(b'{"format":7,"whatever":[]}\n', KEYS)
    assert (caught.value.key, caught.value.found, caught.value.known) == (KEYS.head, 7, 3)


def test_a_tail_that_is_not_full_is_never_sealed() -> None:
    assert all(commit.objects == () for commit in commits(a_claim(1), *steps(15, 1000)))


@settings(max_examples=15, deadline=None)
@given(st.integers())
def test_every_record_is_in_exactly_one_place_whatever_its_size(seed: int) -> None:
    sizes = random.Random(seed)  # noqa: S311  sizes, not secrets
    events = [
        a_step(f"step-{number}", "x" * sizes.choice([10, 500, 1600, 9000, sizes.randrange(40_000)]))
        for number in range(500)
    ]

    written = list(commits(a_claim(1), *events))

    for number, commit in enumerate(written, start=1):
        assert sum(map(len, commit.head.tail)) <= MAX_TAIL
        assert len(commit.head.segments) == sum(len(each.objects) for each in written[:number])
    head = written[-1].head
    places = [*sealed_records(written), *(parse_line(line, "k") for line in head.tail)]
    assert [record.seq for record in places] == list(range(1, 503))
    assert head.seq == 502


@pytest.mark.req("C1")
def test_a_head_names_a_segment_only_in_the_commit_that_writes_it_first() -> None:
    for commit in commits(a_claim(1), *steps(60, 1600)):
        for key, body in commit.objects:
            newest = commit.head.segments[-1]
            assert key == segment_key(KEYS, newest)
            assert lines_of(body, newest, KEYS)


def test_a_record_larger_than_any_tail_goes_straight_into_a_segment() -> None:
    written = list(commits(a_claim(1), a_step("small"), a_step("large", "x" * 50_000), a_step("next")))

    large = written[2]
    assert len(large.objects) == 1
    assert large.head.tail == ()
    assert [(segment.first, segment.last) for segment in large.head.segments] == [(1, 4)]
    assert written[3].objects == ()
    assert [parse_line(line, "k").seq for line in written[3].head.tail] == [5]


@pytest.mark.req("S8")
def test_a_step_costs_little_more_than_one_write() -> None:
    written = list(commits(a_claim(1), *steps(1000, 1100)))

    puts = sum(1 + len(commit.objects) for commit in written)

    assert puts / len(written) <= 1.15


def test_the_end_of_a_run_fits_the_head_with_the_largest_result_and_message() -> None:
    result = "\N{SNOWMAN}" * (16 * 1024 // 3)
    end = an_outcome(Phase.FAILED, message="\x00" * 100_000, result=Value(inline=result, size=16 * 1024))

    head = last(a_claim(1), *steps(15, 1600), end)

    assert parse_line(head.tail[-1], "k").events == (end,)


class TestSegments:
    sealing = next(commit for commit in commits(a_claim(1), *steps(30, 1600)) if commit.objects)
    named: Segment = sealing.head.segments[0]

    @property
    def body(self) -> bytes:
        return self.sealing.objects[0][1]

    def test_a_segment_reads_back_equal(self) -> None:
        records = [parse_line(line, "k") for line in lines_of(self.body, self.named, KEYS)]

        assert [record.seq for record in records] == list(range(1, self.named.last + 1))

    @pytest.mark.req("C1", "D2")
    def test_a_changed_or_cut_segment_is_found(self) -> None:
        for body in (self.body[:-1], self.body + b"\n", self.body.replace(b"xx", b"xy", 1), b""):
            with pytest.raises(Corrupt, match="digest in the head"):
                lines_of(body, self.named, KEYS)

    @pytest.mark.req("D2")
    def test_another_segment_of_the_same_run_is_found(self) -> None:
        other = Segment(9, 1, 2, "n", 10, "0" * 64)

        with pytest.raises(Corrupt):
            lines_of(self.body, other, KEYS)

    @pytest.mark.req("D2")
    def test_the_segment_of_another_run_is_found(self) -> None:
        with pytest.raises(Corrupt, match="says of itself that it is"):
            lines_of(self.body, self.named, StoreKeys("team", "b" * 20))


def test_the_header_is_one_line_of_json_for_whoever_looks_with_other_tools() -> None:
    header = json.loads(last(a_claim(1)).body().partition(b"\n")[0])

    assert header["format"] == 3
    assert (header["run_id"], header["epoch"], header["phase"]) == (KEYS.run_id, 1, "Running")
    assert header["totals"] == {
        "steps_done": 0,
        "steps_total": None,
        "ends": {},
        "lost_tries": 0,
        "oom_at_step": 0,
        "steps_failed": 0,
        "steps_skipped": 0,
        "tokens": 0,
        "cost_nano_usd": 0,
        "replans": 0,
        "group": "",
        "group_done": 0,
        "gaps": 0,
    }
