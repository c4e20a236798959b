"""Gates in branches: what goes on beside them, and when the process ends for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from milepost import Retry, Run, StepFailed
from milepost.agent.journal import Rules
from milepost.checkpoint.gates import GateOpened, Waiting
from milepost.checkpoint.records import StepCompleted
from tests.support.at_gates import answer, arrives, ends, gates_of, run_that_waits, waits
from tests.support.sessions import RunInMemory


@pytest.fixture
def run() -> RunInMemory:
    return run_that_waits()


def completed(run: RunInMemory) -> set[str]:
    return set(run.state.completed)


async def asking(run: Run, name: str, then: str = "after") -> str:
    """Come to a gate, and then to a step."""
    by = (await run.approval(name, request=name)).by
    return await run.step(then, str, f"{name} {by}")


async def working(run: Run, steps: int = 2) -> str:
    for _ in range(steps):
        await run.step("work", asyncio.sleep, 0.01)
    return "worked"


@pytest.mark.req("F1")
async def test_a_branch_that_waits_gives_its_slot_back(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[str]:
        return await run.parallel([asking(run, "a"), working(run), working(run), working(run)], limit=1)

    await waits(run, agent)

    assert completed(run) == {f"1:{branch}/work{number}" for branch in (1, 2, 3) for number in ("", "#2")}
    answer(run)
    assert await ends(run, agent) == ["a ann", "worked", "worked", "worked"]


@pytest.mark.req("F1")
async def test_a_branch_of_which_only_branches_that_wait_are_left_gives_its_slot_back(
    run: RunInMemory,
) -> None:
    async def inner(run: Run) -> list[str]:
        return await run.parallel([asking(run, "a"), working(run, 1), asking(run, "b")])

    async def outer(run: Run) -> list[Any]:
        return await run.parallel([inner(run), working(run, 1)])

    async def agent(run: Run) -> list[Any]:
        return await run.parallel([outer(run), working(run, 3), working(run, 3)], limit=1)

    gates = await waits(run, agent)

    assert {gate.place for gate in gates} == {"1:0/1:0/1:0/@a", "1:0/1:0/1:2/@b"}
    assert len(completed(run)) == 8
    for gate in gates:
        answer(run, gate=gate.id)
    assert await ends(run, agent) == [[["a ann", "worked", "b ann"], "worked"], "worked", "worked"]


@pytest.mark.req("F1")
@pytest.mark.parametrize("nested", [False, True])
async def test_a_slot_is_given_back_at_once_and_not_when_a_run_is_about_to_wait(*, nested: bool) -> None:
    run = RunInMemory(rules=Rules(linger=600))

    async def outer(run: Run) -> list[str]:
        return await run.parallel([asking(run, "a"), asking(run, "b")])

    async def agent(run: Run) -> list[Any]:
        return await run.parallel([outer(run) if nested else asking(run, "a"), working(run)], limit=1)

    work = asyncio.ensure_future(run.go_on(agent))
    async with asyncio.timeout(60):
        while completed(run) != {"1:1/work", "1:1/work#2"}:  # noqa: ASYNC110  (it is what the store holds)
            await asyncio.sleep(0.01)
    work.cancel()


@pytest.mark.req("F1")
@pytest.mark.parametrize("way", ["gather", "task", "wait_for"])
async def test_a_branch_whose_code_waits_in_tasks_of_its_own_gives_its_slot_back(
    run: RunInMemory, way: str
) -> None:
    ways: dict[str, Any] = {
        "gather": asyncio.gather,
        "task": lambda *both: asyncio.wait([asyncio.ensure_future(each) for each in both]),
        "wait_for": lambda *both: asyncio.wait_for(asyncio.gather(*both), 600),
    }

    async def both(run: Run) -> str:
        await ways[way](asking(run, "a", "after a"), asking(run, "b", "after b"))
        return "both"

    async def agent(run: Run) -> list[str]:
        return await run.parallel([both(run), working(run), working(run)], limit=1)

    gates = await waits(run, agent)

    assert ({gate.name for gate in gates}, len(completed(run))) == ({"a", "b"}, 4)
    for gate in gates:
        answer(run, gate=gate.id)
    assert await ends(run, agent) == ["both", "worked", "worked"]


async def test_a_branch_that_still_works_keeps_its_slot(run: RunInMemory) -> None:
    at_once: list[str] = []
    most = 0

    async def step(name: str) -> None:
        nonlocal most
        at_once.append(name)
        most = max(most, len(at_once))
        await asyncio.sleep(0.01)
        at_once.remove(name)

    async def both(run: Run) -> None:
        waiting = asyncio.ensure_future(run.event("never", str, key="x"))
        for _ in range(5):
            await run.step("work", step, "both")
            await asyncio.sleep(0)
        waiting.cancel()

    async def other(run: Run) -> None:
        await run.step("work", step, "other")

    async def agent(run: Run) -> None:
        await run.parallel([both(run), other(run)], limit=1)

    await ends(run, agent)

    assert most == 1


@pytest.mark.req("F1")
async def test_what_is_in_flight_ends_and_goes_on_before_a_run_waits() -> None:
    run = RunInMemory(rules=Rules(linger=0.1))

    async def agent(run: Run) -> list[str]:
        return await run.parallel([asking(run, "a"), slow(run)])

    async def slow(run: Run) -> str:
        for _ in range(3):
            await run.step("slow", asyncio.sleep, 0.3)
            await asyncio.sleep(0.05)
        return "slow"

    await waits(run, agent)

    assert completed(run) == {"1:1/slow", "1:1/slow#2", "1:1/slow#3"}
    assert len(run.events(Waiting)) == 1


@pytest.mark.req("F1")
async def test_a_pause_before_another_try_is_waited_for(run: RunInMemory) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("later")
        return "done"

    async def agent(run: Run) -> list[str]:
        flaking = run.step("flaky", flaky, retry=Retry(wait=0.4, jitter=0))
        return await run.parallel([asking(run, "a"), flaking])

    await waits(run, agent)

    assert (completed(run), len(tries)) == ({"flaky"}, 2)


@pytest.mark.req("F1")
async def test_code_that_holds_the_event_loop_is_not_taken_for_nothing(run: RunInMemory) -> None:
    async def busy(run: Run) -> None:
        await run.step("one", str, 1)
        time.sleep(0.3)  # noqa: ASYNC251  (it is to block)
        await asyncio.sleep(0)
        await run.step("two", str, 2)

    async def agent(run: Run) -> list[Any]:
        return await run.parallel([asking(run, "a"), busy(run)])

    await waits(run, agent)

    assert completed(run) == {"1:1/one", "1:1/two"}


@pytest.mark.req("F1")
async def test_code_that_begins_something_now_and_then_is_waited_for() -> None:
    run = RunInMemory(rules=Rules(linger=0.4))

    async def strolling(run: Run) -> None:
        for _ in range(20):
            await run.step("work", str, 1)
            await asyncio.sleep(0.05)

    async def agent(run: Run) -> list[Any]:
        return await run.parallel([asking(run, "a"), strolling(run)])

    await waits(run, agent)

    assert len(completed(run)) == 20


@pytest.mark.req("F1")
async def test_nothing_begins_in_a_process_that_is_about_to_end(run: RunInMemory) -> None:
    ran: list[str] = []

    async def late(task: Run) -> None:
        while not run.journals[-1].waits.done():  # noqa: ASYNC110  (nobody is told but who ends the process)
            await asyncio.sleep(0.01)
        ran.append("code")
        await task.step("late", ran.append, "step")

    async def agent(run: Run) -> list[Any]:
        return await run.parallel([asking(run, "a"), late(run)])

    await waits(run, agent)
    async with asyncio.timeout(60):
        while not ran:  # noqa: ASYNC110  (a list says it)
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)

    assert (ran, completed(run)) == (["code"], set())


@pytest.mark.req("F1")
async def test_one_process_for_all_that_many_branches_ask(run: RunInMemory) -> None:
    async def listed(run: Run) -> list[str]:
        found = await run.parallel({n: asking(run, "ask") for n in range(25)}, limit=3)
        return list(found.values())

    gates = await waits(run, listed)
    assert len({gate.id for gate in gates}) == 25
    for gate in gates:
        answer(run, gate=gate.id, by=gate.place)

    assert await ends(run, listed) == [f"ask 1:{n}/@ask" for n in range(25)]
    assert len(run.events(GateOpened)) == 25


async def test_a_branch_that_fails_beside_one_that_waits_is_raised_once_that_has_ended(
    run: RunInMemory,
) -> None:
    def fail() -> None:
        raise ValueError("no")

    async def agent(run: Run) -> list[Any]:
        return await run.parallel([asking(run, "a"), run.step("fail", fail, attempts=1)])

    await waits(run, agent)
    answer(run)

    with pytest.raises(StepFailed, match="no"):
        await ends(run, agent)
    assert completed(run) == {"1:0/after"}


async def test_a_failure_lets_nothing_begin_in_a_slot_that_is_given_back(run: RunInMemory) -> None:
    def fail() -> None:
        raise ValueError("no")

    async def agent(run: Run) -> list[Any]:
        return await run.parallel(
            [asking(run, "a"), run.step("fail", fail, attempts=1), run.step("late", str, 1)], limit=1
        )

    await waits(run, agent)
    answer(run)

    with pytest.raises(StepFailed, match="no"):
        await ends(run, agent)
    assert "late" not in completed(run)


async def test_a_run_that_ends_while_something_is_left_at_a_gate_just_ends(run: RunInMemory) -> None:
    async def agent(run: Run) -> bool:
        behind = asyncio.ensure_future(run.approval("never", request=1))
        await run.step("one", asyncio.sleep, 0.01)
        done = behind.done()
        behind.cancel()
        return done

    assert await ends(run, agent) is False


async def test_code_that_stops_waiting_goes_on_and_its_run_does_not_wait(run: RunInMemory) -> None:
    async def agent(run: Run) -> str:
        behind = asyncio.ensure_future(run.approval("never", request=1))
        await run.step("one", str, 1)
        behind.cancel()
        await asyncio.sleep(0.2)
        return await run.step("two", str, 2)

    assert (await arrives(run, agent)).result == "2"


async def test_a_parent_has_come_as_far_as_its_branches_did(run: RunInMemory) -> None:
    async def agent(run: Run) -> bool:
        await run.parallel([run.step("one", str, 1), run.step("two", str, 2)])
        return run.now().isoformat() == max(each.ended_at for each in run_.events(StepCompleted))

    run_ = run
    assert [await ends(run, agent), await ends(run, agent)] == [True, True]


async def test_what_was_never_awaited_is_told_by_its_place(run: RunInMemory) -> None:
    forgotten: list[Coroutine[Any, Any, Any]] = []

    async def agent(run: Run) -> None:
        closed = run.step("closed", str, 1)
        await run.step("awaited", str, 1)
        forgotten.append(run.step("forgotten", str, 1))
        forgotten.append(run.approval("ask", request=1))
        closed.close()

    await ends(run, agent)

    assert run.journals[-1].never_awaited() == ["forgotten", "@ask"]
    assert run.journals[-1].never_awaited() == []


async def test_a_parallel_that_was_never_awaited_is_told(run: RunInMemory) -> None:
    forgotten: list[Coroutine[Any, Any, Any]] = []

    async def agent(run: Run) -> None:
        await run.parallel([run.step("one", str, 1)])
        forgotten.append(run.parallel({"a": run.step("two", str, 1)}))

    await ends(run, agent)

    assert run.journals[-1].never_awaited() == ["two", "the parallel of 2:a"]


async def test_what_a_parallel_did_not_begin_was_not_forgotten(run: RunInMemory) -> None:
    def fail() -> None:
        raise ValueError("no")

    async def agent(run: Run) -> None:
        with pytest.raises(StepFailed):
            await run.parallel([run.step("a", fail, attempts=1), run.step("b", str, 1)], limit=1)

    await ends(run, agent)

    assert run.journals[-1].never_awaited() == []
    assert (gates_of(run), completed(run)) == ((), set())


async def test_a_parallel_that_is_stopped_before_it_begins_has_forgotten_nothing(run: RunInMemory) -> None:
    """On a resume a recorded step gives back at once, so that what was begun the first time is not."""

    async def agent(run: Run) -> str:
        inner = run.parallel([run.step("one", str, 1)])
        behind = asyncio.ensure_future(run.parallel({"a": inner, "b": run.step("two", str, 1)}))
        behind.cancel()
        with pytest.raises(asyncio.CancelledError):
            await behind
        return await run.step("three", str, 3)

    assert await ends(run, agent) == "3"
    assert run.journals[-1].never_awaited() == []
