from __future__ import annotations

from typing import Any

import pytest

from milepost import Run
from milepost.llm import History, LLMAgent
from milepost.llm.answers import Answer
from milepost.llm.history import Past, Turn, cut
from tests.support.adding_tools import Adding
from tests.support.scripted_models import Script, call, say
from tests.support.sessions import RunInMemory


def an_answer(tool: str = "add", text: str = "") -> Answer:
    call = {"id": "call-1", "tool": tool, "arguments": {}}
    return Answer.read(
        {
            "format": 1,
            "model": "m",
            "provider": "p",
            "text": text,
            "calls": [call] if tool else [],
            "thinking": [],
            "usage": {"input_tokens": 1, "output_tokens": 1, "cost_nano_usd": 0},
            "finish": "",
        }
    )


def a_past(policy: History, sizes: list[int]) -> Past:
    past = Past(policy)
    for number, size in enumerate(sizes):
        past.add(Turn(an_answer(), "completed", "x" * size, str(number)), "x")
        past.shorten()
    return past


@pytest.mark.req("G6")
def test_the_oldest_after_the_first_are_left_out_until_three_quarters_are_left() -> None:
    past = a_past(History(max_tokens=100, keep_first=1, keep_last=2), [40] * 11)

    shown = [int(turn.line) for turn in [*past.first, *past.last]]
    assert past.left_out == 4
    assert shown == [0, 5, 6, 7, 8, 9, 10]
    assert past.note() == (
        "[4 earlier turns, about 40 tokens, are left out here to keep this short: 4 x add. What they "
        "completed stands in the list of completed steps.]"
    )


@pytest.mark.req("G6")
def test_what_was_left_out_stays_out_and_the_beginning_stays_the_same_for_a_while() -> None:
    seen = []
    past = Past(History(max_messages=16, keep_first=1, keep_last=2))
    for _ in range(12):
        past.add(Turn(an_answer(), "completed", "x"), "x")
        past.shorten()
        seen.append(past.left_out)

    assert seen == [0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 6]


@pytest.mark.req("G6")
def test_the_first_and_the_last_turns_stay_however_long_they_are() -> None:
    past = a_past(History(max_tokens=1, keep_first=1, keep_last=2), [400] * 6)

    assert past.left_out == 3
    assert [*past.first, *past.last] == [past.turns[0], *past.turns[4:]]


@pytest.mark.req("G6")
def test_a_long_result_is_cut_and_says_so() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcdef", 4) == "abcd\n[... 2 further characters are left out here]"


@pytest.mark.parametrize(
    "wrong", [{"keep_last": 0}, {"keep_first": -1}, {"max_tokens": 0}, {"max_result": 0}]
)
def test_a_history_that_keeps_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"history keeps|is a number above 0"):
        History(**wrong)


@pytest.mark.req("G6")
async def test_the_prompt_says_what_is_left_out_and_lists_its_steps(
    run: RunInMemory, adding: Adding, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script([*[call("add", number=1)] * 6, say("DONE: 6.")])
    llm = LLMAgent(script.model(), tools=adding.tools, history=History(max_messages=8, keep_last=2))

    async def code(each: Run) -> object:
        return await llm.run(each, "Add.")

    with caplog.at_level("INFO", "milepost.agent"):
        await run.go_on(code)

    prompt = script.prompt()
    assert prompt.count("<add returned>") == 4
    assert "[2 earlier turns, about 7 tokens, are left out here to keep this short: 2 x add." in prompt
    assert 'Completed steps (6):\n1. add({"number": 1}) -> 1\n2. add({"number": 1}) -> 2\n' in prompt
    assert [record.message for record in caplog.records].count("history-shortened") == 1


@pytest.mark.req("G6")
async def test_a_long_result_is_shown_cut_and_recorded_whole(run: RunInMemory, adding: Adding) -> None:
    script = Script([call("fail", why="x" * 500), say("DONE: no.")])
    llm = LLMAgent(script.model(), tools=adding.tools, history=History(max_result=100))

    async def code(each: Run) -> object:
        return await llm.run(each, "Fail.")

    await run.go_on(code)

    assert "further characters are left out here]" in script.prompt()
    sent = run.step("think").result.inline["calls"][0]["arguments"]
    assert sent == {"why": "x" * 500}
