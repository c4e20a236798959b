"""What a step can be told: how long a try may take, what it requires, how it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from milepost import Misuse, Retry, Run, StepFailed
from milepost.agent import steps
from milepost.checkpoint.records import StepFailure
from milepost.errors import AgentStuck, RequirementNotMet
from tests.support.loop_time import pass_time
from tests.support.sessions import RunInMemory

QUICK = Retry(attempts=2, wait=0.0)


@pytest.fixture
def run() -> RunInMemory:
    return RunInMemory()


async def test_a_try_that_takes_too_long_has_failed_and_is_made_again(run: RunInMemory) -> None:
    tries: list[int] = []

    async def slow() -> str:
        tries.append(1)
        if len(tries) == 1:
            pass_time(60)
            await asyncio.sleep(600)
        return "in time"

    async def agent(run: Run) -> str:
        return await run.step("slow", slow, timeout=60, retry=QUICK)

    assert await run.go_on(agent) == "in time"
    (failed,) = run.events(StepFailure)
    assert (failed.error.kind, failed.error.message) == (
        "builtins.TimeoutError",
        "no result within the step's timeout of 60 s",
    )


async def test_a_thread_that_is_too_slow_is_waited_out_before_the_next_try(run: RunInMemory) -> None:
    go_on, ended = threading.Event(), threading.Event()
    tries: list[bool] = []
    loop = asyncio.get_running_loop()

    def time_is_up() -> None:
        pass_time(60)
        loop.call_later(0.1, go_on.set)

    def slow() -> str:
        tries.append(ended.is_set())
        if len(tries) == 1:
            loop.call_soon_threadsafe(time_is_up)
            assert go_on.wait(60)
            ended.set()
        return "in time"

    async def agent(run: Run) -> str:
        return await run.step("slow", slow, timeout=60, retry=QUICK)

    assert await run.go_on(agent) == "in time"
    assert tries == [False, True]


async def test_a_thread_that_does_not_end_ends_the_process(
    run: RunInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_WAIT_OUT", 0.05)
    release = threading.Event()

    async def agent(run: Run) -> None:
        await run.step("stuck", release.wait, timeout=0.05)

    try:
        with pytest.raises(AgentStuck, match="step stuck was to end, and its thread has not"):
            await run.go_on(agent)
    finally:
        release.set()
    assert run.events(StepFailure) == []


async def test_a_function_that_does_not_let_itself_be_stopped_ends_the_process(
    run: RunInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_WAIT_OUT", 0.05)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    async def agent(run: Run) -> None:
        await run.step("stuck", stubborn, timeout=0.05)

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    going = asyncio.ensure_future(run.go_on(agent))
    async with asyncio.timeout(60):
        while not run.lost:  # noqa: ASYNC110  (it is lost by a callback, which tells nobody)
            await asyncio.sleep(0.01)
    assert "step stuck ran into its timeout, and its function has not ended" in str(run.lost[0])
    release.set()
    with pytest.raises(AgentStuck):
        await going


async def test_a_timeout_of_the_functions_own_is_not_taken_for_the_steps(run: RunInMemory) -> None:
    async def impatient() -> None:
        raise TimeoutError("mine")

    async def agent(run: Run) -> None:
        with pytest.raises(StepFailed, match="mine"):
            await run.step("it", impatient, timeout=60, attempts=1)

    await run.go_on(agent)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_a_timeout_that_is_no_time_is_refused_at_the_call(run: RunInMemory, seconds: float) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(Misuse, match="cannot end within"):
            await run.step("it", lambda: None, timeout=seconds)

    await run.go_on(agent)


@pytest.mark.req("D7")
async def test_what_a_step_requires_is_looked_at_before_it_runs_and_not_on_a_resume(run: RunInMemory) -> None:
    looked: list[str] = []
    there = [False, True]

    async def ready() -> bool:
        looked.append("looked")
        return there.pop(0)

    def ran() -> str:
        looked.append("ran")
        return "done"

    async def agent(run: Run) -> str:
        return await run.step("it", ran, requires=ready, retry=QUICK)

    assert await run.go_on(agent) == "done"
    assert await run.go_on(agent) == "done"
    assert looked == ["looked", "looked", "ran"]
    (failed,) = run.events(StepFailure)
    assert failed.error.kind == f"{RequirementNotMet.__module__}.RequirementNotMet"


@pytest.mark.req("D7")
async def test_a_requirement_that_raises_fails_the_try_with_its_error(run: RunInMemory) -> None:
    async def ready() -> None:
        raise OSError("no disk")

    async def agent(run: Run) -> None:
        with pytest.raises(StepFailed) as failed:
            await run.step("it", lambda: None, requires=ready, attempts=1)
        assert failed.value.of(OSError)

    await run.go_on(agent)


async def test_a_step_that_is_stopped_is_recorded_before_the_agent_goes_on(run: RunInMemory) -> None:
    seen: list[list[str]] = []
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        await asyncio.sleep(600)

    async def agent(run: Run) -> str:
        task = asyncio.create_task(run_step(run))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen.append([failure.step.id for failure in self.events(StepFailure)])
        return await run.step("after", lambda: "after")

    async def run_step(run: Run) -> Any:
        return await run.step("slow", slow)

    self = run
    assert await run.go_on(agent) == "after"
    assert await run.go_on(agent) == "after"
    assert seen == [["slow"], ["slow"]]


async def test_a_thread_of_a_stopped_step_has_ended_before_that_is_recorded(run: RunInMemory) -> None:
    ended: list[str] = []
    go_on, loop = threading.Event(), asyncio.get_running_loop()

    def time_is_up() -> None:
        pass_time(60)
        loop.call_later(0.1, go_on.set)

    def slow() -> None:
        loop.call_soon_threadsafe(time_is_up)
        assert go_on.wait(60)
        ended.append("thread")

    async def agent(run: Run) -> None:
        try:
            async with asyncio.timeout(60):
                await run.step("slow", slow)
        except TimeoutError:
            ended.append("agent")

    await run.go_on(agent)
    assert ended == ["thread", "agent"]
