from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from milepost import Misuse, Run, tool
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.records import StepCompleted
from milepost.errors import RunHalted, RunRestarts
from milepost.llm import LLMAgent, LLMResult, NoUsableAnswer
from tests.support.adding_tools import AT_ONCE, Adding
from tests.support.scripted_models import Script, call, calls, say
from tests.support.sessions import RunInMemory

GOAL = "Make the sum 3."
ADD_1_THEN_2 = (call("add", number=1), call("add", number=2), call("done", summary="The sum is 3."))

Code = Callable[[Run], Coroutine[Any, Any, LLMResult]]


def working(script: Script, adding: Adding, **options: Any) -> Code:
    """Return an agent's code whose model is the script."""
    llm = LLMAgent(script.model(), tools=adding.tools, retry=AT_ONCE, **options)

    async def work(run: Run) -> LLMResult:
        return await llm.run(run, GOAL, context={"sum": 0})

    return work


@pytest.mark.req("G1")
async def test_each_thought_and_each_call_is_a_step_of_its_own(run: RunInMemory, adding: Adding) -> None:
    script = Script(ADD_1_THEN_2)

    result = await run.go_on(working(script, adding))

    assert (result.summary, result.output, result.steps, result.stopped) == ("The sum is 3.", None, 2, "Done")
    assert [each.step.id for each in run.events(StepCompleted)] == [
        "think",
        "add",
        "think#2",
        "add#2",
        "think#3",
    ]
    root = run.keys.run_id
    assert adding.received == [(f"{root}/add", 1), (f"{root}/add#2", 2)]


@pytest.mark.req("G1")
async def test_the_prompt_carries_goal_completed_steps_and_last_result(
    run: RunInMemory, adding: Adding
) -> None:
    script = Script(ADD_1_THEN_2)

    await run.go_on(working(script, adding, instructions="Count carefully."))

    prompt = script.prompt()
    assert GOAL in prompt
    assert 'Context:\n{"sum": 0}' in prompt
    assert "Count carefully." in prompt
    assert 'Completed steps (2):\n1. add({"number": 1}) -> 1\n2. add({"number": 2}) -> 3' in prompt
    assert "Last result:\n3" in prompt
    assert "<add returned> 1" in prompt


@pytest.mark.req("G1")
async def test_the_prompt_says_what_a_restart_means_and_what_is_wanted(
    run: RunInMemory, adding: Adding
) -> None:
    script = Script(ADD_1_THEN_2)

    await run.go_on(working(script, adding))

    for number in range(3):
        prompt = script.prompt(number)
        assert "may have been paused or restarted at any moment" in prompt
        assert "completed steps is the source of truth" in prompt
        assert "Never do a completed step again" in prompt
        assert "choose the one next step and make exactly one tool call" in prompt
        assert "When the goal is reached, say that you are DONE" in prompt
        assert "with a summary" in prompt


@pytest.mark.req("G1", "G3")
async def test_a_resume_asks_neither_the_model_nor_the_tools_again(run: RunInMemory, adding: Adding) -> None:
    first = await run.go_on(working(Script(ADD_1_THEN_2), adding))

    again = Script([])
    resumed = await run.go_on(working(again, adding))

    assert resumed == first
    assert again.requests == []
    assert adding.sum == 3


@pytest.mark.req("G1")
async def test_after_a_crash_the_model_is_asked_what_it_would_have_been_asked(
    run: RunInMemory, adding: Adding
) -> None:
    whole = Script(ADD_1_THEN_2)
    await RunInMemory().go_on(working(whole, Adding()))
    with pytest.raises(SystemExit):
        await run.go_on(working(Script([ADD_1_THEN_2[0], SystemExit("gone")]), adding))

    rest = Script(ADD_1_THEN_2[1:])
    result = await run.go_on(working(rest, adding))

    assert [rest.prompt(number) for number in (0, 1)] == [whole.prompt(number) for number in (1, 2)]
    assert (result.steps, result.summary) == (2, "The sum is 3.")


async def test_a_word_is_enough_to_say_that_it_is_done(run: RunInMemory, adding: Adding) -> None:
    result = await run.go_on(working(Script([say("**DONE**: nothing was to be done.")]), adding))

    assert (result.summary, result.stopped, result.done) == ("nothing was to be done.", "Done", True)


