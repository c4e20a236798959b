from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.answers import Purpose, Write
from milepost.checkpoint.claim import Ended, claim, replace_head
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.records import OPERATOR, Halted
from milepost.checkpoint.sending import send
from milepost.checkpoint.store import Found, Stored, Unknown
from milepost.errors import Corrupt, Fenced, FormatTooNew, RunDeleted, StoreUnavailable
from tests.support.histories import (
    KEYS,
    NOON,
    a_claim,
    a_step,
    after,
    an_end,
    an_outcome,
    begin,
    some_patience,
    take,
)
from tests.support.store_doubles import Crashed, Fault, FaultyStore, Numbers


class Run:
    """A run that was begun and not claimed, on a faulty store."""

    def __init__(self) -> None:
        self.store = FaultyStore()
        self.entropy = Numbers()
        begin(self.store, entropy=self.entropy)

    def claim(self, attempt: int = 1, **changes: Any) -> HeadAt | Ended:
        return claim(
            self.store,
            KEYS,
            a_claim(attempt, **changes),
            at=NOON,
            entropy=self.entropy,
            patience=some_patience(),
        )

    def take(self, attempt: int = 1, **changes: Any) -> HeadAt:
        return take(self.store, attempt, entropy=self.entropy, **changes)

    def take_directly(self, attempt: int) -> None:
        """Claim as another process does whose requests meet no fault."""
        take(self.store.inner, attempt, entropy=self.entropy)

    def stands(self) -> HeadAt:
        found = read_head(self.store, KEYS)
        assert isinstance(found, HeadAt)
        return found

    def commit_on(self, at: HeadAt, *events: Any) -> None:
        head = after(at.head, *(events or (a_step("late"),)), entropy=self.entropy).head
        write = Write(Purpose.COMMIT, KEYS.head, head.body(), head.metadata(), at.etag, head)
        send(self.store.inner, write, some_patience())

    def overwrite(self, head: Head) -> None:
        answer = self.store.put_if(KEYS.head, head.body(), head.metadata(), etag=self.stands().etag)
        assert isinstance(answer, Stored)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.mark.req("D1")
def test_the_first_start_claims_as_every_other() -> None:
    run = Run()

    taken = run.claim(1, node="n1", tools={"send": "2"})

    assert taken == run.stands()
    state = load(run.store, run.stands().head)
    assert (state.seq, state.epoch, state.phase) == (2, 1, Phase.RUNNING)


@pytest.mark.req("C3")
def test_a_second_claim_fences_the_first(run: Run) -> None:
    first = run.take(1)

    second = run.take(2)

    with pytest.raises(Fenced) as caught:
        run.commit_on(first)
    assert (caught.value.held_epoch, caught.value.seen_epoch) == (1, 2)
    assert run.stands() == second


@pytest.mark.req("C3")
def test_an_old_executor_stays_fenced_whatever_was_recorded_since(run: Run) -> None:
    first = run.take(1)
    second = run.take(2)
    run.commit_on(second, a_step("one"))
    run.commit_on(run.stands(), a_step("two"))

    with pytest.raises(Fenced):
        run.commit_on(first)
    assert list(load(run.store, run.stands().head).completed) == ["one", "two"]


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("attempt", "writer"), [(2, "pod-x"), (1, "pod-1"), (1, "pod-2"), (0, "pod-0")], ids=str
)
def test_a_stale_attempt_never_takes_over(run: Run, attempt: int, writer: str) -> None:
    standing = run.take(2)

    with pytest.raises(Fenced):
        run.claim(attempt, writer=writer)
    assert run.stands() == standing


def test_the_same_pod_may_claim_again_and_its_predecessor_is_counted_once(run: Run) -> None:
    run.take(1)
    first = run.take(2, previous_end=an_end(1, fault="agent"))

    again = run.take(2, previous_end=an_end(1, fault="agent"))

    assert again.head.epoch == 3
    assert again.head.totals == first.head.totals
    assert again.head.totals.lost_tries == 1
    with pytest.raises(Fenced):
        run.commit_on(first)


def test_a_halted_run_is_gone_on_with_by_claiming_it(run: Run) -> None:
    run.commit_on(run.take(1), Halted(reason="InputsInvalid", message="limit"))

    assert run.take(2).head.phase is Phase.RUNNING


@pytest.mark.parametrize("end", [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED])
def test_a_run_that_has_ended_is_never_claimed(run: Run, end: Phase) -> None:
    run.commit_on(run.take(1), an_outcome(end))
    standing = run.stands()

    assert run.claim(2) == Ended(standing.head)
    assert run.stands() == standing


@pytest.mark.req("C2")
def test_a_head_that_is_absent_is_never_created(run: Run) -> None:
    run.store.delete(KEYS.head)

    with pytest.raises(RunDeleted):
        run.claim(1)
    assert list(run.store.list("")) == []


def test_a_run_that_is_being_deleted_is_never_claimed(run: Run) -> None:
    run.overwrite(replace(run.stands().head, phase=Phase.DELETING))
    standing = run.stands()

    with pytest.raises(RunDeleted):
        run.claim(1)
    assert run.stands() == standing


