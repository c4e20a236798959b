"""Tools that are plain functions, which run in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from milepost import Call, Happened, NotHappened, Retry, Run, StepFailed, tool
from milepost.checkpoint.records import StepFailure, ToolCalled
from tests.support.loop_time import pass_time
from tests.support.sessions import RunInMemory

AT_ONCE = Retry(wait=0)
RUN_ID = "a" * 20


@pytest.mark.parametrize("effect", ["none", "repeatable", "keyed", "irreversible"])
@pytest.mark.parametrize("place", ["step", "body"])
@pytest.mark.req("E1")
async def test_a_plain_tool_is_called_in_a_thread_and_recorded_as_any_other(
    run: RunInMemory, effect: Any, place: str
) -> None:
    threads = []

    def sum_up(call: Call, one: int, *, two: int = 2) -> tuple[int, int]:
        threads.append(threading.current_thread())
        call.record(external_id="sum")
        return one, two

    add: Any = tool(effect=effect)(sum_up)

    async def body() -> tuple[int, int]:
        result: tuple[int, int] = await add(1, two=3)
        return result

    async def agent(run: Run) -> tuple[int, int]:
        return await (run.step("add", add, 1) if place == "step" else run.step("add", body))

    given = (1, 2) if place == "step" else (1, 3)
    assert (await run.go_on(agent), await run.go_on(agent)) == (given, given)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert [(called.tool, called.external_id) for called in run.events(ToolCalled)] == [("sum_up", "sum")]


async def test_a_plain_tool_that_raises_fails_its_try(run: RunInMemory) -> None:
    @tool(effect="keyed")
    def send(call: Call) -> None:
        # Left to a future, this error would never arrive.
        raise StopIteration(call.key)

    async def agent(run: Run) -> None:
        await run.step("send", send, retry=AT_ONCE, attempts=1)

    with pytest.raises(StepFailed, match="StopIteration"):
        await run.go_on(agent)


async def test_a_plain_tool_is_asked_by_a_plain_function_what_became_of_its_call(run: RunInMemory) -> None:
    stored: list[str] = []

    def is_stored(call: Call, row: str) -> Happened[int] | NotHappened:
        return Happened(len(row), {"seen": call.key}) if row in stored else NotHappened()

    @tool(effect="verified", verify=is_stored, settles_within=0)
    def store(call: Call, row: str) -> int:
        stored.append(row)
        raise OSError(f"no answer to {call.key}")

    async def agent(run: Run) -> int:
        return await run.step("store", store, "a row", retry=AT_ONCE)

    assert await run.go_on(agent) == len("a row")
    assert stored == ["a row"]
    assert [(called.outcome, called.evidence) for called in run.events(ToolCalled)] == [
        ("verified", {"seen": f"{RUN_ID}/store"})
    ]


async def test_a_timeout_goes_on_once_the_thread_has_ended_and_what_it_did_is_seen(run: RunInMemory) -> None:
    asked, may_end = threading.Event(), threading.Event()
    stored: list[str] = []
    loop = asyncio.get_running_loop()

    def time_is_up() -> None:
        pass_time(60)
        loop.call_later(0.1, may_end.set)

    def is_stored(call: Call, row: str) -> Happened[None] | NotHappened:
        asked.set()
        return Happened(None, {"seen": call.key}) if row in stored else NotHappened()

    @tool(effect="verified", verify=is_stored, settles_within=0)
    def store(call: Call, row: str) -> None:
        loop.call_soon_threadsafe(time_is_up)
        assert may_end.wait(60)
        assert not asked.is_set(), call.key
        stored.append(row)

    async def agent(run: Run) -> None:
        await run.step("store", store, "a row", timeout=60, retry=AT_ONCE)

    await run.go_on(agent)

    assert stored == ["a row"]
    assert [failure.error.kind for failure in run.events(StepFailure)] == ["builtins.TimeoutError"]
    assert [called.outcome for called in run.events(ToolCalled)] == ["verified"]