@pytest.mark.req("G1")
async def test_of_several_calls_in_an_answer_the_first_is_made_and_the_model_told(
    run: RunInMemory, adding: Adding
) -> None:
    script = Script([calls(("add", {"number": 1}), ("add", {"number": 5})), say("DONE: one.")])

    await run.go_on(working(script, adding))

    assert [number for _, number in adding.received] == [1]
    assert "You asked for 2 calls at once. Only the first was carried out" in script.prompt()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (calls(("add", {"number": "one"})), "number"),
        (calls(("add", {"number": 1, "twice": True})), "twice"),
        (calls(("add", '{"number": 1')), "have to be a JSON object"),
        (calls(("add", "[1]")), "have to be a JSON object"),
        (calls(("subtract", {"number": 1})), "There is no tool 'subtract'. Call one of: add, fail, done."),
        (say("I think I should add 1."), "makes no tool call"),
        (call("done"), "done needs a summary"),
        (say(""), "makes no tool call"),
    ],
)
async def test_an_answer_that_names_no_step_goes_back_to_the_model(
    run: RunInMemory, adding: Adding, answer: Any, told: str
) -> None:
    script = Script([answer, call("add", number=3), say("DONE: 3.")])

    result = await run.go_on(working(script, adding))

    assert told in script.prompt(1)
    assert (result.steps, [number for _, number in adding.received]) == (1, [3])


async def test_three_answers_in_a_row_that_name_no_step_end_it(run: RunInMemory, adding: Adding) -> None:
    script = Script([say("Hm."), say("Well."), call("add", number=1), *[say("Hm.")] * 4])

    with pytest.raises(NoUsableAnswer, match="3 answers of scripted in a row"):
        await run.go_on(working(script, adding))

    assert len(script.requests) == 6


@pytest.mark.req("G4")
async def test_a_tool_that_failed_for_good_is_told_to_the_model(run: RunInMemory, adding: Adding) -> None:
    script = Script([call("fail", why="no paper"), say("DONE: it cannot be done.")])

    result = await run.go_on(working(script, adding))

    assert "<fail returned> error: milepost.errors.Permanent: no paper (tried 1 times)" in script.prompt()
    assert (
        '1. fail({"why": "no paper"}) -> failed: error: milepost.errors.Permanent: no paper'
        in script.prompt()
    )
    assert result.steps == 1


async def test_tools_are_shown_with_their_description_and_schema(run: RunInMemory, adding: Adding) -> None:
    script = Script([say("DONE: nothing.")])

    await run.go_on(working(script, adding))

    assert [each["name"] for each in script.tools] == ["add", "fail", "done"]
    assert script.tools[0]["schema"]["properties"]["number"]["type"] == "integer"
    assert script.tools[0]["schema"]["required"] == ["number"]


async def test_without_a_goal_there_is_nothing_to_work_for(run: RunInMemory, adding: Adding) -> None:
    llm = LLMAgent(Script([]).model(), tools=adding.tools)

    with pytest.raises(Misuse, match=r"there is no goal: .*spec\.goal"):
        await run.go_on(llm.run)


async def test_the_memory_of_the_run_says_how_far_it_is(run: RunInMemory, adding: Adding) -> None:
    async def look(each: Run) -> Any:
        await working(Script(ADD_1_THEN_2), adding)(each)
        return each.memory["llm"]

    remembered = await run.go_on(look)

    assert (remembered["steps"], remembered["last"]) == (2, 'add({"number": 2}) -> 3')


def test_names_by_which_the_model_cannot_tell_tools_apart_are_refused(adding: Adding) -> None:
    @tool(effect="none")
    async def done(summary: str) -> str:
        return summary

    with pytest.raises(ValueError, match="a tool cannot be named 'done'"):
        LLMAgent(Script([]).model(), tools=[done])
    with pytest.raises(ValueError, match="two tools are named 'add'"):
        LLMAgent(Script([]).model(), tools=[*adding.tools, *adding.tools])


async def test_the_model_that_pydantic_ai_brings_for_tests_works_too(
    run: RunInMemory, adding: Adding
) -> None:
    model = TestModel(call_tools=["add"], custom_output_text="DONE: added.")
    llm = LLMAgent(model, tools=adding.tools)

    result = await run.go_on(lambda each: llm.run(each, GOAL))

    assert (result.summary, len(adding.received)) == ("added.", 1)


@pytest.mark.req("G1", "D6")
async def test_after_a_restart_with_context_the_model_is_told_what_was_completed(
    run: RunInMemory, adding: Adding
) -> None:
    with pytest.raises(SystemExit):
        await run.go_on(working(Script([ADD_1_THEN_2[0], SystemExit("gone")]), adding))
    other = Script([call("add", number=1), call("add", number=2), say("DONE: 3.")])
    llm = LLMAgent(other.model(), tools=adding.tools)

    async def changed(each: Run) -> LLMResult:
        return await llm.run(each, "Make the sum 3, please.")

    with pytest.raises(RunHalted, match="step think has other inputs"):
        await run.go_on(changed)
    run.decide(AnswerType.RESTART_WITH_CONTEXT)
    with pytest.raises(RunRestarts):
        await run.go_on(changed)
    result = await run.go_on(changed)

    assert "have happened, and are not to be done again without need:\n- add: 1" in other.prompt(0)
    assert [number for _, number in adding.received] == [1, 2]
    assert (result.steps, result.summary) == (2, "3.")
