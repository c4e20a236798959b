from __future__ import annotations

import asyncio
import math
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import NoReturn

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.base import base_key
from milepost.checkpoint.committer import Committed, Committer
from milepost.checkpoint.head import parse_head
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.records import Event, parse_line
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Found
from milepost.errors import Corrupt, Fenced, Misuse, RunDeleted, RunHalted, StoreRefused, StoreUnavailable
from tests.support.histories import (
    KEYS,
    NOON,
    a_claim,
    a_failure,
    a_step,
    an_outcome,
    begin,
    some_patience,
    take,
)
from tests.support.store_doubles import Fault, FaultyStore, Numbers

PATIENCE = 60.0


class Ended(Exception):
    """Stands for the process that `on_lost` ends."""


class Executor:
    """A claimed run and its committer. Losing the run is noted and raises, where a process would end."""

    def __init__(self, store: FaultyStore | None = None, attempt: int = 1, every_steps: int = 1) -> None:
        self.store = store or FaultyStore()
        self.entropy = Numbers(1000 * attempt)
        if read_head(self.store, KEYS) is None:
            begin(self.store, entropy=self.entropy)
        claimed = take(self.store, attempt, entropy=self.entropy)
        self.lost: list[Exception] = []
        self.lost_in: list[str] = []
        self.log: list[Committed] = []
        self.committer = Committer(
            self.store,
            claimed,
            load(self.store, claimed.head),
            clock=lambda: NOON,
            entropy=self.entropy,
            patience=some_patience(),
            on_lost=self.on_lost,
            on_commit=self.log.append,
            every_steps=every_steps,
        )
        self.store.puts.clear()

    def on_lost(self, error: Exception) -> NoReturn:
        self.lost.append(error)
        self.lost_in.append(threading.current_thread().name)
        raise Ended

    async def commit(self, *events: Event) -> None:
        await asyncio.wait_for(self.committer.commit(*events), PATIENCE)

    def stands(self) -> HeadAt:
        found = read_head(self.store, KEYS)
        assert isinstance(found, HeadAt)
        return found

    def stored_steps(self) -> list[str]:
        return list(load(self.store, self.stands().head).completed)

    def stored_records(self) -> list[list[str]]:
        lines = [parse_line(line, "k") for line in self.stands().head.tail[2:]]
        return [[event.kind for event in record.events] for record in lines]


@pytest.fixture
async def executor() -> AsyncIterator[Executor]:
    executor = Executor()
    yield executor
    executor.committer.close()


async def every(*waits: Awaitable[None]) -> None:
    await asyncio.wait_for(asyncio.gather(*waits), PATIENCE)


