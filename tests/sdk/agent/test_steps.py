"""Steps: given back when recorded, copies of what was recorded, recorded one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from milepost import Misuse, NotStorable, Run, StepFailed
from milepost.checkpoint import codec
from milepost.checkpoint.records import Planned, StepCompleted
from milepost.errors import Damaged, RunHalted, StoreUnavailable
from tests.support.sessions import RunInMemory
from tests.support.store_doubles import Fault


class Note(BaseModel):
    terms: tuple[str, ...]


@dataclass
class Place:
    row: int
    names: set[str]


def note(text: str) -> Note:
    return Note(terms=tuple(text.split()))


def place(row: int) -> Place:
    return Place(row, {"a", "b"})


def pair() -> tuple[int, list[str]]:
    return 1, ["x"]


@pytest.mark.req("D1", "D4", "G3")
async def test_a_recorded_step_is_given_back_and_not_run_again(run: RunInMemory) -> None:
    ran: list[str] = []

    def step(name: str) -> str:
        ran.append(name)
        return name.upper()

    async def first_pod(run: Run) -> str:
        return await run.step("one", step, "one")

    async def second_pod(run: Run) -> list[str]:
        return [await run.step("one", step, "one"), await run.step("two", step, "two")]

    await run.go_on(first_pod)
    results = await run.go_on(second_pod)

    assert (results, ran) == (["ONE", "TWO"], ["one", "two"])


@pytest.mark.req("B4")
async def test_the_next_step_starts_only_once_the_record_of_the_one_before_is_acknowledged(
    run: RunInMemory,
) -> None:
    sent, answered = threading.Event(), threading.Event()
    begun: list[str] = []

    async def agent(run: Run) -> None:
        await run.step("one", begun.append, "one")
        await run.step("two", begun.append, "two")

    def hold() -> None:
        sent.set()
        assert answered.wait(60)

    async def go_on() -> None:
        await run.go_on(agent)

    # The claim goes through; what comes next is the record of step one.
    run.store.next_puts(None, Fault(after=hold), only="head")
    going = asyncio.create_task(go_on())
    assert await asyncio.to_thread(sent.wait, 60)
    before = list(begun)
    answered.set()
    await going

    assert (before, begun) == (["one"], ["one", "two"])


@pytest.mark.parametrize(
    ("fn", "arguments", "expected"),
    [
        (note, ("a b",), Note(terms=("a", "b"))),
        (place, (3,), Place(3, {"a", "b"})),
        (pair, (), (1, ["x"])),
    ],
)
async def test_a_result_comes_back_as_its_declared_type_live_and_on_a_resume(
    run: RunInMemory, fn: Callable[..., Any], arguments: tuple[Any, ...], expected: Any
) -> None:
    async def agent(run: Run) -> Any:
        return await run.step("it", fn, *arguments)

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert (live, resumed) == (expected, expected)
    assert type(live) is type(resumed) is type(expected)


async def test_changing_what_a_step_returned_does_not_change_its_record(
    run: RunInMemory,
) -> None:
    kept = [1]

    async def agent(run: Run) -> list[int]:
        given = await run.step("it", lambda: kept)
        given.append(2)
        kept.append(3)
        return given

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert (live, resumed) == ([1, 2], [1, 2])
    assert run.step("it").result.inline == [1]


@pytest.mark.req("A1", "A5")
async def test_inputs_are_recorded_by_digest_and_small_ones_with_their_value(
    run: RunInMemory,
) -> None:
    async def agent(run: Run) -> None:
        large = await run.step("large", lambda: "x" * 3000)
        await run.step("both", lambda *_: None, "small", large)
        await run.step("unknown", lambda _: None, "y" * 3000)

    await run.go_on(agent)

    both, unknown = run.step("both").inputs, run.step("unknown").inputs
    assert both[0].inline is not None
    assert (both[0].inline.inline, both[0].result_of) == ("small", "")
    assert (both[1].inline, both[1].result_of) == (None, "large")
    assert both[1].digest == run.step("large").result_digest
    assert (unknown[0].inline, unknown[0].result_of) == (None, "")
    assert len({both[0].digest, both[1].digest, unknown[0].digest}) == 3


@pytest.mark.req("A1")
async def test_a_record_says_which_step_it_is_which_try_and_when(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.step("first", lambda: None)
        await run.step("it", lambda: None, key="k")

    await run.go_on(agent)

    record = run.step("it=k")
    assert record.step.model_dump() == {
        "id": "it=k",
        "branch": "",
        "name": "it",
        "key": "k",
        "number": 1,
        "ordinal": 2,
        "after": None,
        "group": "",
    }
    assert (record.attempt, record.declared) == (1, "Any")
    assert record.started_at <= record.ended_at


def shout(text: str) -> str:
    """Say it louder.

    And nothing else.
    """
    return text.upper()


@pytest.mark.req("A1")
async def test_a_record_holds_what_the_author_says_of_the_step(run: RunInMemory) -> None:
    meta = {"when": date(2026, 1, 1), "by": ("me",)}

    async def agent(run: Run) -> None:
        await run.step("plain", lambda: 1, summary="one", meta=meta)
        await run.step("shout", shout, "hey", summary=lambda said: f"said {said}")

    await run.go_on(agent)

    plain, louder = run.step("plain"), run.step("shout")
    assert (plain.description, plain.summary) == ("", "one")
    assert {name: codec.decode(value) for name, value in plain.meta.items()} == meta
    assert (louder.description, louder.summary, louder.meta) == ("Say it louder.", "said HEY", {})


async def test_a_summary_that_raises_fails_the_step(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.step("it", lambda: 1, summary=lambda one: f"{one / 0}", attempts=1)

    with pytest.raises(StepFailed, match="ZeroDivisionError"):
        await run.go_on(agent)


async def test_notes_that_cannot_be_stored_are_refused_where_they_are_given(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(NotStorable, match="meta what"):
            _ = run.step("it", lambda: 1, meta={"what": object()})

    await run.go_on(agent)


@pytest.mark.req("A6")
async def test_a_large_result_is_stored_once_as_a_blob_and_read_back(
    run: RunInMemory,
) -> None:
    large = "x" * (17 * 1024)

    async def agent(run: Run) -> str:
        return await run.step("large", lambda: large)

    live = await run.go_on(agent)
    record = run.step("large").result
    resumed = await run.go_on(agent)

    assert live == resumed == large
    assert (record.inline, record.size) == (None, len(large) + 2)
    blobs = run.store.puts_to("blobs/")
    assert [put.key for put in blobs] == [run.keys.blob(record.blob)]


@pytest.mark.req("A6")
async def test_two_steps_with_the_same_large_result_write_it_once_and_read_it_once(run: RunInMemory) -> None:
    large = "x" * (1024 * 1024)

    async def agent(run: Run) -> bool:
        first = await run.step("first", lambda: large)
        return first == await run.step("second", lambda: large) == large

    assert await run.go_on(agent)
    run.store.gets.clear()
    assert await run.go_on(agent)

    assert len(run.store.puts_to("blobs/")) == 1
    assert len([key for key in run.store.gets if "/blobs/" in key]) == 1


async def test_a_blob_that_is_gone_halts_the_run(run: RunInMemory) -> None:
    async def agent(run: Run) -> str:
        return await run.step("large", lambda: "x" * (17 * 1024))

    await run.go_on(agent)
    blob = run.keys.blob(run.step("large").result.blob)
    run.store.inner.delete(blob)

    with pytest.raises(RunHalted) as halted:
        await run.go_on(agent)

    assert (halted.value.reason, run.lost) == ("Missing", [halted.value])
    assert run.state.phase == "Halted"
    assert run.state.outcome is not None
    assert blob in run.state.outcome.message


async def test_a_step_that_is_not_where_the_log_has_it_halts_the_run_and_raises_nothing_into_the_code(
    run: RunInMemory,
) -> None:
    caught: list[BaseException] = []

    async def agent(task: Run) -> str:
        at = run.journals[-1].state.completed
        if "one" in at:
            at["one"] = at["one"]._replace(seq=1)
        try:
            return await task.step("one", lambda: "one")
        except Damaged as error:
            caught.append(error)
            raise

    await run.go_on(agent)
    with pytest.raises(RunHalted) as halted:
        await run.go_on(agent)

    assert (halted.value.reason, run.lost, caught) == ("Corrupt", [halted.value], [])
    assert run.state.outcome is not None
    assert "record 1 does not hold" in run.state.outcome.message


async def test_a_store_that_cannot_be_reached_loses_the_process_and_not_the_run(run: RunInMemory) -> None:
    async def agent(task: Run) -> None:
        run.store.next_gets_fail(9)
        await task.step("large", lambda: "x" * (17 * 1024))

    await run.go_on(agent)
    run.store.next_gets_fail(0)
    run.deadline = 0.0
    with pytest.raises(StoreUnavailable) as lost:
        await run.go_on(agent)
    run.store.next_gets_fail(0)

    assert run.lost == [lost.value]
    assert (run.state.phase, run.state.failed) == ("Running", {})


async def test_a_recorded_value_that_the_code_cannot_read_any_more_halts_the_run(run: RunInMemory) -> None:
    def old() -> Note:
        return note("a")

    def new() -> int:
        raise AssertionError("it is recorded")

    async def with_old(run: Run) -> object:
        return await run.step("it", old)

    async def with_new(run: Run) -> object:
        return await run.step("it", new)

    await run.go_on(with_old)
    with pytest.raises(RunHalted, match="result of step it") as halted:
        await run.go_on(with_new)

    assert halted.value.reason == "RecordedTypeChanged"
    assert run.state.phase == "Halted"
    assert await run.go_on(with_old) == note("a")


class Doubler:
    async def __call__(self, number: int) -> int:
        return number * 2


class Adder:
    def __init__(self, more: int) -> None:
        self.more = more

    def add(self, number: int) -> int:
        return number + self.more


async def multiply(number: int, by: int = 1) -> int:
    return number * by


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (Doubler(), 42),
        (Adder(1).add, 22),
        (partial(multiply, by=3), 63),
        (multiply, 21),
        (lambda number: number, 21),
        (lambda number: multiply(number, 2), 42),
    ],
    ids=[
        "async callable",
        "bound method",
        "partial",
        "coroutine function",
        "lambda",
        "of a coroutine",
    ],
)
async def test_whatever_can_be_called_can_be_a_step(
    run: RunInMemory, fn: Callable[[int], Any], expected: int
) -> None:
    async def agent(run: Run) -> Any:
        return await run.step("it", fn, 21)

    assert await run.go_on(agent) == expected


async def test_a_plain_function_runs_in_a_thread_and_the_loop_stays_free(run: RunInMemory) -> None:
    let_go = threading.Event()

    async def agent(run: Run) -> str:
        waiting = asyncio.create_task(run.step("wait", let_go.wait, 60))
        await run.step("let-go", let_go.set)
        assert await waiting
        return threading.current_thread().name

    assert await run.go_on(agent) == threading.main_thread().name


async def test_a_result_that_cannot_be_stored_fails_the_step_at_once_and_names_the_path(
    run: RunInMemory,
) -> None:
    async def agent(run: Run) -> None:
        await run.step("it", lambda: {"items": [1, object()]})

    with pytest.raises(StepFailed, match=r"result\.items\[1\]") as failed:
        await run.go_on(agent)

    assert (failed.value.of(NotStorable), failed.value.attempts) == (True, 1)


async def test_an_argument_that_cannot_be_stored_is_refused_before_the_step_starts(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.step("it", lambda _: None, object())

    with pytest.raises(NotStorable, match="argument 1 of step it"):
        await run.go_on(agent)

    assert run.events(StepCompleted) == []


@pytest.mark.req("A1")
async def test_progress_is_recorded_with_the_next_step_and_only_where_it_changes(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        run.progress(total=2)
        await run.step("one", lambda: None)
        run.progress(total=2)
        await run.step("two", lambda: None)

    await run.go_on(agent)
    await run.go_on(agent)

    assert [event.total for event in run.events(Planned)] == [2]
    assert (run.state.totals.steps_done, run.state.totals.steps_total) == (2, 2)
    # The run's beginning, two claims, two steps: no record for the plan alone.
    assert run.state.seq == 5


async def test_what_was_said_last_of_the_number_of_steps_stands(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        run.progress(total=2)
        await run.step("one", lambda: None)
        run.progress(total=3)
        run.progress(total=2)
        await run.step("two", lambda: None)

    await run.go_on(agent)

    assert run.state.totals.steps_total == 2


async def test_the_run_tells_its_names(run: RunInMemory) -> None:
    async def agent(run: Run) -> tuple[Any, ...]:
        return run.id, run.name, run.namespace, run.goal

    assert await run.go_on(agent) == (run.keys.run_id, "triage", "team", None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.step("", print), "a step needs a name"),
        (lambda run: run.step(3, print), "a step needs a name"),
        (lambda run: run.step("it", "print"), "needs a function"),
        (lambda run: run.step("it", print, key=object()), "the key of step 'it'"),
        (lambda run: run.step("it", print, attempts=0), "cannot have 0 attempts"),
        (lambda run: run.step("it", print, attempts="3"), "cannot have '3' attempts"),
        (lambda run: run.step("it", print, attempts=2.5), r"cannot have 2\.5 attempts"),
        (lambda run: run.step("it", print, retry=3), r"it is a Retry\(\.\.\.\)"),
        (lambda run: run.step("it", print, timeout="3s"), "cannot end within '3s'"),
        (lambda run: run.step("it", print, timeout=float("nan")), "cannot end within nan"),
        (lambda run: run.step("it", print, requires=True), "cannot have requires=True"),
        (lambda run: run.step("it", print, valid=True), "cannot have valid=True"),
        (lambda run: run.step("it", print, summary=5), "cannot have summary=5"),
        (lambda run: run.step("it", print, meta=["a"]), "has names, which are strings"),
        (lambda run: run.step("it", print, meta={1: "a"}), "has names, which are strings"),
        (lambda run: run.skip("it", 5), "is a text, not 5"),
        (lambda run: run.sleep(until=5.0), r"sleep cannot last until 5\.0"),
        (lambda run: run.memory.update({1: 2}), "names, which are strings, not 1"),
        (lambda run: run.parallel([], limit=None), "limit=None"),
        (lambda run: run.parallel(run.step("it", print)), "takes a list of coroutines"),
        (lambda run: run.phase("it", granularity="tool-call"), "cannot have granularity 'tool-call'"),
        (lambda run: run.phase("it", inputs=["a"]), "are a mapping"),
        (lambda run: run.phase("it", at_least="1"), "a number, not '1'"),
        (lambda run: run.progress(total=-1), "a whole number"),
        (lambda run: run.parallel([], limit=0), "limit=0"),
        (lambda run: run.parallel([print]), "takes coroutines"),
    ],
)
async def test_what_cannot_be_meant_is_refused_at_the_call(
    run: RunInMemory, call: Callable[[Any], object], message: str
) -> None:
    async def agent(run: Run) -> None:
        call(run)

    with pytest.raises(Misuse, match=message):
        await run.go_on(agent)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"requires": lambda: True}, "requires= of step it has to be async"),
        ({"summary": lambda _: None}, "the summary of step it is a text, not None"),
    ],
)
async def test_what_an_option_returns_wrongly_fails_the_step_at_once(
    run: RunInMemory, options: dict[str, Any], message: str
) -> None:
    async def agent(run: Run) -> None:
        await run.step("it", lambda: None, **options)

    with pytest.raises(StepFailed, match=message) as error:
        await run.go_on(agent)
    assert error.value.attempts == 1


async def test_a_step_in_an_event_loop_of_another_thread_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async def elsewhere() -> None:
            await run.step("it", print)

        await asyncio.to_thread(asyncio.run, elsewhere())

    with pytest.raises(Misuse, match="step 'it' is started in a thread"):
        await run.go_on(agent)


async def test_a_step_in_a_task_that_a_thread_has_begun_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async def begun() -> None:
            await run.step("it", print)

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            begins = pool.submit(lambda: asyncio.run_coroutine_threadsafe(begun(), loop).result())
            await asyncio.wrap_future(begins)

    with pytest.raises(Misuse, match="in a task that a thread has begun"):
        await run.go_on(agent)


async def test_a_step_inside_a_step_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        async def body() -> None:
            await run.step("inner", print)

        await run.step("outer", body)

    with pytest.raises(StepFailed, match="'inner' is started inside the step outer") as failed:
        await run.go_on(agent)

    assert (failed.value.of(Misuse), failed.value.attempts) == (True, 1)


async def test_a_step_from_a_thread_of_the_authors_is_refused(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await (await asyncio.to_thread(run.step, "it", print))

    with pytest.raises(Misuse, match="started in a thread"):
        await run.go_on(agent)


async def test_after_a_stop_no_step_starts_and_the_agent_is_left_waiting(run: RunInMemory) -> None:
    begun: list[str] = []
    unwound: list[str] = []

    async def agent(task: Run) -> None:
        try:
            await task.step("one", begun.append, "one")
            run.journals[-1].stop()
            stopped.set()
            await task.step("two", begun.append, "two")
        finally:
            unwound.append("agent")

    stopped = asyncio.Event()
    going = asyncio.create_task(run.go_on(agent))
    await asyncio.wait_for(stopped.wait(), 60)
    done, _ = await asyncio.wait({going}, timeout=0.2)

    assert (done, begun, unwound) == (set(), ["one"], [])
    going.cancel()
