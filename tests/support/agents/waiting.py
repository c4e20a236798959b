"""Agents that come to gates, and note in the folder `world` what they do around them."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from stepping import begin, hold, note  # type: ignore[import-not-found]  # executors find it beside this one

from milepost import Retry, Run, StepFailed, agent
from milepost.errors import Denied, Expired


class Edit(BaseModel):
    """What a reviewer may change."""

    rows: int
    title: str = "as it is"


@agent(version="1")
async def publishing(run: Run, world: str, rows: int = 3) -> str:
    """A step, an approval, and a step that only an approval leads to; and whatever unwinds this code."""
    try:
        await run.step("draft", begin, world, 1, 0)
        decision = await run.approval("publish", request={"rows": rows}, answer=Edit, expires=3600)
        await run.step("publish", note, world, "published", f"{decision.by} {decision.answer.rows}")
    except Expired:
        return "too late"
    except Denied as denied:
        return f"no: {denied.decision.by}, {denied.decision.reason}"
    finally:
        note(world, "unwound", "finally")
    return f"{decision.by} {decision.answer}"


@agent(version="1")
async def one_by_one(run: Run, world: str, branches: int = 4) -> list[str]:
    """Branches of which only one runs at a time, and each even one waits for somebody in its middle."""

    async def branch(number: int) -> str:
        await run.step("before", begin, world, number, 0)
        if number % 2 == 0:
            await run.approval("go on", request=number)
        await run.step("after", note, world, "after", str(number))
        return str(number)

    return await run.parallel([branch(number) for number in range(branches)], limit=1)


@agent(version="1")
async def beside_a_step(run: Run, world: str) -> str:
    """A gate, while a step of another branch holds, and goes on after it."""

    async def working() -> str:
        first: str = await run.step("hold", hold, world)
        await run.step("next", begin, world, 2, 0)
        return first

    async def waiting() -> str:
        return (await run.approval("ok", request="?")).by

    return " ".join(await run.parallel([waiting(), working()]))


@agent(version="1")
async def beside_a_retry(run: Run, world: str) -> str:
    """A gate, while a step of another branch pauses for longer than a process stays for gates alone."""

    def fail_once() -> str:
        note(world, "ran", "try")
        if len(Path(world, "ran").read_text().splitlines()) == 1:
            raise OSError("not yet")
        return "done"

    async def waiting() -> str:
        return (await run.approval("ok", request="?")).by

    retry = Retry(wait=1.0, jitter=0)
    return " ".join(await run.parallel([waiting(), run.step("late", fail_once, retry=retry)]))


@agent(version="1")
async def asleep(run: Run, world: str) -> str:
    """Sleep for a month."""
    await run.step("before", begin, world, 1, 0)
    await run.sleep(timedelta(days=30))
    await run.step("after", begin, world, 2, 0)
    return run.now().isoformat()


@agent(version="1")
async def events(run: Run, world: str) -> list[int]:
    """Two events of one name, in order."""
    first = await run.event("paid", Edit)
    note(world, "came", str(first.rows))
    second = await run.event("paid", Edit, expires=60)
    note(world, "came", str(second.rows))
    return [first.rows, second.rows]


@agent(version="1")
async def left_behind(run: Run, world: str) -> str:
    """End while something that nobody waits for is at a gate."""
    kept = asyncio.create_task(run.step("draft", begin, world, 1, 0))
    behind = asyncio.create_task(run.event("never", str))
    await kept
    await run.step("wait", time.sleep, 0.2)
    return f"left one behind, done: {behind.done()}"


@agent(version="1")
async def forgetting(run: Run, world: str) -> str:
    """Begin steps and forget to await them."""
    run.step("forgotten", begin, world, 1, 0)  # type: ignore[unused-coroutine]  # that is the mistake
    run.approval("this too", request=1)  # type: ignore[unused-coroutine]  # that is the mistake
    return "done"


@agent(version="1")
async def making_do(run: Run, world: str) -> str:
    """Go on without what failed and what was skipped."""

    def fail() -> int:
        raise ValueError("no")

    found = await run.parallel(
        {"a": run.step("a", begin, world, 1, 0), "b": run.step("b", fail, attempts=1)}, return_exceptions=True
    )
    missing = [key for key, value in found.items() if isinstance(value, StepFailed)]
    await run.skip("c", "b is missing")
    async with run.phase("sum", inputs=found, at_least=1) as phase:
        await run.step("add", begin, world, sum(phase.inputs.values()), 0)
    return ", ".join(missing)


@agent(version="1")
async def busy_beside(run: Run, world: str) -> str:
    """Do something that is no step while something of it is at a gate, and come to the end."""
    behind = asyncio.create_task(run.event("never", str))
    while not Path(world, "let-go").exists():  # noqa: ASYNC240, ASYNC110  (a local file)
        await asyncio.sleep(0.01)
    note(world, "returned", "")
    return f"done: {behind.done()}"
