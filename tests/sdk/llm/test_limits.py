from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from milepost import Run
from milepost.llm import LimitReached, Limits, LLMAgent, LLMResult
from milepost.llm.limits import Reached, Spent
from tests.support.adding_tools import AT_ONCE, Adding
from tests.support.scripted_models import Script, call
from tests.support.sessions import RunInMemory

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def adding_1(tokens: int = 0) -> ModelResponse:
    answer = call("add", number=1)
    answer.usage = RequestUsage(input_tokens=tokens, output_tokens=1)
    return answer


async def work(run: Run, script: Script, adding: Adding, **options: Any) -> LLMResult:
    return await LLMAgent(script.model(), tools=adding.tools, retry=AT_ONCE, **options).run(
        run, "Add for ever."
    )


@pytest.mark.req("G1", "G5")
async def test_after_60_steps_it_stops_with_what_there_is(run: RunInMemory, adding: Adding) -> None:
    script = Script([adding_1()] * 61)

    result = await run.go_on(lambda each: work(each, script, adding))

    assert (result.stopped, result.steps, result.done) == ("StepCapReached", 60, False)
    assert result.summary == (
        "Stopped before the goal was reached: 60 of 60 steps are used. 60 steps were made; the last: "
        'add({"number": 1}) -> 60'
    )
    assert len(script.requests) == 60


@pytest.mark.req("G5")
async def test_steps_and_tokens_are_counted_across_restarts(run: RunInMemory, adding: Adding) -> None:
    limits = Limits(steps=None, tokens=250)
    first = Script([adding_1(tokens=99), SystemExit("gone")])
    with pytest.raises(SystemExit):
        await run.go_on(lambda each: work(each, first, adding, limits=limits))

    rest = Script([adding_1(tokens=99), adding_1(tokens=99), adding_1(tokens=99)])
    result = await run.go_on(lambda each: work(each, rest, adding, limits=limits))

    assert (result.stopped, result.steps, result.tokens) == ("TokenLimitReached", 3, 300)
    assert len(rest.requests) == 2


@pytest.mark.req("G5")
async def test_it_fails_at_a_limit_where_it_is_told_to(run: RunInMemory, adding: Adding) -> None:
    script = Script([adding_1()] * 3)

    with pytest.raises(LimitReached, match="StepCapReached: 2 of 2 steps are used") as raised:
        await run.go_on(lambda each: work(each, script, adding, limits=Limits(steps=2), on_limit="fail"))

    assert raised.value.reason == "StepCapReached"


@pytest.mark.req("G5")
@pytest.mark.parametrize(
    ("limits", "spent", "reached"),
    [
        (Limits(), Spent(NOON, steps=59), None),
        (Limits(), Spent(NOON, steps=60), Reached("steps", 60, 60)),
        (Limits(tokens=10), Spent(NOON, tokens=10), Reached("tokens", 10, 10)),
        (Limits(cost_usd=0.5), Spent(NOON, cost=499_999_999), None),
        (Limits(cost_usd=0.5), Spent(NOON, cost=500_000_000), Reached("cost_usd", 0.5, 0.5)),
        (Limits(wall=60), Spent(NOON - timedelta(seconds=60)), Reached("wall", 60, 60)),
        (Limits(wall=timedelta(hours=1)), Spent(NOON - timedelta(seconds=3599)), None),
        (Limits(steps=None), Spent(NOON, steps=10**6), None),
        (Limits(steps=2), Spent(NOON, steps=3, granted={"steps": 1}), None),
        (Limits(steps=2), Spent(NOON, steps=4, granted={"steps": 1}), Reached("steps", 4, 4)),
    ],
)
def test_a_limit_is_reached_once_it_is_used_up(limits: Limits, spent: Spent, reached: Reached | None) -> None:
    assert spent.reached(limits, NOON) == reached


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"tokens": -1}, {"cost_usd": 0.0}, {"wall": timedelta(0)}])
def test_a_limit_of_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is a number above 0"):
        Limits(**wrong)


@pytest.mark.req("G5")
async def test_the_wall_time_runs_by_the_times_that_are_recorded(run: RunInMemory, adding: Adding) -> None:
    script = Script([adding_1(), adding_1()])

    async def code(each: Run) -> LLMResult:
        await each.step("before", lambda: None)
        return await work(each, script, adding, limits=Limits(wall=1e-9))

    result = await run.go_on(code)
    again = await run.go_on(code)

    assert (result.stopped, result.steps) == ("TimeLimitReached", 1)
    assert again == result
