from __future__ import annotations

from decimal import Decimal
from typing import Any, assert_type

import pytest
from pydantic import BaseModel

from milepost import Run
from milepost.llm import LLMAgent, LLMResult
from tests.support.adding_tools import Adding
from tests.support.scripted_models import Script, call, say
from tests.support.sessions import RunInMemory


class Line(BaseModel):
    text: str
    price: Decimal


class Invoice(BaseModel):
    lines: list[Line]


LINES = [{"text": "pens", "price": "1.20"}]


async def test_an_output_is_of_the_type_that_was_asked_for(run: RunInMemory, adding: Adding) -> None:
    script = Script([call("done", summary="Written.", output={"lines": LINES})])
    llm = LLMAgent(script.model(), tools=adding.tools, output=Invoice)

    result = await run.go_on(lambda each: llm.run(each, "Write an invoice."))

    assert_type(result.output, Invoice | None)
    assert result.output == Invoice(lines=[Line(text="pens", price=Decimal("1.20"))])
    schema = script.tools[-1]["schema"]
    assert schema["properties"]["output"]["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    assert set(schema["$defs"]) == {"Line"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (call("done", summary="Written.", output={"lines": [{"text": 3}]}), "output.lines.0.text: "),
        (call("done", summary="Written."), "output.: Input should be"),
        (say("DONE: written."), "An output is asked for: call done with a summary and the output."),
    ],
)
async def test_an_output_that_does_not_fit_goes_back_to_the_model(
    run: RunInMemory, adding: Adding, wrong: object, told: str
) -> None:
    script = Script([wrong, call("done", summary="Written.", output={"lines": []})])  # type: ignore[list-item]
    llm = LLMAgent(script.model(), tools=adding.tools, output=Invoice)

    async def code(each: Run) -> object:
        return (await llm.run(each, "Write an invoice.")).output

    assert await run.go_on(code) == Invoice(lines=[])
    assert told in script.prompt()


async def test_as_an_agent_its_goal_is_the_runs_and_its_result_is_storable(
    run: RunInMemory, adding: Adding
) -> None:
    script = Script([call("done", summary="Written.", output={"lines": LINES})])
    llm = LLMAgent(script.model("m-1"), tools=adding.tools, output=Invoice, instructions="Write neatly.")
    agent = llm.as_agent(name="writer", version="2")

    async def code(each: Run) -> dict[str, Any]:
        each.goal = "Write an invoice."
        return await agent.fn(each, **agent.arguments({"customer": "Ann"}))

    result = await run.go_on(code)

    assert (agent.name, agent.version, agent.tools) == ("writer", "2", tuple(adding.tools))
    assert agent.environment == {"model": "function:m-1"}
    assert result == {
        "summary": "Written.",
        "output": {"lines": LINES},
        "steps": 0,
        "tokens": result["tokens"],
        "cost_usd": 0.0,
        "stopped": "Done",
    }
    assert 'Goal:\nWrite an invoice.\n\nContext:\n{"customer": "Ann"}' in script.prompt()


async def test_a_result_can_be_what_a_step_or_an_agent_returns(run: RunInMemory) -> None:
    made = LLMResult(
        summary="Written.", output=Invoice(lines=[]), steps=1, tokens=2, cost_usd=0.5, stopped="Done"
    )

    async def write() -> LLMResult[Invoice]:
        return made

    assert await run.go_on(lambda each: each.step("write", write)) == made


def test_an_agent_counts_as_the_code_of_whoever_makes_it() -> None:
    agent = LLMAgent(Script([]).model("m-1")).as_agent(name="writer", version="1")

    assert agent.fn.__module__ == __name__
