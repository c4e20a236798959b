"""What an agent's code may branch on without a step: time and chance of the run, and its silent log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

import pytest

from milepost import Retry, Run, StepFailed
from milepost.agent.journal import Rules
from milepost.checkpoint.records import Planned, StepCompleted, StepFailure
from tests.support.histories import NOON
from tests.support.sessions import RunInMemory


@pytest.fixture
def run() -> RunInMemory:
    return RunInMemory()


class Lost(BaseException):
    """The process is gone."""


async def test_now_is_the_time_of_what_the_branch_has_consumed(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[datetime]:
        times = [run.now()]
        for name in ("a", "b"):
            await run.step(name, lambda: None)
            times.append(run.now())
        return times

    first = await run.go_on(agent)
    assert first[0] == NOON
    assert first == sorted(first)
    assert first[1:] == [datetime.fromisoformat(run.step(name).ended_at) for name in ("a", "b")]
    assert await run.go_on(agent) == first


async def test_a_branch_has_its_own_time_and_the_agent_goes_on_from_the_latest(run: RunInMemory) -> None:
    async def line(run: Run, count: int) -> datetime:
        for _ in range(count):
            await run.step("it", lambda: None)
        return run.now()

    async def agent(run: Run) -> tuple[list[datetime], datetime]:
        times = await run.parallel([line(run, 0), line(run, 3)])
        return times, run.now()

    times, after = await run.go_on(agent)
    assert times[0] == NOON
    assert after == times[1]
    assert await run.go_on(agent) == (times, after)


async def test_chance_is_the_same_on_a_resume_and_another_for_each_name_call_and_branch(
    run: RunInMemory,
) -> None:
    async def drawn(run: Run) -> float:
        return run.random().random()

    async def agent(run: Run) -> list[float]:
        own = [run.random().random(), run.random().random(), run.random("other").random()]
        return [*own, *await run.parallel([drawn(run), drawn(run)])]

    first = await run.go_on(agent)
    assert len(set(first)) == 5
    assert await run.go_on(agent) == first


async def test_another_run_has_other_chances() -> None:
    async def agent(run: Run) -> float:
        return run.random().random()

    one, other = RunInMemory(), RunInMemory()
    drawn = await one.go_on(agent)

    async def elsewhere(run: Run) -> float:
        run._journal._committer._at.head.__dict__["key_root"] = "b" * 20
        return await agent(run)

    assert await other.go_on(elsewhere) != drawn


async def test_the_log_says_each_line_once(run: RunInMemory, caplog: pytest.LogCaptureFixture) -> None:
    def agent(lost: bool) -> Any:  # noqa: FBT001  (one of two)
        async def code(run: Run) -> list[bool]:
            replaying = [run.replaying]
            run.log.info("before a")
            await run.step("a", lambda: None)
            replaying.append(run.replaying)
            run.log.info("after a", extra={"size": 3})
            if lost:
                raise Lost
            await run.step("b", lambda: None)
            replaying.append(run.replaying)
            run.log.info("after b")
            return replaying

        return code

    caplog.set_level(logging.INFO, "milepost.agent")
    with pytest.raises(Lost):
        await run.go_on(agent(lost=True))
    assert await run.go_on(agent(lost=False)) == [True, False, False]
    said = [record.getMessage() for record in caplog.records if record.name == "milepost.agent"]
    # What follows the last recorded step may have been said before, and is said rather twice than never.
    assert said == ["before a", "after a", "after a", "after b"]
    assert vars(caplog.records[1])["size"] == 3


async def test_a_branch_replays_on_its_own(run: RunInMemory) -> None:
    def agent(last: str) -> Any:
        async def line(run: Run, name: str) -> bool:
            replaying = run.replaying
            if name <= last:
                await run.step("it", lambda: None)
            return replaying

        async def code(run: Run) -> dict[str, bool]:
            return await run.parallel({name: line(run, name) for name in ("x", "y")}, limit=1)

        return code

    await run.go_on(agent("x"))
    assert await run.go_on(agent("y")) == {"x": True, "y": False}


async def test_what_a_resume_would_not_see_is_refused_inside_a_step(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[str]:
        def draw() -> float:
            return run.random().random()

        async def remember() -> None:
            run.memory["seen"] = True

        said = []
        for name, body in (("draw", draw), ("remember", remember)):
            with pytest.raises(StepFailed) as failed:
                await run.step(name, body)
            said.append(failed.value.kind)
        return said

    assert await run.go_on(agent) == ["milepost.errors.Misuse"] * 2


@pytest.mark.req("A3")
async def test_a_change_of_plan_is_counted_once_however_often_the_code_runs(run: RunInMemory) -> None:
    def agent(upto: int) -> Any:
        async def code(run: Run) -> None:
            run.tasks({"a": [], "b": ["a"]})
            run.tasks({"a": [], "b": ["a"]})
            await run.step("a", lambda: None)
            run.tasks({"a": [], "c": ["a"]}, replanned=True)
            if upto == 1:
                await run.step("fails", int, "x", attempts=2, retry=Retry(wait=0))
            raise Lost

        return code

    for upto in (0, 1, 1, 0):
        with pytest.raises((Lost, StepFailed)):
            await run.go_on(agent(upto))
    planned = run.events(Planned)
    assert [(dict(plan.tasks), plan.replanned) for plan in planned] == [
        ({"a": (), "b": ("a",)}, False),
        ({"a": (), "c": ("a",)}, True),
    ]
    assert run.state.totals.replans == 1


@pytest.mark.req("D4")
@pytest.mark.parametrize("branches_are", ["code", "steps"])
async def test_a_resume_begins_all_branches_that_were_begun_before_one_of_them_failed(
    run: RunInMemory, branches_are: str
) -> None:
    """A failure that is recorded comes at once, and the branches that ended before it have their records."""
    others_ended = asyncio.Event()

    async def work(number: int) -> int:
        if number == 0:
            await others_ended.wait()
            raise OSError("no")
        if number == 3:
            others_ended.set()
            while not run.events(StepFailure):  # noqa: ASYNC110  (it is what the store holds)
                await asyncio.sleep(0.001)
        return number

    def agent(*, end: bool) -> Callable[[Run], Awaitable[Any]]:
        async def code(run: Run) -> tuple[list[int], datetime, bool]:
            begun = []

            async def branch(number: int) -> int:
                begun.append(number)
                return await run.step("work", work, number, attempts=1)

            def step(number: int) -> Coroutine[Any, Any, int]:
                return run.step("work", work, number, key=number, attempts=1)

            make = branch if branches_are == "code" else step
            with pytest.raises(StepFailed):
                await run.parallel([make(number) for number in range(6)], limit=2)
            if end:
                raise Lost
            return begun, run.now(), run.replaying

        return code

    with pytest.raises(Lost):
        await run.go_on(agent(end=True))
    begun, now, replaying = await run.go_on(agent(end=False))
    assert (begun, replaying) == (list(range(4)) if branches_are == "code" else [], False)
    assert now == max(datetime.fromisoformat(event.ended_at) for event in run.events(StepCompleted))


async def test_code_that_does_not_come_to_a_recorded_step_any_more_is_not_silent_for_ever(
    run: RunInMemory,
) -> None:
    async def before(run: Run) -> None:
        await run.step("a", lambda: None)
        await run.step("b", lambda: None)
        raise Lost

    async def after(run: Run) -> list[bool]:
        said = [run.replaying]
        for name in ("a", "c"):
            await run.step(name, lambda: None)
            said.append(run.replaying)
        return said

    with pytest.raises(Lost):
        await run.go_on(before)
    run.rules = Rules(same_code=False)
    assert await run.go_on(after) == [True, True, False]


async def test_what_was_said_of_the_number_of_steps_is_not_recorded_again(run: RunInMemory) -> None:
    def agent(*, end: bool) -> Callable[[Run], Awaitable[None]]:
        async def code(run: Run) -> None:
            for total, name in ((3, "a"), (5, "b"), (7, "c")):
                run.progress(total=total)
                if end and name == "c":
                    raise Lost
                await run.step(name, lambda: None)

        return code

    with pytest.raises(Lost):
        await run.go_on(agent(end=True))
    await run.go_on(agent(end=False))
    assert [planned.total for planned in run.events(Planned)] == [3, 5, 7]
