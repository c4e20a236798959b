"""How much of a long conversation is stored."""

from __future__ import annotations

import os

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from milepost import Run, tool
from milepost.checkpoint.deletion import Sweeper
from milepost.checkpoint.runs import Runs
from milepost.checkpoint.sweep import Ages
from milepost.llm import History, Limits, LLMAgent, LLMResult
from tests.support.scripted_models import text_of
from tests.support.sessions import RunInMemory, now

OPENING = 836_000
CALLS = 100
RESULT = 5 * 1024


@tool(effect="none")
async def look(number: int) -> str:
    """Look something up."""
    return f"{number}:".ljust(RESULT, "x")


async def stored_after(calls: int) -> tuple[int, int]:
    """Return the bytes that a run with so many calls has stored, and those of its last request."""
    sizes = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        sizes.append(len(text_of(messages)))
        done = len(sizes) > calls
        part = (
            ToolCallPart("done", {"summary": "seen"})
            if done
            else ToolCallPart("look", {"number": len(sizes)})
        )
        return ModelResponse([part])

    llm = LLMAgent(
        FunctionModel(answer),
        tools=[look],
        limits=Limits(steps=None),
        history=History(max_tokens=None, max_result=RESULT),
    )
    run = RunInMemory()

    async def code(each: Run) -> LLMResult:
        return await llm.run(each, "Look at it all.", context="y" * OPENING)

    result = await run.go_on(code)
    assert result.steps == calls
    return stored(run), sizes[-1]


def stored(run: RunInMemory) -> int:
    """Return the bytes that the run has in the store once what was merged into something else is swept."""
    sweeper = Sweeper(Runs(run.store, now, os.urandom), ages=Ages(passed_over=0.0))
    for finding in sweeper.look([run.keys.namespace]):
        sweeper.carry_out(finding)
    return sum(listed.size for listed in run.store.list(run.keys.run))


@pytest.mark.req("G6")
@pytest.mark.timeout(300)
async def test_what_is_stored_grows_with_what_is_said_and_not_with_what_is_read() -> None:
    """A conversation of 836 KB to begin with, and 100 calls whose results of 5 KB join it."""
    half, _ = await stored_after(CALLS // 2)
    whole, last_request = await stored_after(CALLS)

    logical = OPENING + CALLS * RESULT
    assert last_request > logical
    assert whole <= 2 * logical
    first, second = half / (CALLS // 2), (whole - half) / (CALLS - CALLS // 2)
    assert second == pytest.approx(first, rel=0.15)
