"""An agent with enough to record for several segments. Its world is in the environment, not in its inputs."""

import os
import signal
from pathlib import Path

from milepost import Call, Run, agent, tool


def _note(line: str) -> None:
    with Path(os.environ["WORLD"], "ran").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def work(number: int, before: str) -> str:
    """Note that the step ran; step 3 fails once, and step 7 has a large result."""
    _note(f"work {number}")
    marker = Path(os.environ["WORLD"], "failed-once")
    if number == 3 and not marker.exists():
        marker.touch()
        raise OSError("not yet")
    size = 20_000 if number == 7 else 2400
    return f"{len(before)}:" + chr(ord("a") + number % 26) * size


@tool(effect="keyed", version="2")
async def send(call: Call, number: int) -> str:
    """Note the key."""
    _note(f"send {call.key}")
    return f"{call.key} {number}"


@agent(version="1", tools=[send])
async def long_lived(run: Run, steps: int) -> int:
    """Work through the steps, and die after the one that the environment names."""
    run.progress(total=steps + 2)
    before = ""
    for number in range(1, steps + 1):
        before = await run.step(f"work-{number}", work, number, before)
        if number == 2:
            await run.step("send", send, number)
        if str(number) == os.environ.get("DIE_AFTER"):
            os.kill(os.getpid(), signal.SIGKILL)
    await run.step("send-last", send, steps)
    return len(before)