async def turn() -> None:
    """Let everything run that can run now."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.req("B4", "C1")
async def test_a_commit_returns_once_the_store_has_acknowledged_its_record(executor: Executor) -> None:
    await executor.commit(a_step("one"))

    assert executor.stored_steps() == ["one"]
    assert executor.committer.state == load(executor.store, executor.stands().head)
    assert executor.committer.head == executor.stands().head


@pytest.mark.req("B4")
async def test_a_commit_does_not_return_before_the_store_has_answered(executor: Executor) -> None:
    release = threading.Event()
    executor.store.next_puts(Fault(before=lambda: _wait(release)))
    waiting = asyncio.create_task(executor.commit(a_step("one")))
    await until(lambda: len(executor.store.puts) == 1)

    assert not waiting.done()
    assert executor.committer.state.completed == {}

    release.set()
    await waiting
    assert list(executor.committer.state.completed) == ["one"]


async def test_commits_are_written_in_the_order_they_were_handed_over(executor: Executor) -> None:
    await every(*(executor.commit(a_step(f"step-{number}")) for number in range(20)))

    assert executor.stored_steps() == [f"step-{number}" for number in range(20)]


async def test_commits_of_one_moment_share_one_write(executor: Executor) -> None:
    await every(*(executor.commit(a_step(f"step-{number}")) for number in range(8)))

    assert len(executor.store.puts) == 1


@pytest.mark.req("F-A12")
async def test_commits_that_come_during_a_write_share_the_next(executor: Executor) -> None:
    release = threading.Event()
    executor.store.next_puts(Fault(before=lambda: _wait(release)))
    first = asyncio.create_task(executor.commit(a_step("one")))
    await until(lambda: len(executor.store.puts) == 1)
    others = [asyncio.create_task(executor.commit(a_step(name))) for name in ("two", "three", "four")]
    await turn()
    release.set()

    await every(first, *others)

    assert executor.stored_records() == [["step_completed"], ["step_completed"] * 3]


async def test_the_end_has_a_record_to_itself(executor: Executor) -> None:
    await every(executor.commit(a_step("one")), executor.commit(a_step("two")), executor.commit(an_outcome()))

    assert executor.stored_records() == [["step_completed", "step_completed"], ["finished"]]


async def test_nothing_is_recorded_after_the_end(executor: Executor) -> None:
    end = asyncio.create_task(executor.commit(an_outcome()))
    await turn()

    with pytest.raises(Misuse, match="after the end"):
        await executor.commit(a_step("late"))
    await end
    with pytest.raises(Misuse, match="after the end"):
        await executor.commit(a_step("late"))
    assert executor.stands().head.phase is Phase.SUCCEEDED
    assert load(executor.store, executor.stands().head).completed == {}


async def test_every_commit_is_reported_with_what_a_log_line_needs(executor: Executor) -> None:
    await executor.commit(a_step("one"))

    assert [(each.head, each.record.seq, each.size) for each in executor.log] == [
        (executor.stands().head, 3, len(executor.stands().head.body()))
    ]
    assert executor.log[0].duration_s >= 0


@pytest.mark.req("C1")
async def test_a_caller_that_is_cancelled_does_not_undo_its_commit_nor_those_after_it(
    executor: Executor,
) -> None:
    release = threading.Event()
    executor.store.next_puts(Fault(before=lambda: _wait(release)))
    first = asyncio.create_task(executor.commit(a_step("one")))
    await until(lambda: len(executor.store.puts) == 1)
    second = asyncio.create_task(executor.commit(a_step("two")))
    await turn()
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    release.set()

    await executor.commit(a_step("three"))

    assert executor.stored_steps() == ["one", "two", "three"]
    assert executor.committer.state == load(executor.store, executor.stands().head)


async def test_a_flush_waits_for_what_a_cancelled_caller_has_handed_over(executor: Executor) -> None:
    release = threading.Event()
    executor.store.next_puts(Fault(before=lambda: _wait(release)))
    commit = asyncio.create_task(executor.commit(a_step("one")))
    await until(lambda: len(executor.store.puts) == 1)
    flush = asyncio.create_task(executor.committer.flush())
    await turn()
    commit.cancel()
    await turn()
    assert not flush.done()
    release.set()

    await every(flush)

    assert executor.stored_steps() == ["one"]


async def test_cancelling_every_task_there_is_stops_no_commit(executor: Executor) -> None:
    release = threading.Event()
    executor.store.next_puts(Fault(before=lambda: _wait(release)))
    waiting = asyncio.create_task(executor.commit(a_step("one")))
    await until(lambda: len(executor.store.puts) == 1)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    release.set()

    await executor.commit(a_step("two"))

    assert executor.stored_steps() == ["one", "two"]
    assert executor.committer.state == load(executor.store, executor.stands().head)


async def test_a_flush_waits_for_all_that_was_handed_over(executor: Executor) -> None:
    handed_over = [asyncio.create_task(executor.commit(a_step(f"step-{number}"))) for number in range(5)]
    await turn()
    for task in handed_over:
        task.cancel()

    await asyncio.wait_for(executor.committer.flush(), PATIENCE)

    assert len(executor.stored_steps()) == 5
    await asyncio.wait_for(executor.committer.flush(), PATIENCE)


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    "faults",
    [
        [Fault.lost_answer()],
        [Fault.lost_answer()] * 4,
        [Fault.lost_request(), Fault.conflict(), Fault.lost_answer(), Fault.expired()],
        [Fault.delayed()],
        [Fault.without_etag()],
    ],
)
async def test_trouble_with_the_store_records_a_step_exactly_once(
    executor: Executor, faults: list[Fault]
) -> None:
    executor.store.next_puts(*faults)

    await executor.commit(a_step("one"))
    await executor.commit(a_step("two"))

    assert executor.stored_records() == [["step_completed"], ["step_completed"]]
    assert executor.stored_steps() == ["one", "two"]
    assert executor.lost == []
    assert len({put.body for put in executor.store.puts}) == 2
    executor.store.arrive()
    assert executor.stored_steps() == ["one", "two"]


@pytest.mark.req("C4")
async def test_the_next_body_is_built_only_once_the_last_outcome_is_known(executor: Executor) -> None:
    executor.store.next_puts(Fault.lost_request(), Fault.lost_answer())

    await every(executor.commit(a_step("one")), executor.commit(a_step("two")))
    await executor.commit(a_step("three"))

    bodies = [put.body for put in executor.store.puts]
    assert bodies[0] == bodies[1] == bodies[2] != bodies[3]


@pytest.mark.req("C3")
async def test_a_fenced_executor_ends_and_writes_nothing_more() -> None:
    old = Executor(attempt=1)
    new = Executor(old.store, attempt=2)

    with pytest.raises(Ended):
        await old.commit(a_step("stale"))
    sent = len(old.store.puts)
    with pytest.raises(Ended):
        await old.commit(a_step("staler"))

    assert [type(error) for error in old.lost] == [Fenced]
    assert len(old.store.puts) == sent
    await new.commit(a_step("one"))
    assert new.stored_steps() == ["one"]
    assert new.lost == []


@pytest.mark.req("C3")
async def test_losing_the_run_ends_the_process_though_its_event_loop_is_blocked() -> None:
    old = Executor(attempt=1)
    Executor(old.store, attempt=2)
    ended = threading.Event()
    old.committer._on_lost = lambda error: _note(old, error, ended)
    waiting = asyncio.create_task(old.commit(a_step("stale")))
    await turn()

    assert ended.wait(60), "on_lost is called while this thread, the loop's own, is blocked"
    assert old.lost_in[0].startswith("committer")
    with pytest.raises(Ended):
        await waiting


def _note(executor: Executor, error: Exception, ended: threading.Event) -> NoReturn:
    try:
        executor.on_lost(error)
    finally:
        ended.set()


async def test_a_refusal_ends_the_process(executor: Executor) -> None:
    executor.store.next_puts(Fault.refused())

    with pytest.raises(Ended):
        await executor.commit(a_step("one"))
    assert [type(error) for error in executor.lost] == [StoreRefused]


@pytest.mark.req("C4")
async def test_an_outcome_unknown_at_the_deadline_ends_the_process_and_all_who_wait(
    executor: Executor,
) -> None:
    executor.store.next_puts(*[Fault.busy()] * 1000)

    ends = await asyncio.wait_for(
        asyncio.gather(*(executor.commit(a_step(name)) for name in "abc"), return_exceptions=True), PATIENCE
    )

    assert [type(end) for end in ends] == [Ended] * 3
    assert [type(error) for error in executor.lost] == [StoreUnavailable]
    with pytest.raises(Ended):
        await executor.commit(a_step("d"))
    await asyncio.wait_for(executor.committer.flush(), PATIENCE)


async def test_a_run_deleted_meanwhile_ends_the_process_and_is_not_created_again(executor: Executor) -> None:
    executor.store.delete(KEYS.head)

    with pytest.raises(Ended):
        await executor.commit(a_step("one"))
    assert [type(error) for error in executor.lost] == [RunDeleted]
    assert list(executor.store.list("")) == []


@pytest.mark.parametrize("where", ["entropy", "clock", "store"])
async def test_an_unexpected_error_ends_the_process_instead_of_hanging(
    executor: Executor, where: str
) -> None:
    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError(where)

    if where == "store":
        executor.store.next_puts(Fault(after=partial(fail, None)))
    else:
        setattr(executor.committer, f"_{where}", fail)

    with pytest.raises(Ended):
        await executor.commit(a_step("one"))
    assert [str(error) for error in executor.lost] == [where]


async def test_a_log_that_fails_ends_the_process_instead_of_hanging(executor: Executor) -> None:
    executor.committer._on_commit = lambda _: (_ for _ in ()).throw(ZeroDivisionError)

    with pytest.raises(ZeroDivisionError):
        await executor.commit(a_step("one"))
    assert [type(error) for error in executor.lost] == [ZeroDivisionError]
    assert executor.stored_steps() == ["one"]


async def test_a_step_completed_twice_is_never_reported_as_recorded(executor: Executor) -> None:
    await executor.commit(a_step("one"))

    with pytest.raises(Corrupt):
        await executor.commit(a_step("one", "another"))
    assert [type(error) for error in executor.lost] == [Corrupt]


@pytest.mark.req("C1")
async def test_a_full_tail_is_sealed_before_a_head_names_it(executor: Executor) -> None:
    def every_named_segment_is_there() -> None:
        for named in parse_head(executor.store.puts[-1].body, KEYS).segments:
            key = KEYS.segment(named.epoch, named.first, named.last, named.nonce)
            assert isinstance(executor.store.get(key), Found)

    executor.store.next_puts(*[Fault(before=every_named_segment_is_there)] * 40, only="/head")

    for number in range(40):
        await executor.commit(a_step(f"step-{number}", "x" * 1600))

    assert len(executor.stands().head.segments) == len(executor.store.puts_to("/segments/")) == 2
    assert executor.lost == []
    assert len(executor.stored_steps()) == 40


@pytest.mark.req("C1", "C4")
@pytest.mark.parametrize("fault", [Fault.lost_answer(), Fault.lost_request(), Fault.conflict()])
async def test_sealing_survives_trouble_with_the_store(executor: Executor, fault: Fault) -> None:
    executor.store.next_puts(fault, fault, only="/segments/")

    for number in range(60):
        await executor.commit(a_step(f"step-{number}", "x" * 1600))

    assert len(executor.stored_steps()) == 60
    assert executor.lost == []


@pytest.mark.req("C1")
async def test_a_seal_that_fails_leaves_the_history_as_it_was(executor: Executor) -> None:
    executor.store.next_puts(Fault.refused(), only="/segments/")
    acknowledged: list[str] = []

    async def work() -> None:
        for number in range(60):
            await executor.commit(a_step(f"step-{number}", "x" * 1600))
            acknowledged.append(f"step-{number}")

    with pytest.raises(Ended):
        await work()
    assert [type(error) for error in executor.lost] == [StoreRefused]
    assert executor.stored_steps() == acknowledged
    following = Executor(executor.store, attempt=2)
    await following.commit(a_step("next", "x" * 1600))
    assert following.stored_steps() == [*acknowledged, "next"]


async def test_a_failed_try_and_its_steps_are_seen_by_the_next_step_at_once(executor: Executor) -> None:
    await executor.commit(a_failure("one"))
    await executor.commit(a_failure("one", attempt=2), a_step("two"))

    assert [each.attempt for each in executor.committer.state.failed["one"]] == [1, 2]


@pytest.mark.req("F-A12")
async def test_a_forked_child_cannot_record(executor: Executor) -> None:
    await executor.commit(a_step("one"))

    child = os.fork()
    if child == 0:
        status = 1
        try:
            executor.committer.commit(a_step("two")).send(None)
        except Misuse:
            status = 7
        finally:
            os._exit(status)

    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    await executor.commit(a_step("three"))
    assert executor.stored_steps() == ["one", "three"]


async def test_an_ended_run_takes_no_more_from_the_start() -> None:
    executor = Executor()
    await executor.commit(an_outcome())
    committer = Committer(
        executor.store,
        executor.stands(),
        load(executor.store, executor.stands().head),
        clock=lambda: NOON,
        entropy=Numbers(),
        patience=some_patience(),
        on_lost=executor.on_lost,
    )

    with pytest.raises(Misuse):
        await committer.commit(a_claim(2))


def _wait(release: threading.Event) -> None:
    assert release.wait(PATIENCE), "the test releases every write that it holds"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  the thread that makes it true knows no event
            await asyncio.sleep(0.001)


class TestEverySteps:
    """Completions that are handed over, and become durable so many at a time."""

    @pytest.fixture
    def executor(self) -> Executor:
        return Executor(every_steps=3)

    async def complete(self, executor: Executor, *steps: str) -> None:
        for step in steps:
            await asyncio.wait_for(executor.committer.commit(a_step(step), deferrable=True), PATIENCE)

    @pytest.mark.req("B3")
    async def test_every_third_completion_makes_three_durable_in_one_write(self, executor: Executor) -> None:
        await self.complete(executor, "one", "two")
        assert executor.store.puts == []

        await self.complete(executor, "three")

        assert executor.stored_records() == [["step_completed"] * 3]
        assert len(executor.store.puts) == 1

    @pytest.mark.req("B3")
    async def test_a_process_that_dies_loses_two_completions_at_most(self, executor: Executor) -> None:
        await self.complete(executor, *(f"step-{number}" for number in range(1, 9)))

        assert executor.stored_steps() == [f"step-{number}" for number in range(1, 7)]

    @pytest.mark.req("B2")
    async def test_what_cannot_wait_takes_those_that_can_with_it(self, executor: Executor) -> None:
        await self.complete(executor, "one")
        await executor.commit(a_failure("two", attempt=1))

        assert executor.stored_records() == [["step_completed", "step_failed"]]

    async def test_a_flush_makes_them_durable(self, executor: Executor) -> None:
        await self.complete(executor, "one", "two")
        await asyncio.wait_for(executor.committer.flush(), PATIENCE)

        assert executor.stored_steps() == ["one", "two"]

    @pytest.mark.req("E1", "I3")
    async def test_settling_makes_durable_what_was_handed_over(self, executor: Executor) -> None:
        await asyncio.wait_for(executor.committer.settle(), PATIENCE)
        assert executor.store.puts == []

        await self.complete(executor, "one", "two")
        await asyncio.wait_for(executor.committer.settle(), PATIENCE)

        assert executor.stored_steps() == ["one", "two"]

    async def test_settling_during_a_write_takes_what_came_meanwhile(self, executor: Executor) -> None:
        release = threading.Event()
        executor.store.next_puts(Fault(before=lambda: _wait(release)))
        writing = asyncio.create_task(executor.commit(a_failure("one", attempt=1)))
        await until(lambda: len(executor.store.puts) == 1)
        await self.complete(executor, "two")
        settling = asyncio.create_task(executor.committer.settle())
        await turn()
        release.set()
        await every(writing, settling)

        assert executor.stored_records() == [["step_failed"], ["step_completed"]]

    async def test_settling_waits_for_no_write_whose_callers_wait_for_it_themselves(
        self, executor: Executor
    ) -> None:
        release = threading.Event()
        executor.store.next_puts(Fault(before=lambda: _wait(release)))
        writing = asyncio.create_task(executor.commit(a_failure("one", attempt=1)))
        await until(lambda: len(executor.store.puts) == 1)
        waiting = asyncio.create_task(executor.commit(a_failure("two", attempt=1)))
        await turn()

        await asyncio.wait_for(executor.committer.settle(), PATIENCE)

        assert not writing.done()
        release.set()
        await every(writing, waiting)

    async def test_a_flush_during_a_write_takes_what_came_meanwhile(self, executor: Executor) -> None:
        release = threading.Event()
        executor.store.next_puts(Fault(before=lambda: _wait(release)))
        writing = asyncio.create_task(executor.commit(a_failure("one", attempt=1)))
        await until(lambda: len(executor.store.puts) == 1)
        await self.complete(executor, "two")
        flushing = asyncio.create_task(executor.committer.flush())
        await turn()
        release.set()
        await every(writing, flushing)

        assert executor.stored_records() == [["step_failed"], ["step_completed"]]

    async def test_the_end_comes_after_all_of_them(self, executor: Executor) -> None:
        await self.complete(executor, "one", "two")
        await executor.commit(an_outcome())

        assert executor.stored_records() == [["step_completed", "step_completed"], ["finished"]]

    async def test_one_that_ends_during_a_write_waits_for_its_own_three(self, executor: Executor) -> None:
        release = threading.Event()
        executor.store.next_puts(Fault(before=lambda: _wait(release)))
        writing = asyncio.create_task(executor.commit(a_failure("one", attempt=1)))
        await until(lambda: len(executor.store.puts) == 1)
        await self.complete(executor, "two", "three")
        release.set()
        await writing
        await turn()
        assert executor.stored_steps() == []

        await self.complete(executor, "four")

        assert executor.stored_steps() == ["two", "three", "four"]


class TestLinger:
    """A write that waits a moment for others to join it."""

    async def test_those_that_end_meanwhile_share_the_write(self, executor: Executor) -> None:
        first = asyncio.create_task(executor.committer.commit(a_step("one"), linger=600))
        await turn()
        assert executor.store.puts == []
        second = asyncio.create_task(executor.committer.commit(a_step("two"), linger=600))
        await turn()
        await executor.commit(a_step("three"))
        await every(first, second)

        assert executor.stored_records() == [["step_completed"] * 3]

    async def test_it_is_written_though_nobody_comes(self, executor: Executor) -> None:
        await asyncio.wait_for(executor.committer.commit(a_step("one"), linger=0.01), PATIENCE)

        assert executor.stored_steps() == ["one"]

    async def test_a_flush_does_not_wait_for_it(self, executor: Executor) -> None:
        lingering = asyncio.create_task(executor.committer.commit(a_step("one"), linger=600))
        await turn()
        await asyncio.wait_for(executor.committer.flush(), PATIENCE)
        await lingering

        assert executor.stored_steps() == ["one"]


class TestLongRuns:
    """Sealing, merging and bases, as they come about while a run is written."""

    async def grow(self, executor: Executor, count: int, *, first: int = 0, size: int = 9000) -> None:
        for number in range(first, first + count):
            await executor.commit(a_step(f"step-{number}", "x" * size))

    @pytest.mark.req("S8", "A6")
    async def test_the_head_names_few_objects_however_long_the_run(self, executor: Executor) -> None:
        await self.grow(executor, 400)

        head = executor.stands().head
        levels = Counter(segment.level for segment in head.segments)
        assert max(levels.values()) <= 3
        assert len(head.segments) <= 3 * (1 + math.log(400 / 3, 4))
        assert executor.committer.state == load(executor.store, head)

    @pytest.mark.req("C5")
    async def test_it_names_the_newest_three_bases(self, executor: Executor) -> None:
        await self.grow(executor, 200)

        bases = executor.stands().head.bases
        written = [put.key for put in executor.store.puts if "/bases/" in put.key]
        assert len(written) > 3
        assert [base_key(KEYS, base) for base in bases] == written[-3:]

    @pytest.mark.req("C1")
    async def test_an_older_base_is_named_until_the_new_one_was_read_back(self, executor: Executor) -> None:
        await self.grow(executor, 110)
        before = executor.stands().head.bases
        assert len(before) == 3
        known = {listed.key for listed in executor.store.list(f"{KEYS.run}bases/")}

        def lose() -> None:
            for listed in list(executor.store.list(f"{KEYS.run}bases/")):
                if listed.key not in known:
                    executor.store.inner.delete(listed.key)

        executor.store.next_puts(Fault(after=lose), only="/bases/")
        with pytest.raises(RunHalted):
            await self.grow(executor, 100, first=1000)

        head = executor.stands().head
        assert (head.bases, head.phase, head.reason) == (before, Phase.HALTED, "Missing")

    @pytest.mark.req("C1", "S8")
    async def test_bases_cost_half_of_the_smallest_records_at_most(self, executor: Executor) -> None:
        await self.grow(executor, 3000, size=10)

        records = sum(segment.size for segment in executor.committer.head.segments)
        assert 0 < self.written(executor, "/bases/") <= 0.5 * records

    def written(self, executor: Executor, kind: str) -> int:
        return sum(len(put.body) for put in executor.store.puts if kind in put.key)

    @pytest.mark.req("D3")
    async def test_damage_met_while_merging_is_recorded_after_what_ended(self, executor: Executor) -> None:
        await self.grow(executor, 8)
        (first, *_) = executor.stands().head.segments
        executor.store.inner.delete(segment_key(KEYS, first))
        executor.committer._archive = Archive(executor.store, KEYS)

        with pytest.raises(RunHalted):
            await self.grow(executor, 100, first=1000)

        head = executor.stands().head
        assert (head.phase, head.reason) == (Phase.HALTED, "Missing")
        assert segment_key(KEYS, first) in head.message
        assert [type(error) for error in executor.lost] == [RunHalted]

    @pytest.mark.req("D3", "B4")
    async def test_what_ended_while_damage_was_met_is_recorded_before_the_halt(
        self, executor: Executor
    ) -> None:
        while len(executor.committer.head.segments) < 3:
            await self.grow(executor, 1, first=len(executor.committer.state.completed))
        executor.store.inner.delete(segment_key(KEYS, executor.committer.head.segments[0]))
        executor.committer._archive = Archive(executor.store, KEYS)
        sealing, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            sealing.set()
            assert go_on.wait(PATIENCE)

        executor.store.next_puts(Fault(before=hold), only="/segments/")
        growing = asyncio.create_task(self.grow(executor, 100, first=1000))
        assert await asyncio.to_thread(sealing.wait, PATIENCE)
        beside = asyncio.create_task(executor.commit(a_step("beside")))
        await turn()
        go_on.set()
        with pytest.raises(RunHalted):
            await growing
        await beside

        head = executor.stands().head
        assert (head.phase, head.reason) == (Phase.HALTED, "Missing")
        assert "beside" in executor.committer.state.completed
        kinds = [event.kind for record, _ in head.records() for event in record.events]
        assert (kinds[-2:], kinds.count("halted")) == (["step_completed", "halted"], 1)
        assert [type(error) for error in executor.lost] == [RunHalted]
