from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.checkpoint.answers import Done, Lost, Purpose, Write
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.sending import FIRST_PAUSE, LONGEST_PAUSE, Patience, persist, send
from milepost.checkpoint.store import Found, Unknown
from milepost.errors import Corrupt, Fenced, ProtocolBreach, RunDeleted, StoreRefused, StoreUnavailable
from tests.support.histories import KEYS, a_step, after, begin, some_patience, take
from tests.support.store_doubles import FakeTime, Fault, FaultyStore, Numbers

BLOB = Write(Purpose.CREATE, KEYS.blob("b" * 64), b"value")


class Run:
    """A claimed run on a faulty store, and the next commit of its writer, not yet sent."""

    def __init__(self) -> None:
        self.store = FaultyStore()
        self.entropy = Numbers()
        begin(self.store, entropy=self.entropy)
        self.claimed = take(self.store, entropy=self.entropy)
        self.write = self.commit_on(self.claimed)
        self.time = FakeTime()
        self.store.puts.clear()

    def commit_on(self, at: HeadAt, purpose: Purpose = Purpose.COMMIT) -> Write:
        head = after(at.head, a_step("one"), entropy=self.entropy).head
        return Write(purpose, KEYS.head, head.body(), head.metadata(), at.etag, head)

    def send(self, write: Write | None = None, *, deadline: float = 60.0) -> Done | Lost:
        return send(self.store, write or self.write, some_patience(deadline=deadline, time=self.time))

    def stands(self) -> HeadAt:
        found = read_head(self.store, KEYS)
        assert isinstance(found, HeadAt)
        return found

    def claim_by_another(self) -> None:
        take(self.store.inner, 2, entropy=self.entropy)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    "faults",
    [
        [],
        [Fault.without_etag()],
        [Fault.lost_answer()],
        [Fault.lost_answer()] * 5,
        [Fault.lost_request()] * 5,
        [Fault.lost_request(), Fault.lost_answer(), Fault.busy()],
        [Fault.busy()],
        [Fault.busy(retry_after=2.0)],
        [Fault.conflict()] * 3,
        [Fault.clash()] * 3,
        [Fault.expired()] * 2,
        [Fault.lost_answer(), Fault.conflict()],
        [Fault.delayed()],
        [Fault.lost_answer(), Fault.expired(), Fault.clash()],
    ],
)
def test_a_write_is_sent_in_the_same_bytes_until_it_stands(run: Run, faults: list[Fault]) -> None:
    run.store.next_puts(*faults)

    outcome = run.send()

    assert outcome == Done(run.stands().etag)
    assert run.stands().head == run.write.head
    sent = {(put.key, put.body, tuple(put.metadata.items()), put.etag) for put in run.store.puts}
    assert sent == {(KEYS.head, run.write.body, tuple(run.write.metadata.items()), run.claimed.etag)}


@pytest.mark.req("C4")
def test_a_lost_answer_is_resolved_by_reading_and_changes_nothing_twice(run: Run) -> None:
    run.store.next_puts(Fault.lost_answer())

    run.send()

    assert len(run.store.puts) == 2
    assert run.stands().head.seq == run.claimed.head.seq + 1


@pytest.mark.req("C4")
def test_a_delayed_copy_that_arrives_after_the_next_commit_changes_nothing(run: Run) -> None:
    run.store.next_puts(Fault.delayed())
    outcome = run.send()
    assert isinstance(outcome, Done)
    assert run.write.head is not None
    run.send(run.commit_on(HeadAt(run.write.head, outcome.etag)))
    before = run.stands()

    run.store.arrive()

    assert run.stands() == before


@pytest.mark.req("C3", "C4")
def test_a_writer_that_was_overtaken_after_its_commit_learns_so_though_its_answer_was_lost(run: Run) -> None:
    run.store.next_puts(Fault(Unknown("reset"), after=run.claim_by_another))

    with pytest.raises(Fenced):
        run.send()
    history = load(run.store, run.stands().head)
    assert (history.epoch, list(history.completed)) == (2, ["one"])


@pytest.mark.req("C3")
def test_a_writer_that_was_overtaken_before_its_commit_records_nothing(run: Run) -> None:
    run.store.next_puts(Fault(before=run.claim_by_another))

    with pytest.raises(Fenced):
        run.send()
    history = load(run.store, run.stands().head)
    assert (history.epoch, list(history.completed)) == (2, [])


@pytest.mark.req("C2")
@pytest.mark.parametrize("purpose", [Purpose.COMMIT, Purpose.CLAIM])
@pytest.mark.parametrize("faults", [[], [Fault.busy()], [Fault.conflict()], [Fault.lost_answer()]])
def test_a_run_deleted_meanwhile_is_never_written_again(
    run: Run, purpose: Purpose, faults: list[Fault]
) -> None:
    write = run.commit_on(run.claimed, purpose)
    run.store.next_puts(*faults, Fault(before=lambda: run.store.delete(KEYS.head)))

    with pytest.raises(RunDeleted):
        run.send(write)
    assert list(run.store.list("")) == []


