"""An agent whose version, tools and environment are what the process's variables say, as images differ."""

import os
import signal
import time
from pathlib import Path

from milepost import Call, Fact, Run, Tool, agent, tool

VERSION = os.environ.get("AGENT_VERSION", "1")
RESUMES = os.environ.get("AGENT_RESUMES", "").split()
TOOLS = os.environ.get("AGENT_TOOLS", "search:1 send:1").split()
MODEL = os.environ.get("AGENT_MODEL", "small")


def note(world: str, line: str) -> str:
    """Add a line to the world, and return it."""
    with Path(world, "ran").open("a") as file:
        file.write(line + "\n")
    return line


def _tool(name: str, version: str) -> Tool[..., str]:
    async def made(call: Call, what: str) -> str:
        return f"{call.key} {what}"

    made.__name__ = name
    return tool(effect="keyed", version=version)(made)


def die_once(world: str, at: str) -> None:
    """End the process hard the first time."""
    mark = Path(world, f"died-{at}")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def still_there(result: str) -> bool:
    """Tell whether the world says nothing against a result."""
    return f"no-{result}" not in {each.name for each in Path(os.environ["AGENT_WORLD"]).iterdir()}  # noqa: ASYNC240  (a local folder)


@agent(
    version=VERSION,
    resumes=RESUMES,
    tools=[_tool(*each.split(":")) for each in TOOLS],
    environment={"model": MODEL},
)
async def three(run: Run, world: str) -> list[str]:
    """Three steps, between the second and the third of which the process dies once."""
    done = [await run.step(name, note, world, name, valid=still_there) for name in ("a", "b")]
    die_once(world, "b")
    facts: list[Fact] = await run.facts()
    if facts:
        done += [f"fact {fact.name} {fact.result}" for fact in facts]
    return [*done, await run.step("c", note, world, "c")]


@agent(version="1")
async def phases(run: Run, world: str) -> str:
    """A phase of two steps, in which the process dies once, and a step after it."""
    async with run.phase("collect"):
        for name in ("a", "b"):
            await run.step(name, note, world, name)
        die_once(world, "b")
    return await run.step("after", note, world, "after")


@tool(effect="irreversible")
async def launch(world: str) -> str:
    """Die in the call."""
    die_once(world, "launch")
    return note(world, "launched")


@agent(version=VERSION, tools=[launch])
async def launching(run: Run, world: str) -> str:
    """A step, and one of which nobody knows whether it has had its effect."""
    await run.step("a", note, world, "a")
    return await run.step("launch", launch, world)


@tool(effect="repeatable")
async def shout(world: str) -> str:
    """Add a line to the world."""
    return note(world, "shouted")


@agent(version="1")
async def undeclared(run: Run, world: str) -> str:
    """A step in which the process dies once, and after it a call of a tool that is not declared."""
    await run.step("a", note, world, "a")
    die_once(world, "a")

    async def body() -> str:
        return await shout(world)

    return await run.step("b", body)


@agent(version="1")
async def asking(run: Run, world: str) -> str:
    """A step, an approval, and a step."""
    await run.step("a", note, world, "a")
    decision = await run.approval("go on", request="?")
    return await run.step("b", note, world, f"b for {decision.by}")


@agent(version="1", memory_every=1)
async def remembering(run: Run, world: str) -> dict[str, str]:
    """Remember after each step; die once."""
    for name in ("a", "b"):
        run.memory[name] = await run.step(name, note, world, name)
    die_once(world, "b")
    run.memory["c"] = await run.step("c", note, world, "c")
    return dict(run.memory)


@agent(version="1")
async def blocking(run: Run, world: str) -> str:
    """A call that takes long and holds the event loop, so that nothing else in the process moves."""

    async def slow() -> str:
        note(world, "slow")
        time.sleep(3)  # noqa: ASYNC251  (to hold the loop is the point)
        return "done"

    return await run.step("slow", slow)


@agent(version="1")
async def moving(run: Run, world: str) -> list[str]:
    """A step whose input is another one in each process, and one that comes only in every other process."""
    starts = Path(world, "starts")
    number = len(starts.read_text()) if starts.exists() else 0  # noqa: ASYNC240  (a local file)
    starts.write_text("x" * (number + 1))  # noqa: ASYNC240  (a local file)
    done = [await run.step("a", note, world, f"a{number}")]
    die_once(world, "a")
    return [*done, await run.step("b", note, world, "b")]


@agent(version="1")
async def wavering(run: Run, world: str) -> list[str]:
    """Steps in an order that is another one in the second process only."""
    starts = Path(world, "starts")
    number = len(starts.read_text()) if starts.exists() else 0  # noqa: ASYNC240  (a local file)
    starts.write_text("x" * (number + 1))  # noqa: ASYNC240  (a local file)
    names = ["b", "a"] if number == 1 else ["a", "b"]
    done = [await run.step(name, note, world, name) for name in names]
    die_once(world, "b")
    return [*done, await run.step("c", note, world, "c")]
