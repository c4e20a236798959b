"""A plan that cannot be run is refused before anything of it runs, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milepost import Misuse, Run
from milepost.plan import Plan, PlanDeadlocked, PlanInvalid, some_of
from tests.support.sessions import RunInMemory


def one(*_: object) -> int:
    return 1


async def refusal(run: RunInMemory, plan: Plan) -> PlanInvalid:
    """Return why the plan is refused; nothing of the run was written for it."""

    async def agent(run: Run) -> None:
        await plan.run(run)

    with pytest.raises(PlanInvalid) as found:
        await run.go_on(agent)
    assert run.state.completed == {}
    return found.value


@pytest.mark.req("D2", "G2")
async def test_steps_that_wait_for_each_other_are_named_in_order_with_those_that_wait_for_them(
    run: RunInMemory,
) -> None:
    plan = Plan("release")
    plan.step("free", one)
    plan.step("c", one, after=["a"])
    plan.step("a", one, after=["b", "free"])
    plan.step("b", one, after=["c"])
    plan.step("behind", one, after=["b"])

    found = await refusal(run, plan)

    assert isinstance(found, PlanDeadlocked)
    assert str(found) == (
        "plan release cannot be run: its steps wait for each other: c -> a -> b -> c; "
        "behind can never become ready either"
    )
    assert (found.cycle, found.stuck) == (("c", "a", "b"), ("c", "a", "b", "behind"))


@pytest.mark.req("D2")
async def test_a_step_that_waits_for_itself_is_a_cycle(run: RunInMemory) -> None:
    plan = Plan()
    plan.step("a", one, after=["a"])

    assert str(await refusal(run, plan)) == "plan plan cannot be run: its steps wait for each other: a -> a"


@pytest.mark.req("D2")
async def test_every_dependency_that_is_no_step_is_named(run: RunInMemory) -> None:
    plan = Plan()
    plan.step("a", one, after=["b"])
    plan.step("c", one, some_of("a", "d"))

    assert (await refusal(run, plan)).problems == (
        "step a depends on b, which is no step of it; its steps are a, c",
        "step c depends on d, which is no step of it; its steps are a, c",
    )


@pytest.mark.req("D2")
def test_two_steps_of_one_name_are_refused() -> None:
    plan = Plan()
    plan.step("a", one)

    with pytest.raises(PlanInvalid, match="two of its steps have the name a"):
        plan.step("a", one)


async def test_a_large_plan_in_the_wrong_order_is_checked_at_once(run: RunInMemory) -> None:
    plan = Plan()
    for number in range(5000):
        plan.step(f"s{number}", one, after=[f"s{number + 1}"] if number < 4999 else [])

    plan.check()
    plan.step("last", one, after=["s0", "last"])

    assert "last -> last" in str(await refusal(run, plan))


@pytest.mark.parametrize("at_least", [-1, 2])
def test_more_results_than_there_are_steps_can_never_be_there(at_least: int) -> None:
    plan = Plan()
    step = plan.step("a", one)

    with pytest.raises(Misuse, match=f"at least {at_least} of 1 steps can never be done"):
        some_of(step, at_least=at_least)


async def test_calls_that_make_no_sense_are_refused_where_they_are_made(run: RunInMemory) -> None:
    plan, other = Plan(), Plan("other")
    step = other.step("a", one)

    for call, why in (
        (lambda: Plan(""), "a plan needs a name"),
        (lambda: Plan("release.1"), "ends with a number after a dot"),
        (lambda: Plan(on_failure="ignore"), "'fail' or 'continue', not 'ignore'"),  # type: ignore[arg-type]
        (lambda: plan.step("", one), "a step of plan plan needs a name"),
        (lambda: plan.step("b", one()), "step b of plan plan needs a function"),  # type: ignore[call-overload]
        (lambda: plan.step("b", one, step), "is given a step of another plan, other"),
        (lambda: plan.step("b", one, some_of(step)), "is given a step of another plan, other"),
        (lambda: plan.step("b", one, after=[step]), "is given a step of another plan, other"),
        (lambda: plan.step("b", one, after="a"), "after is a list of steps, not 'a'"),
    ):
        with pytest.raises(Misuse, match=why):
            call()
    with pytest.raises(KeyError, match="b is no step of plan other; its steps are a"):
        other["b"]
    assert (len(plan), len(other), other["a"].name) == (0, 1, "a")

    async def agent(run: Run) -> None:
        await other.run(run, parallel=0)

    with pytest.raises(Misuse, match="parallel=0 would run nothing"):
        await run.go_on(agent)


@pytest.mark.parametrize("wrap", [lambda each: [each], lambda each: {"a": (1, each)}, lambda each: {each}])
def test_a_step_inside_of_another_argument_is_refused_where_it_is_written(
    wrap: Callable[[object], object],
) -> None:
    plan = Plan()
    page = plan.step("page", one)

    with pytest.raises(Misuse, match="is given <step page of a plan> inside of another argument"):
        plan.step("words", one, wrap(page))
    assert list(plan.graph) == ["page"]


def test_an_argument_that_holds_itself_is_no_reason_to_search_for_ever() -> None:
    plan = Plan()
    itself: list[object] = []
    itself.append(itself)

    plan.step("words", one, itself)

    assert list(plan.graph) == ["words"]


def test_an_option_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    options: Any = {"key": "ann"}

    with pytest.raises(
        Misuse, match=r"cannot have key=; there are after, attempts, .*, and its key is the plan"
    ):
        Plan().step("page", one, **options)


def test_a_function_that_is_no_tool_is_refused_before_data_is_read() -> None:
    tools: Any = {"one": one}

    with pytest.raises(Misuse, match="are tools, made by @tool, not <function one"):
        Plan.from_json({"steps": []}, tools=tools)