@pytest.mark.req("C2")
def test_a_head_that_vanishes_between_the_clash_and_the_look_is_a_deleted_run(run: Run) -> None:
    def vanish() -> None:
        run.store.delete(KEYS.head)

    run.store.next_puts(Fault(Fault.clash().answer, applied=False, after=vanish))

    with pytest.raises(RunDeleted):
        run.send()
    assert list(run.store.list("")) == []


def test_two_writers_in_one_epoch_stop_loudly(run: Run) -> None:
    run.send(run.commit_on(run.claimed))

    with pytest.raises(ProtocolBreach):
        run.send()


def test_a_clear_no_is_not_tried_again(run: Run) -> None:
    run.store.next_puts(Fault.refused())

    with pytest.raises(StoreRefused):
        run.send()
    assert len(run.store.puts) == 1


def test_a_lost_race_hands_back_what_stands(run: Run) -> None:
    write = run.commit_on(run.claimed, Purpose.CLAIM)
    run.claim_by_another()
    stands = run.stands()

    assert run.send(write) == Lost(Found(stands.head.body(), stands.etag, stands.head.metadata()))


@pytest.mark.req("C4")
@pytest.mark.parametrize("fault", [None, Fault.lost_answer(), Fault.conflict(), Fault.without_etag()])
def test_a_create_stands_once_it_holds_these_bytes(run: Run, fault: Fault | None) -> None:
    run.store.next_puts(fault)

    outcome = run.send(BLOB)

    found = run.store.get(BLOB.key)
    assert isinstance(found, Found)
    assert (found.body, Done(found.etag)) == (b"value", outcome)


def test_a_create_that_finds_its_bytes_already_there_is_done(run: Run) -> None:
    assert run.send(BLOB) == run.send(BLOB)


@pytest.mark.req("C1", "C2")
def test_a_create_never_replaces_other_bytes(run: Run) -> None:
    run.store.put_new(BLOB.key, b"other", {})

    with pytest.raises(Corrupt):
        run.send(BLOB)
    found = run.store.get(BLOB.key)
    assert isinstance(found, Found)
    assert found.body == b"other"


def test_the_deadline_ends_an_unknown_outcome_and_says_why(run: Run) -> None:
    run.store.next_puts(*[Fault.busy()] * 1000)

    with pytest.raises(StoreUnavailable) as caught:
        run.send(deadline=10.0)

    assert run.time.now == pytest.approx(10.0)
    assert caught.value.waited == pytest.approx(10.0)
    assert caught.value.cause == "503 SlowDown"
    assert {put.body for put in run.store.puts} == {run.write.body}


def test_each_pause_is_told_with_what_went_wrong_and_for_how_long_it_has(run: Run) -> None:
    told: list[tuple[str, str, float]] = []
    patience = replace(some_patience(time=run.time), on_trouble=lambda *what: told.append(what))
    run.store.next_puts(Fault.busy(retry_after=2), Fault.lost_answer())

    send(run.store, run.write, patience)

    assert told == [(KEYS.head, "503 SlowDown", 0.0), (KEYS.head, "reset by peer", 2.0)]


def test_reads_that_are_repeated_are_told_too(run: Run) -> None:
    told: list[tuple[str, str, float]] = []
    patience = replace(some_patience(time=run.time), on_trouble=lambda *what: told.append(what))
    run.store.next_gets_fail(1)

    persist(lambda: read_head(run.store, KEYS), patience)

    assert [(key, cause) for key, cause, _ in told] == [(KEYS.head, "503 on a read")]


def test_a_store_that_comes_back_at_the_deadline_is_still_met(run: Run) -> None:
    run.store.next_puts(Fault.busy(retry_after=100.0))

    assert isinstance(run.send(deadline=10.0), Done)
    assert run.time.pauses == [10.0]


def test_the_wish_of_the_store_is_honoured_where_it_is_longer(run: Run) -> None:
    run.store.next_puts(Fault.busy(retry_after=7.0), Fault.busy(retry_after=0.001))

    run.send()

    assert run.time.pauses[0] == 7.0
    assert run.time.pauses[1] > FIRST_PAUSE / 2


@pytest.mark.req("C4")
def test_a_look_that_finds_the_store_unavailable_does_not_give_up(run: Run) -> None:
    run.store.next_puts(Fault.lost_answer(), None, None, None)
    run.store.next_gets_fail(2)

    assert run.send() == Done(run.stands().etag)
    assert len(run.store.puts) == 4


def test_looks_that_stay_unavailable_end_at_the_deadline(run: Run) -> None:
    run.store.next_puts(*[Fault.conflict()] * 1000)
    run.store.next_gets_fail(1000)

    with pytest.raises(StoreUnavailable, match="503 on a read"):
        run.send(deadline=10.0)
    assert run.time.now == pytest.approx(10.0)


def _noise(level: int, size: int) -> bytes:
    return bytes([level] * size)


@given(st.integers(min_value=1, max_value=10_000), st.integers(min_value=0, max_value=255))
def test_pauses_double_up_to_a_cap_and_half_of_each_is_jitter(attempt: int, noise: int) -> None:
    whole = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempt - 1, 20))

    pause = Patience(partial(_noise, noise)).back_off(attempt)

    assert whole / 2 <= pause <= whole


def test_two_writers_do_not_pause_alike() -> None:
    pauses = {Patience(partial(_noise, noise)).back_off(4) for noise in range(256)}

    assert len(pauses) == 256