@pytest.mark.req("C2")
def test_a_head_that_is_deleted_during_the_claim_is_never_created(run: Run) -> None:
    run.store.next_puts(Fault(before=lambda: run.store.delete(KEYS.head)))

    with pytest.raises(RunDeleted):
        run.claim(1)
    assert list(run.store.list("")) == []


@pytest.mark.req("C3")
def test_a_race_lost_to_an_older_attempt_is_run_again(run: Run) -> None:
    run.store.next_puts(Fault(before=lambda: run.take_directly(2)))

    taken = run.take(3)

    assert (taken.head.epoch, taken.head.attempt, taken.head.writer) == (2, 3, "pod-3")
    assert taken == run.stands()


@pytest.mark.req("C3")
def test_a_race_lost_to_a_newer_attempt_ends_this_one(run: Run) -> None:
    run.store.next_puts(Fault(before=lambda: run.take_directly(3)))

    with pytest.raises(Fenced):
        run.claim(2)
    assert run.stands().head.writer == "pod-3"


def test_a_race_lost_to_the_end_of_the_run_claims_nothing(run: Run) -> None:
    first = run.take(1)
    run.store.next_puts(Fault(before=lambda: run.commit_on(first, an_outcome())))

    taken = run.claim(2)

    assert taken == Ended(run.stands().head)


@pytest.mark.req("C3")
def test_a_claim_that_races_a_commit_loses_no_record(run: Run) -> None:
    first = run.take(1)
    run.store.next_puts(Fault(before=lambda: run.commit_on(first, a_step("one"))))

    taken = run.take(2)

    assert list(load(run.store, taken.head).completed) == ["one"]
    with pytest.raises(Fenced):
        run.commit_on(first, a_step("two"))


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    "faults",
    [
        [Fault.lost_answer()],
        [Fault.lost_request()],
        [Fault.delayed()],
        [Fault.without_etag()],
        [Fault.conflict(), Fault.busy(), Fault.lost_answer()],
    ],
)
def test_trouble_with_the_store_costs_a_claim_no_epoch(run: Run, faults: list[Fault]) -> None:
    run.store.next_puts(*faults)

    taken = run.take(1)

    assert taken == run.stands()
    assert (taken.head.epoch, taken.head.seq) == (1, 2)
    run.store.arrive()
    assert taken == run.stands()


@pytest.mark.req("C4")
def test_a_claim_whose_lost_answer_was_followed_by_another_claim_is_fenced(run: Run) -> None:
    run.store.next_puts(Fault(Unknown("reset"), after=lambda: run.take_directly(2)))

    with pytest.raises(Fenced):
        run.claim(1)
    assert (run.stands().head.epoch, run.stands().head.writer) == (2, "pod-2")


def test_a_claim_without_any_answer_ends_at_the_deadline(run: Run) -> None:
    run.store.next_puts(*[Fault.busy()] * 1000)

    with pytest.raises(StoreUnavailable):
        run.claim(1)


@pytest.mark.req("C3")
def test_a_process_that_dies_in_its_claim_is_followed_by_the_next(run: Run) -> None:
    run.store.next_puts(Fault.crash(applied=True))
    with pytest.raises(Crashed):
        run.claim(1)

    taken = run.take(2)

    assert (taken.head.epoch, taken.head.attempt) == (2, 2)


@pytest.mark.req("D2")
def test_a_damaged_head_is_not_claimed(run: Run) -> None:
    body = run.stands().head.body()
    run.store.put_if(KEYS.head, body[:-1], {}, etag=run.stands().etag)

    with pytest.raises(Corrupt):
        run.claim(1)
    found = run.store.get(KEYS.head)
    assert isinstance(found, Found)
    assert found.body == body[:-1]


@pytest.mark.req("D10")
def test_a_head_of_a_newer_format_is_not_claimed(run: Run) -> None:
    body = run.stands().head.body().replace(b'"format":3', b'"format":4', 1)
    run.store.put_if(KEYS.head, body, {}, etag=run.stands().etag)

    with pytest.raises(FormatTooNew):
        run.claim(1)


@pytest.mark.req("C3")
def test_the_operators_claim_fences_the_executor_and_keeps_the_attempt(run: Run) -> None:
    first = run.take(4)

    taken = replace_head(
        run.store,
        run.stands(),
        (a_claim(4, writer=OPERATOR), an_outcome(Phase.CANCELLED, reason="Cancelled")),
        at=NOON,
        entropy=run.entropy,
        patience=some_patience(),
    )

    assert taken == run.stands()
    assert (run.stands().head.attempt, run.stands().head.phase) == (4, Phase.CANCELLED)
    with pytest.raises(Fenced):
        run.commit_on(first)


def test_a_claim_that_finds_the_tail_full_seals_it_first(run: Run) -> None:
    run.commit_on(run.take(1), a_step("one", "x" * 31_000))
    run.store.puts.clear()

    taken = run.take(2, tools={f"tool-{number}": "1" for number in range(50)})

    assert [put.key.split("/")[3] for put in run.store.puts] == ["segments", "head"]
    assert len(taken.head.segments) == 1
    assert load(run.store, taken.head).seq == taken.head.seq
