"""An agent that does what a test's script says, and stops where it says, in its first pod only."""

import asyncio
import json
import os
import socket
from typing import Any, Literal
from urllib.request import Request, urlopen

from milepost import Call, Run, agent, tool

Death = Literal["", "before-record", "after-record", "exit-0", "exit-9"]


def _post(url: str, body: dict[str, Any], **headers: str) -> None:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    with urlopen(request, timeout=10):
        pass


def _first_pod() -> bool:
    return os.environ["MILEPOST_ATTEMPT"] == "1"


async def _die(death: Death) -> None:
    """End here, in the first pod only.

    A container's first process cannot kill itself: SIGKILL has to come from outside. So it waits for it.
    """
    if not _first_pod():
        return
    if death in ("exit-0", "exit-9"):
        os._exit(int(death[-1]))
    if death:
        await asyncio.Event().wait()


@tool(effect="keyed")
async def apply(
    call: Call, number: int, receiver: str, pause: float, later: float | None, death: Death
) -> int:
    """Tell the receiver, pause, and have the effect. In later pods the pause is `later`, if that is given."""
    start = {
        "step": f"step-{number}",
        "key": call.key,
        "attempt": call.attempt,
        "pod": socket.gethostname(),
    }
    await asyncio.to_thread(_post, f"{receiver}/starts", start)
    await asyncio.sleep(pause if later is None or _first_pod() else later)
    headers = {"Idempotency-Key": call.key}
    await asyncio.to_thread(_post, f"{receiver}/effects", {"number": number}, **headers)
    if death != "after-record":
        await _die(death)
    return number


@agent(version="1", tools=[apply])
async def scripted(
    run: Run,
    receiver: str,
    steps: int = 6,
    pause: float = 0.2,
    later: float | None = None,
    death: Death = "",
    at: int = 0,
    padding: str = "",  # noqa: ARG001  a run may have large inputs
) -> int:
    run.progress(total=steps)
    total = 0
    for number in range(1, steps + 1):
        mine = death if number == at else ""
        total += await run.step(f"step-{number}", apply, number, receiver, pause, later, mine)
        if mine == "after-record":
            body = {"step": f"after-{number}", "key": f"{run.id}/after-{number}", "attempt": 1, "pod": "any"}
            await asyncio.to_thread(_post, f"{receiver}/starts", body)
            await _die(mine)
    return total


@agent(version="1")
async def unstorable(run: Run) -> object:
    return await run.step("make", object)
