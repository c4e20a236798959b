"""Phases: named groups of steps, recorded together where that is asked for, and what they lack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from milepost import Misuse, Run, StepFailed, TooFewInputs, record_usage
from milepost.agent.journal import Rules
from milepost.checkpoint.records import Degraded, GroupClosed, StepCompleted
from milepost.errors import RunHalted
from tests.support.sessions import RunInMemory


@pytest.fixture
def run() -> RunInMemory:
    return RunInMemory()


class Lost(BaseException):
    """The process is gone."""


@pytest.mark.req("B1", "A5")
async def test_steps_know_their_phase_and_its_end_is_a_record(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.step("alone", lambda: None)
        async with run.phase("collect"):
            await run.step("a", lambda: None)
            await run.step("b", lambda: None)

    await run.go_on(agent)
    await run.go_on(agent)
    groups = [(step.step.id, step.step.group) for step in run.events(StepCompleted)]
    assert groups == [("alone", ""), ("a", "collect"), ("b", "collect")]
    assert run.events(GroupClosed) == [GroupClosed(group="collect", steps=2)]


async def test_the_head_says_the_phase_reached_and_the_steps_done_in_it(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async with run.phase("collect"):
            for name in ("a", "b"):
                await run.step(name, lambda: None)
            raise Lost

    with pytest.raises(Lost):
        await run.go_on(agent)
    totals = run.state.totals
    assert (totals.group, totals.group_done) == ("collect", 2)


@pytest.mark.req("D12")
async def test_a_phase_with_fewer_inputs_goes_on_and_the_gap_is_on_record(run: RunInMemory) -> None:
    def fail(name: str) -> str:
        if name == "b":
            raise OSError("gone")
        return name.upper()

    async def agent(run: Run) -> dict[str, str]:
        made = await run.parallel(
            {name: run.step("make", fail, name, key=name, attempts=1) for name in "abc"},
            return_exceptions=True,
        )
        async with run.phase("index", inputs=made, at_least=2) as index:
            assert [(key, error.kind) for key, error in index.missing.items() if error] == [
                ("b", "builtins.OSError")
            ]
            return await run.step("index", dict, index.inputs)

    assert await run.go_on(agent) == {"a": "A", "c": "C"}
    assert await run.go_on(agent) == {"a": "A", "c": "C"}
    assert run.events(Degraded) == [Degraded(group="index", missing=("b",), have=2, need=3)]
    assert run.state.totals.gaps == 1


@pytest.mark.req("D12")
@pytest.mark.parametrize("at_least", [None, 2])
async def test_a_phase_below_its_least_does_not_begin(run: RunInMemory, at_least: int | None) -> None:
    async def agent(run: Run) -> None:
        inputs = {"a": 1, "b": None, "c": StepFailed("c", "builtins.OSError", "no", 1)}
        with pytest.raises(TooFewInputs) as error:
            async with run.phase("index", inputs=inputs, at_least=at_least):
                pytest.fail("it has begun")
        assert (error.value.have, error.value.missing) == (1, ("b", "c"))

    await run.go_on(agent)
    assert run.events(GroupClosed) == []


async def test_a_phase_inside_of_another_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async with run.phase("outer"):
            with pytest.raises(Misuse, match="begun inside phase 'outer'"):
                run.phase("inner")

    await run.go_on(agent)


async def test_a_phase_that_was_left_by_an_error_is_not_closed(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(StepFailed):
            async with run.phase("collect"):
                await run.step("a", int, "x", attempts=1)

    await run.go_on(agent)
    assert run.events(GroupClosed) == []


@pytest.mark.req("G5")
async def test_a_run_that_has_used_up_its_steps_halts_before_the_next(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        for name in "abc":
            await run.step(name, lambda: None)

    run.rules = Rules(steps=2)
    for _ in range(2):
        with pytest.raises(RunHalted, match=r"spec.limits.steps is 2 and 2 are used"):
            await run.go_on(agent)
        assert list(run.state.completed) == ["a", "b"]
    run.rules = Rules(steps=4)
    await run.go_on(agent)
    assert list(run.state.completed) == ["a", "b", "c"]


@pytest.mark.req("G5")
async def test_a_run_that_has_used_up_its_steps_may_end_with_what_is_no_step(run: RunInMemory) -> None:
    async def agent(run: Run) -> str:
        async with run.phase("collect"):
            await run.step("a", lambda: None)
        await run.skip("b", "not needed")
        return "done"

    run.rules = Rules(steps=1)
    assert await run.go_on(agent) == "done"


async def test_a_phase_says_how_many_of_its_steps_were_completed(run: RunInMemory) -> None:
    def agent(*, end: bool) -> Callable[[Run], Awaitable[None]]:
        async def code(run: Run) -> None:
            async with run.phase("collect"):
                await run.step("a", lambda: None)
                with pytest.raises(StepFailed):
                    await run.step("b", int, "x", attempts=1)
                if end:
                    raise Lost
                await run.step("c", lambda: None)

        return code

    with pytest.raises(Lost):
        await run.go_on(agent(end=True))
    await run.go_on(agent(end=False))
    assert [event.steps for event in run.events(GroupClosed)] == [2]


@pytest.mark.req("G5")
@pytest.mark.parametrize(("every_steps", "granularity"), [(100, "step"), (1, "phase")])
async def test_steps_that_are_not_durable_yet_are_used_up_all_the_same(
    every_steps: int, granularity: str
) -> None:
    run = RunInMemory(every_steps=every_steps, granularity=granularity, rules=Rules(tokens=20))
    begun = []

    def think(number: int) -> None:
        begun.append(number)
        record_usage(input_tokens=10)

    async def agent(run: Run) -> None:
        async with run.phase("think"):
            for number in range(5):
                await run.step("think", think, number)

    with pytest.raises(RunHalted, match=r"spec.limits.tokens is 20 and 20 are used"):
        await run.go_on(agent)
    assert (begun, run.state.totals.tokens) == ([0, 1], 20)
