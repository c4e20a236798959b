"""Plans as data: what a model writes is run, or refused with words by which a model can mend it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from milepost import Permanent, Run, tool
from milepost.checkpoint.records import StepCompleted, StepFailure
from milepost.plan import Plan, PlanDeadlocked, PlanFailed, PlanInvalid, PlanResult
from tests.support.resumes import each_resume
from tests.support.sessions import RunInMemory


@dataclass
class Page:
    url: str
    words: list[str]


@tool(effect="none")
async def fetch(url: str, retries: int = 1) -> Page:
    """Fetch a page."""
    if url == "missing" and retries:
        raise Permanent(url)
    return Page(url, url.split("."))


@tool(effect="none")
async def count(page: Page) -> int:
    """Count the words of a page."""
    return len(page.words)


@tool(effect="none")
async def total(counts: list[int], unit: str = "words") -> str:
    """Add up."""
    return f"{sum(counts)} {unit}"


@tool(effect="none")
async def report(found: dict[str, int], title: str) -> str:
    """Write a report."""
    return f"{title}: {sorted(found)}"


TOOLS: dict[str, Any] = {"fetch": fetch, "count": count, "total": total, "report": report}


def a_step(name: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "tool": tool, "arguments": arguments}


def problems_of(data: object) -> tuple[str, ...]:
    with pytest.raises(PlanInvalid) as found:
        Plan.from_json(data, tools=TOOLS)
    return found.value.problems


async def outcome_of(run: RunInMemory, data: object) -> PlanResult:
    async def agent(run: Run) -> PlanResult:
        plan = Plan.from_json(data, tools=TOOLS, on_failure="continue")
        return await plan.run(run, parallel=2)

    live = await run.go_on(agent)
    for resumed in each_resume(run):
        assert await resumed.go_on(agent) == live
    return live


@pytest.mark.req("G2")
async def test_references_take_results_wherever_they_stand(run: RunInMemory) -> None:
    data = {
        "steps": [
            a_step("sum", "total", counts=["$first", 10, "$second"], unit="$$ in all"),
            a_step("first", "count", page="$a"),
            a_step("second", "count", page={"url": "b", "words": ["b"]}),
            a_step("a", "fetch", url="a.example"),
        ]
    }

    result = await outcome_of(run, data)

    assert result == PlanResult(
        {"sum": "13 $ in all", "first": 2, "second": 1, "a": Page("a.example", ["a", "example"])}
    )
    assert [event.step.id for event in run.events(StepCompleted)][-1] == "sum=plan"


@pytest.mark.req("G2", "D12")
async def test_some_results_do_where_the_plan_says_so(run: RunInMemory) -> None:
    data = [
        a_step("a", "fetch", url="missing", retries=2),
        a_step("b", "count", page="$a"),
        a_step("c", "count", page={"url": "c", "words": []}),
        a_step("d", "report", title="Counts", found={"$some": ["b", "c"], "at_least": 1}) | {"after": ["c"]},
        a_step("e", "report", title="All", found={"$some": ["b", "c"], "at_least": 2}),
    ]

    result = await outcome_of(run, json.dumps(data))

    assert result.results == {"c": 0, "d": "Counts: ['c']"}
    assert result.gaps == {"d": ["b"]}
    assert result.skipped["e"] == "it needs at least 2 of b, c, and has 1: a failed"


async def test_a_result_that_does_not_fit_fails_the_step_that_takes_it_and_is_not_tried_again(
    run: RunInMemory,
) -> None:
    result = await outcome_of(run, [a_step("a", "fetch", url="a"), a_step("b", "total", counts="$a")])

    assert list(result.results) == ["a"]
    assert result.failed["b"].kind == "milepost.errors.Permanent"
    assert result.failed["b"].message.startswith("the arguments do not fit tool total: counts")
    assert [event.attempt for event in run.events(StepFailure)] == [1]


def test_every_fault_is_named_with_its_place_and_what_is_allowed() -> None:
    data = {
        "steps": [
            {"name": "a", "tool": "fetc", "arguments": {"url": "x"}},
            {"name": "a", "tool": "fetch"},
            {"name": "b b", "tool": "fetch"},
            {"name": "c", "tool": "fetch", "arguments": {"uri": "x"}, "dependsOn": ["a"]},
            {"name": "d", "tool": "fetch", "arguments": {"url": 3, "retries": "$nobody"}, "after": ["z"]},
            {"name": "e", "tool": "fetch", "arguments": {"url": "$5.00"}},
            {
                "name": "f",
                "tool": "report",
                "arguments": {"title": "t", "found": {"$some": ["a"], "at_least": 2}},
            },
            {"name": "g", "tool": "fetch", "arguments": ["x"], "after": "a"},
            "h",
            {"name": "i", "done": True},
            {"name": "j", "tool": "count", "arguments": {"page": "$a", "pages": "$a"}, "result": 1},
        ]
    }

    takes = "tool fetch takes url, retries"
    fields = "a step has name, tool, arguments, after, done, result"
    there = "there are a, c, d, e, f, g, i, j"
    assert problems_of(data) == (
        "steps[1].name: steps[0] has the name a, too; names are unique",
        'steps[2].name: a name is 1 to 63 letters, digits, - and _, and begins with a letter, not "b b"',
        'steps[8]: a step is an object with name, tool, arguments, after, not "h"',
        'steps[0].tool: there is no tool "fetc"; there are fetch, count, total, report',
        f"steps[3].dependsOn: is not known; {fields}",
        f"steps[3].arguments.url: is missing; {takes}",
        f"steps[3].arguments.uri: is not known; {takes}",
        f'steps[4].arguments.retries: there is no step "nobody"; {there}',
        f'steps[4].after[0]: there is no step "z"; {there}',
        "steps[4].arguments.url: Input should be a valid string, not 3",
        'steps[5].arguments.url: "$5.00" is not $ and the name of a step; a text begins with $ as $$',
        "steps[6].arguments.found.at_least: is a number from 0 to 1, not 2",
        'steps[7].arguments: is an object, not ["x"]',
        "steps[9]: a step that is done needs its result",
        "steps[10].result: only a step that is done has a result",
        "steps[10].arguments.pages: is not known; tool count takes page",
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("{", "it is not JSON: Expecting property name"),
        ({"steps": {}}, 'a plan is {"steps": [...]}, and nothing beside'),
        ({"steps": [], "goal": "x"}, 'a plan is {"steps": [...]}, and nothing beside'),
        (None, 'a plan is {"steps": [...]}, and nothing beside'),
        ([{"name": "a", "tool": ["fetch"]}], 'steps[0].tool: there is no tool ["fetch"]'),
        ([{"name": "a", "done": 1}], "steps[0].done: is true or false, not 1"),
        ([a_step("a", "report", title="t", found={"$some": "b"})], "is a list of names of steps, not"),
        ([a_step("a", "report", title="t", found={"$some": ["b"]})], 'found.$some[0]: there is no step "b"'),
        ([a_step("a", "report", title="t", found={"$some": [], "x": 1})], "has nothing beside"),
    ],
)
def test_data_that_is_no_plan_is_refused(data: object, problem: str) -> None:
    assert problem in problems_of(data)[0]


@pytest.mark.req("D2")
def test_steps_that_wait_for_each_other_are_named_in_order() -> None:
    data = [a_step("a", "count", page="$b"), a_step("b", "count", page="$a")]

    with pytest.raises(PlanDeadlocked, match="a -> b -> a"):
        Plan.from_json(data, tools=TOOLS)


@pytest.mark.req("D2")
async def test_a_step_that_is_done_brings_its_result(run: RunInMemory) -> None:
    data = [
        {"name": "a", "done": True, "result": {"url": "old", "words": ["old", "words"]}},
        a_step("b", "count", page="$a"),
    ]

    assert (await outcome_of(run, data)).results["b"] == 2


@pytest.mark.req("G2")
async def test_a_model_replaces_the_rest_of_its_plan(run: RunInMemory) -> None:
    first = [
        a_step("a", "fetch", url="a.b"),
        a_step("b", "fetch", url="missing"),
        a_step("c", "count", page="$b"),
    ]
    wrong = [{"name": "a", "tool": "count"}, a_step("c", "count", page="$b")]
    second = [{"name": "a", "done": True}, a_step("c", "count", page="$a")]

    async def agent(run: Run) -> tuple[PlanResult, tuple[str, ...]]:
        plan = Plan.from_json(first, tools=TOOLS)
        with pytest.raises(PlanFailed):
            await plan.run(run)
        with pytest.raises(PlanInvalid) as found:
            plan.replan(wrong)
        plan.replan(second)
        return await plan.run(run), found.value.problems

    result, problems = await run.go_on(agent)

    assert result == PlanResult({"a": Page("a.b", ["a", "b"]), "c": 2}, replans=1)
    assert problems == (
        "steps[0].name: a is done already; leave it out, or refer to it as $a",
        'steps[1].arguments.page: there is no step "b"; there are a, c',
    )
    assert run.state.totals.replans == 1


async def test_the_tools_of_a_plan_made_in_code_are_those_of_its_data(run: RunInMemory) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan(tools=TOOLS, on_failure="continue")
        plan.step("a", fetch, "a.b")
        await plan.run(run)
        plan.replan([a_step("b", "count", page="$a")])
        return await plan.run(run)

    assert (await run.go_on(agent)).results["b"] == 2


def test_what_the_page_about_plans_shows_is_a_plan() -> None:
    page = (Path(__file__).parents[3] / "docs" / "plans.md").read_text()
    shown = page.partition("```json\n")[2].partition("```")[0]

    plan = Plan.from_json(
        shown, tools={"fetch": fetch, "count": count, "report": told}, on_failure="continue"
    )

    assert plan.graph == {"page": [], "words": ["page"], "tell": ["page", "words", "links"], "links": []}


def test_what_a_model_is_told_has_the_form_and_all_tools_with_their_arguments() -> None:
    text = Plan.instructions({"get": fetch, "add": total})

    form, _, listed = text.partition("Tools, with the JSON Schema of their arguments:\n")
    assert '"$some"' in form
    assert listed == (
        f"- get: Fetch a page.\n  {json.dumps(fetch.schema())}\n"
        f"- add: Add up.\n  {json.dumps(total.schema())}\n"
    )


@tool(effect="none")
async def told(found: dict[str, int]) -> str:
    """Tell what was found."""
    return str(found)
