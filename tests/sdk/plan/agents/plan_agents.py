"""Agents whose work is a plan, for tests that kill them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from milepost import Call, Run, agent, tool
from milepost.plan import Plan, PlanFailed, some_of
from milepost.plan.plan import OnFailure
from milepost.testing import Ledger


async def measure(place: str) -> int:
    """Measure, in a time of its own."""
    await asyncio.sleep(len(place) / 500)
    if place == "south":
        raise ConnectionError(f"{place} does not answer")
    return len(place)


async def add(found: dict[str, int]) -> int:
    return sum(found.values())


@tool(effect="keyed")
async def publish(call: Call, total: int, where: str) -> str:
    """Publish something to a receiver that knows its keys."""
    if where == "the closed board":
        raise PermissionError(where)
    Ledger.from_environment().apply(call.key, [total, where])
    return f"{total} is at {where}"


@agent(version="1")
async def surveying(run: Run) -> dict[str, Any]:
    """Measure side by side, do with less, and publish elsewhere where publishing fails."""
    plan = Plan("survey")
    places = [
        plan.step(f"measure-{place}", measure, place, attempts=1) for place in ("north", "south", "east")
    ]
    total = plan.step("add", add, some_of(*places, at_least=2))
    told = plan.step("tell", publish, total, "the board")
    plan.step("tell-more", publish, total, "the closed board", after=[told], attempts=1)
    try:
        await plan.run(run, parallel=3)
    except PlanFailed as failed:
        await run.step("note", sorted, failed.result.skipped)
        plan.replan()
    plan.step("tell-others", publish, total, "the other board")
    return asdict(await plan.run(run, parallel=3))


@agent(version="1")
async def hopeless(run: Run, *, on_failure: OnFailure) -> dict[str, Any]:
    """Need what does not answer."""
    plan = Plan("survey", on_failure=on_failure)
    south = plan.step("measure-south", measure, "south", attempts=1)
    plan.step("add", add, some_of(south))
    plan.step("measure-north", measure, "north")
    return asdict(await plan.run(run))
