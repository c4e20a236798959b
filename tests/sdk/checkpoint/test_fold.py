from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.api.resource import Phase
from milepost.checkpoint.fold import Place, State, Totals
from milepost.checkpoint.records import (
    FIRST_DIGEST,
    OPERATOR,
    Event,
    Halted,
    Planned,
    Record,
    digest_of,
    line_of,
)
from milepost.errors import Corrupt
from tests.support.histories import (
    NOON,
    a_call,
    a_claim,
    a_failure,
    a_start,
    a_step,
    an_end,
    an_outcome,
    commits,
)

faults = st.sampled_from(["disruption", "agent", "memory", "start"])
running_events = st.one_of(
    st.builds(
        lambda attempt, fault: a_claim(attempt, previous_end=fault and an_end(attempt - 1, fault=fault)),
        st.integers(1, 9),
        st.none() | faults,
    ),
    st.builds(lambda attempt: a_claim(attempt, writer=OPERATOR), st.integers(1, 9)),
    st.builds(lambda total: Planned(total=total), st.integers(0, 9)),
    st.builds(a_call, st.sampled_from("abc"), st.integers(1, 3)),
    st.builds(a_failure, st.sampled_from("abc"), final=st.booleans()),
    st.just(Halted(reason="Diverged", message="step b")),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """A run's events after its start, with steps that are completed once each."""
    events = draw(st.lists(running_events, max_size=25))
    for number in range(draw(st.integers(0, 6))):
        events.insert(draw(st.integers(0, len(events))), a_step(f"step-{number}"))
    return [a_claim(1), *events, *draw(st.sampled_from([[], [an_outcome()], [an_outcome(Phase.FAILED)]]))]


def records_of(events: list[Event]) -> list[tuple[Record, str]]:
    written = list(commits(*events))
    first = Record(
        seq=1,
        epoch=0,
        worker="",
        prev=FIRST_DIGEST,
        at=NOON.isoformat(),
        events=(a_start(key_root="a" * 20),),
    )
    return [(first, digest_of(line_of(first))), *((each.record, each.head.chain) for each in written)]


def folded(records: list[tuple[Record, str]]) -> State:
    state = State()
    state.apply_all(records, "k")
    return state


@settings(max_examples=60, deadline=None)
@given(histories())
def test_a_head_counts_what_the_fold_of_the_whole_history_counts(events: list[Event]) -> None:
    records = records_of(events)

    for length, commit in enumerate(commits(*events), start=2):
        state = folded(records[:length])
        head = commit.head
        assert (head.totals, head.phase) == (state.totals, state.phase)
        assert (head.seq, head.epoch, head.chain) == (state.seq, state.epoch, state.digest)


@pytest.mark.req("D1")
@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_a_fold_that_is_cut_anywhere_goes_on_to_the_same_state(
    events: list[Event], data: st.DataObject
) -> None:
    records = records_of(events)
    cut = data.draw(st.integers(0, len(records)))

    state = folded(records[:cut])
    before = deepcopy(state)
    assert state == folded(records[:cut])
    state.apply_all(records[cut:], "k")

    assert state == folded(records)
    assert before == folded(records[:cut])


def test_the_state_is_all_that_a_resume_needs() -> None:
    state = folded(
        records_of(
            [
                a_claim(1),
                Planned(total=3),
                a_step("one", "r1"),
                a_failure("three", attempt=1),
                a_claim(2, previous_end=an_end(1, fault="agent")),
                a_call("three"),
                a_failure("three", attempt=3),
                a_step("two", "r1"),
            ]
        )
    )

    assert state.started == a_start(key_root="a" * 20)
    assert state.inputs() == {"limit": 3}
    digest = a_step("one", "r1").result_digest
    assert state.completed == {"one": Place(4, digest), "two": Place(9, digest)}
    assert state.failed == {"three": [a_failure("three", attempt=1), a_failure("three", attempt=3)]}
    assert state.calls == {"three": {1: a_call("three")}}
    assert state.steps_by_result == {digest: "one"}
    assert (state.seq, state.epoch, state.phase, state.outcome) == (9, 2, Phase.RUNNING, None)
    assert state.totals == Totals(steps_done=2, steps_total=3, ends={"Crashed": 1})


@pytest.mark.req("A1", "K1")
@pytest.mark.parametrize(
    ("events", "lost", "out_of_memory"),
    [
        ([], 0, 0),
        ([a_claim(2, previous_end=an_end(1, fault="agent"))], 1, 0),
        ([a_claim(2, previous_end=an_end(1, fault="memory"))], 1, 1),
        ([a_claim(2, previous_end=an_end(1, fault="disruption"))], 0, 0),
        ([a_claim(2, previous_end=an_end(1, fault="start"))], 0, 0),
        ([a_claim(n, previous_end=an_end(n - 1, fault="memory")) for n in (2, 3, 4)], 3, 3),
        ([a_claim(2, previous_end=an_end(1, fault="memory")), a_call("one")], 1, 1),
        ([a_claim(2, previous_end=an_end(1, fault="memory")), Planned(total=2)], 1, 1),
        ([a_claim(2, previous_end=an_end(1, fault="memory")), a_step("one")], 0, 0),
        ([a_claim(2, previous_end=an_end(1, fault="memory")), a_failure("one")], 0, 0),
    ],
)
def test_pods_lost_since_a_step_was_recorded_count_as_its_tries(
    events: list[Event], lost: int, out_of_memory: int
) -> None:
    totals = folded(records_of([a_claim(1), *events])).totals

    assert (totals.lost_tries, totals.oom_at_step) == (lost, out_of_memory)


def test_every_end_of_a_pod_is_counted_by_its_cause() -> None:
    ends = [an_end(1, fault="disruption"), an_end(2, fault="disruption"), an_end(3, fault="memory")]

    state = folded(records_of([a_claim(1), *(a_claim(end.attempt + 1, previous_end=end) for end in ends)]))

    assert state.totals.ends == {"Evicted": 2, "OOMKilled": 1}


def test_a_halt_stands_until_an_executor_claims_again() -> None:
    halt = Halted(reason="InputsInvalid", message="limit")
    halted: list[Event] = [a_claim(1), halt, a_claim(1, writer=OPERATOR)]

    assert folded(records_of(halted)).outcome == halt
    assert folded(records_of(halted)).phase is Phase.HALTED
    assert folded(records_of([*halted, a_claim(2)])).outcome is None
    assert folded(records_of([*halted, a_claim(2)])).phase is Phase.RUNNING


class TestDamage:
    records = records_of(
        [a_claim(1), a_step("one"), a_claim(2), a_step("two"), a_step("three"), an_outcome()]
    )

    def refused(self, records: list[tuple[Record, str]], why: str) -> None:
        with pytest.raises(Corrupt, match=why) as caught:
            folded(records)
        assert caught.value.key == "k"

    def follow(self, record: Record, events: tuple[Event, ...], **changes: Any) -> tuple[Record, str]:
        """Return a record that continues this one, and says what the test wants it to."""
        dull = {"seq": record.seq + 1, "epoch": record.epoch, "worker": "w", "at": "", "events": events}
        made = Record(**{**dull, "prev": digest_of(line_of(record)), **changes})
        return made, digest_of(line_of(made))

    @pytest.mark.req("D2")
    def test_a_gap_anywhere(self) -> None:
        for lost in range(len(self.records) - 1):
            self.refused([*self.records[:lost], *self.records[lost + 1 :]], "follows record")

    @pytest.mark.req("D2")
    def test_two_records_swapped(self) -> None:
        for at in range(len(self.records) - 1):
            one, other = self.records[at], self.records[at + 1]
            self.refused([*self.records[:at], other, one, *self.records[at + 2 :]], "follows record")

    @pytest.mark.req("D2")
    def test_a_record_that_was_exchanged_for_another_with_its_number(self) -> None:
        for at, (record, _) in enumerate(self.records[1:-1], start=1):
            forged = record.model_copy(update={"at": "another time"})
            line = digest_of(line_of(forged))
            self.refused([*self.records[:at], (forged, line), *self.records[at + 1 :]], "digests differ")

    @pytest.mark.req("C3", "D2")
    def test_a_record_of_an_epoch_that_was_over(self) -> None:
        claimed_again = self.records[3][0]
        late = self.follow(claimed_again, (a_step("late"),), epoch=1)

        self.refused([*self.records[:4], late], "epoch 1 after epoch 2")

    @pytest.mark.req("D2")
    def test_a_record_after_the_end(self) -> None:
        late = self.follow(self.records[-1][0], (a_step("late"),))

        self.refused([*self.records, late], "follows the end")

    @pytest.mark.req("D2")
    def test_an_event_after_the_end_in_the_same_record(self) -> None:
        both = self.follow(self.records[-2][0], (an_outcome(), a_step("late")))

        self.refused([*self.records[:-1], both], "follows the end")

    @pytest.mark.req("D2")
    def test_a_step_completed_twice(self) -> None:
        again = self.follow(self.records[-2][0], (a_step("one", "another result"),))

        self.refused([*self.records[:-1], again], "step one is recorded as completed twice")

    @pytest.mark.req("D2")
    def test_a_history_that_does_not_begin_with_its_start(self) -> None:
        first = Record(seq=1, epoch=0, worker="", prev=FIRST_DIGEST, at="", events=(a_claim(1),))

        self.refused([(first, digest_of(line_of(first)))], "`started` is missing")

    @pytest.mark.req("D2")
    def test_a_history_that_starts_twice(self) -> None:
        self.refused([*self.records[:2], self.follow(self.records[1][0], (a_start(),))], "`started`")

    def test_the_undamaged_history_is_accepted(self) -> None:
        assert folded(self.records).outcome == an_outcome()


def test_each_record_names_the_digest_of_the_one_before() -> None:
    for (_, digest), (record, _) in pairwise(records_of([a_claim(1), a_step("one"), a_step("two")])):
        assert record.prev == digest


def test_totals_of_one_state_are_not_shared_with_another() -> None:
    first = State()
    second = replace(first)
    first.apply_all(records_of([a_claim(1), a_step("one")]), "k")

    assert second.totals == Totals()
