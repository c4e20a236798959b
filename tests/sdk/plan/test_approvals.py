"""Steps of a plan whose tools a person has to approve: the plan goes on beside them; a no is a failure."""

from __future__ import annotations

import pytest

from milepost import Run, tool
from milepost.checkpoint.gates import AnswerType
from milepost.plan import Plan, PlanFailed, PlanResult
from tests.support.at_gates import answer, ends, run_that_waits, waits

ran: list[str] = []


@tool(effect="repeatable", requires_approval=True)
async def delete(table: str) -> str:
    """Delete a table."""
    ran.append(f"delete {table}")
    return f"{table} is gone"


async def count(table: str) -> int:
    ran.append(f"count {table}")
    return len(table)


async def agent(run: Run) -> PlanResult:
    plan = Plan("cleaning", on_failure="continue")
    gone = plan.step("delete", delete, "old")
    plan.step("count-old", count, gone)
    plan.step("count-new", count, "newer")
    return await plan.run(run, parallel=2)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.mark.req("G2")
async def test_the_plan_goes_on_beside_a_step_that_waits_and_with_it_once_it_is_approved() -> None:
    run = run_that_waits()

    (gate,) = await waits(run, agent)
    assert (gate.place, ran) == ("@delete=cleaning", ["count newer"])
    answer(run)
    result = await ends(run, agent)

    assert result == PlanResult({"delete": "old is gone", "count-old": 11, "count-new": 5})
    assert ran == ["count newer", "delete old", "count old is gone"]
    assert await ends(run, agent) == result


@pytest.mark.req("G2")
async def test_a_denied_step_has_failed_and_what_needs_it_is_skipped() -> None:
    run = run_that_waits()

    await waits(run, agent)
    answer(run, AnswerType.DENY, reason="still in use")
    result = await ends(run, agent)

    assert result.results == {"count-new": 5}
    assert (result.failed["delete"].kind, result.failed["delete"].attempts) == ("milepost.errors.Denied", 0)
    assert "still in use" in result.failed["delete"].message
    assert result.skipped == {"count-old": "it needs delete: delete failed"}
    assert ran == ["count newer"]
    assert await ends(run, agent) == result


async def test_a_denied_step_fails_a_plan_that_does_not_go_on() -> None:
    run = run_that_waits()

    async def strict(run: Run) -> PlanResult:
        plan = Plan()
        plan.step("delete", delete, "old")
        return await plan.run(run)

    await waits(run, strict)
    answer(run, AnswerType.DENY, reason="still in use")

    with pytest.raises(PlanFailed, match=r"step delete failed after 0 attempts: milepost\.errors\.Denied"):
        await ends(run, strict)
