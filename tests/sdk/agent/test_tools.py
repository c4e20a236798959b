"""Tools: their effects, their keys, and calls that are not made twice."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from milepost import Call, Happened, Misuse, NotHappened, NotStorable, Retry, Run, StepFailed, tool
from milepost.api.names import idempotency_key
from milepost.checkpoint.records import StepCompleted, StepFailure, ToolCalled, Value
from tests.support.sessions import RunInMemory, wait_until

AT_ONCE = Retry(wait=0)
RUN_ID = "a" * 20


class Receipt(BaseModel):
    number: int


class Outside:
    """The world outside, and tools that reach it. Each notes the key of every call."""

    def __init__(self, failures: int = 0) -> None:
        self.keys: list[str] = []
        self.attempts: list[int] = []
        self.failures = failures

        @tool(effect="keyed", version="2")
        async def send(call: Call, number: int, *, draft: bool = False) -> Receipt:
            self.note(call)
            call.record(external_id=f"message-{number}", draft=draft)
            return Receipt(number=number)

        @tool(effect="repeatable")
        async def touch(call: Call, number: int) -> int:
            self.note(call)
            return number

        @tool(effect="none")
        async def ask(call: Call, number: int) -> int:
            self.note(call)
            return number

        self.send, self.touch, self.ask = send, touch, ask

    def note(self, call: Call) -> None:
        self.keys.append(call.key)
        self.attempts.append(call.attempt)
        if len(self.keys) <= self.failures:
            raise OSError("the line is dead")


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.mark.req("A2", "E1")
async def test_a_step_that_is_a_keyed_tool_is_one_record_that_says_all_of_the_call(
    run: RunInMemory, outside: Outside
) -> None:
    async def agent(run: Run) -> Receipt:
        return await run.step("send", outside.send, 7)

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert live == resumed == Receipt(number=7)
    assert outside.keys == [f"{RUN_ID}/send"]
    (called,) = run.events(ToolCalled)
    assert called.model_dump(exclude={"arguments", "started_at", "duration_s"}) == {
        "kind": "tool_called",
        "step": "send",
        "call": 1,
        "tool": "send",
        "version": "2",
        "effect": "keyed",
        "key": f"{RUN_ID}/send",
        "inputs": (),
        "named": {},
        "attempt": 1,
        "result": None,
        "error": None,
        "external_id": "message-7",
        "evidence": {"draft": False},
        "outcome": "answered",
        "unconfirmed": False,
    }
    assert called.duration_s >= 0
    # Beginning, two claims, one step.
    assert run.state.seq == 4


@pytest.mark.req("E1")
async def test_the_key_is_the_same_on_every_try_and_in_every_process(run: RunInMemory) -> None:
    outside = Outside(failures=3)

    async def agent(run: Run, wait: float) -> Receipt:
        return await run.step("send", outside.send, 7, key="it", attempts=9, retry=Retry(wait=wait))

    first = asyncio.create_task(run.go_on(lambda task: agent(task, wait=600)))
    await asyncio.to_thread(wait_until, lambda: run.events(StepFailure))
    first.cancel()
    await run.go_on(lambda task: agent(task, wait=0))

    assert set(outside.keys) == {f"{RUN_ID}/send=it"}
    assert outside.attempts == [1, 2, 3, 4]


@pytest.mark.req("E1")
async def test_calls_with_an_effect_in_a_steps_body_are_numbered_from_the_second_on(
    run: RunInMemory, outside: Outside
) -> None:
    async def agent(run: Run) -> None:
        async def body() -> None:
            await outside.ask(0)
            await outside.send(1)
            await asyncio.gather(outside.touch(2), outside.send(3))

        await run.step("it", body)

    await run.go_on(agent)

    called = {(each.tool, each.call): each.key for each in run.events(ToolCalled)}
    assert called == {
        ("ask", 0): "",
        ("send", 1): f"{RUN_ID}/it",
        ("touch", 2): f"{RUN_ID}/it/2",
        ("send", 3): f"{RUN_ID}/it/3",
    }


@pytest.mark.req("E1")
async def test_a_long_key_is_a_digest_of_64_characters(run: RunInMemory, outside: Outside) -> None:
    async def agent(run: Run) -> None:
        await run.step("send", outside.send, 1, key="k" * 100)

    await run.go_on(agent)

    assert outside.keys == [idempotency_key(RUN_ID, "send=" + "k" * 100, 1)]
    assert len(outside.keys[0]) == 64


@pytest.mark.req("E2", "A2")
async def test_a_call_that_succeeded_is_not_made_again_when_its_step_is_tried_again(
    run: RunInMemory, outside: Outside
) -> None:
    tries: list[Receipt] = []

    async def agent(run: Run) -> str:
        async def body() -> str:
            tries.append(await outside.send(1))
            if len(tries) < 3:
                raise OSError("after the effect")
            return "done"

        return await run.step("it", body, retry=AT_ONCE)

    assert await run.go_on(agent) == "done"
    assert tries == [Receipt(number=1)] * 3
    assert outside.keys == [f"{RUN_ID}/it"]
    (called,) = run.events(ToolCalled)
    assert called.result is not None


@pytest.mark.req("A2")
async def test_a_call_in_a_steps_body_is_recorded_with_its_arguments(
    run: RunInMemory, outside: Outside
) -> None:
    async def agent(run: Run) -> None:
        async def body() -> None:
            await outside.send(1, draft=True)

        await run.step("it", body)

    await run.go_on(agent)

    (called,) = run.events(ToolCalled)
    (number,), draft = called.inputs, called.named["draft"]
    assert (number.inline, draft.inline) == (Value(inline=1, size=1), Value(inline=True, size=4))


@pytest.mark.req("E2")
async def test_a_call_that_succeeded_is_not_made_again_by_the_next_pod(
    run: RunInMemory, outside: Outside
) -> None:
    hang = True

    async def agent(run: Run) -> Receipt:
        async def body() -> Receipt:
            receipt = await outside.send(1)
            if hang:
                await asyncio.sleep(600)
            return receipt

        return await run.step("it", body)

    going = asyncio.create_task(run.go_on(agent))
    await asyncio.to_thread(wait_until, lambda: run.events(ToolCalled))
    going.cancel()
    hang = False

    assert await run.go_on(agent) == Receipt(number=1)
    assert outside.keys == [f"{RUN_ID}/it"]


@pytest.mark.req("E2")
async def test_the_same_key_with_other_arguments_is_refused(run: RunInMemory, outside: Outside) -> None:
    tries: list[int] = []

    async def agent(run: Run) -> None:
        async def body() -> None:
            tries.append(1)
            await outside.send(len(tries))
            raise OSError("after the effect")

        await run.step("it", body, retry=AT_ONCE)

    with pytest.raises(StepFailed, match=rf"the key {RUN_ID}/it stands for those") as failed:
        await run.go_on(agent)

    assert (failed.value.of(Misuse), failed.value.attempts) == (True, 2)
    assert outside.keys == [f"{RUN_ID}/it"]


@pytest.mark.req("A2")
async def test_a_failed_call_is_recorded_with_its_error_and_its_evidence(run: RunInMemory) -> None:
    @tool(effect="repeatable")
    async def fail(call: Call) -> None:
        call.record(external_id="m-1", checksum="abc")
        raise OSError("refused")

    async def agent(run: Run) -> None:
        async def body() -> None:
            await fail()

        await run.step("it", body, attempts=1)

    with pytest.raises(StepFailed):
        await run.go_on(agent)

    (called,) = run.events(ToolCalled)
    assert called.error is not None
    assert (called.error.kind, called.error.message) == ("builtins.OSError", "refused")
    assert (called.external_id, called.evidence) == ("m-1", {"checksum": "abc"})
    # With its step, not in a record of its own.
    assert run.state.seq == 3


@pytest.mark.req("A2")
async def test_a_call_without_an_effect_goes_with_its_step(run: RunInMemory, outside: Outside) -> None:
    async def agent(run: Run) -> None:
        async def body() -> int:
            return await outside.ask(1)

        await run.step("it", body)

    await run.go_on(agent)

    (called,) = run.events(ToolCalled)
    assert (called.tool, called.effect, called.call, called.key) == ("ask", "none", 0, "")
    assert run.state.seq == 3


async def test_a_call_knows_how_often_its_step_was_tried(run: RunInMemory) -> None:
    outside = Outside(failures=2)

    async def agent(run: Run) -> None:
        await run.step("it", outside.ask, 1, retry=AT_ONCE)

    await run.go_on(agent)

    assert outside.attempts == [1, 2, 3]


@pytest.mark.parametrize("which", ["send", "touch"])
async def test_a_tool_with_an_effect_is_refused_outside_a_step(
    run: RunInMemory, outside: Outside, which: str
) -> None:
    async def agent(_: Run) -> None:
        await getattr(outside, which)(1)

    with pytest.raises(Misuse, match="only inside a step"):
        await run.go_on(agent)

    assert outside.keys == []


async def test_a_tool_without_an_effect_can_be_called_anywhere(run: RunInMemory, outside: Outside) -> None:
    async def agent(_: Run) -> int:
        return await outside.ask(3)

    assert await run.go_on(agent) == 3


async def test_a_tool_with_some_of_its_arguments_is_still_the_step_itself(
    run: RunInMemory, outside: Outside
) -> None:
    async def agent(run: Run) -> Receipt:
        return await run.step("send", partial(outside.send, draft=True), 7)

    live = await run.go_on(agent)
    resumed = await run.go_on(agent)

    assert live == resumed == Receipt(number=7)
    (called,) = run.events(ToolCalled)
    assert (called.call, called.key, called.evidence) == (1, f"{RUN_ID}/send", {"draft": True})
    assert run.state.seq == 4


async def test_a_plain_function_that_returns_a_call_makes_it(run: RunInMemory, outside: Outside) -> None:
    async def agent(run: Run) -> Any:
        return await run.step("send", lambda: outside.touch(7))

    assert await run.go_on(agent) == 7
    assert outside.keys == [f"{RUN_ID}/send"]


async def test_a_call_in_another_threads_event_loop_is_refused(run: RunInMemory, outside: Outside) -> None:
    async def agent(run: Run) -> None:
        await run.step("it", lambda: asyncio.run(outside.send(1)))

    with pytest.raises(StepFailed, match="event loop of another thread"):
        await run.go_on(agent)

    assert outside.keys == []


async def test_a_call_that_outlives_its_step_is_refused(run: RunInMemory, outside: Outside) -> None:
    later: list[asyncio.Task[Any]] = []

    async def agent(run: Run) -> None:
        async def body() -> None:
            async def call() -> None:
                await asyncio.sleep(0.05)
                await outside.send(1)

            later.append(asyncio.create_task(call()))

        await run.step("it", body)
        await later[0]

    with pytest.raises(Misuse, match="has ended"):
        await run.go_on(agent)

    assert outside.keys == []


async def test_a_tools_large_result_is_a_blob_too(run: RunInMemory) -> None:
    @tool(effect="repeatable")
    async def fetch() -> str:
        return "x" * 20_000

    async def agent(run: Run) -> int:
        async def body() -> int:
            return len(await fetch())

        return await run.step("it", body)

    assert await run.go_on(agent) == 20_000
    (called,) = run.events(ToolCalled)
    assert called.result is not None
    assert (called.result.inline, called.result.size) == (None, 20_002)


@pytest.mark.parametrize(
    ("evidence", "error"),
    [
        ({"when": object()}, NotStorable),
        ({"page": "x" * 20_000}, NotStorable),
        ({"external_id": 7}, Misuse),
    ],
)
async def test_evidence_that_no_record_can_hold_is_refused_where_it_is_given(
    run: RunInMemory, evidence: dict[str, Any], error: type[Exception]
) -> None:
    @tool(effect="keyed")
    async def send(call: Call) -> None:
        with pytest.raises(error):
            call.record(**evidence)

    async def agent(run: Run) -> None:
        await run.step("send", send)

    await run.go_on(agent)

    assert run.events(ToolCalled)[0].evidence == {}
    assert len(run.events(StepCompleted)) == 1


def in_parts(call: Call) -> Iterator[int]:
    yield len(call.key)


async def no_call(number: int) -> None: ...


async def sends(call: Call, number: int, *, draft: bool = False) -> None: ...


async def verifies(call: Call, number: int, *, draft: bool = False) -> Happened[None] | NotHappened:
    raise NotImplementedError


async def verifies_less(call: Call, number: int) -> NotHappened:
    raise NotImplementedError


async def verifies_otherwise(call: Call, number: int, *, draft: bool = True) -> NotHappened:
    raise NotImplementedError


async def verifies_without_a_call(number: int, *, draft: bool = False) -> NotHappened:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("fn", "declared", "message"),
    [
        (in_parts, {"effect": "keyed"}, "that returns its result"),
        (Receipt, {"effect": "none"}, "that returns its result"),
        (
            no_call,
            {"effect": "irreversable"},
            "cannot have the effect 'irreversable'; there are none, repeatable",
        ),
        (no_call, {"effect": "none", "version": 2}, "needs a version, such as '1', and not 2"),
        (sends, {"effect": "verified", "verify": verifies, "settles_within": "1"}, "settles_within"),
        (no_call, {"effect": "keyed"}, "must be a Call"),
        (no_call, {"effect": "verified", "verify": verifies, "settles_within": 1}, "must be a Call"),
        (sends, {"effect": "verified", "settles_within": 1}, "it needs verify"),
        (sends, {"effect": "verified", "verify": verifies}, "settles_within"),
        (sends, {"effect": "verified", "verify": verifies, "settles_within": -1}, "settles_within"),
        (sends, {"effect": "verified", "verify": verifies_less, "settles_within": 1}, "the same parameters"),
        (sends, {"effect": "verified", "verify": verifies_otherwise, "settles_within": 1}, "draft=False"),
        (sends, {"effect": "verified", "verify": verifies_without_a_call, "settles_within": 1}, "Call first"),
        (sends, {"effect": "keyed", "verify": verifies}, "only a verified tool"),
        (sends, {"effect": "irreversible", "settles_within": 1}, "only a verified tool"),
    ],
)
def test_a_tool_that_lacks_what_its_effect_needs_is_refused(
    fn: Callable[..., Any], declared: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        tool(**declared)(fn)


@pytest.mark.parametrize("settles_within", [90, 90.0, timedelta(seconds=90)])
def test_a_tool_says_how_it_was_declared(settles_within: float | timedelta) -> None:
    declared = tool(
        effect="verified",
        version="4",
        verify=verifies,
        settles_within=settles_within,
        requires_approval=True,
        deprecated=True,
    )(sends)

    assert (declared.name, declared.effect, declared.version) == ("sends", "verified", "4")
    assert (declared.settles_within, declared.requires_approval, declared.deprecated) == (90.0, True, True)
    assert (declared.has_effect, declared.has_intent) == (True, True)


@pytest.mark.req("E1", "I3")
@pytest.mark.parametrize("kind", ["send", "touch"])
async def test_nothing_is_called_on_the_strength_of_a_step_that_may_still_be_lost(kind: str) -> None:
    outside, run = Outside(), RunInMemory(every_steps=5)
    recorded: list[list[str]] = []

    def look(call: Call) -> None:
        assert call.attempt == 1
        recorded.append(list(run.state.completed))

    outside.note = look  # type: ignore[method-assign]  # it looks at the log as well

    async def agent(run: Run) -> None:
        number = await run.step("think", lambda: 7)
        await run.step("act", getattr(outside, kind), number)

    await run.go_on(agent)

    assert recorded == [["think"]]


async def test_a_call_without_an_effect_waits_for_no_record(outside: Outside) -> None:
    run = RunInMemory(every_steps=5)

    async def agent(run: Run) -> int:
        return await run.step("ask", outside.ask, await run.step("think", lambda: 7))

    assert await run.go_on(agent) == 7
    assert run.events(StepCompleted) == []


@pytest.mark.parametrize(
    ("before", "declared", "takes_call"),
    [
        ("import milepost as m", "m.Call", True),
        ("from milepost import Call as Place", "Place", True),
        ("TYPE_CHECKING = False", "Call", True),
        ("class Call: ...", "Call", False),
    ],
    ids=["by its module", "by another name", "seen by type checkers only", "of the author's own"],
)
def test_a_call_is_told_by_what_its_annotation_names(
    tmp_path: Path, before: str, declared: str, *, takes_call: bool
) -> None:
    source = f"from __future__ import annotations\n{before}\nasync def ring(first: {declared}): ...\n"
    (tmp_path / "author.py").write_text(source)

    ring = runpy.run_path(str(tmp_path / "author.py"))["ring"]

    assert tool(effect="none")(ring).takes_call is takes_call
