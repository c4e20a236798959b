from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from milepost import Misuse
from milepost.llm.answers import Answer, Asked, recorded
from milepost.llm.prices import cost_of

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
    assert recorded(RESPONSE, cost=210_000) == RECORDED


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
