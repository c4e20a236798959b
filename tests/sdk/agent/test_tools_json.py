"""Arguments that a model gives a tool: described to it, validated strictly, and the inputs of a step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from milepost import ArgumentsInvalid, Bound, Call, Run, tool
from milepost.checkpoint.records import StepCompleted, ToolCalled, Value
from tests.support.sessions import RunInMemory


class Line(BaseModel):
    item: str
    amount: int


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


class Opaque:
    """Nothing that a model can give."""


@tool(effect="keyed")
async def order(
    call: Call,
    lines: list[Line],
    due: Annotated[date, Field(description="the last day")],
    speed: Speed = Speed.SLOW,
    *,
    note: str | None = None,
) -> str:
    """Order what is listed.

    Nothing is paid yet.
    """
    return f"{call.attempt} {lines[0].item} {due} {speed} {note}"


GOOD: dict[str, Any] = {"lines": [{"item": "nail", "amount": 3}], "due": "2026-02-01", "speed": "fast"}


def test_a_tool_is_described_with_all_of_its_arguments_but_the_call() -> None:
    schema = order.schema()

    assert order.description == "Order what is listed.\n\nNothing is paid yet."
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert schema["required"] == ["lines", "due"]
    assert list(schema["properties"]) == ["lines", "due", "speed", "note"]
    assert schema["properties"]["due"] == {
        "description": "the last day",
        "format": "date",
        "title": "Due",
        "type": "string",
    }
    assert schema["properties"]["note"]["default"] is None


def test_arguments_become_what_is_declared_and_those_left_out_stay_so() -> None:
    bound = order.from_json(GOOD)

    assert isinstance(bound, Bound)
    assert (bound.tool, bound.arguments) == (
        order,
        {"lines": [Line(item="nail", amount=3)], "due": date(2026, 2, 1), "speed": Speed.FAST},
    )


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        (
            {"lines": [{"item": "nail", "amount": "3"}]},
            [("lines.0.amount", "Input should be a valid integer")],
        ),
        ({"due": "soon"}, [("due", "Input should be a valid date")]),
        ({"speed": "warp"}, [("speed", "Input should be 'slow' or 'fast'")]),
        ({"colour": "red"}, [("colour", "is not known")]),
        ({"call": {"key": "mine"}}, [("call", "is not known")]),
        (
            {"lines": 3, "due": 7},
            [
                ("lines", "Input should be a valid array"),
                ("due", "Input should be a valid date"),
            ],
        ),
    ],
)
def test_every_argument_that_does_not_fit_is_named(
    changes: dict[str, Any], faults: list[tuple[str, str]]
) -> None:
    with pytest.raises(ArgumentsInvalid) as refused:
        order.from_json(GOOD | changes)

    found = refused.value.faults
    assert [path for path, _ in found] == [path for path, _ in faults]
    assert all(why.startswith(expected) for (_, why), (_, expected) in zip(found, faults, strict=True))
    assert all(f"{path}: {why}" in str(refused.value) for path, why in found)


def test_an_argument_that_is_missing_is_named() -> None:
    with pytest.raises(ArgumentsInvalid, match=r"do not fit tool order: lines: is missing; due: is missing"):
        order.from_json({})


@pytest.mark.parametrize("arguments", [{"lines": object()}, {"lines": float("nan")}, {"lines": {1, 2}}])
def test_arguments_that_are_no_json_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsInvalid, match="not JSON"):
        order.from_json(arguments)


def test_a_wrong_argument_is_quoted_only_so_far() -> None:
    with pytest.raises(ArgumentsInvalid) as refused:
        order.from_json(GOOD | {"due": "x" * 5000})

    assert len(str(refused.value)) < 500


async def test_the_arguments_are_the_steps_inputs_and_its_results_come_back() -> None:
    run = RunInMemory()

    async def agent(run: Run) -> str:
        return await run.step("order", order.from_json(GOOD))

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert live == resumed == "1 nail 2026-02-01 Speed.FAST None"
    (completed,), (called,) = run.events(StepCompleted), run.events(ToolCalled)
    (inputs,) = completed.inputs
    assert inputs.inline is not None
    assert list(inputs.inline.inline) == ["lines", "due", "speed"]
    # With the step's inputs, and not once more.
    assert (called.inputs, called.named, called.key) == ((), {}, f"{'a' * 20}/order")


async def test_a_bound_tool_in_a_steps_body_is_recorded_with_its_arguments() -> None:
    run = RunInMemory()

    @tool(effect="repeatable")
    async def touch(number: int) -> int:
        return number

    async def agent(run: Run) -> int:
        async def body() -> int:
            return await touch.from_json({"number": 7})()

        return await run.step("it", body)

    assert await run.go_on(agent) == 7
    assert run.events(ToolCalled)[0].named["number"].inline == Value(inline=7, size=1)


async def open_ended(number: int, **more: str) -> str:
    return f"{number} {more}"


async def opaque(thing: Opaque) -> str:
    return repr(thing)


def test_a_tool_that_takes_anything_takes_it_from_a_model_too() -> None:
    bound = tool(effect="none")(open_ended).from_json({"number": 1, "colour": "red"})

    assert bound.arguments == {"number": 1, "colour": "red"}


def test_an_argument_of_a_class_that_json_does_not_know_is_taken_as_it_is() -> None:
    assert tool(effect="none")(opaque).from_json({"thing": {"a": 1}}).arguments == {"thing": {"a": 1}}


async def by_place(number: int, /) -> int:
    return number


async def any_number(*numbers: int) -> int:
    return len(numbers)


@pytest.mark.parametrize("fn", [by_place, any_number])
def test_a_parameter_that_has_no_name_to_a_caller_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="cannot be given by name"):
        tool(effect="none")(fn).schema()
