from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, ThinkingPart, ToolCallPart

from milepost import Fact
from milepost.llm.answers import Answer, recorded
from milepost.llm.history import History, Past, Turn
from milepost.llm.prompt import Opening, messages, rendered
from tests.support.scripted_models import text_of


class Model(BaseModel):
    day: date


@dataclass
class Data:
    names: frozenset[str]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        ((1, "ä", True), '[1, "ä", true]'),
        ({1: {"b", "a"}}, '{"1": ["a", "b"]}'),
        (Data(frozenset({"c", "b", "a"})), '{"names": ["a", "b", "c"]}'),
        (Model(day=date(2026, 3, 1)), '{"day": "2026-03-01"}'),
        (
            [Decimal("1.20"), b"\xff", datetime(2026, 3, 1, tzinfo=UTC)],
            '["1.20", "_w==", "2026-03-01T00:00:00Z"]',
        ),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_a_value_is_shown_as_text_that_a_provider_takes(value: Any, text: str) -> None:
    assert rendered(value) == text


def test_a_set_is_shown_in_the_same_order_in_every_process() -> None:
    code = "from milepost.llm.prompt import rendered; print(rendered({'a', 'b', 'c', 'd', 'e', 'f'}))"

    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert shown == {'["a", "b", "c", "d", "e", "f"]\n'}


@pytest.mark.req("G1")
def test_what_an_earlier_execution_had_completed_is_told_as_facts() -> None:
    facts = [
        Fact("send", "send", None, "Send it.", "sent to Ann", "id-1"),
        Fact("add#2", "add", None, "", "", 3),
    ]

    told = Opening("", "Go on.", "", facts).text()

    assert told.endswith("are not to be done again without need:\n- send: sent to Ann\n- add#2: 3")


def test_what_a_provider_wants_back_with_its_answer_is_sent_back() -> None:
    thought = ThinkingPart(
        "Hm.", id="t-1", signature="signed", provider_name="anthropic", provider_details={"x": 1}
    )
    part = ToolCallPart(
        "add", {"number": 1}, "call-1", provider_name="google", provider_details={"thought": "y"}
    )
    response = ModelResponse([thought, part], model_name="m", provider_name="anthropic")
    past = Past(History())
    past.add(Turn(Answer.read(recorded(response, [])), "completed", "1", "add"), "1")

    _, answer, _ = messages(Opening("", "Add.", "", []), past)

    assert isinstance(answer, ModelResponse)
    assert list(answer.parts) == [thought, part]


def test_of_very_many_completed_steps_the_oldest_are_counted() -> None:
    past = Past(History(max_messages=2, keep_first=0, keep_last=1))
    call = ModelResponse([ToolCallPart("add", {"number": 1}, "call-1")])
    for number in range(103):
        past.add(Turn(Answer.read(recorded(call, [])), "completed", "1", f"line {number}"), "1")
        past.shorten()

    prompt = text_of(messages(Opening("", "Add.", "", []), past))

    assert "Completed steps (103):\n(before these: 3 x add)\n4. line 3\n" in prompt
    assert prompt.count("<add returned>") == 1
    assert "[102 earlier turns" in prompt
