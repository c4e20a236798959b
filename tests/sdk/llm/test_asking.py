"""What a model's agent asks people: for calls that need an approval, and for more of what it has used up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from milepost import Call, Run, tool
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, GateAt, GateOpened
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.sending import Patience
from milepost.llm import Limits, LLMAgent, LLMResult
from tests.support.adding_tools import AT_ONCE, Adding
from tests.support.scripted_models import Script, call, say
from tests.support.sessions import RunInMemory, now

Code = Callable[[Run], Awaitable[LLMResult]]


async def until_it_waits(run: RunInMemory, code: Code) -> GateAt:
    """Run the code until it waits at a gate, as a process does, and return the gate."""
    began = asyncio.Event()

    async def marked(each: Run) -> LLMResult:
        began.set()
        return await code(each)

    going_on = asyncio.ensure_future(run.go_on(marked))
    async with asyncio.timeout(20):
        await began.wait()
        await run.journals[-1].waits
    going_on.cancel()
    await asyncio.wait([going_on])
    head = read_head(run.store, run.keys)
    assert isinstance(head, HeadAt)
    (gate,) = head.head.gates
    return gate


def answer(run: RunInMemory, gate: GateAt, kind: AnswerType, reason: str = "") -> None:
    inbox.give(
        run.store, run.keys, Answer(gate.id, kind, "kim", now().isoformat(), reason), Patience(os.urandom)
    )


def shown(run: RunInMemory) -> Any:
    """Return what people were shown at the last gate."""
    request = run.events(GateOpened)[-1].gate.request
    assert request is not None
    return request.inline


SENT: list[int] = []


@tool(effect="keyed", version="2", requires_approval=True)
async def send(call: Call, number: int) -> str:
    """Send a number."""
    assert call.key
    SENT.append(number)
    return f"sent {number}"


def sending(script: Script) -> Code:
    llm = LLMAgent(script.model(), tools=[send], retry=AT_ONCE)
    return lambda run: llm.run(run, "Send 1.")


@pytest.mark.req("G1")
async def test_a_call_that_was_approved_is_made_once(run: RunInMemory) -> None:
    SENT.clear()
    gate = await until_it_waits(run, sending(Script([call("send", number=1)])))
    assert SENT == []
    assert shown(run) == {"tool": "send", "version": "2", "arguments": {"number": 1}}
    answer(run, gate, AnswerType.APPROVE)

    script = Script([say("DONE: sent.")])
    result = await run.go_on(sending(script))
    again = await run.go_on(sending(Script([])))

    assert "<send returned> sent 1" in script.prompt()
    assert (result.steps, SENT) == (1, [1])
    assert again == result


@pytest.mark.req("G1")
@pytest.mark.parametrize(
    ("kind", "reason", "told"),
    [
        (AnswerType.DENY, "not today", "the user refused: not today"),
        (AnswerType.DENY, "", "the user refused: no reason was given"),
        (AnswerType.EXPIRED, "", "the user refused: nobody answered in time"),
    ],
)
async def test_a_call_that_was_refused_is_not_made_and_the_model_is_told(
    run: RunInMemory, kind: AnswerType, reason: str, told: str
) -> None:
    SENT.clear()
    gate = await until_it_waits(run, sending(Script([call("send", number=1)])))
    answer(run, gate, kind, reason)

    script = Script([say("DONE: not sent.")])
    result = await run.go_on(sending(script))

    assert f"<send returned> {told}" in script.prompt()
    assert f'1. send({{"number": 1}}) -> refused: {told}' in script.prompt()
    assert (result.done, SENT) == (True, [])


def adding_2_at_a_time(script: Script, adding: Adding) -> Code:
    llm = LLMAgent(script.model(), tools=adding.tools, limits=Limits(steps=2), on_limit="ask")
    return lambda run: llm.run(run, "Add for ever.")


@pytest.mark.req("G5")
async def test_an_approval_raises_the_limit_by_as_much_again(run: RunInMemory, adding: Adding) -> None:
    gate = await until_it_waits(run, adding_2_at_a_time(Script([call("add", number=1)] * 3), adding))
    assert (gate.name, gate.place) == ("raise-limit", "@raise-limit")
    assert shown(run) == {
        "agent": "llm",
        "reason": "StepCapReached",
        "limit": "steps",
        "reached": 2,
        "raise_to": 4,
        "steps": 2,
        "tokens": shown(run)["tokens"],
        "cost_usd": 0.0,
    }
    answer(run, gate, AnswerType.APPROVE)

    second = await until_it_waits(run, adding_2_at_a_time(Script([call("add", number=1)] * 3), adding))
    assert (second.place, shown(run)["raise_to"], adding.sum) == ("@raise-limit#2", 6, 4)
    answer(run, second, AnswerType.DENY)

    result = await run.go_on(adding_2_at_a_time(Script([]), adding))

    assert (result.stopped, result.steps, adding.sum) == ("StepCapReached", 4, 4)
