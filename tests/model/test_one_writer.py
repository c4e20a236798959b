"""Executors, operators and a store that loses answers, in every order that hypothesis finds.

The code under test is the real one; only time and the store's answers are made. A process that is paused is
one whose next write comes after any number of other writes, or meets them while it is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from milepost.api.resource import Phase
from milepost.checkpoint.claim import Ended, claim
from milepost.checkpoint.committer import Committed, Committer
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, load, read_head, read_records
from milepost.checkpoint.runs import HeadSeen, Runs, Stale
from milepost.errors import Fenced, StoreUnavailable
from tests.support.histories import KEYS, NOON, a_claim, a_step, an_outcome, begin, some_patience
from tests.support.store_doubles import Fault, FaultyStore, Numbers

TROUBLES = {
    "none": [],
    "lost answer": [Fault.lost_answer()],
    "lost request": [Fault.lost_request()],
    "delayed": [Fault.delayed()],
    "409": [Fault.conflict()],
    "no etag": [Fault.without_etag()],
    "all at once": [Fault.delayed(), Fault.conflict(), Fault.lost_answer(), Fault.expired()],
    "never an answer": [Fault.lost_answer()] * 200,
    "never applied": [Fault.delayed()] * 200,
}
troubles = st.sampled_from(sorted(TROUBLES))


@dataclass
class Executor:
    """A process that has claimed. `alive` until it learns that it is not the writer any more."""

    committer: Committer
    epoch: int
    alive: bool = True

    def record(self, *events: object) -> Committed:
        """Write one record, as the committer's own thread does."""
        return self.committer._write(events)  # type: ignore[arg-type]  # events of a test


def _no_loss(error: Exception) -> NoReturn:
    raise error


