"""Agents that note in the folder `world` what they do, and can be held there until they are let go."""

import asyncio
import os
import time
from datetime import date
from pathlib import Path

from milepost import Call, Retry, Run, agent, tool


def note(world: str, name: str, line: str) -> None:
    """Add a line to a file of the world, durably."""
    with Path(world, name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def begin(world: str, number: int, before: int) -> int:
    """Note that the step ran, and return its number added to the one before."""
    note(world, "ran", str(number))
    return number + before


@tool(effect="keyed", version="3")
async def send(call: Call, world: str, number: int) -> str:
    """Note the key."""
    note(world, "sent", f"{call.key} {number}")
    return call.key


def hold(world: str) -> str:
    """Say that it began, and wait until it is let go."""
    note(world, "holding", str(os.getpid()))
    while not Path(world, "let-go").exists():
        time.sleep(0.01)
    return "let go"


@agent(version="1", tools=[send])
async def five(run: Run, world: str) -> dict[str, int]:
    """Five steps, each of which needs the one before."""
    run.progress(total=5)
    found = {}
    before = 0
    for number in range(1, 6):
        before = await run.step(f"step-{number}", begin, world, number, before)
        found[str(number)] = before
        await asyncio.sleep(0)
    return found


@agent(version="1")
async def four_then_held(run: Run, world: str) -> str:
    """Four steps, and a fifth that holds."""
    for number in range(1, 5):
        await run.step(f"step-{number}", begin, world, number, 0)
    return await run.step("hold", hold, world)


@agent(version="1", tools=[send])
async def sending(run: Run, world: str) -> str:
    return await run.step("send", send, world, 1)


@agent(version="2")
async def held(run: Run, world: str) -> str:
    """Hold in a step, and note whatever unwinds this code."""
    try:
        first = await run.step("hold", hold, world)
        await run.step("next", begin, world, 2, 0)
    except BaseException as error:
        note(world, "unwound", repr(error))
        raise
    finally:
        note(world, "unwound", "finally")
    return first


@agent(version="1")
async def stubborn(run: Run, world: str) -> None:
    """Catch everything and go on."""
    number = 0
    while True:
        number += 1
        try:
            await run.step("hold" if number == 1 else "again", hold, world, key=number)
        except BaseException as error:  # noqa: BLE001  (that is what it is for)
            note(world, "caught", repr(error))


@agent(version="1")
async def blocking(run: Run, world: str) -> None:
    """Block the event loop."""

    async def block() -> None:
        note(world, "holding", "")
        while True:
            time.sleep(0.05)  # noqa: ASYNC251  (it is to block)

    await run.step("block", block)


@agent(version="1")
async def pausing(run: Run, world: str) -> None:
    """Fail, and pause for long before the next try."""

    def fail() -> None:
        note(world, "ran", "fail")
        raise OSError("try again later")

    await run.step("fail", fail, retry=Retry(wait=600, attempts=5))


@agent(version="1")
async def leaving(run: Run, world: str) -> str:
    """Start steps that nobody waits for."""
    kept = asyncio.create_task(run.step("hold", hold, world))
    await run.step("one", begin, world, 1, 0)
    return f"left one behind, done: {kept.done()}"


@agent(version="1")
async def typed(_: Run, world: str, day: date, limits: tuple[int, ...] = (1,)) -> str:
    """Inputs of types that JSON does not have."""
    note(world, "ran", "typed")
    return f"{day.isoformat()} {limits}"


@agent(version="1")
async def large(_: Run, size: int) -> str:
    """Return so many characters."""
    return "x" * size


@agent(version="1")
async def bulky(run: Run, world: str) -> int:
    """Record more than a head can hold, and hold in the last step."""
    texts = [await run.step("text", lambda: "x" * 15_000) for _ in range(3)]
    await run.step("blob", lambda: "x" * 20_000)
    await run.step("hold", hold, world)
    return len(texts)


not_an_agent = 3
