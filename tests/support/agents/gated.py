"""Agents that wait: for people, for events, for a time, and for a decision after they have halted."""

import os
from dataclasses import dataclass
from datetime import timedelta

from milepost import Denied, Expired, Run, agent, record_usage, tool


@dataclass
class Slot:
    """What a person answers: which room, and for how many."""

    room: str
    seats: int


def draft(text: str) -> str:
    record_usage(input_tokens=1200, output_tokens=34, cost_usd=0.0125, model="stub")
    return text.upper()


@agent(version="1")
async def publish(run: Run, text: str = "words", expires: float | None = None) -> str:
    """Ask whether a text may go out."""
    run.progress(total=2)
    body = await run.step("draft", draft, text)
    try:
        decided = await run.approval("publish", request={"body": body, "to": "everybody"}, expires=expires)
    except Expired:
        return "nobody said anything"
    except Denied as no:
        return f"no, says {no.decision.by}: {no.decision.reason}"
    await run.step("send", str, body)
    return f"sent, as {decided.by} said: {decided.reason}"


@agent(version="1")
async def book(run: Run) -> str:
    """Ask for an answer that has a shape."""
    decided = await run.approval("room", request="which room?", answer=Slot)
    return f"{decided.answer.room} for {decided.answer.seats}"


@agent(version="1")
async def long(run: Run) -> str:
    """Show more than a screen."""
    await run.approval("read", request=[f"line {number}" for number in range(101)])
    return "read"


async def asked(run: Run, name: str) -> bool:
    try:
        await run.approval("review", request={"file": name})
    except Denied:
        return False
    return True


@agent(version="1")
async def review(run: Run) -> dict[str, bool]:
    """Ask about two files at once, by gates of one name."""
    return await run.parallel({name: asked(run, name) for name in ("a", "b")})


@agent(version="1")
async def twice(run: Run) -> str:
    """Ask two things, one after the other."""
    await run.approval("first", request=1)
    return (await run.approval("second", request=2)).by


@agent(version="1")
async def order(run: Run) -> list[int]:
    """Wait for two events of one name, one after the other."""
    return [await run.event("paid", int, key="7"), await run.event("paid", int, key="7")]


@agent(version="1")
async def nap(run: Run, seconds: float = 0.2) -> str:
    """Sleep without a process."""
    await run.sleep(timedelta(seconds=seconds))
    return "awake"


@tool(effect="irreversible")
async def wire(amount: int) -> str:
    raise OSError(f"the line broke while {amount} went out")


@agent(version="1")
async def pay(run: Run) -> str:
    """Make a call of which nobody knows whether it happened."""
    return await run.step("wire", wire, 100)


@tool(effect="none", version="3")
async def look(what: str) -> str:
    return what


@agent(version="1", tools=[look])
async def declares(run: Run) -> str:
    """Wait, with a tool that is needed later."""
    await run.approval("go", request="go on?")
    return await run.step("look", look, "there")


@agent(version="1", environment={"model": os.environ.get("MODEL", "small")})
async def depends(run: Run) -> str:
    """Record a step in one environment, and be asked about another."""
    first = await run.step("first", str.lower, "DONE")
    await run.approval("go", request="go on?")
    return first
