"""The agents whose runs the model walks through, and their tools: as short as a question allows.

What a tool does outside of the run is a request to the receiver of effects, which the model answers. Each
agent returns what it was told, so that its result can be held against the log and the inbox.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import Any, Final

from milepost import Call, Denied, Expired, Happened, NotHappened, Run, Unknown, agent, tool
from milepost.agent.agents import Agent
from tests.model.replay import Ask, Reach, Reply, Settle

__all__ = ["AGENTS", "APPROVAL", "SETTLES", "asked"]

APPROVAL: Final = "ok"
"""The name of all that people approve."""

SETTLES: Final = 600.0
"""Seconds: what a pause has to last for calls of processes that have ended to settle."""


async def asked(request: Reach | Ask | Settle) -> Reply:
    """Return the answer to a request outside of the store, in the event loop of the model."""
    loop: Any = asyncio.get_running_loop()
    reply: Reply = await loop.run_in_executor(None, loop.scripted.ask, request)
    return reply


async def _reach(call: Call, arguments: object, effect: str) -> str:
    step = call.key.partition("/")[2]
    digest = hashlib.sha256(repr(arguments).encode()).hexdigest()[:8]
    reply = await asked(Reach(call.key, digest, step, effect))
    if reply.kind == "unknown":
        raise TimeoutError("the receiver has not answered")
    return reply.text


async def _is_there(call: Call, text: str) -> Happened[str] | NotHappened | Unknown:
    assert text, "it is asked with the arguments of the call"
    reply = await asked(Ask(call.key))
    return NotHappened() if reply.kind == "absent" else Happened(reply.text)


@tool(effect="irreversible")
async def tell(call: Call, text: str) -> str:
    """Have an effect that can be neither repeated nor asked for."""
    return await _reach(call, text, "irreversible")


@tool(effect="irreversible", requires_approval=True)
async def wire(call: Call, text: str) -> str:
    """Have an effect that can be neither repeated nor asked for, once somebody has seen it."""
    return await _reach(call, text, "irreversible")


@tool(effect="verified", verify=_is_there, settles_within=SETTLES)
async def deliver(call: Call, text: str) -> str:
    """Have an effect that can be asked for."""
    return await _reach(call, text, "verified")


@tool(effect="keyed")
async def pay(call: Call, text: str) -> str:
    """Have an effect once for each key."""
    return await _reach(call, text, "keyed")


@agent(version="1")
async def tells(run: Run) -> list[str]:
    """An irreversible call, and a keyed one that follows from it."""
    told = await run.step("tell", tell, "a")
    return [told, await run.step("pay", pay, told)]


@agent(version="1")
async def delivers(run: Run) -> list[str]:
    """A verified call, and a keyed one that follows from it."""
    sent = await run.step("deliver", deliver, "a")
    return [sent, await run.step("pay", pay, sent)]


async def _decided(run: Run, *, expires: float | None = None) -> str:
    try:
        decision = await run.approval(APPROVAL, request="shall it be?", expires=expires)
    except Expired as expired:
        return f"Expired {expired.decision.by}"
    except Denied as denied:
        return f"Deny {denied.decision.by}"
    return f"Approve {decision.by}"


@agent(version="1")
async def approves(run: Run) -> list[str]:
    """An approval, and an effect that says how it was decided."""
    said = await _decided(run)
    await run.step("pay", pay, said)
    return [said]


@agent(version="1")
async def wires(run: Run) -> None:
    """A call that somebody has to approve."""
    with suppress(Denied):
        await run.step(APPROVAL, wire, "a")


async def _branch(run: Run, key: str) -> str:
    decision = await run.approval(APPROVAL, request=key, key=key)
    return await run.step("pay", pay, f"{key} by {decision.by}")


@agent(version="1")
async def branches(run: Run) -> None:
    """Two approvals side by side, each with an effect behind it."""
    await run.parallel({key: _branch(run, key) for key in ("x", "y")})


async def _drawn() -> str:
    loop: Any = asyncio.get_running_loop()
    writer: str = loop.process.writer
    return writer


@agent(version="1")
async def hands_over(run: Run) -> list[str]:
    """A result that each pod makes another way, an effect that follows from it, and one for ever."""
    drawn = await run.step("draw", _drawn)
    await run.step("pay", pay, drawn)
    again = await run.step("draw", _drawn)
    return [await run.step("tell", tell, again)]


@agent(version="1")
async def expires(run: Run) -> list[str]:
    """An approval with a deadline, a sleep, and an effect that says what came of it."""
    said = await _decided(run, expires=60.0)
    await run.sleep(30.0)
    await run.step("pay", pay, said)
    return [said]


@agent(version="1")
async def listens(run: Run) -> list[str]:
    """Two events of one name, each with an effect that says which it was."""
    first = await run.event("came", str)
    await run.step("first", pay, first)
    second = await run.event("came", str)
    await run.step("second", pay, second)
    return [first, second]


async def _still_holds(result: str) -> bool:
    return result != "pod 1"


def _note(text: str) -> str:
    return text


@agent(version="1")
async def checks(run: Run) -> list[str]:
    """A result that holds no more once its pod is gone, a step with it, and an effect without."""
    found = await run.step("a", pay, "a", valid=_still_holds)
    await run.step("b", _note, found)
    return [found, await run.step("c", pay, "c")]


@agent(version="1")
async def follows(run: Run) -> list[str]:
    """As `checks`, with an effect that follows from that result, and an approval after it."""
    found = await run.step("a", pay, "a", valid=_still_holds)
    await run.step("b", pay, found)
    await run.step("c", pay, "c")
    said = await _decided(run)
    await run.step("tell", tell, "d")
    return [said]


async def _telling(number: int) -> str:
    assert number >= 0
    return await tell("d")


@agent(version="1")
async def plans(run: Run) -> list[str]:
    """A plan that is made of what was found before: one step is in each, and twice in those but the first.

    The irreversible call is in each plan, too, in the body of a step that has other inputs each time.
    """
    facts = await run.facts()
    told = await run.step("tell", _telling, len(facts))
    await run.step("a", pay, "a")
    if facts:
        await run.step("a", pay, "a")
    return [told]


AGENTS: Final[dict[str, Agent[..., Any]]] = {
    each.name: each
    for each in (
        tells,
        delivers,
        approves,
        wires,
        branches,
        hands_over,
        expires,
        listens,
        checks,
        follows,
        plans,
    )
}

for _each in AGENTS.values():
    # The digest of an agent's code is one of its whole package, which here is all tests.
    _each.fn.__module__ = "model"
