"""What becomes of a plan's steps: order, results, failures, gaps, and what is recorded of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Any

import pytest

from milepost import Denied, Misuse, NotStorable, Run, StepFailed
from milepost.checkpoint import codec
from milepost.checkpoint.records import Degraded, Planned, StepCompleted, StepFailure, StepSkipped
from milepost.plan import Failure, Plan, PlanDeadlocked, PlanFailed, PlanResult, some_of
from milepost.plan.execution import Execution, Outcomes
from milepost.plan.schedule import Schedule
from milepost.plan.steps import PlanStep
from tests.support.resumes import each_resume
from tests.support.sessions import RunInMemory


class Trace:
    """Steps that note when they begin, in order."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def step(self, name: str, returns: Any = None) -> Callable[..., Any]:
        def body(*given: Any) -> Any:
            self.ran.append(name)
            return returns(*given) if callable(returns) else (returns or name)

        return body


def failing(*_: object) -> None:
    raise ValueError("no such page")


def no_page() -> str:
    raise ValueError("no such page")


def page_of(url: str) -> str:
    return f"page of {url}"


def words_of(page: str) -> list[str]:
    return page.split()


def join(words: list[str], separator: str, page: str) -> tuple[str, int]:
    return separator.join(words), len(page)


def size(found: Sized) -> int:
    return len(found)


def names(found: dict[str, int | None]) -> list[str]:
    return sorted(found)


def same(found: dict[str, int]) -> dict[str, int]:
    return found


def three(*_: object) -> int:
    return 3


FAILED = Failure("builtins.ValueError", "no such page", 1)


@pytest.mark.req("G2")
async def test_a_step_is_given_the_results_of_the_steps_it_depends_on(run: RunInMemory) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        page = plan.step("fetch", page_of, "a.example")
        words = plan.step("split", words_of, page)
        plan.step("join", join, words, "-", page)
        return await plan.run(run)

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    expected = {
        "fetch": "page of a.example",
        "split": ["page", "of", "a.example"],
        "join": ("page-of-a.example", 17),
    }
    assert live == resumed == PlanResult(expected)
    assert live.complete


@pytest.mark.req("G2")
async def test_steps_are_recorded_by_their_own_names_whatever_ends_first(run: RunInMemory) -> None:
    first = asyncio.Event()

    async def slow() -> str:
        await first.wait()
        return "slow"

    async def fast() -> str:
        first.set()
        return "fast"

    async def agent(run: Run) -> PlanResult:
        plan = Plan("release")
        plan.step("a", slow)
        plan.step("b", fast)
        return await plan.run(run, parallel=2)

    result = await run.go_on(agent)

    assert list(result.results) == ["a", "b"]
    assert [event.step.id for event in run.events(StepCompleted)] == ["b=release", "a=release"]


@pytest.mark.req("G2")
async def test_one_at_a_time_is_the_default_in_the_order_of_the_plan(run: RunInMemory) -> None:
    trace = Trace()

    async def agent(run: Run) -> None:
        plan = Plan()
        plan.step("late", trace.step("late"), after=["early"])
        plan.step("other", trace.step("other"))
        plan.step("early", trace.step("early"))
        await plan.run(run)

    await run.go_on(agent)

    assert trace.ran == ["other", "early", "late"]


@pytest.mark.req("G2")
async def test_no_more_steps_are_under_way_at_once_than_was_asked_for(run: RunInMemory) -> None:
    under_way, most = 0, 0

    async def body() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1

    async def agent(run: Run) -> None:
        plan = Plan()
        for number in range(9):
            plan.step(f"s{number}", body)
        await plan.run(run, parallel=3)

    await run.go_on(agent)

    assert most == 3


