"""An agent whose calls must not be repeated blindly, and a world outside that says what was applied.

`end` names a tool, and whether the process dies in it before or after its effect, the first time only.
"""

import json
import os
import signal
from pathlib import Path

from milepost import Call, Happened, NotHappened, Run, Unknown, agent, tool


def _note(world: str, what: str, key: str) -> None:
    with Path(world, "calls").open("a") as calls:
        calls.write(f"{what} {key}\n")


def _die(world: str, end: str, where: str) -> None:
    died = Path(world, "died")
    if end == where and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _apply(world: str, what: str, call: Call, number: int, end: str) -> dict[str, int]:
    _note(world, what, call.key)
    _die(world, end, f"before-{what}")
    Path(world, "applied").mkdir(exist_ok=True)
    Path(world, "applied", call.key.replace("/", "+")).write_text(json.dumps(number))
    _die(world, end, f"after-{what}")
    return {"number": number}


def _applied(world: str, call: Call) -> object:
    applied = Path(world, "applied", call.key.replace("/", "+"))
    return json.loads(applied.read_text()) if applied.exists() else None


async def was_uploaded(
    call: Call, world: str, number: int, end: str
) -> Happened[dict[str, int]] | NotHappened | Unknown:
    """Look the object up."""
    _note(world, "ask", call.key)
    applied = _applied(world, call)
    if applied is None:
        return NotHappened()
    if applied != number:
        return Unknown(f"another object is there, {end}")
    return Happened({"number": number}, {"size": number})


@tool(effect="verified", verify=was_uploaded, settles_within=0.2)
async def upload(call: Call, world: str, number: int, end: str) -> dict[str, int]:
    """Put an object where it can be looked up."""
    return _apply(world, "upload", call, number, end)


@tool(effect="irreversible")
async def mail(call: Call, world: str, number: int, end: str) -> dict[str, int]:
    """Send what cannot be taken back, nor looked up."""
    return _apply(world, "mail", call, number, end)


@agent(version="1", tools=[upload, mail])
async def effects(run: Run, world: str, end: str = "") -> list[dict[str, int]]:
    """Upload and mail, each as a step and in the body of one."""

    async def both() -> list[dict[str, int]]:
        return [await upload(world, 3, end), await mail(world, 4, end)]

    before = await run.step("before", upload, world, 1, "")
    uploaded = await run.step("upload", upload, world, 2, end)
    mailed = await run.step("mail", mail, world, 5, end)
    return [before, uploaded, mailed, *await run.step("both", both)]
