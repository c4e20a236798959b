"""The agents that the benches run, written as an author would write them: with what `milepost` exports.

They time themselves from outside their steps. Such times are no part of the run, and an agent that went on
in another pod would measure only its own share, which is what a bench wants.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from milepost import Call, Run, agent, tool
from tests.bench.payload import conversation, size_of, text

BRANCHES = 10


async def produce(number: int, size: int) -> str:
    """Return what a tool would have found out."""
    return text(number, size)


async def turn(messages: list[dict[str, Any]], number: int, size: int) -> dict[str, Any]:
    """Be the model and its tool: read the whole conversation, and add a message."""
    assert messages, "the model reads the whole conversation"
    return {"role": "tool", "content": text(number, size)}


@agent(version="1")
async def collect(run: Run, total: int, size: int, times: str) -> int:
    """Do steps one after the other; leave in the file `times` how many seconds each took."""
    took, characters = [], 0
    for number in range(total):
        began = time.perf_counter()
        characters += len(await run.step("work", produce, number, size))
        took.append(time.perf_counter() - began)
    leave(times, took)
    return characters


@agent(version="1")
async def collect_side_by_side(run: Run, total: int, size: int, times: str) -> int:
    """Do as many steps in ten branches; leave in the file `times` the seconds per step over all of them."""
    each = total // BRANCHES

    async def branch(number: int) -> int:
        characters = 0
        for index in range(each):
            characters += len(await run.step("work", produce, number * each + index, size))
        return characters

    began = time.perf_counter()
    characters = await run.parallel([branch(number) for number in range(BRANCHES)])
    leave(times, [(time.perf_counter() - began) / total])
    return sum(characters)


@agent(version="1")
async def talk(run: Run, opening: int, total: int, size: int, times: str) -> int:
    """Hold a conversation: it comes from a step, and each later step records its own message only."""
    messages = await run.step("open", conversation, opening)
    began = time.perf_counter()
    for number in range(total):
        messages.append(await run.step("turn", turn, messages, number, size))
    leave(times, [(time.perf_counter() - began) / total])
    return size_of(messages)


@tool(effect="keyed")
async def act(call: Call, ledger: str, step: str, seconds: float) -> str:
    """Ask a receiver that applies each key once, and take a while."""
    note(Path(ledger), {"step": step, "key": call.key, "who": os.environ["MILEPOST_POD_UID"]})
    await asyncio.sleep(seconds)
    note(Path(ledger), {"done": step, "key": call.key, "who": os.environ["MILEPOST_POD_UID"]})
    return step


@agent(version="1")
async def three_acts(run: Run, ledger: str, seconds: float) -> str:
    """Act three times; the second act is the slow one."""
    await run.step("first", act, ledger, "first", 0.0)
    await run.step("slow", act, ledger, "slow", seconds)
    return await run.step("last", act, ledger, "last", 0.0)


@agent(version="1")
async def many_acts(run: Run, ledger: str, total: int, seconds: float) -> int:
    """Act often."""
    for number in range(total):
        await run.step("act", act, ledger, f"act-{number}", seconds)
    return total


@agent(version="1")
async def answered(run: Run, ledger: str) -> str:
    """Wait for an answer, and act on it."""
    decision = await run.approval("act", request="yes or no?", answer=str)
    return await run.step("act", act, ledger, decision.answer, 0.0)


@agent(version="1")
async def arrive(run: Run, arrived: str) -> None:
    """Leave the time of the first instruction, and end the process before anything else happens."""
    leave(arrived, {"at": time.monotonic(), "run": run.id})
    os._exit(0)


def leave(file: str, what: Any) -> None:
    """Leave something outside of the run, for the bench."""
    Path(file).write_text(json.dumps(what))


def note(ledger: Path, line: dict[str, Any]) -> None:
    """Add a line to a ledger, on disk when this returns."""
    with ledger.open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