@pytest.mark.req("G2")
async def test_continue_runs_all_that_can_be_and_says_of_the_rest_what_failed(run: RunInMemory) -> None:
    trace = Trace()

    async def agent(run: Run) -> PlanResult:
        plan = Plan(on_failure="continue")
        page = plan.step("fetch", failing, attempts=1)
        table = plan.step("parse", trace.step("parse"), page)
        plan.step("report", trace.step("report"), table)
        plan.step("clean", trace.step("clean"))
        return await plan.run(run)

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert live == resumed
    assert live == PlanResult(
        results={"clean": "clean"},
        failed={"fetch": FAILED},
        skipped={"parse": "it needs fetch: fetch failed", "report": "it needs parse: fetch failed"},
    )
    assert not live.complete
    assert trace.ran == ["clean"]
    skips = {event.step.name: event.reason for event in run.events(StepSkipped)}
    assert skips == live.skipped
    totals = run.state.totals
    assert (totals.steps_done, totals.steps_failed, totals.steps_skipped) == (1, 1, 2)


@pytest.mark.req("G2")
async def test_by_default_the_first_failure_ends_the_plan_once_those_under_way_have_ended(
    run: RunInMemory,
) -> None:
    trace = Trace()
    failed = asyncio.Event()

    def fails() -> None:
        failed.set()
        failing()

    async def under_way() -> str:
        await failed.wait()
        await asyncio.sleep(0.05)
        return "ended"

    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        plan.step("under-way", under_way)
        broken = plan.step("broken", fails, attempts=1)
        plan.step("behind", trace.step("behind"), broken)
        plan.step("beside", trace.step("beside"))
        with pytest.raises(PlanFailed) as found:
            await plan.run(run, parallel=2)
        assert (found.value.step, found.value.kind) == ("broken", "builtins.ValueError")
        assert str(found.value) == (
            "plan plan: step broken failed after 1 attempt: builtins.ValueError: no such page; "
            "2 more did not run"
        )
        return found.value.result

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert live == resumed
    assert live == PlanResult(
        results={"under-way": "ended"},
        failed={"broken": FAILED},
        skipped={"behind": "it needs broken: broken failed", "beside": "the plan ended: broken failed"},
    )
    assert trace.ran == []
    assert {event.step.name for event in run.events(StepSkipped)} == {"behind", "beside"}


async def test_a_plan_that_has_failed_fails_again_and_runs_nothing(run: RunInMemory) -> None:
    trace = Trace()

    async def agent(run: Run) -> tuple[str, str]:
        plan = Plan()
        plan.step("broken", failing, attempts=1)
        plan.step("beside", trace.step("beside"))
        with pytest.raises(PlanFailed) as first:
            await plan.run(run)
        with pytest.raises(PlanFailed) as second:
            await plan.run(run)
        return str(first.value), str(second.value)

    first, second = await run.go_on(agent)

    assert first == second
    assert trace.ran == []


@pytest.mark.req("G2")
async def test_a_recorded_failure_stops_nothing_that_is_recorded_too(run: RunInMemory) -> None:
    """Live `slow` ends, `next` runs and only then `broken` fails. On a resume all three are there at once."""
    trace = Trace()
    go = asyncio.Event()

    async def broken() -> None:
        await go.wait()
        failing()

    def last() -> str:
        go.set()
        return "last"

    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        plan.step("broken", broken, attempts=1)
        first = plan.step("first", trace.step("first"))
        plan.step("last", last, after=[first])
        plan.step("never", trace.step("never"), after=["last", "broken"])
        with pytest.raises(PlanFailed) as found:
            await plan.run(run, parallel=2)
        await run.step("note", size, sorted(found.value.result.results))
        return found.value.result

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert list(live.results) == ["first", "last"]
    assert resumed == live
    assert trace.ran == ["first"]


@pytest.mark.req("D12")
async def test_a_step_that_can_do_with_less_is_given_what_is_there_and_the_gap_is_on_record(
    run: RunInMemory,
) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        north = plan.step("north", lambda: 3)
        south = plan.step("south", failing, attempts=1)
        east = plan.step("east", lambda: None)
        plan.step("sum", names, some_of(north, south, east, at_least=2))
        return await plan.run(run)

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert live == resumed
    assert live == PlanResult(
        results={"north": 3, "east": None, "sum": ["east", "north"]},
        failed={"south": FAILED},
        gaps={"sum": ["south"]},
    )
    assert run.events(Degraded) == [Degraded(group="sum", missing=("south",), have=2, need=3)]
    assert run.state.totals.gaps == 1