class OneWriter(RuleBasedStateMachine):
    """What was acknowledged, to whom, beside what the store holds."""

    @initialize()
    def begun(self) -> None:
        self.store = FaultyStore()
        self.entropy = Numbers()
        self.executors: list[Executor] = []
        self.acknowledged: dict[int, str] = {}
        self.seen: HeadSeen | None = None
        self.steps = 0
        self.attempts = 0
        head = begin(self.store, entropy=self.entropy).head
        self.acknowledge(head)
        self.highest_epoch = 0
        self.newest_attempt = 0
        self.log: list[tuple[int, str]] = []

    def acknowledge(self, head: Head) -> None:
        assert self.acknowledged.get(head.seq) in (None, head.chain), "two records of one number"
        self.acknowledged[head.seq] = head.chain

    @property
    def runs(self) -> Runs:
        return Runs(self.store, lambda: NOON, self.entropy, deadline=0.0)

    def stands(self) -> HeadAt:
        found = read_head(self.store, KEYS)
        assert isinstance(found, HeadAt)
        return found

    def start(self, attempt: int) -> None:
        """Start an executor, which claims, loads and is ready to write; or is told not to."""
        try:
            claimed = claim(
                self.store,
                KEYS,
                a_claim(attempt, writer=f"pod-{attempt}-{len(self.executors)}"),
                at=NOON,
                entropy=self.entropy,
                patience=some_patience(deadline=5.0),
            )
        except (Fenced, StoreUnavailable):
            return
        if isinstance(claimed, Ended):
            assert claimed.head.phase.terminal
            return
        self.acknowledge(claimed.head)
        committer = Committer(
            self.store,
            claimed,
            load(self.store, claimed.head),
            clock=lambda: NOON,
            entropy=self.entropy,
            patience=some_patience(deadline=5.0),
            on_lost=_no_loss,
        )
        self.executors.append(Executor(committer, claimed.head.epoch))

    def work(self, executor: Executor, size: int, *, last: bool = False) -> None:
        """Let an executor record a step, if it still believes that it may."""
        if not executor.alive:
            return
        self.steps += 1
        before = self.stands().head
        try:
            events = (an_outcome(),) if last else (a_step(f"step-{self.steps}", "x" * size),)
            committed = executor.record(*events)
        except (Fenced, StoreUnavailable):
            executor.alive = False
            return
        executor.alive = not last
        assert committed.record.epoch == executor.epoch
        assert before.epoch <= executor.epoch, "an executor wrote after a newer one had claimed"
        self.acknowledge(committed.head)

    def meddle(self, choice: int) -> None:
        """Do what another process does while a write is on its way."""
        self.store.next_puts()
        if choice == 0:
            self.start(self.attempts + 1)
        elif choice == 1:
            self.store.arrive()
        elif self.executors:
            self.work(self.executors[choice % len(self.executors)], 10)

    @rule(trouble=troubles)
    def a_new_attempt_starts(self, trouble: str) -> None:
        self.attempts += 1
        self.store.next_puts(*TROUBLES[trouble])
        self.start(self.attempts)

    @rule(choice=st.integers(0, 5))
    def a_new_attempt_races_somebody(self, choice: int) -> None:
        self.attempts += 1
        self.store.next_puts(Fault(before=partial(self.meddle, choice)))
        self.start(self.attempts)

    @rule(older=st.integers(0, 3))
    def an_old_attempt_starts_late(self, older: int) -> None:
        self.store.next_puts()
        self.start(max(self.attempts - older, 0))

    @precondition(lambda self: self.executors)
    @rule(which=st.integers(0, 9), size=st.sampled_from([10, 9000, 40_000]), trouble=troubles)
    def somebody_records_a_step(self, which: int, size: int, trouble: str) -> None:
        self.store.next_puts(*TROUBLES[trouble])
        self.work(self.executors[which % len(self.executors)], size)

    @precondition(lambda self: self.executors)
    @rule(which=st.integers(0, 9), choice=st.integers(0, 5), told=st.booleans(), applied=st.booleans())
    def somebody_is_paused_in_the_middle_of_a_write(
        self, which: int, choice: int, *, told: bool, applied: bool
    ) -> None:
        fault = Fault.lost_answer() if applied else Fault.delayed()
        meddle = partial(self.meddle, choice)
        paused = Fault(before=meddle) if told else Fault(fault.answer, applied, fault.late, after=meddle)
        executor = self.executors[which % len(self.executors)]
        self.store.next_puts(paused)
        self.work_through(executor)

    def work_through(self, executor: Executor) -> None:
        """Let an executor record a step while others write, so that what stood before says nothing."""
        if not executor.alive:
            return
        executor.alive = False  # busy: it cannot write a second time while it is paused
        self.steps += 1
        try:
            committed = executor.record(a_step(f"step-{self.steps}"))
        except (Fenced, StoreUnavailable):
            return
        executor.alive = True
        self.acknowledge(committed.head)

    @precondition(lambda self: self.executors)
    @rule(which=st.integers(0, 9), trouble=troubles)
    def somebody_ends_the_run(self, which: int, trouble: str) -> None:
        self.store.next_puts(*TROUBLES[trouble])
        self.work(self.executors[which % len(self.executors)], 0, last=True)

    @rule()
    def delayed_writes_arrive(self) -> None:
        self.store.arrive()

    @rule()
    def an_operator_looks(self) -> None:
        seen = self.runs.observe(KEYS)
        assert isinstance(seen, HeadSeen)
        self.seen = seen

    @precondition(lambda self: self.seen is not None)
    @rule(trouble=troubles)
    def an_operator_cancels_what_it_saw(self, trouble: str) -> None:
        assert self.seen is not None
        self.store.next_puts(*TROUBLES[trouble])
        try:
            ended = self.runs.end(self.seen, phase=Phase.CANCELLED, reason="Cancelled", message="")
        except (Stale, StoreUnavailable):
            return
        self.acknowledge(ended.at.head)

    @invariant()
    def the_log_holds_all_that_was_acknowledged_without_gap_or_fork(self) -> None:
        head = self.stands().head
        state = load(self.store, head)
        log = self.records(head)
        assert state.seq == head.seq == len(log)
        for seq, digest in self.acknowledged.items():
            assert log[seq - 1][1] == digest, f"record {seq} was acknowledged and is not in the log"
        assert log[: len(self.log)] == self.log, "the log was rewritten"
        self.log = log

    @invariant()
    def no_record_enters_below_an_epoch_that_was_claimed(self) -> None:
        epochs = [epoch for epoch, _ in self.log]
        assert epochs == sorted(epochs)
        assert self.stands().head.epoch >= self.highest_epoch
        self.highest_epoch = self.stands().head.epoch

    @invariant()
    def no_older_attempt_takes_over_from_a_newer_one(self) -> None:
        attempt = self.stands().head.attempt
        assert attempt >= self.newest_attempt
        self.newest_attempt = attempt

    def records(self, head: Head) -> list[tuple[int, str]]:
        return [
            (record.epoch, digest) for _, lines in read_records(self.store, head) for record, digest in lines
        ]


@pytest.mark.req("C2", "C3", "C4")
def test_there_is_one_writer_and_its_log_keeps_all_that_was_acknowledged() -> None:
    run_state_machine_as_test(
        OneWriter,
        settings=settings(
            max_examples=100,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
