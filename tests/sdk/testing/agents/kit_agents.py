"""Agents for tests of the test kit: sound ones, and ones with a mistake that the kit has to find."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from milepost import Call, Denied, Expired, Happened, NotHappened, Retry, Run, agent, tool
from milepost.testing import Ledger

WORLD = "MILEPOST_TEST_FOLDER"


@tool(effect="keyed")
async def post(call: Call, what: str) -> str:
    """Post something to a receiver that knows its keys."""
    Ledger.from_environment().apply(call.key, what)
    return f"posted {what}"


def double(number: int) -> int:
    return 2 * number


@agent(version="1")
async def sound(run: Run, *, steps: int = 3) -> dict[str, Any]:
    """Do sound work: steps that follow from each other, a keyed effect, and what the run itself offers."""
    total = 1
    for _ in range(steps):
        total = await run.step("double", double, total)
    posted = await run.step("post", post, f"{total} at {run.now():%H:%M}")
    halves = await run.parallel([run.step("half", double, part) for part in range(2)])
    lot = run.random("lot").randrange(1000)
    return {"total": total, "posted": posted, "halves": halves, "lot": lot}


@agent(version="1")
async def plain(run: Run) -> str:
    """Do one thing after the other, the second of them outside."""
    number = await run.step("double", double, 1)
    return await run.step("post", post, str(number))


_opened: list[str] = []


def open_it(name: str) -> str:
    _opened.append(name)
    return name


def read_it() -> str:
    return _opened[-1].upper()


@agent(version="1")
async def forgetful(run: Run) -> str:
    """Make the mistake to keep state in a step that is recorded: it is gone after a resume."""
    await run.step("open", open_it, "letters")
    return await run.step("read", read_it, attempts=1)


@agent(version="1")
async def forgiving(run: Run) -> str:
    """Make the same mistake, and pass over every error, so that it ends well all the same."""
    await run.step("open", open_it, "letters")
    try:
        return await run.step("read", read_it, attempts=1)
    except BaseException:  # noqa: BLE001  (the mistake)
        return "nothing"


def append(line: str) -> None:
    with (Path(os.environ[WORLD]) / "sent").open("a") as sent:
        sent.write(f"{line}\n")


@agent(version="1")
async def unkeyed(run: Run) -> None:
    """Make the mistake to do something outside that is done again when its step is."""
    await run.step("prepare", double, 1)
    await run.step("send", append, "a letter")


@tool(effect="keyed")
async def post_unkeyed(call: Call, what: str) -> str:
    """Post something to a receiver, and not tell it the key."""
    Ledger.from_environment().apply(None, what)
    return call.key


@agent(version="1")
async def keyless(run: Run) -> None:
    """Make the mistake to call a tool keyed that does not pass the key on."""
    await run.step("send", post_unkeyed, "a letter")


def positive(number: int) -> bool:
    return number > 0


@agent(version="1")
async def timely(run: Run) -> bool:
    """Make the mistake to read the time outside of a step."""
    return await run.step("check", positive, time.time_ns())


@agent(version="1")
async def chancy(run: Run) -> None:
    """Make the mistake to draw lots outside of a step."""
    for _ in range(4):
        await run.step("check", positive, random.randrange(1, 10**9))  # noqa: S311  (chance is the point)


NAMES = frozenset({"ann", "bob", "cleo", "dan"})


@agent(version="1")
async def unordered(run: Run) -> None:
    """Make the mistake to go through a set, which has another order in each process."""
    for name in NAMES:
        await run.step("check", str.isalpha, name)


@agent(version="1")
async def erratic(run: Run) -> int:
    """Come to something else each time."""
    return await run.step("draw", time.time_ns)


@agent(version="1")
async def failing(run: Run) -> None:
    """Fail."""
    await run.step("fail", read_it, attempts=1)


def wait_for_ever() -> None:
    if (Path(os.environ[WORLD]) / "been-here").exists():
        while True:
            time.sleep(1)
    (Path(os.environ[WORLD]) / "been-here").touch()


@agent(version="1")
async def hanging(run: Run) -> None:
    """Wait for ever once it is resumed."""
    await run.step("wait", wait_for_ever)


@dataclass(frozen=True)
class Budget:
    """What a person grants."""

    euros: int
    until: datetime


@agent(version="1")
async def asking(run: Run) -> dict[str, Any]:
    """Ask a person, wait for a delivery, and sleep for a month."""
    offer = await run.step("offer", double, 21)
    granted = await run.approval("spend", request={"offer": offer}, answer=Budget)
    delivery = await run.event("delivery", str, key="parts")
    began = run.now()
    await run.sleep(timedelta(days=30))
    posted = await run.step("post", post, f"{granted.by}: {granted.answer.euros}")
    return {"delivery": delivery, "posted": posted, "days": (run.now() - began).days}


@agent(version="1")
async def denied(run: Run) -> str:
    """Take a no for an answer, or none."""
    try:
        await run.approval("spend", request={"offer": 42}, expires=timedelta(hours=8))
    except Expired:
        return f"nobody cared until {run.now():%H:%M}"
    except Denied as error:
        return f"no: {error.decision.reason}"
    return "yes"


def leave_if_overtaken() -> None:
    if (Path(os.environ[WORLD]) / "been-here").exists():
        os._exit(3)
    (Path(os.environ[WORLD]) / "been-here").touch()


@agent(version="1")
async def escaping(run: Run) -> None:
    """End the process in the second step, where that has been done before."""
    await run.step("prepare", double, 1)
    await run.step("leave", leave_if_overtaken)


@tool(effect="irreversible")
async def shout(what: str) -> None:
    """Say something that cannot be taken back."""
    append(what)


@agent(version="1")
async def shouting(run: Run) -> None:
    """Do something that cannot be taken back, nor be asked about."""
    await run.step("shout", shout, "now")


async def shouted(_call: Call, what: str) -> Happened[None] | NotHappened:
    sent = Path(os.environ[WORLD]) / "sent"
    return Happened(None) if sent.exists() and what in sent.read_text() else NotHappened()


@tool(effect="verified", verify=shouted, settles_within=timedelta(hours=1))
async def shout_audibly(_call: Call, what: str) -> None:
    """Say something of which can be found out whether it was said."""
    append(what)


@agent(version="1")
async def audible(run: Run) -> None:
    """Do something that cannot be repeated, and can be asked about."""
    await run.step("shout", shout_audibly, "now")


_tries: list[int] = []


def third_time() -> int:
    _tries.append(1)
    if len(_tries) < 3:
        raise OSError("not yet")
    return 3


@agent(version="1")
async def stubborn(run: Run) -> int:
    """Try again, with long pauses between."""
    return await run.step("try", third_time, retry=Retry(attempts=6, wait=3600, max_wait=3600))