@pytest.mark.req("D12")
async def test_a_step_with_less_than_it_can_do_with_is_skipped_and_the_plan_fails(run: RunInMemory) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        north = plan.step("north", lambda: 3)
        south = plan.step("south", failing, attempts=1)
        plan.step("sum", names, some_of(north, south, at_least=2))
        with pytest.raises(PlanFailed) as found:
            await plan.run(run)
        return found.value.result

    result = await run.go_on(agent)

    assert result.skipped == {"sum": "it needs at least 2 of north, south, and has 1: south failed"}
    assert run.events(Degraded) == []


async def test_a_failure_that_all_behind_it_can_do_without_does_not_fail_the_plan(run: RunInMemory) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        page = plan.step("page", no_page, attempts=1)
        table = plan.step("table", size, page)
        other = plan.step("other", lambda: 2)
        plan.step("report", same, some_of(table, other))
        return await plan.run(run)

    result = await run.go_on(agent)

    assert result.results == {"other": 2, "report": {"other": 2}}
    assert (list(result.failed), list(result.skipped), result.gaps) == (
        ["page"],
        ["table"],
        {"report": ["table"]},
    )


@pytest.mark.req("A3")
async def test_the_graph_is_recorded_with_what_each_step_depends_on(run: RunInMemory) -> None:
    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        a = plan.step("a", lambda: 1)
        b = plan.step("b", lambda: 2)
        plan.step("c", three, a, some_of(b), after=["a"])
        return await plan.run(run)

    await run.go_on(agent)
    await run.go_on(agent)

    assert run.events(Planned) == [Planned(tasks={"a": (), "b": (), "c": ("a", "b")})]


async def test_what_a_step_does_to_a_result_does_not_reach_the_others(run: RunInMemory) -> None:
    def spoil(words: list[str]) -> int:
        words.clear()
        return len(words)

    def spoil_some(found: dict[str, list[str]]) -> int:
        return spoil(found["words"])

    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        words = plan.step("words", lambda: ["a", "b"])
        plan.step("spoil", spoil, words)
        plan.step("spoil-some", spoil_some, some_of(words))
        plan.step("count", size, words)
        return await plan.run(run)

    result = await run.go_on(agent)

    assert result.results == {"words": ["a", "b"], "spoil": 0, "spoil-some": 0, "count": 2}


async def test_an_error_of_the_code_around_the_steps_is_raised_once_those_under_way_have_ended(
    run: RunInMemory,
) -> None:
    trace = Trace()

    async def agent(run: Run) -> None:
        plan = Plan()
        plan.step("under-way", trace.step("under-way"))
        plan.step("wrong", lambda _: None, object())
        plan.step("beside", trace.step("beside"))
        await plan.run(run, parallel=2)

    with pytest.raises(NotStorable, match=r"argument 1 of step wrong=plan"):
        await run.go_on(agent)

    assert trace.ran == ["under-way"]
    assert [event.step.name for event in run.events(StepCompleted)] == ["under-way"]


async def test_a_plan_that_is_cancelled_has_its_steps_on_record_as_cancelled(run: RunInMemory) -> None:
    began = asyncio.Event()

    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    async def agent(run: Run) -> None:
        plan = Plan()
        plan.step("endless", endless)
        plan.step("endless-too", endless)
        running = asyncio.create_task(plan.run(run, parallel=2))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    await run.go_on(agent)

    assert {(event.step.name, event.cancelled) for event in run.events(StepFailure)} == {
        ("endless", True),
        ("endless-too", True),
    }


async def test_a_second_plan_of_one_name_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        for _ in range(2):
            plan = Plan()
            plan.step("a", lambda: 1)
            await plan.run(run)

    with pytest.raises(Misuse, match="step a=plan is started twice") as found:
        await run.go_on(agent)

    assert found.value.__notes__ == ["two plans in one branch of a run need different names: Plan('...')"]


