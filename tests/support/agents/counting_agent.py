"""Agents with a world outside that counts: a keyed tool that notes every call and applies each key once.

`end` says how the process ends, and where; each way but `always` ends it the first time only.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from milepost import Call, Run, agent, tool


def _first_time(world: str) -> bool:
    try:
        Path(world, "ended-once").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _end(how: str, world: str) -> None:
    if how == "crash-always":
        os._exit(7)
    if not _first_time(world):
        return
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _receive(world: str, key: str) -> None:
    applied = Path(world, "applied", key.replace("/", "+"))
    applied.parent.mkdir(exist_ok=True)
    once = not applied.exists()
    applied.touch()
    with Path(world, "calls").open("a") as calls:
        calls.write(json.dumps({"key": key, "applied": once}) + "\n")


@tool(effect="keyed")
async def apply(call: Call, world: str, number: int, end: str) -> int:
    """Note the call, apply its key once, and return the number doubled."""
    _receive(world, call.key)
    if end == f"kill-before-record-{number}":
        _end("kill", world)
    return number * 2


@agent(version="1")
async def count(run: Run, world: str, end: str = "", until: int = 5) -> dict[str, int]:
    """Apply numbers in steps called step-1, step-2, and so on."""
    if end == "fail":
        raise ValueError("asked to fail")
    run.progress(total=until)
    results = {}
    for number in range(1, until + 1):
        results[f"step-{number}"] = await run.step(f"step-{number}", apply, world, number, end)
        if number == 2:
            how = {"kill-after-record-2": "kill", "exit-0-after-record-2": "exit-0"}.get(end, end)
            if how in ("kill", "exit-0", "crash-always"):
                _end(how, world)
    return results


def hold(world: str) -> str:
    """Say that it began, and wait until it is let go."""
    Path(world, "holding").touch()
    while not Path(world, "let-go").exists():
        time.sleep(0.02)
    return "let go"


@agent(version="1")
async def wait(run: Run, world: str) -> str:
    """Record a step, hold in the next one, and end with a third."""
    sys.stdout.write("said on standard output\n")
    await run.step("first", apply, world, 1, "")
    held = await run.step("hold", hold, world)
    await run.step("last", apply, world, 3, "")
    return held


@tool(effect="none")
async def second_try(call: Call) -> int:
    if call.attempt == 1:
        raise OSError("not yet")
    return call.attempt


@agent(version="1")
async def stumble(run: Run, world: str) -> str:
    await run.step("stumble", second_try, attempts=2)
    return world
