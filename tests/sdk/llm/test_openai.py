"""The real client against a server on loopback that speaks the protocol of OpenAI's chat completions."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from milepost import Retry, Run, StepFailed
from milepost.checkpoint.records import StepCompleted, StepFailure
from milepost.llm import LLMAgent, LLMResult, ModelFailed, RateLimited
from milepost.llm.asking import _busy
from tests.support.adding_tools import AT_ONCE, Adding
from tests.support.scripted_models import OpenAIServer, Reply, refusal, tool_call
from tests.support.sessions import RunInMemory, records_of

KEY = "quite-secret-0123456789abcdef"

DONE = tool_call("done", '{"summary": "The sum is 1."}', 2)
ADD_1 = tool_call("add", '{"number": 1}')


@asynccontextmanager
async def served(server: OpenAIServer, *, retries: int = 0) -> AsyncIterator[OpenAIChatModel]:
    """Serve, and yield a model that asks there."""
    with server.serving() as listening:
        async with AsyncOpenAI(
            base_url=f"{listening.endpoint}/v1", api_key=KEY, max_retries=retries
        ) as client:
            yield OpenAIChatModel(server.model, provider=OpenAIProvider(openai_client=client))


async def work(run: RunInMemory, server: OpenAIServer, adding: Adding, **options: Any) -> LLMResult:
    """Run an agent whose model is behind the server."""
    async with served(server, retries=options.pop("retries", 0)) as model:
        llm = LLMAgent(model, tools=adding.tools, retry=AT_ONCE, **options)

        async def code(each: Run) -> LLMResult:
            return await llm.run(each, "Make the sum 1.")

        return await run.go_on(code)


@pytest.mark.req("G1", "A3")
async def test_a_run_through_the_real_client_records_answers_tokens_and_cost(
    run: RunInMemory, adding: Adding
) -> None:
    server = OpenAIServer([ADD_1, DONE])

    result = await work(run, server, adding)

    a_request = 1000 * 150 + 100 * 600
    assert result == LLMResult("The sum is 1.", None, 1, 2200, 2 * a_request / 1e9, "Done")
    assert adding.sum == 1
    assert (run.state.totals.tokens, run.state.totals.cost_nano_usd) == (2200, 2 * a_request)
    assert server.keys == [f"Bearer {KEY}"] * 2
    assert [each["function"]["name"] for each in server.asked[0]["tools"]] == ["add", "fail", "done"]
    told = [(each["role"], each.get("content")) for each in server.asked[1]["messages"]]
    assert [role for role, _ in told] == ["system", "user", "assistant", "tool", "user"]
    assert told[3] == ("tool", "1")


@pytest.mark.req("G4")
async def test_a_rate_limit_is_waited_out_for_as_long_as_the_provider_asks(
    run: RunInMemory, adding: Adding, caplog: pytest.LogCaptureFixture
) -> None:
    server = OpenAIServer([refusal(429, "slow down", retry_after="2"), ADD_1, DONE])
    began = time.monotonic()

    with caplog.at_level(logging.WARNING, "milepost.agent"):
        result = await work(run, server, adding)

    assert result.done
    assert time.monotonic() - began >= 2
    (said,) = [record.getMessage() for record in caplog.records]
    until = said.removeprefix("RateLimited until ").partition(",")[0]
    assert abs(datetime.fromisoformat(until) - datetime.now(UTC)) < timedelta(minutes=5)
    assert run.events(StepFailure) == []


@pytest.mark.req("G4")
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_busy_provider_uses_up_no_attempts_and_is_bounded_by_time(
    run: RunInMemory, adding: Adding, status: int
) -> None:
    busy = refusal(status, "busy", retry_after_ms="20")
    server = OpenAIServer([*[busy] * 7, ADD_1, DONE])

    result = await work(run, server, adding)

    assert result.done
    assert run.events(StepFailure) == []


@pytest.mark.req("G4")
async def test_a_provider_that_stays_busy_for_longer_than_the_patience_fails_the_step(
    run: RunInMemory, adding: Adding
) -> None:
    server = OpenAIServer([refusal(429, "slow down", retry_after="3600")] * 3)

    with pytest.raises(StepFailed) as raised:
        await work(run, server, adding, rate_limit_patience=timedelta(minutes=10))

    assert raised.value.of(RateLimited)
    assert raised.value.attempts == 1
    assert "the provider is busy until 20" in raised.value.message
    assert "slow down" in raised.value.message
    assert len(server.asked) == 1


@pytest.mark.req("G4")
async def test_the_clients_own_retries_do_not_hide_what_it_is_waiting_for(
    run: RunInMemory, adding: Adding
) -> None:
    busy = refusal(429, "slow down", retry_after_ms="10")
    server = OpenAIServer([*[busy] * 4, ADD_1, DONE])

    result = await work(run, server, adding, retries=2)

    assert result.done


@pytest.mark.req("G4")
@pytest.mark.parametrize(
    "broken", [None, refusal(500, "oops"), refusal(401, "no such key")], ids=["dropped", "500", "401"]
)
async def test_other_errors_use_up_the_attempts_of_the_step(
    run: RunInMemory, adding: Adding, broken: Reply
) -> None:
    server = OpenAIServer([ADD_1, broken, broken, broken])

    with pytest.raises(StepFailed) as raised:
        await work(run, server, adding)

    assert raised.value.of(ModelFailed)
    assert (raised.value.step, raised.value.attempts) == ("think#2", 3)
    assert [failure.attempt for failure in run.events(StepFailure)] == [1, 2, 3]
    assert adding.sum == 1


@pytest.mark.req("G4")
async def test_a_dropped_connection_is_tried_again(run: RunInMemory, adding: Adding) -> None:
    server = OpenAIServer([None, ADD_1, DONE])

    result = await work(run, server, adding)

    assert (result.done, len(run.events(StepFailure))) == (True, 1)


async def test_a_quota_that_is_used_up_is_not_waited_for(run: RunInMemory, adding: Adding) -> None:
    spent = refusal(429, "You exceeded your current quota")
    used_up = type(spent)(
        429, spent.headers, spent.body.replace(b'"code": null', b'"code": "insufficient_quota"')
    )
    server = OpenAIServer([used_up] * 3)

    with pytest.raises(StepFailed) as raised:
        await work(run, server, adding)

    assert raised.value.of(ModelFailed)
    assert len(server.asked) == 3


@pytest.mark.parametrize("sent", ['{"number": ', "[1]", '{"number": "one"}', "null", '"1"'])
async def test_arguments_that_do_not_fit_go_back_through_the_real_client(
    run: RunInMemory, adding: Adding, sent: str
) -> None:
    server = OpenAIServer([tool_call("add", sent), ADD_1, DONE])

    result = await work(run, server, adding)

    assert (result.steps, adding.sum) == (1, 1)
    assert [each.step.name for each in run.events(StepCompleted)] == ["think", "think", "add", "think"]


@pytest.mark.req("G4")
@pytest.mark.parametrize(
    "reply",
    [
        refusal(401, f"Incorrect API key provided: {KEY}"),
        refusal(400, f"headers were Authorization: Bearer {KEY}"),
        refusal(500, "sent with sk-proj-abcdefghijklmnop1234"),
        refusal(429, f"too many for {KEY}", retry_after="3600"),
    ],
    ids=["key", "header", "another key", "rate limit"],
)
async def test_no_key_reaches_the_log_of_the_run_or_of_the_process(
    run: RunInMemory, adding: Adding, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    server = OpenAIServer([reply] * 3)

    with pytest.raises(StepFailed):
        await work(run, server, adding)

    recorded = "".join(record.model_dump_json() for record in records_of(run.store, run.keys))
    assert "***" in recorded
    for secret in (KEY, "sk-proj-abcdefghijklmnop1234"):
        assert secret not in recorded
        assert secret not in caplog.text


def test_the_pause_that_a_client_of_an_older_kind_was_asked_for_is_in_its_own_error() -> None:
    class Response:
        headers = {"retry-after": "7"}  # noqa: RUF012  (as a client's)

    class Refused(Exception):
        status_code = 429

    refused = Refused("slow down")
    refused.__cause__ = type("Theirs", (Exception,), {"response": Response})()

    assert _busy(refused) == (True, 7.0)


@pytest.mark.req("G4")
async def test_of_several_models_that_failed_each_says_why(run: RunInMemory, adding: Adding) -> None:
    first, second = OpenAIServer([refusal(500, "no disk")]), OpenAIServer([refusal(400, f"no {KEY}")])

    async with served(first) as one, served(second) as other:
        llm = LLMAgent(FallbackModel(one, other), tools=adding.tools, retry=Retry(attempts=1))
        with pytest.raises(StepFailed) as raised:
            await run.go_on(lambda each: llm.run(each, "Make the sum 1."))

    assert "no disk" in raised.value.message
    assert "no ***" in raised.value.message
    assert KEY not in raised.value.message


@pytest.mark.req("G4")
async def test_where_all_models_are_busy_the_shortest_pause_is_waited(
    run: RunInMemory, adding: Adding
) -> None:
    first = OpenAIServer([refusal(429, "slow down", retry_after="300"), ADD_1, DONE])
    second = OpenAIServer([refusal(503, "busy", retry_after_ms="20")])

    async with served(first) as one, served(second) as other:
        llm = LLMAgent(FallbackModel(one, other), tools=adding.tools)
        result = await run.go_on(lambda each: llm.run(each, "Make the sum 1."))

    assert result.done
