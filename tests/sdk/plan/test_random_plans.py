"""Any plan at all: what can run runs, in order; what is skipped is what failures leave; a resume agrees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost import Run
from milepost.checkpoint.records import Halted, StepCompleted, StepSkipped
from milepost.plan import Plan, PlanFailed, PlanResult, some_of
from milepost.plan.plan import OnFailure
from tests.support.resumes import each_resume, resumed_after
from tests.support.sessions import RunInMemory


@dataclass(frozen=True)
class Shape:
    """A plan: for each step what it needs, and of what it needs some; which fail; how many at once."""

    needs: tuple[tuple[int, ...], ...]
    some: tuple[tuple[tuple[int, ...], int] | None, ...]
    failing: frozenset[int]
    parallel: int
    seed: int

    def outcome(self) -> tuple[set[str], set[str], set[str]]:
        """Return what a plan that goes on after failures comes to: done, failed, skipped."""
        done: set[int] = set()
        failed: set[int] = set()
        for number, needs in enumerate(self.needs):
            choice = self.some[number]
            enough = choice is None or len(done & set(choice[0])) >= choice[1]
            if set(needs) <= done and enough:
                (failed if number in self.failing else done).add(number)
        skipped = set(range(len(self.needs))) - done - failed
        names = [{f"s{number}" for number in found} for found in (done, failed, skipped)]
        return names[0], names[1], names[2]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    count = draw(st.integers(1, 9))
    needs, some = [], []
    for number in range(count):
        before = st.integers(0, number - 1) if number else st.nothing()
        needs.append(tuple(sorted(draw(st.sets(before, max_size=3)))) if number else ())
        choice = tuple(sorted(draw(st.sets(before, max_size=3)))) if number else ()
        some.append((choice, draw(st.integers(0, len(choice)))) if choice else None)
    failing = draw(st.frozensets(st.integers(0, count - 1), max_size=3))
    return Shape(tuple(needs), tuple(some), failing, draw(st.integers(1, 4)), draw(st.integers(0, 99)))


class World:
    """The steps of one process, whose pauses another one does not share."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.began: list[str] = []
        self.ended: list[str] = []
        self._random = random.Random(seed)  # noqa: S311  (pauses)

    async def body(self, number: int, *given: Any) -> str:
        name = f"s{number}"
        self.began.append(name)
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)
        if number in self.shape.failing:
            raise ValueError(name)
        self.ended.append(name)
        return f"{name}({', '.join(map(str, given))})"

    def plan(self, on_failure: OnFailure) -> Plan:
        plan = Plan(on_failure=on_failure)
        handles: list[Any] = []
        for number, needs in enumerate(self.shape.needs):
            args = [handles[each] for each in needs]
            choice = self.shape.some[number]
            if choice is not None:
                args.append(some_of(*(handles[each] for each in choice[0]), at_least=choice[1]))
            body: Any = self.body
            handles.append(plan.step(f"s{number}", body, number, *args, attempts=1))
        return plan

    async def go_on(self, run: RunInMemory, on_failure: OnFailure) -> tuple[PlanResult, str]:
        """Return what became of the plan, and what it failed with."""

        async def agent(run: Run) -> tuple[PlanResult, str]:
            result, error = PlanResult(), ""
            try:
                result = await self.plan(on_failure).run(run, parallel=self.shape.parallel)
            except PlanFailed as failed:
                result, error = failed.result, str(failed)
            # What an agent does next may follow from all of it.
            await run.step("report", repr, result, inputs=[repr(result), error])
            return result, error

        return await run.go_on(agent)


def names_of(result: PlanResult) -> tuple[set[str], set[str], set[str]]:
    return set(result.results), set(result.failed), set(result.skipped)


@pytest.mark.req("G2", "D12")
@given(shapes())
@settings(max_examples=60, deadline=None)
async def test_what_can_run_runs_and_what_is_skipped_is_what_failures_leave(shape: Shape) -> None:
    run, world = RunInMemory(), World(shape, shape.seed)

    result, _ = await world.go_on(run, "continue")

    assert names_of(result) == shape.outcome()
    assert sorted(world.began) == sorted({*result.results, *result.failed})
    assert {event.step.name for event in run.events(StepSkipped)} == set(result.skipped)
    for number, choice in enumerate(shape.some):
        gap = [] if choice is None else [f"s{each}" for each in choice[0] if f"s{each}" not in result.results]
        expected = gap if f"s{number}" in {*result.results, *result.failed} else []
        assert result.gaps.get(f"s{number}", []) == expected


@pytest.mark.req("G2")
@given(shapes())
@settings(max_examples=40, deadline=None)
async def test_no_step_begins_before_all_that_it_depends_on_has_ended(shape: Shape) -> None:
    run, world = RunInMemory(), World(shape, shape.seed)

    await world.go_on(run, "continue")

    recorded = [event.step.name for event in run.events(StepCompleted)]
    for number, needs in enumerate(shape.needs):
        for each in needs:
            if f"s{number}" in recorded:
                assert recorded.index(f"s{each}") < recorded.index(f"s{number}")


@pytest.mark.req("G2", "D1")
@given(shapes())
@settings(max_examples=25, deadline=None)
async def test_a_plan_that_goes_on_comes_to_the_same_from_each_of_its_writes(shape: Shape) -> None:
    run = RunInMemory()
    live = await World(shape, shape.seed).go_on(run, "continue")

    for number, resumed in enumerate(each_resume(run)):
        completed_before = set(resumed.state.completed)
        world = World(shape, shape.seed + number)
        assert await world.go_on(resumed, "continue") == live
        assert {f"{name}=plan" for name in world.ended} & completed_before == set()
        assert once_only(resumed)


@pytest.mark.req("G2", "D1")
@given(shapes())
@settings(max_examples=25, deadline=None)
async def test_a_plan_that_has_failed_is_the_same_on_each_resume_of_what_it_has_recorded(
    shape: Shape,
) -> None:
    """Which steps were under way at the failure depends on the process; not once that is recorded."""
    run = RunInMemory()
    await World(shape, shape.seed).go_on(run, "fail")

    for number, resumed in enumerate(each_resume(run)):
        first = await World(shape, shape.seed + number).go_on(resumed, "fail")
        again = resumed_after(resumed, len(resumed.store.puts))
        assert await World(shape, shape.seed + number + 1).go_on(again, "fail") == first
        assert once_only(again)
        result, error = first
        fatal = set(result.failed) and not error
        assert not fatal or spared(shape, result)


def once_only(run: RunInMemory) -> bool:
    """Tell whether no step is completed twice, or completed and skipped, and nothing has halted."""
    completed = [event.step.id for event in run.events(StepCompleted)]
    skipped = [event.step.id for event in run.events(StepSkipped)]
    return (
        len(completed) == len(set(completed))
        and len(skipped) == len(set(skipped))
        and not {*completed} & {*skipped}
        and run.events(Halted) == []
    )


def spared(shape: Shape, result: PlanResult) -> bool:
    """Tell whether all that depends on what failed could do without it."""
    lost = {*result.failed, *result.skipped}
    dependents = behind(shape)
    return all(
        dependents[name]
        and all(other in result.skipped or needed is False for other, needed in dependents[name])
        for name in lost
    )


def behind(shape: Shape) -> Mapping[str, Sequence[tuple[str, bool]]]:
    found: dict[str, list[tuple[str, bool]]] = {f"s{number}": [] for number in range(len(shape.needs))}
    for number, needs in enumerate(shape.needs):
        choice = shape.some[number]
        for each in {*needs, *(choice[0] if choice else ())}:
            found[f"s{each}"].append((f"s{number}", each in needs))
    return found
