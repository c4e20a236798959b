"""A plan that is replaced in the middle: what is done stays, the rest goes, and each change counts once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milepost import Misuse, Run
from milepost.checkpoint.records import Planned, StepCompleted
from milepost.plan import Failure, Plan, PlanFailed, PlanInvalid, PlanResult
from tests.support.resumes import each_resume
from tests.support.sessions import RunInMemory


def fetch() -> str:
    return "page"


def upload(page: str, to: str) -> str:
    if to == "there":
        raise ConnectionError("there is down")
    return f"{page} is {to}"


def announce(what: str) -> str:
    return f"told: {what}"


async def release(run: Run) -> PlanResult:
    """Upload there, and elsewhere if that fails."""
    plan = Plan("release")
    page = plan.step("fetch", fetch)
    there = plan.step("upload", upload, page, "there", attempts=1)
    plan.step("announce", announce, there)
    try:
        return await plan.run(run)
    except PlanFailed:
        plan.replan()
    elsewhere = plan.step("upload", upload, page, "elsewhere")
    plan.step("announce", announce, elsewhere)
    return await plan.run(run)


@pytest.mark.req("G2")
async def test_steps_that_are_done_stay_and_the_others_are_replaced(run: RunInMemory) -> None:
    result = await run.go_on(release)

    assert result == PlanResult(
        {"fetch": "page", "upload": "page is elsewhere", "announce": "told: page is elsewhere"}, replans=1
    )
    assert [event.step.id for event in run.events(StepCompleted)] == [
        "fetch=release",
        "replan=release.1",
        "upload=release.1",
        "announce=release.1",
    ]


@pytest.mark.req("G2", "A3")
async def test_a_change_of_plan_counts_once_wherever_the_process_is_lost(run: RunInMemory) -> None:
    live = await run.go_on(release)

    for resumed in each_resume(run):
        assert await resumed.go_on(release) == live
        assert resumed.state.totals.replans == 1
        assert [event.replanned for event in resumed.events(Planned)] == [False, True]


async def test_plans_can_be_replaced_more_than_once_and_two_changes_in_a_row_are_one(
    run: RunInMemory,
) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan(on_failure="continue")
        result = plan.result
        for place in ("there", "there", "here"):
            page = plan["fetch"] if len(plan) else plan.step("fetch", fetch)
            plan.step("upload", upload, page, place, attempts=1)
            result = await plan.run(run)
            if result.complete:
                break
            plan.replan()
            plan.step("other", fetch)
            plan.replan()
        return result

    assert await run.go_on(agent) == PlanResult({"fetch": "page", "upload": "page is here"}, replans=2)
    assert run.state.totals.replans == 2


async def test_a_new_plan_whose_steps_need_a_dropped_one_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        plan = Plan(on_failure="continue")
        there = plan.step("upload", upload, "page", "there", attempts=1)
        await plan.run(run)
        plan.replan()
        plan.step("announce", announce, there)
        await plan.run(run)

    with pytest.raises(PlanInvalid, match="step announce depends on upload, which is no step of it"):
        await run.go_on(agent)


async def test_a_plan_is_not_changed_while_it_runs(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[str]:
        plan = Plan()
        said = []

        async def meddle() -> None:
            for call in (plan.replan, lambda: plan.step("b", fetch)):
                with pytest.raises(Misuse, match="it is running") as found:
                    call()
                said.append(str(found.value))
            with pytest.raises(Misuse, match="is run already"):
                await plan.run(run)

        plan.step("a", meddle)
        await plan.run(run)
        return said

    assert len(await run.go_on(agent)) == 2


async def test_a_plan_that_was_cancelled_can_be_replaced(run: RunInMemory) -> None:
    began = asyncio.Event()

    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        plan.step("endless", endless)
        running = asyncio.create_task(plan.run(run))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        plan.replan()
        plan.step("fetch", fetch)
        return await plan.run(run)

    assert await run.go_on(agent) == PlanResult({"fetch": "page"}, replans=1)


async def test_what_an_earlier_run_has_done_is_given_to_a_plan(run: RunInMemory) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        page = plan.done("fetch", "old page")
        plan.step("upload", upload, page, "here")
        return await plan.run(run)

    assert await run.go_on(agent) == PlanResult({"fetch": "old page", "upload": "old page is here"})
    assert list(run.state.completed) == ["upload=plan"]


async def test_wrong_data_leaves_a_plan_as_it_was(run: RunInMemory) -> None:
    async def agent(run: Run) -> tuple[Any, ...]:
        plan = Plan(on_failure="continue")
        plan.step("upload", upload, "page", "there", attempts=1)
        before = await plan.run(run)
        with pytest.raises(PlanInvalid):
            plan.replan({"steps": [{"name": "a", "tool": "none"}]})
        return plan.result == before, plan.graph, plan.result.failed

    assert await run.go_on(agent) == (
        True,
        {"upload": []},
        {"upload": Failure("builtins.ConnectionError", "there is down", 1)},
    )
