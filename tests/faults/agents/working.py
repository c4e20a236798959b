"""Agents for runs that are killed: they note outside what they start, and call a receiver with a ledger.

Every value they compute depends on their inputs alone, so that a run that was killed anywhere ends with the
result of one that was not. The receiver's address comes from the environment: it differs between attempts.
The second argument of every step is the name by which it is noted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from milepost import Call, Happened, NotHappened, Retry, Run, Unknown, agent, tool
from milepost.agent.tools import Tool

PAGES = 30
PAGE_BYTES = 11_000
BLOB_BYTES = 20_000


def note(world: str, step: str) -> None:
    """Say durably, outside of the run, that a step starts, and in which pod."""
    line = json.dumps({"step": step, "pod": os.environ["MILEPOST_POD_UID"]}) + "\n"
    descriptor = os.open(Path(world, "started"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def text(seed: str, size: int) -> str:
    """Return `size` characters that look like no others."""
    digest = hashlib.sha256(seed.encode()).hexdigest()
    return (digest * (size // len(digest) + 1))[:size]


def page(world: str, step: str, size: int) -> str:
    """Return a page of text."""
    note(world, step)
    return text(step, size)


def count(world: str, step: str, number: int) -> int:
    """Return the number plus one."""
    note(world, step)
    return number + 1


def _post(key: str, amount: int) -> str:
    request = urllib.request.Request(
        os.environ["FAULTS_RECEIVER"] + "/effects",
        data=json.dumps({"amount": amount}).encode(),
        headers={"Idempotency-Key": key, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        identifier: str = json.load(answer)["id"]
    return identifier


@tool(effect="keyed", version="2")
async def pay(call: Call, world: str, step: str, amount: int) -> str:
    """Let the receiver apply an amount once, and return what it calls that."""
    note(world, step)
    identifier = await asyncio.to_thread(_post, call.key, amount)
    call.record(external_id=identifier)
    return identifier


@tool(effect="keyed")
async def charge(call: Call, amount: int) -> str:
    """As `pay`, in the body of a step."""
    return await asyncio.to_thread(_post, call.key, amount)


def _receive(key: str) -> list[dict[str, Any]]:
    """Return what the receiver has applied for a key."""
    with urllib.request.urlopen(os.environ["FAULTS_RECEIVER"] + "/ledger", timeout=30) as answer:
        return [each for each in json.load(answer)["applied"] if each["key"] == key]


async def _was_delivered(call: Call, amount: int) -> Happened[str] | NotHappened | Unknown:
    found = await asyncio.to_thread(_receive, call.key)
    if not found:
        return NotHappened()
    if found[0]["body"] != {"amount": amount}:
        return Unknown(f"another amount is there: {found[0]}")
    call.record(external_id=found[0]["id"])
    return Happened(found[0]["id"])


async def was_delivered(
    call: Call, world: str, step: str, amount: int
) -> Happened[str] | NotHappened | Unknown:
    """Ask the receiver for what a call should have left there."""
    assert world, step
    return await _was_delivered(call, amount)


@tool(effect="verified", verify=was_delivered, settles_within=0.05)
async def deliver(call: Call, world: str, step: str, amount: int) -> str:
    """Let the receiver apply an amount, which it can be asked for."""
    note(world, step)
    identifier = await asyncio.to_thread(_post, call.key, amount)
    call.record(external_id=identifier)
    return identifier


@tool(effect="verified", verify=_was_delivered, settles_within=0.05)
async def drop(call: Call, amount: int) -> str:
    """As `deliver`, in the body of a step."""
    return await asyncio.to_thread(_post, call.key, amount)


@tool(effect="irreversible")
async def tell(call: Call, world: str, step: str, amount: int) -> str:
    """Let the receiver apply an amount, which nobody can take back."""
    note(world, step)
    return await asyncio.to_thread(_post, call.key, amount)


@tool(effect="irreversible")
async def shout(call: Call, amount: int) -> str:
    """As `tell`, in the body of a step."""
    return await asyncio.to_thread(_post, call.key, amount)


@tool(effect="irreversible", requires_approval=True)
async def wire(call: Call, world: str, step: str, amount: int) -> str:
    """As `tell`, once somebody has seen what is about to be told."""
    note(world, step)
    return await asyncio.to_thread(_post, call.key, amount)


@tool(effect="none")
async def look(world: str, step: str) -> str:
    """Read something."""
    note(world, step)
    return text(step, 40)


@tool(effect="none")
async def add(left: int, right: int) -> int:
    """Add in the body of a step."""
    return left + right


@tool(effect="repeatable")
async def publish(world: str, step: str, content: str) -> int:
    """Write a file, which may be done again."""
    note(world, step)
    await asyncio.to_thread(Path(world, step).write_text, content)
    return len(content)


@tool(effect="none")
async def stumble(call: Call, world: str, step: str) -> int:
    """Fail at the first try."""
    note(world, step)
    if call.attempt == 1:
        raise ConnectionError("not at the first try")
    return 7


async def settle(world: str, step: str, amount: int) -> int:
    """Make two calls with an effect, each with a record of its own, and one without."""
    note(world, step)
    await charge(amount)
    total = await add(amount, 1)
    await charge(total)
    return total


async def announce(world: str, step: str, amount: int) -> int:
    """Make two calls that must not be repeated blindly."""
    note(world, step)
    await drop(amount)
    await shout(amount + 1)
    return amount


TOOLS: list[Tool[..., Any]] = [pay, charge, look, add, publish, stumble, deliver, drop, tell, shout, wire]


async def _effects(run: Run, world: str) -> list[int]:
    await run.step("look", look, world, "look")
    sizes = [await run.step("publish", publish, world, "publish", "a page")]
    await run.step("pay", pay, world, "pay", 10)
    sizes.append(await run.step("settle", settle, world, "settle", 20))
    retry = Retry(wait=0.005)
    sizes.append(await run.step("stumble", stumble, world, "stumble", retry=retry))
    return sizes


async def _branch(run: Run, world: str, number: int) -> int:
    before = await run.step("begin", count, world, f"branch-{number}-begin", number)
    await run.step("pay", pay, world, f"branch-{number}-pay", 100 + number)
    return await run.step("end", count, world, f"branch-{number}-end", before)


async def _four(run: Run, world: str) -> dict[str, int]:
    return await run.parallel({f"branch-{number}": _branch(run, world, number) for number in range(4)})


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@agent(version="1", tools=TOOLS)
async def everything(run: Run, world: str) -> dict[str, object]:
    """Every effect there is, records that fill segments, a blob, a parallel of four, a step tried again."""
    run.progress(total=PAGES + 19)
    parts: list[object] = []
    for number in range(PAGES):
        parts.append(await run.step(f"page-{number}", page, world, f"page-{number}", PAGE_BYTES))
        if number == PAGES // 3:
            parts += await _effects(run, world)
        if number == PAGES // 2:
            parts.append(await run.step("blob", page, world, "blob", BLOB_BYTES))
    parts.append(await _four(run, world))
    parts.append(await run.step("last", count, world, "last", len(parts)))
    return {"digest": _digest(parts), "parts": len(parts)}


@agent(version="1", tools=TOOLS)
async def small(run: Run, world: str) -> dict[str, object]:
    """Small records only: all of them stay in the head."""
    parts: list[object] = [await _four(run, world)]
    parts += await _effects(run, world)
    number = 0
    for index in range(5):
        number = await run.step("count", count, world, f"count-{index}", number)
    return {"digest": _digest([*parts, number]), "parts": number}


@agent(version="1", tools=TOOLS)
async def heavy(run: Run, world: str, paper: str) -> dict[str, object]:
    """Inputs that no head holds, so that there is a segment from the start, and a result that is a blob."""
    pages = [await run.step("page", page, world, f"heavy-{index}", PAGE_BYTES) for index in range(3)]
    await run.step("pay", pay, world, "pay", 10)
    return {"digest": _digest([len(paper), *pages]), "text": text("result", BLOB_BYTES)}


async def _came(run: Run, world: str, key: str) -> int:
    amount = await run.event("delivery", int, key=key)
    await run.step("pay", pay, world, f"{key}-pay", amount)
    return amount


async def _slept(run: Run, world: str) -> int:
    await run.sleep(0.05)
    return await run.step("late", count, world, "late", 0)


@agent(version="1", tools=TOOLS)
async def waiting(run: Run, world: str) -> dict[str, object]:
    """Every gate there is: one alone, and others side by side, with an effect behind each of them."""
    number = await run.step("first", count, world, "first", 0)
    decision = await run.approval("release", request={"number": number}, answer=int)
    await run.step("pay", pay, world, "pay", decision.answer)
    found = await run.parallel(
        {
            "early": _came(run, world, "early"),
            "late": _came(run, world, "late"),
            "sleep": _slept(run, world),
            "wire": run.step("wire", wire, world, "wire", 40),
        }
    )
    number = await run.step("last", count, world, "last", number)
    said = [decision.by, decision.answer, found["early"], found["late"], found["sleep"]]
    return {"digest": _digest([number, *said]), "parts": number}


async def _careful(run: Run, world: str, number: int) -> int:
    await run.step("deliver", deliver, world, f"branch-{number}-deliver", 100 + number)
    await run.step("tell", tell, world, f"branch-{number}-tell", 200 + number)
    return await run.step("end", count, world, f"branch-{number}-end", number)


@agent(version="1", tools=TOOLS)
async def careful(run: Run, world: str) -> dict[str, object]:
    """Calls that must not be repeated blindly: as steps, in a step's body, and side by side."""
    number = await run.step("first", count, world, "first", 0)
    await run.step("deliver", deliver, world, "deliver", 10)
    await run.step("tell", tell, world, "tell", 20)
    number += await run.step("announce", announce, world, "announce", 30)
    found = await run.parallel({number: _careful(run, world, number) for number in range(2)})
    return {"digest": _digest([number, *found.values()]), "parts": number}
