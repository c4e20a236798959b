from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.usage import RequestUsage

from milepost import Misuse, Retry, StepFailed
from milepost.checkpoint.records import StepFailure
from milepost.llm import LLMAgent
from milepost.llm.answers import Answer, Asked, recorded
from milepost.llm.prices import cost_of, used_by
from tests.support.scripted_models import Script, say
from tests.support.sessions import RunInMemory

RESPONSE = ModelResponse(
    [
        ThinkingPart("Adding is right.", signature="s1", provider_name="anthropic"),
        TextPart("I add."),
        ToolCallPart("add", '{"number": 1}', "call-1"),
        ToolCallPart("add", "[", "call-2"),
    ],
    usage=RequestUsage(input_tokens=1000, output_tokens=100),
    model_name="gpt-4o-mini",
    provider_name="openai",
    finish_reason="tool_call",
)

RECORDED = {
    "format": 1,
    "model": "gpt-4o-mini",
    "provider": "openai",
    "text": "I add.",
    "calls": [
        {"id": "call-1", "tool": "add", "arguments": {"number": 1}},
        {"id": "call-2", "tool": "add", "arguments": "["},
    ],
    "thinking": [{"text": "Adding is right.", "signature": "s1", "provider": "anthropic"}],
    "usage": {"input_tokens": 1000, "output_tokens": 100, "cost_nano_usd": 210_000},
    "finish": "tool_call",
}


def test_an_answer_is_recorded_as_plain_json_with_the_number_of_its_format() -> None:
    assert recorded(RESPONSE, used_by(RESPONSE)) == RECORDED


def test_a_recorded_answer_is_read_as_what_it_was() -> None:
    answer = Answer.read(RECORDED)

    assert answer.calls == (Asked("call-1", "add", {"number": 1}), Asked("call-2", "add", None, "["))
    assert (answer.tokens, answer.cost, answer.text) == (1100, 210_000, "I add.")


def test_an_answer_in_a_newer_format_is_refused() -> None:
    with pytest.raises(Misuse, match="recorded in format 2, and this version of Milepost reads format 1"):
        Answer.read(RECORDED | {"format": 2})


def test_an_answer_costs_what_the_price_list_says() -> None:
    assert cost_of(RESPONSE) == 1000 * 150 + 100 * 600


def test_what_an_unknown_model_costs_is_not_known() -> None:
    unknown = ModelResponse([TextPart("Hm.")], usage=RequestUsage(input_tokens=1), model_name="our-own")

    assert cost_of(unknown) is None


async def test_what_was_used_up_in_vain_counts_too(run: RunInMemory) -> None:
    """Several models one after the other, the first of which answers what nobody can use."""
    first = Script([say("garbage", tokens=(50, 5))])
    second = Script([say("DONE: fine.", tokens=(60, 6))])
    model = FallbackModel(first.model("first"), second.model("second"), fallback_on=_garbage)
    llm = LLMAgent(model, tools=[])

    result = await run.go_on(lambda each: llm.run(each, "Be fine."))

    usage = run.step("think").usage
    assert (usage.input_tokens, usage.output_tokens, usage.models) == (110, 11, ("first", "second"))
    assert result.tokens == 121


async def test_what_a_failed_try_used_up_is_recorded_with_it(run: RunInMemory) -> None:
    answers = [say("garbage", tokens=(50, 5))]
    model = FallbackModel(
        Script(answers * 3).model("first"), Script(answers * 3).model("second"), fallback_on=_garbage
    )
    llm = LLMAgent(model, tools=[], retry=Retry(attempts=2, wait=0))

    with pytest.raises(StepFailed):
        await run.go_on(lambda each: llm.run(each, "Be fine."))

    assert [failure.usage.input_tokens for failure in run.events(StepFailure)] == [100, 100]


def _garbage(response: ModelResponse) -> bool:
    return "garbage" in str(response.parts)
