"""A weekly report made of what there is: one region's file is broken, and the plan goes on without it.

The plan is a graph: each region is read on its own, side by side; the total wants all of them and can do with
two; the report wants the total. What became of each step is in the plan's result and in the run's log.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from milepost import Call, Run, agent, tool
from milepost.plan import Plan, some_of

from .sales import add_up, best_seller, find_regions, read_sales, write_report


async def read(folder: str, region: str, pause: float) -> dict[str, int]:
    """Read a region's sales."""
    await asyncio.sleep(pause)
    return read_sales(folder, region)


@tool(effect="keyed")
async def publish(call: Call, report: str, shelf: str) -> str:
    """Put the report on the shelf, in a file named by the key: doing it again changes nothing."""
    name = f"{call.key}.txt"
    path = Path(os.path.expandvars(shelf), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(report, encoding="utf-8")
    unfinished.replace(path)
    call.record(external_id=name)
    return name


@agent(version="1", tools=[publish])
async def weekly(
    run: Run, folder: str = "sales", shelf: str = "reports", pause: float = 0.0
) -> dict[str, Any]:
    """Publish a report on the sales of all regions that can be read, and say what is missing.

    `shelf` is the folder that reports are published in, `$HOME/reports` for instance. `pause` is how many
    seconds each region takes longer than it has to, so that a person can watch.
    """
    regions = await run.step("find", find_regions, folder)
    plan = Plan("report", on_failure="continue")
    sales = [plan.step(f"read-{region}", read, folder, region, pause) for region in regions]
    best = [
        plan.step(f"best-{region}", best_seller, each) for region, each in zip(regions, sales, strict=True)
    ]
    total = plan.step("total", add_up, some_of(*sales, at_least=2))
    report = plan.step("write", write_report, total, some_of(*best, at_least=0))
    published = plan.step("publish", publish, report, shelf)
    run.progress(total=1 + len(plan))
    result = await plan.run(run, parallel=2)
    return {
        "published": result.results.get(published.name),
        "total": result.results.get(total.name),
        "failed": {name: failure.message for name, failure in result.failed.items()},
        "skipped": dict(result.skipped),
        "gaps": dict(result.gaps),
    }
