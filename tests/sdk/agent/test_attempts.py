"""Attempts: counted in the log across processes, paused between, and what is final at once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from milepost import Misuse, NotStorable, Permanent, Retry, Run, StepFailed, agent
from milepost.agent.journal import Rules
from milepost.checkpoint.records import StepCompleted, StepFailure
from milepost.testing import simulate
from tests.support.histories import an_end
from tests.support.loop_time import pass_time
from tests.support.sessions import RunInMemory, wait_until
from tests.support.store_doubles import Fault

AT_ONCE = Retry(wait=0)


class Flaky:
    """Fails so many times, then returns how often it was called."""

    def __init__(self, failures: int, error: type[BaseException] = OSError) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"no {self.calls}")
        return self.calls


def a_step(fn: Callable[[], Any], **options: Any) -> Callable[[Run], Any]:
    async def agent(run: Run) -> Any:
        return await run.step("it", fn, **{"retry": AT_ONCE, **options})

    return agent


@pytest.mark.req("A1", "G4")
async def test_a_step_is_tried_again_and_every_failed_try_is_recorded(run: RunInMemory) -> None:
    assert await run.go_on(a_step(Flaky(2))) == 3

    failures = run.events(StepFailure)
    assert [(each.attempt, each.final, each.error.kind, each.error.message) for each in failures] == [
        (1, False, "builtins.OSError", "no 1"),
        (2, False, "builtins.OSError", "no 2"),
    ]
    assert [each.attempt for each in run.events(StepCompleted)] == [3]


@pytest.mark.req("G4")
async def test_the_last_attempts_failure_is_raised_alike_live_and_replayed(run: RunInMemory) -> None:
    flaky = Flaky(3)
    raised = []
    for _ in range(2):
        with pytest.raises(StepFailed) as failed:
            await run.go_on(a_step(flaky))
        raised.append((str(failed.value), vars(failed.value), failed.value.of(OSError)))

    assert raised[0] == raised[1]
    assert raised[0] == (
        "step it failed after 3 attempts: builtins.OSError: no 3",
        {"step": "it", "kind": "builtins.OSError", "message": "no 3", "attempts": 3},
        True,
    )
    assert flaky.calls == 3


@pytest.mark.req("A1", "G4")
async def test_attempts_are_counted_across_processes(run: RunInMemory) -> None:
    flaky = Flaky(9)
    going = asyncio.create_task(run.go_on(a_step(flaky, retry=Retry(wait=600))))
    await asyncio.to_thread(wait_until, lambda: run.events(StepFailure))
    # The process ends during the pause.
    going.cancel()
    with pytest.raises(StepFailed) as failed:
        await run.go_on(a_step(flaky))

    assert (failed.value.attempts, flaky.calls) == (3, 3)


@pytest.mark.req("A1", "G4")
async def test_a_pod_lost_at_a_step_by_the_agents_own_fault_is_one_of_its_attempts(run: RunInMemory) -> None:
    flaky = Flaky(9)
    with pytest.raises(StepFailed) as failed:
        await run.go_on(a_step(flaky), end=an_end(fault="agent"))

    assert (failed.value.attempts, flaky.calls) == (3, 2)


async def test_a_pod_lost_to_a_disruption_is_no_attempt(run: RunInMemory) -> None:
    assert await run.go_on(a_step(Flaky(2)), end=an_end(fault="disruption")) == 3


@pytest.mark.req("A1", "G4")
async def test_a_step_that_takes_its_pod_along_each_time_is_given_up_without_another_try(
    run: RunInMemory,
) -> None:
    flaky = Flaky(0)

    async def lost(_: Run) -> None:
        return

    await run.go_on(lost, end=an_end(fault="agent"))
    await run.go_on(lost, end=an_end(fault="memory"))
    with pytest.raises(StepFailed) as failed:
        await run.go_on(a_step(flaky), end=an_end(fault="agent"))

    assert (failed.value.kind, failed.value.attempts, flaky.calls) == ("milepost.PodLost", 3, 0)
    assert run.state.failed["it"][-1].final


@pytest.mark.parametrize("error", [Permanent, Misuse])
async def test_an_error_that_another_try_cannot_mend_is_final_at_once(
    run: RunInMemory, error: type[Exception]
) -> None:
    flaky = Flaky(1, error)
    with pytest.raises(StepFailed) as failed:
        await run.go_on(a_step(flaky))

    assert (failed.value.of(error), failed.value.attempts, flaky.calls) == (True, 1, 1)


async def test_an_error_that_is_final_is_so_in_a_group_too(run: RunInMemory) -> None:
    calls = []

    async def work() -> None:
        calls.append(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(Flaky(1, Permanent)))

    with pytest.raises(StepFailed) as failed:
        await run.go_on(lambda run: run.step("it", work, retry=AT_ONCE))

    assert (failed.value.attempts, len(calls)) == (1, 1)


async def test_a_result_that_is_not_storable_is_final_at_once(run: RunInMemory) -> None:
    with pytest.raises(StepFailed) as failed:
        await run.go_on(a_step(object))

    assert (failed.value.of(NotStorable), failed.value.attempts) == (True, 1)


@pytest.mark.parametrize(
    ("on", "calls"),
    [
        (OSError, 3),
        (ValueError, 1),
        ((ValueError, OSError), 3),
        (lambda error: "no 1" in str(error), 2),
    ],
)
async def test_the_author_says_on_which_errors_to_try_again(run: RunInMemory, on: Any, calls: int) -> None:
    flaky = Flaky(9)
    with pytest.raises(StepFailed):
        await run.go_on(a_step(flaky, retry=Retry(on=on, wait=0)))

    assert flaky.calls == calls


async def test_a_policy_that_raises_ends_the_step_and_is_recorded_with_what_it_was_asked_about(
    run: RunInMemory,
) -> None:
    def unsure(error: Exception) -> bool:
        raise LookupError(f"never heard of {error}")

    flaky = Flaky(9)
    raised = []
    for _ in range(2):
        with pytest.raises(StepFailed) as failed:
            await run.go_on(a_step(flaky, retry=Retry(on=unsure, wait=0)))
        raised.append(str(failed.value))

    assert raised == ["step it failed after 1 attempt: builtins.LookupError: never heard of no 1"] * 2
    assert [each.error.chain for each in run.events(StepFailure)] == [("builtins.OSError: no 1",)]
    assert flaky.calls == 1


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"attempts": 5}, 5),
        ({"retry": Retry(attempts=2, wait=0)}, 2),
        ({"attempts": 1, "retry": Retry(attempts=2, wait=0)}, 1),
        ({}, 4),
    ],
    ids=["at the call", "in the policy", "the call wins", "of the manifest"],
)
async def test_the_number_of_attempts_is_the_calls_else_the_policys_else_the_manifests(
    options: dict[str, Any], calls: int
) -> None:
    flaky = Flaky(9)
    with pytest.raises(StepFailed):
        await RunInMemory(step_attempts=4).go_on(a_step(flaky, **options))

    assert flaky.calls == calls


@pytest.mark.parametrize(
    ("attempt", "chance", "pause"),
    [(1, 0.0, 1.0), (2, 0.0, 2.0), (4, 0.0, 8.0), (9, 0.0, 60.0), (10**9, 0.0, 60.0), (2, 0.5, 1.5)],
)
def test_the_pause_doubles_up_to_a_minute_and_half_of_it_is_random(
    attempt: int, chance: float, pause: float
) -> None:
    assert Retry().pause(attempt, chance) == pause


def test_a_pause_that_no_number_can_hold_is_the_longest_one() -> None:
    assert Retry(factor=1e9, jitter=0).pause(100, 0.0) == 60.0


@pytest.mark.req("G4")
async def test_a_pause_is_made_between_two_tries(run: RunInMemory) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    await run.go_on(a_step(Flaky(1), retry=Retry(wait=0.2, jitter=0)))

    assert loop.time() - began >= 0.2


class Unprintable(Exception):
    @override
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


def chained() -> None:
    raise ValueError("outer") from KeyError("inner")


def grouped() -> None:
    raise ExceptionGroup("both", [ValueError("one"), ExceptionGroup("more", [KeyError("two")])])


def raising(error: BaseException) -> Callable[[], None]:
    def fn() -> None:
        raise error

    return fn


@pytest.mark.parametrize(
    ("fn", "message", "chain"),
    [
        (chained, "outer", ("builtins.KeyError: 'inner'",)),
        (grouped, "both (2 sub-exceptions)", ("builtins.ValueError: one", "builtins.KeyError: 'two'")),
        (raising(Unprintable()), "(its message cannot be printed: RuntimeError)", ()),
        (raising(OSError("x" * 3000)), "x" * 2000 + " ...", ()),
        (raising(OSError("lone \udc80")), "lone \\udc80", ()),
        (raising(OSError(os.fsdecode(b"\xff"))), "\\udcff", ()),
    ],
    ids=["with a cause", "a group", "unprintable", "huge", "a surrogate", "a file name"],
)
async def test_any_error_is_recorded_in_a_form_that_reads_back(
    run: RunInMemory, fn: Callable[[], None], message: str, chain: tuple[str, ...]
) -> None:
    raised = []
    for _ in range(2):
        with pytest.raises(StepFailed) as failed:
            await run.go_on(a_step(fn, attempts=1))
        raised.append(failed.value.message)

    assert raised == [message, message]
    assert run.state.failed["it"][-1].error.chain == chain


@pytest.mark.parametrize("error", [StopIteration("s"), GeneratorExit("g"), BaseException("b")])
async def test_what_a_thread_raises_reaches_the_step_whatever_it_is(
    run: RunInMemory, error: BaseException
) -> None:
    async def agent(run: Run) -> None:
        await asyncio.wait_for(run.step("it", raising(error), attempts=1), timeout=60)

    with pytest.raises((StepFailed, GeneratorExit)):
        await run.go_on(agent)


async def test_a_step_whose_inner_task_was_cancelled_has_failed_and_is_tried_again(run: RunInMemory) -> None:
    calls = []

    async def body() -> str:
        calls.append(1)
        if len(calls) == 1:
            inner = asyncio.create_task(asyncio.sleep(600))
            inner.cancel()
            await inner
        return "done"

    assert await run.go_on(a_step(body)) == "done"
    assert run.events(StepFailure)[0].error.kind == "asyncio.exceptions.CancelledError"


async def test_a_step_that_the_agent_stopped_is_on_record_and_stopped_again_on_a_resume(
    run: RunInMemory,
) -> None:
    async def forever() -> None:
        pass_time(60)
        await asyncio.sleep(600)

    async def agent(task: Run) -> str:
        try:
            # Of a recorded step nothing is left to do but to be stopped.
            async with asyncio.timeout(0.1 if run.events(StepFailure) else 60):
                await task.step("slow", forever)
        except TimeoutError:
            return await task.step("instead", lambda: "else")
        return "finished"

    assert await run.go_on(agent) == "else"
    assert await run.go_on(agent) == "else"
    (stopped,) = run.events(StepFailure)
    assert (stopped.step.id, stopped.cancelled, stopped.final) == ("slow", True, True)
    assert list(run.state.completed) == ["instead"]


@pytest.mark.parametrize(
    ("written", "result", "completed"),
    [("/head", "small", ["work"]), ("/blobs/", "large" * 20_000, []), ("/blobs/", "small", ["work"])],
    ids=["its record", "its result", "the agent's memory"],
)
async def test_a_step_that_is_stopped_while_it_is_being_recorded_is_stopped_on_a_resume_too(
    run: RunInMemory, written: str, result: str, completed: list[str]
) -> None:
    ran = []
    stop, stopped, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(stop.set)
        assert stopped.wait(60)

    async def work() -> str:
        ran.append(1)
        if len(ran) == 1:
            run.store.next_puts(Fault(before=hold), only=written)
        return result

    async def agent(inner: Run) -> str:
        inner.memory["at"] = "work"
        going = asyncio.ensure_future(inner.step("work", work))
        for _ in range(5):
            await asyncio.sleep(0)
        await stop.wait()
        going.cancel()
        stopped.set()
        try:
            return await going
        except asyncio.CancelledError:
            return "stopped"

    run.rules = Rules(memory_every=1)
    assert [await run.go_on(agent), await run.go_on(agent)] == ["stopped", "stopped"]
    assert ran == [1]
    assert [failure.cancelled for failure in run.events(StepFailure)] == [True]
    assert list(run.state.completed) == completed


def test_a_step_that_nobody_awaits_to_its_end_is_told_when_the_run_succeeds() -> None:
    @agent(version="1")
    async def hasty(run: Run) -> str:
        returns = asyncio.Event()

        async def behind() -> None:
            await run.step("first", returns.wait)
            await run.step("second", str)

        task = asyncio.ensure_future(behind())
        try:
            return await run.step("it", str, "done" if task else "")
        finally:
            returns.set()

    ran = simulate(hasty)

    assert (ran.result, list(ran.steps), ran.reason) == ("done", ["first", "it"], "CompletedWithErrors")
    assert ran.message == "nobody awaited second, which had not ended"