async def test_plans_of_different_names_and_in_different_branches_are_apart(run: RunInMemory) -> None:
    async def one(run: Run, name: str) -> PlanResult:
        plan = Plan(name)
        plan.step("a", lambda: name)
        return await plan.run(run)

    async def agent(run: Run) -> list[object]:
        first, second = await one(run, "first"), await one(run, "second")
        third, fourth = await run.parallel([one(run, "first"), one(run, "first")])
        return [each.results["a"] for each in (first, second, third, fourth)]

    assert await run.go_on(agent) == ["first", "second", "first", "first"]
    assert sorted(run.state.completed) == ["1:0/a=first", "1:1/a=first", "a=first", "a=second"]


async def test_a_result_can_be_stored_and_says_why_one_is_missing() -> None:
    plan = Plan(on_failure="continue")
    a, b, c, d = (plan.step(name, lambda: 1) for name in "abcd")
    result = PlanResult({"a": [1]}, {"b": FAILED}, {"c": "it needs b: b failed"}, {"a": ["b"]}, replans=2)

    _, copy = codec.store(result, PlanResult, path="result")

    assert copy == result
    assert result.results["a"] == [1]
    assert result[a] == result.results["a"]
    for step, why in ((b, "it failed with no such page"), (c, "it needs b"), (d, "it has not run")):
        with pytest.raises(KeyError, match=why):
            result[step]


async def test_steps_added_after_a_run_are_run_by_the_next_one(run: RunInMemory) -> None:
    trace = Trace()

    async def agent(run: Run) -> PlanResult:
        plan = Plan()
        survey = plan.step("survey", trace.step("survey", lambda: ["x", "y"]))
        first = await plan.run(run)
        for name in first[survey]:
            plan.step(name, trace.step(name), survey)
        return await plan.run(run, parallel=2)

    result = await run.go_on(agent)

    assert result == PlanResult({"survey": ["x", "y"], "x": "x", "y": "y"})
    assert trace.ran == ["survey", "x", "y"]


async def test_what_can_never_start_is_an_error_also_where_nobody_has_checked(run: RunInMemory) -> None:
    steps = {
        "a": PlanStep("a", "plan", lambda: 1, after=("b",)),
        "b": PlanStep("b", "plan", lambda: 1, after=("a",)),
    }

    async def agent(run: Run) -> None:
        schedule = Schedule(steps, list(steps), {})
        await Execution(run, "plan", steps, schedule, Outcomes(), parallel=1, stop_early=True).drive()

    with pytest.raises(PlanDeadlocked, match="a -> b -> a"):
        await run.go_on(agent)


@pytest.mark.req("G2")
@pytest.mark.parametrize("parallel", [2, 3, 8])
async def test_an_unchanged_plan_side_by_side_is_resumed_from_each_of_its_writes_with_no_halt(
    run: RunInMemory, parallel: int
) -> None:
    """Its steps end in another order each time: their pauses are the process's own, as a network's are."""
    pauses = iter([0.014, 0, 0.011, 0.007, 0, 0.002, 0.025, 0] * 10_000)

    async def work(*given: Any) -> int:
        await asyncio.sleep(next(pauses))
        return 1 + sum(map(int, given))

    async def breaks(*_: Any) -> int:
        await asyncio.sleep(next(pauses))
        raise ValueError("no such page")

    async def agent(run: Run) -> PlanResult:
        plan = Plan(on_failure="continue")
        layer = [plan.step(f"a{n}", breaks if n == 3 else work, attempts=1) for n in range(8)]
        layer = [plan.step(f"b{n}", work, layer[n], layer[(n + 1) % 8]) for n in range(8)]
        for n in range(4):
            plan.step(f"c{n}", size, some_of(*layer[n : n + 4]))
        result = await plan.run(run, parallel=parallel)
        await run.step("report", size, sorted(result.results))
        return result

    live = await run.go_on(agent)

    # A third of the hundred resumes that may not hold a single false halt.
    resumes: list[PlanResult] = []
    while len(resumes) < 34:
        resumes += [await each.go_on(agent) for each in each_resume(run)]
    assert [each for each in resumes if each != live] == []


def test_a_failed_plan_is_a_failed_step_to_whoever_catches_it() -> None:
    assert issubclass(PlanFailed, StepFailed)
    assert not issubclass(PlanFailed, Denied)
