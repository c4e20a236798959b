"""What models used up: counted with the step's try, a failed one too, and with the run."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from milepost import Misuse, Retry, Run, StepFailed, record_usage, tool
from milepost.checkpoint.records import StepCompleted, StepFailure, Usage
from tests.support.sessions import RunInMemory


@pytest.mark.req("G5", "A3")
async def test_usage_is_counted_with_every_try_and_with_the_run(run: RunInMemory) -> None:
    @tool(effect="none")
    async def think(number: int) -> int:
        record_usage(input_tokens=10 * number, output_tokens=1, cost_usd="0.25", model="small")
        return number

    tries: list[int] = []

    async def agent(run: Run) -> int:
        async def body() -> int:
            tries.append(1)
            record_usage(input_tokens=1, cost_usd=Decimal("0.0000000001"), model="large")
            found = await think(len(tries))
            if len(tries) == 1:
                raise OSError("after it")
            return found

        return await run.step("it", body, retry=Retry(wait=0))

    await run.go_on(agent)

    (failure,), (completed,) = run.events(StepFailure), run.events(StepCompleted)
    models = ("large", "small")
    # A ten-billionth of a dollar is a billionth, rounded up.
    first = Usage(input_tokens=11, output_tokens=1, cost_nano_usd=250_000_001, models=models)
    second = Usage(input_tokens=21, output_tokens=1, cost_nano_usd=250_000_001, models=models)
    assert (failure.usage, completed.usage) == (first, second)
    totals = run.state.totals
    assert (totals.tokens, totals.cost_nano_usd) == (34, 500_000_002)


@pytest.mark.req("G5")
async def test_usage_is_counted_in_a_plain_functions_thread_and_in_a_tool_that_is_the_step(
    run: RunInMemory,
) -> None:
    def plain() -> None:
        record_usage(input_tokens=1)

    @tool(effect="repeatable")
    async def called() -> None:
        record_usage(input_tokens=2)

    async def agent(run: Run) -> None:
        await run.step("plain", plain)
        await run.step("called", called)

    await run.go_on(agent)

    assert [each.usage.input_tokens for each in run.events(StepCompleted)] == [1, 2]


async def test_usage_outside_of_a_step_is_refused(run: RunInMemory) -> None:
    async def agent(_: Run) -> None:
        record_usage(input_tokens=1)

    with pytest.raises(Misuse, match="inside a step"):
        await run.go_on(agent)


async def test_usage_after_its_step_has_ended_is_refused(run: RunInMemory) -> None:
    later: list[asyncio.Task[None]] = []

    async def agent(run: Run) -> None:
        async def body() -> None:
            async def count() -> None:
                await asyncio.sleep(0.05)
                record_usage(input_tokens=1)

            later.append(asyncio.create_task(count()))

        await run.step("it", body)
        await later[0]

    with pytest.raises(Misuse, match="has ended"):
        await run.go_on(agent)


@pytest.mark.parametrize(
    "amount",
    [
        {"input_tokens": -1},
        {"output_tokens": 1.5},
        {"input_tokens": True},
        {"cost_usd": "much"},
        {"cost_usd": float("nan")},
        {"cost_usd": -0.1},
    ],
)
async def test_an_amount_that_is_none_is_refused(run: RunInMemory, amount: dict[str, Any]) -> None:
    async def agent(run: Run) -> None:
        await run.step("it", lambda: record_usage(**amount))

    with pytest.raises(StepFailed) as failed:
        await run.go_on(agent)

    assert (failed.value.of(Misuse), failed.value.attempts) == (True, 1)


@pytest.mark.parametrize(("cost", "nano"), [(0.1, 100_000_000), ("1e-9", 1), (3, 3_000_000_000), (0, 0)])
async def test_a_cost_is_kept_in_billionths_of_a_dollar(
    run: RunInMemory, cost: float | str, nano: int
) -> None:
    async def agent(run: Run) -> None:
        await run.step("it", lambda: record_usage(cost_usd=cost))

    await run.go_on(agent)

    assert run.step("it").usage.cost_nano_usd == nano
