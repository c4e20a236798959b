"""Where a step stands: numbers, keys, branches, and what would make them depend on timing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from milepost import KeyNeeded, Misuse, Run, StepFailed
from milepost.checkpoint.records import StepCompleted
from tests.support.loop_time import pass_time
from tests.support.sessions import RunInMemory


async def echo(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def test_steps_of_one_name_are_numbered_and_keys_stand_beside_the_numbers(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        for key in (None, None, "k", 7, None):
            await run.step("it", echo, None, key=key)

    await run.go_on(agent)

    assert [each.step.id for each in run.events(StepCompleted)] == ["it", "it#2", "it=k", "it=7", "it#3"]
    assert [each.step.ordinal for each in run.events(StepCompleted)] == [1, 2, 3, 4, 5]


async def test_numbers_are_taken_at_the_call_whatever_is_awaited_first(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[Any]:
        first = run.step("it", echo, "first")
        second = run.step("it", echo, "second")
        return [await second, await first]

    assert await run.go_on(agent) == ["second", "first"]
    assert run.step("it").result.inline == "first"


async def test_steps_gathered_in_one_task_keep_the_order_of_their_calls(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[Any]:
        return await asyncio.gather(*(run.step("it", echo, number) for number in range(3)))

    assert await run.go_on(agent) == [0, 1, 2]
    numbers = {each.step.id: each.result.inline for each in run.events(StepCompleted)}
    assert numbers == {"it": 0, "it#2": 1, "it#3": 2}


async def test_two_tasks_at_once_need_keys_on_the_first_run_already(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async def one() -> None:
            await run.step("it", asyncio.sleep, 0)

        await asyncio.gather(one(), one())

    with pytest.raises(KeyNeeded, match="'it'"):
        await run.go_on(agent)


async def test_two_tasks_at_once_with_keys_are_told_apart(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[Any]:
        async def one(key: str) -> Any:
            return await run.step("it", echo, key, key=key)

        return list(await asyncio.gather(one("a"), one("b")))

    assert await run.go_on(agent) == ["a", "b"]


async def test_two_tasks_one_after_the_other_need_no_keys(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[Any]:
        async def one(value: str) -> Any:
            return await run.step("it", echo, value)

        return [await asyncio.create_task(one("a")), await asyncio.create_task(one("b"))]

    assert await run.go_on(agent) == ["a", "b"]


async def test_a_key_that_stands_for_a_step_already_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[Any]:
        one = run.step("it", echo, "a", key="k")
        with pytest.raises(Misuse, match="step it=k is started twice"):
            await run.step("it", echo, "b", key="k")
        return [await one]

    assert await run.go_on(agent) == ["a"]
    assert run.state.seq == 3


async def test_parallel_returns_a_mapping_for_a_mapping_and_a_list_for_a_list(run: RunInMemory) -> None:
    async def branch(run: Run, value: str) -> str:
        first = await run.step("one", echo, value)
        return str(await run.step("two", echo, first + "!"))

    async def agent(run: Run) -> Any:
        return [
            await run.parallel({name: branch(run, name) for name in ("a", "b")}),
            await run.parallel(branch(run, name) for name in ("c", "d")),
            await run.parallel([]),
        ]

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert live == resumed == [{"a": "a!", "b": "b!"}, ["c!", "d!"], []]
    assert set(run.state.completed) == {
        *("1:a/one", "1:a/two", "1:b/one", "1:b/two"),
        *("2:0/one", "2:0/two", "2:1/one", "2:1/two"),
    }
    assert len(run.events(StepCompleted)) == 8


async def test_branches_nest(run: RunInMemory) -> None:
    async def inner(run: Run) -> Any:
        return await run.step("it", echo, 1)

    async def outer(run: Run) -> list[Any]:
        return await run.parallel([inner(run), inner(run)])

    async def agent(run: Run) -> Any:
        return await run.parallel({"x/y": outer(run)})

    assert await run.go_on(agent) == {"x/y": [1, 1]}
    assert sorted(run.state.completed) == ["1:x%2Fy/1:0/it", "1:x%2Fy/1:1/it"]


async def test_no_more_than_the_limit_run_at_once(run: RunInMemory) -> None:
    running: list[int] = []
    most: list[int] = []

    async def step(number: int) -> None:
        running.append(number)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.remove(number)

    async def agent(run: Run) -> None:
        await run.parallel([run.step("it", step, number) for number in range(6)], limit=2)

    await run.go_on(agent)

    assert max(most) == 2


async def failing(number: int, after: float) -> int:
    await asyncio.sleep(after)
    if number < 0:
        raise ValueError(f"no {number}")
    return number


def branches(run: Run, *numbers: int) -> list[Coroutine[Any, Any, int]]:
    # The later ones fail first.
    return [
        run.step("it", failing, number, 0.05 * (len(numbers) - place), key=place, attempts=1)
        for place, number in enumerate(numbers)
    ]


async def test_the_first_error_in_order_is_raised_once_all_under_way_have_ended(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.parallel(branches(run, 1, -2, 3, -4))

    with pytest.raises(StepFailed, match="no -2"):
        await run.go_on(agent)

    assert set(run.state.completed) == {"it=0", "it=2"}
    assert set(run.state.failed) == {"it=1", "it=3"}


async def test_after_an_error_no_further_branch_is_started(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.parallel(branches(run, -1, 2, 3), limit=1)

    with pytest.raises(StepFailed, match="no -1"):
        await run.go_on(agent)

    assert set(run.state.completed) == set()


async def test_errors_can_be_returned_in_their_places_and_all_branches_are_run(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[Any]:
        found = await run.parallel(branches(run, 1, -2, 3), limit=1, return_exceptions=True)
        return [each.message if isinstance(each, StepFailed) else each for each in found]

    assert await run.go_on(agent) == [1, "no -2", 3]


async def test_an_error_of_the_agents_own_is_raised_even_so(run: RunInMemory) -> None:
    async def broken() -> int:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def agent(run: Run) -> None:
        await run.parallel([*branches(run, -1), broken()], return_exceptions=True)

    with pytest.raises(ZeroDivisionError):
        await run.go_on(agent)


async def test_two_keys_that_are_written_alike_are_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.parallel({1: run.step("a", echo, 1), "1": run.step("b", echo, 1)})

    with pytest.raises(Misuse, match="have the key '1'"):
        await run.go_on(agent)


async def test_a_key_that_differs_between_processes_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.parallel({object(): run.step("a", echo, 1)})

    with pytest.raises(Misuse, match="another name in each process"):
        await run.go_on(agent)


async def test_two_tasks_at_once_cannot_both_fork(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async def one(name: str) -> None:
            await run.parallel([run.step(name, echo, 1)])

        await asyncio.gather(one("a"), one("b"))

    with pytest.raises(Misuse, match="two tasks that run at once"):
        await run.go_on(agent)


async def test_parallel_inside_a_step_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async def body() -> None:
            await run.parallel([echo(1)])

        await run.step("it", body)

    with pytest.raises(StepFailed, match="parallel is started inside the step it"):
        await run.go_on(agent)


async def test_a_parallel_that_the_agent_gave_up_waiting_for_leaves_nothing_running(run: RunInMemory) -> None:
    begun, ended = [], []

    async def step(number: int) -> None:
        begun.append(number)
        if len(begun) == 2:
            pass_time(60)
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(number)

    async def agent(run: Run) -> None:
        async with asyncio.timeout(60):
            await run.parallel([run.step("it", step, number) for number in range(3)], limit=2)

    with pytest.raises(TimeoutError):
        await run.go_on(agent)

    assert ended == [0, 1]
