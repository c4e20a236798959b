"""Gates: open once, passed once, by exactly who answers exactly what was asked, and frozen until then."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, NewType

import pytest
from pydantic import BaseModel

from milepost import Call, KeyNeeded, Misuse, NotStorable, Retry, Run, tool
from milepost.agent.gates import Decision
from milepost.api.resource import Phase
from milepost.checkpoint import codec
from milepost.checkpoint.gates import AnswerType, Decided, Gate, GateOpened, GateType, Waiting
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import Halted, Resumed, StepCompleted, Value, Withdrawn
from milepost.errors import Denied, Expired, RunHalted
from tests.support.at_gates import (
    ANSWERED,
    Arrived,
    answer,
    arrives,
    ends,
    gate_of,
    gates_of,
    run_that_waits,
    send,
    waits,
)
from tests.support.sessions import RunInMemory
from tests.support.store_doubles import Crashed, Fault


@pytest.fixture
def run() -> RunInMemory:
    return run_that_waits()


class Edit(BaseModel):
    rows: int
    title: str = "as it is"


class Colour(Enum):
    RED = "red"


@dataclass
class Row:
    number: int


Code = NewType("Code", str)


async def publishing(run: Run) -> Decision[Edit]:
    return await run.approval("publish", request={"rows": 3}, answer=Edit, expires=3600)


async def plain(run: Run) -> Decision[None]:
    return await run.approval("publish", request="now?")


def phase_of(run: RunInMemory) -> Phase:
    at = read_head(run.store, run.keys)
    assert isinstance(at, HeadAt)
    return at.head.phase


def skip_it(run: RunInMemory) -> None:
    """Decide that the answer that does not fit is left out."""
    answer(run, AnswerType.ACCEPT, gate=gate_of(run).id)


@pytest.mark.req("F1")
async def test_a_run_that_waits_is_recorded_as_waiting_with_what_it_asks(run: RunInMemory) -> None:
    (at,) = await waits(run, publishing)

    (opened,) = [event.gate for event in run.events(GateOpened)]
    assert opened == Gate(
        id=at.id,
        type=GateType.APPROVAL,
        place="@publish",
        name="publish",
        request=Value(inline={"rows": 3}, size=10),
        request_digest=codec.digest({"rows": 3}),
        answer_schema=Edit.model_json_schema(),
        since=opened.since,
        until=(datetime.fromisoformat(opened.since) + timedelta(hours=1)).isoformat(),
    )
    assert (len(run.events(Waiting)), phase_of(run)) == (1, Phase.WAITING)


@pytest.mark.req("F1")
async def test_nothing_of_the_agents_code_is_unwound_while_it_waits(run: RunInMemory) -> None:
    unwound: list[str] = []

    async def agent(run: Run) -> None:
        try:
            await plain(run)
        except BaseException as error:
            unwound.append(repr(error))
            raise
        finally:
            unwound.append("finally")

    await waits(run, agent)
    await waits(run, agent)

    assert unwound == []


@pytest.mark.req("F1", "F2")
async def test_a_gate_is_opened_once_and_keeps_its_times_however_often_the_run_comes_to_it(
    run: RunInMemory,
) -> None:
    (first,) = await waits(run, publishing)

    async def later(run: Run) -> Decision[Edit]:
        return await run.approval("publish", request={"rows": 3}, answer=Edit, expires=7200)

    (second,) = await waits(run, later)

    assert (second, len(run.events(GateOpened)), len(run.events(Waiting))) == (first, 1, 2)


@pytest.mark.req("F1")
async def test_what_was_only_handed_over_and_the_memory_are_durable_when_a_run_waits() -> None:
    run = run_that_waits(every_steps=10)

    async def agent(run: Run) -> None:
        await run.step("one", str, 1)
        run.memory["seen"] = [1]
        await plain(run)

    await waits(run, agent)

    assert set(run.state.completed) == {"one"}
    assert run.state.memory > 0


@pytest.mark.req("F2", "F3")
async def test_an_approval_is_returned_with_who_gave_it_and_recorded_once(run: RunInMemory) -> None:
    (at,) = await waits(run, publishing)
    answer(run, AnswerType.APPROVE, {"rows": 2}, reason="fine")
    decision = Decision("ann", ANSWERED, "fine", Edit(rows=2))

    first, again = await ends(run, publishing), await ends(run, publishing)

    assert (first, again, gates_of(run)) == (decision, decision, ())
    assert run.events(Decided) == [
        Decided(
            gate=at.id,
            place="@publish",
            type=AnswerType.APPROVE,
            by="ann",
            at=ANSWERED.isoformat(),
            reason="fine",
            answer=Value(
                inline={"$mp": "model", "v": {"rows": 2, "title": "as it is"}, "set": ["rows"]}, size=64
            ),
        )
    ]


@pytest.mark.req("F3")
async def test_what_is_recorded_holds_whatever_lies_in_the_inbox_afterwards(run: RunInMemory) -> None:
    await waits(run, plain)
    answer(run)
    await ends(run, plain)
    run.store.delete(run.keys.answer(run.events(Decided)[0].gate))

    assert (await ends(run, plain)).by == "ann"


@pytest.mark.req("F3")
@pytest.mark.parametrize(
    ("type_", "error", "said"),
    [
        (AnswerType.DENY, Denied, "gate publish was denied by ann: too many"),
        (AnswerType.EXPIRED, Expired, "nobody answered at gate publish before its deadline"),
    ],
)
async def test_a_no_is_raised_each_time(
    run: RunInMemory, type_: AnswerType, error: type[Denied], said: str
) -> None:
    await waits(run, publishing)
    answer(run, type_, reason="too many")

    for _ in range(2):
        with pytest.raises(error) as raised:
            await ends(run, publishing)
        assert type(raised.value) is error
        assert str(raised.value) == said
        assert raised.value.decision == Decision("ann", ANSWERED, "too many", None)
    assert len(run.events(Decided)) == 1


@pytest.mark.req("F3")
async def test_of_two_who_answer_at_once_one_wins_and_the_other_learns_it(run: RunInMemory) -> None:
    (at,) = await waits(run, plain)

    yes, no = await asyncio.gather(
        asyncio.to_thread(answer, run, AnswerType.APPROVE, gate=at.id, by="ann"),
        asyncio.to_thread(answer, run, AnswerType.DENY, gate=at.id, by="bob"),
    )

    assert yes == no
    if yes.by == "ann":
        assert (await ends(run, plain)).by == "ann"
    else:
        with pytest.raises(Denied, match="bob"):
            await ends(run, plain)
    assert [event.by for event in run.events(Decided)] == [yes.by]


@pytest.mark.req("F3")
async def test_of_two_processes_that_resume_with_an_answer_only_the_newer_one_applies_it(
    run: RunInMemory,
) -> None:
    done: list[str] = []

    async def agent(run: Run) -> str:
        def act(by: str) -> str:
            done.append(by)
            return by

        return await run.step("act", act, (await plain(run)).by)

    await waits(run, agent)
    answer(run)

    older = asyncio.ensure_future(run.go_on(agent))
    newer = asyncio.ensure_future(run.go_on(agent))
    results = await asyncio.gather(older, newer, return_exceptions=True)

    assert [type(result).__name__ for result in results].count("str") == 1
    assert (len(run.events(Decided)), len(run.events(StepCompleted))) == (1, 1)


@pytest.mark.req("F3")
async def test_a_decision_about_another_request_is_not_consumed(run: RunInMemory) -> None:
    (first,) = await waits(run, publishing)
    answer(run, AnswerType.APPROVE, {"rows": 3})

    async def more(run: Run) -> Decision[Edit]:
        return await run.approval("publish", request={"rows": 4_000}, answer=Edit)

    (second,) = await waits(run, more)

    assert second.id != first.id
    assert gates_of(run) == (second,)
    assert run.events(Decided) == []


@pytest.mark.req("F3")
async def test_code_that_asks_as_before_again_takes_the_answer_of_then_and_leaves_no_gate_open(
    run: RunInMemory,
) -> None:
    async def more(run: Run) -> Decision[Edit]:
        return await run.approval("publish", request={"rows": 4_000}, answer=Edit)

    (first,) = await waits(run, publishing)
    await waits(run, more)
    answer(run, AnswerType.APPROVE, {"rows": 3}, gate=first.id)

    assert (await ends(run, publishing)).answer == Edit(rows=3)
    assert gates_of(run) == ()


@pytest.mark.req("D6", "F3")
async def test_a_run_that_begins_anew_asks_people_anew_and_has_its_events_still(run: RunInMemory) -> None:
    async def agent(run: Run) -> tuple[str, int]:
        return (await plain(run)).by, await run.event("paid", int)

    (first,) = await waits(run, agent)
    answer(run, by="ann")
    send(run, 7)
    assert await ends(run, agent) == ("ann", 7)
    await run.journals[-1].commit(Resumed(strategy="RestartWithContext"))

    (second,) = await waits(run, agent)
    answer(run, by="bob")

    assert (second.id != first.id, second.place) == (True, first.place)
    assert await ends(run, agent) == ("bob", 7)


@pytest.mark.req("F3")
async def test_a_second_answer_changes_nothing(run: RunInMemory) -> None:
    (at,) = await waits(run, plain)
    answer(run, by="ann")
    assert answer(run, AnswerType.DENY, gate=at.id, by="bob").by == "ann"

    assert (await ends(run, plain)).by == "ann"
    assert answer(run, AnswerType.DENY, gate=at.id, by="bob").by == "ann"
    assert (await ends(run, plain)).by == "ann"


async def test_an_approval_ahead_of_the_code_is_taken_without_waiting(run: RunInMemory) -> None:
    (at,) = await waits(run, plain)
    answer(run, gate=at.id)

    assert (await ends(run, plain)).by == "ann"
    assert [type(event) for event in run.events(GateOpened)] == [GateOpened]


async def test_the_time_that_the_branch_has_come_to_is_that_of_the_decision(run: RunInMemory) -> None:
    async def agent(run: Run) -> datetime:
        await plain(run)
        return run.now()

    await waits(run, agent)
    answer(run)

    assert [await ends(run, agent), await ends(run, agent)] == [ANSWERED, ANSWERED]


@pytest.mark.parametrize(
    ("declared", "data", "value"),
    [
        (int, 3, 3),
        (float, 2.5, 2.5),
        (bool, False, False),
        (str, "ä\U0001f600", "ä\U0001f600"),
        (Code, "x", "x"),
        (list[int], [1, 2], [1, 2]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, Edit], {"a": {"rows": 1}}, {"a": Edit(rows=1)}),
        (int | None, None, None),
        (date, "2026-02-03", date(2026, 2, 3)),
        (
            datetime,
            "2026-02-03T04:05:06+01:00",
            datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC) - timedelta(hours=1),
        ),
        (datetime, codec.encode(ANSWERED), ANSWERED),
        (bytes, codec.encode(b"\xff"), b"\xff"),
        (Colour, "red", Colour.RED),
        (Row, {"number": 1}, Row(1)),
        (Any, {"a": [1]}, {"a": [1]}),
        (str, "x" * 50_000, "x" * 50_000),
    ],
)
async def test_an_answer_is_of_the_declared_type_when_it_is_taken_and_when_it_is_read_back(
    run: RunInMemory, declared: Any, data: Any, value: Any
) -> None:
    async def agent(run: Run) -> Any:
        return (await run.approval("choose", request="which?", answer=declared)).answer

    await waits(run, agent)
    answer(run, AnswerType.APPROVE, data)

    taken, read = await ends(run, agent), await ends(run, agent)

    assert [taken, read] == [value, value]
    assert type(taken) is type(read) is type(value)


def nested(depth: int) -> Any:
    held: Any = 1
    for _ in range(depth):
        held = [held]
    return held


WRONG: list[tuple[Any, Any, str]] = [
    (int, "3", "answer: Input should be a valid integer, not '3'"),
    (int, 3.0, "answer: Input should be a valid integer, not 3.0"),
    (int, True, "answer: Input should be a valid integer, not True"),
    (str, 3, "answer: Input should be a valid string, not 3"),
    (int, None, "answer: Input should be a valid integer, not None"),
    (Edit, {"rows": "2"}, "answer.rows: Input should be a valid integer, not '2'"),
    (Edit, {}, "answer.rows: Field required, not {}"),
    (None, {"rows": 2}, "answer: there is to be none, not {'rows': 2}"),
    (datetime, {"$mp": "datetime", "v": "never"}, "answer cannot be read: it is not a datetime"),
    (datetime, {"$mp": "os.system", "v": "x"}, "answer cannot be read: the tag 'os.system' is not known"),
    (datetime, codec.encode(date(2026, 1, 1)), "answer: Input should be a valid datetime"),
    (Any, nested(300), "answer"),
]


@pytest.mark.req("F3")
@pytest.mark.parametrize(("declared", "data", "why"), WRONG)
async def test_an_answer_that_does_not_fit_halts_the_run_says_what_is_wrong_and_is_not_taken(
    run: RunInMemory, declared: Any, data: Any, why: str
) -> None:
    async def agent(run: Run) -> Any:
        return (await run.approval("choose", request="which?", answer=declared)).answer

    await waits(run, agent)
    answer(run, AnswerType.APPROVE, data)

    for _ in range(2):
        with pytest.raises(RunHalted) as halted:
            await ends(run, agent)
        assert halted.value.reason == "AnswerInvalid"
        assert f"the answer, by ann, at gate choose, which stands at @choose, does not fit: {why}" in str(
            halted.value
        )
    assert (run.events(Decided), phase_of(run)) == ([], Phase.HALTED)


@pytest.mark.req("F3")
async def test_an_answer_that_does_not_fit_can_be_left_out_and_the_gate_asks_again(run: RunInMemory) -> None:
    async def agent(run: Run) -> int:
        return (await run.approval("choose", request="which?", answer=int)).answer

    (first,) = await waits(run, agent)
    answer(run, AnswerType.APPROVE, "three")
    with pytest.raises(RunHalted):
        await ends(run, agent)
    skip_it(run)

    (second,) = await waits(run, agent)
    answer(run, AnswerType.APPROVE, 3)

    assert second.id != first.id
    assert (second.place, second.request_digest) == (first.place, first.request_digest)
    assert [await ends(run, agent), await ends(run, agent)] == [3, 3]


async def test_code_that_takes_the_answer_after_all_goes_on_with_it(run: RunInMemory) -> None:
    async def agent(run: Run) -> int:
        return (await run.approval("choose", request="which?", answer=int)).answer

    async def mended(run: Run) -> int | str:
        return (await run.approval("choose", request="which?", answer=int | str)).answer  # type: ignore[arg-type]  # a union

    await waits(run, agent)
    answer(run, AnswerType.APPROVE, "three")
    with pytest.raises(RunHalted):
        await ends(run, agent)

    assert await ends(run, mended) == "three"


async def test_an_answer_that_cannot_be_read_can_be_left_out_too(run: RunInMemory) -> None:
    (at,) = await waits(run, plain)
    run.store.put_new(run.keys.answer(at.id), b"garbage", {})

    with pytest.raises(RunHalted, match=f"gate publish, which stands at @publish, does not fit: .*{at.id}"):
        await ends(run, plain)
    skip_it(run)
    await waits(run, plain)
    answer(run)

    assert [(await ends(run, plain)).by, (await ends(run, plain)).by] == ["ann", "ann"]


async def test_a_decision_about_a_halt_that_cannot_be_read_is_none_and_is_named(run: RunInMemory) -> None:
    await waits(run, plain)
    answer(run, AnswerType.DONE)
    with pytest.raises(RunHalted):
        await ends(run, plain)
    halt = gate_of(run)
    run.store.put_new(run.keys.answer(halt.id), b"garbage", {})

    with pytest.raises(RunHalted, match=f"does not fit: .* cannot be read: .*{halt.id}"):
        await ends(run, plain)


async def test_a_store_that_does_not_answer_for_a_while_only_makes_a_gate_late(run: RunInMemory) -> None:
    await waits(run, plain)
    answer(run)

    async def agent(run_: Run) -> str:
        run.store.next_gets_fail(2)
        return (await plain(run_)).by

    assert await ends(run, agent) == "ann"


async def test_an_answer_that_was_left_out_is_not_taken_by_code_that_could(run: RunInMemory) -> None:
    def asking(declared: Any) -> Callable[[Run], Awaitable[Any]]:
        async def agent(run: Run) -> Any:
            return (await run.approval("choose", request="which?", answer=declared)).answer

        return agent

    await waits(run, asking(int))
    answer(run, AnswerType.APPROVE, "three")
    with pytest.raises(RunHalted):
        await ends(run, asking(int))
    skip_it(run)
    await waits(run, asking(int))
    answer(run, AnswerType.APPROVE, 4)

    assert await ends(run, asking(int | str)) == 4


@pytest.mark.req("F3")
@pytest.mark.parametrize(
    ("type_", "more", "why"),
    [
        (AnswerType.EVENT, {}, "it says Event, which is no answer to this"),
        (AnswerType.DONE, {}, "it says Done, which is no answer to this"),
        (AnswerType.APPROVE, {"request_digest": "f" * 64}, "it is about another request"),
        (AnswerType.APPROVE, {"at": "yesterday"}, "its time, 'yesterday', is no time with its zone"),
        (AnswerType.DENY, {"at": "2026-01-01T12:00:00"}, "is no time with its zone"),
    ],
)
async def test_an_answer_that_no_gate_of_this_kind_takes_halts(
    run: RunInMemory, type_: AnswerType, more: dict[str, Any], why: str
) -> None:
    await waits(run, plain)
    answer(run, type_, **more)

    with pytest.raises(RunHalted, match=why):
        await ends(run, plain)


@pytest.mark.parametrize(
    ("before", "given", "now", "why"),
    [
        (Edit, {"rows": 2}, int, "the declared type int names no class"),
        (int, 3, str, "gate @choose: answer: Input should be a valid string, not 3"),
        (int, 3, None, "gate @choose: answer: there is to be none, not 3"),
        (None, None, int, "gate @choose: answer: Input should be a valid integer, not None"),
    ],
)
async def test_an_answer_of_a_type_that_the_code_does_not_declare_any_more_halts(
    run: RunInMemory, before: Any, given: Any, now: Any, why: str
) -> None:
    def asking(declared: Any) -> Callable[[Run], Awaitable[Any]]:
        return lambda run: run.approval("choose", request="which?", answer=declared)

    await waits(run, asking(before))
    answer(run, AnswerType.APPROVE, given)
    await ends(run, asking(before))

    with pytest.raises(RunHalted, match=re.escape(why)) as halted:
        await ends(run, asking(now))
    assert halted.value.reason == "RecordedTypeChanged"


class Unstorable:
    pass


@pytest.mark.parametrize(
    "request_",
    [
        3,
        {"a": [1, None, 2.5]},
        Edit(rows=1),
        {"a": Edit(rows=1), "b": Edit(rows=2)},
        [Edit(rows=1), Row(2), "text"],
        (1, b"x", ANSWERED),
        "x" * 50_000,
    ],
)
async def test_what_people_are_shown_is_recorded_and_its_digest_is_the_gates(
    run: RunInMemory, request_: Any
) -> None:
    async def agent(run: Run) -> None:
        await run.approval("look", request=request_)

    (at,) = await waits(run, agent)
    ((gate,),) = [[event.gate for event in run.events(GateOpened)]]
    assert gate.request is not None
    held = (
        gate.request.inline if not gate.request.blob else await run.journals[-1].raw(gate.request, path="r")
    )

    assert codec.digest(held) == gate.request_digest == at.request_digest


async def test_a_request_that_has_no_lossless_form_is_an_error_that_names_the_part(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.approval("look", request={"a": [Unstorable()]})

    with pytest.raises(NotStorable, match=r"request of approval 'look'\.a\[0\]"):
        await ends(run, agent)
    assert run.events(GateOpened) == []


async def test_gates_of_one_name_are_numbered_apart_from_steps(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[str]:
        await run.step("ask", str, 1)
        return [(await run.approval("ask", request=number)).by for number in range(2)]

    (first,) = await waits(run, agent)
    answer(run, by="ann")
    (second,) = await waits(run, agent)
    answer(run, by="bob")

    assert (first.place, second.place) == ("@ask", "@ask#2")
    assert await ends(run, agent) == ["ann", "bob"]


async def test_gates_of_one_name_that_two_tasks_come_to_at_once_need_keys(run: RunInMemory) -> None:
    async def one(run: Run) -> None:
        await asyncio.sleep(0)
        await run.approval("ask", request=1)

    async def agent(run: Run) -> None:
        first = asyncio.ensure_future(one(run))
        with pytest.raises(KeyNeeded, match="gate 'ask' is come to a second time"):
            await asyncio.gather(one(run))
        first.cancel()

    await ends(run, agent)


NEVER: list[Any] = [0, -1, -0.5, timedelta(0), timedelta(days=-1), math.nan, math.inf, 1e300, timedelta.max]
NO_TIME: list[Any] = [datetime(2026, 1, 1), date(2026, 1, 1), "tomorrow", True]  # noqa: DTZ001  (that is the point)


@pytest.mark.parametrize("given", [*NEVER, *NO_TIME])
@pytest.mark.parametrize(
    "gate",
    [
        lambda run, given: run.approval("a", request=1, expires=given),
        lambda run, given: run.event("a", str, expires=given),
        lambda run, given: run.sleep(given),
    ],
)
async def test_a_time_that_there_is_not_is_refused_at_the_call(
    run: RunInMemory, given: Any, gate: Callable[[Run, Any], Any]
) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(Misuse) as refused:
            gate(run, given)
        assert repr(given) in str(refused.value)

    await ends(run, agent)
    assert run.events(GateOpened) == []


@pytest.mark.parametrize(("name", "key"), [("", None), (3, None), (None, None), ("a", 1.5), ("a", b"k")])
async def test_a_gate_without_a_name_or_with_an_odd_key_is_refused_at_the_call(
    run: RunInMemory, name: Any, key: Any
) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(Misuse, match="gate"):
            await run.approval(name, request=1, key=key)
        with pytest.raises(Misuse, match="gate"):
            await run.event(name, str, key=key)

    await ends(run, agent)


async def test_sleep_takes_a_delay_or_a_time_and_not_both(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        for delay, until in ((None, None), (1, ANSWERED)):
            with pytest.raises(Misuse, match="either"):
                await run.sleep(delay, until=until)
        with pytest.raises(Misuse, match="zone"):
            await run.sleep(until=datetime(2026, 1, 1))  # noqa: DTZ001  (that is the point)

    await ends(run, agent)


async def test_an_answer_of_a_type_that_json_cannot_be_checked_against_is_refused_at_the_call(
    run: RunInMemory,
) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(Misuse, match="Unstorable"):
            await run.approval("a", request=1, answer=Unstorable)
        with pytest.raises(Misuse, match="Unstorable"):
            await run.event("a", Unstorable)

    await ends(run, agent)


@pytest.mark.parametrize("gate", ["approval", "event", "sleep"])
async def test_a_gate_inside_a_step_is_refused(run: RunInMemory, gate: str) -> None:
    async def agent(run: Run) -> None:
        gates: dict[str, Callable[[], Any]] = {
            "approval": lambda: run.approval("a", request=1),
            "event": lambda: run.event("a", str),
            "sleep": lambda: run.sleep(1),
        }

        async def step() -> None:
            with pytest.raises(Misuse, match="inside the step"):
                gates[gate]()

        await run.step("step", step)

    await ends(run, agent)


@pytest.mark.req("F2")
async def test_a_sleep_says_when_it_is_over_and_is_over_when_it_is_told_so(run: RunInMemory) -> None:
    until = ANSWERED + timedelta(days=30)

    async def agent(run: Run) -> datetime:
        await run.sleep(until=until.astimezone())
        return run.now()

    (at,) = await waits(run, agent)
    assert (at.type, at.name, at.until) == (GateType.SLEEP, "sleep", until.isoformat())
    answer(run, AnswerType.DUE, at=until.isoformat(), by="")

    assert [await ends(run, agent), await ends(run, agent)] == [until, until]


async def test_a_delay_counts_from_when_the_run_came_there_first(run: RunInMemory) -> None:
    async def agent(run: Run) -> None:
        await run.sleep(90)

    (at,) = await waits(run, agent)
    (again,) = await waits(run, agent)

    assert datetime.fromisoformat(at.until) - datetime.fromisoformat(at.since) == timedelta(seconds=90)
    assert again == at


async def test_a_time_that_is_over_already_is_told_by_nobody_but_the_clock_of_who_looks_after_the_run(
    run: RunInMemory,
) -> None:
    async def agent(run: Run) -> None:
        await run.sleep(until=datetime(2020, 1, 1, tzinfo=UTC))

    (at,) = await waits(run, agent)

    assert at.until == "2020-01-01T00:00:00+00:00"


async def paid_twice(run: Run) -> list[int]:
    return [await run.event("paid", int), await run.event("paid", int)]


@pytest.mark.req("F2")
async def test_events_are_kept_before_the_run_comes_for_them_and_consumed_once_in_their_order(
    run: RunInMemory,
) -> None:
    assert [send(run, 7), send(run, 8), send(run, 9)] == [1, 2, 3]

    assert [await ends(run, paid_twice), await ends(run, paid_twice)] == [[7, 8], [7, 8]]
    assert [(event.type, event.by) for event in run.events(Decided)] == [(AnswerType.EVENT, "shop")] * 2
    assert run.events(GateOpened) == []


@pytest.mark.req("F2")
async def test_an_event_that_comes_while_the_run_waits_is_for_the_gate_that_is_open(run: RunInMemory) -> None:
    (first,) = await waits(run, paid_twice)
    send(run, 7)
    (second,) = await waits(run, paid_twice)
    send(run, 8)

    assert (first.place, second.place) == ("@paid", "@paid#2")
    assert await ends(run, paid_twice) == [7, 8]


@pytest.mark.req("F2")
async def test_events_of_other_names_and_keys_are_for_other_gates(run: RunInMemory) -> None:
    async def agent(run: Run) -> list[int]:
        return [
            await run.event("paid", int, key="b"),
            await run.event("paid", int),
            await run.event("refunded", int),
            await run.event("paid", int, key="b"),
        ]

    for data, name, key in ((1, "paid", "b"), (2, "paid", None), (3, "refunded", None), (4, "paid", "b")):
        send(run, data, name, key)

    assert await ends(run, agent) == [1, 2, 3, 4]


async def test_an_event_in_a_branch_needs_a_key_by_which_it_is_sent(run: RunInMemory) -> None:
    async def unnamed(run: Run) -> None:
        await run.event("paid", int)

    async def named(run: Run, key: str) -> int:
        return await run.event("paid", int, key=key)

    async def wrong(run_: Run) -> None:
        with pytest.raises(KeyNeeded, match="give it a key, by which it is sent"):
            await run_.parallel([unnamed(run_)])

    async def right(run_: Run) -> list[int]:
        return await run_.parallel([named(run_, "x"), named(run_, "y")])

    await ends(run, wrong)
    send(run, 1, key="y")
    send(run, 2, key="x")
    assert await ends(run, right) == [2, 1]


async def test_one_event_is_waited_for_in_one_branch_and_by_one_gate_at_a_time(run: RunInMemory) -> None:
    async def branch(run: Run) -> int:
        return await run.event("paid", int, key="x")

    async def two_branches(run_: Run) -> None:
        with pytest.raises(Misuse, match="event paid=x is waited for in branch 1:1 and in branch 1:0"):
            await run_.parallel([branch(run_), branch(run_)])

    async def at_once(run_: Run) -> None:
        first = asyncio.ensure_future(run_.event("paid", int))
        await asyncio.sleep(0)
        with pytest.raises(Misuse, match="gate @paid#2 waits for event paid while gate @paid does"):
            await run_.event("paid", int)
        first.cancel()

    send(run, 1, key="x")
    await ends(run, two_branches)
    await ends(run_that_waits(), at_once)


@pytest.mark.req("F2")
async def test_an_event_that_does_not_come_in_time_is_an_error_and_later_ones_are_for_later_gates(
    run: RunInMemory,
) -> None:
    async def agent(run: Run) -> list[Any]:
        found: list[Any] = []
        for _ in range(2):
            try:
                found.append(await run.event("paid", int, expires=60))
            except Expired as late:
                found.append(late.decision.at)
        return found

    (at,) = await waits(run, agent)
    answer(run, AnswerType.EXPIRED, gate=at.id, by="")
    send(run, 7)

    assert [await ends(run, agent), await ends(run, agent)] == [[ANSWERED, 7], [ANSWERED, 7]]


async def test_an_event_whose_data_does_not_fit_can_be_left_out_and_the_next_one_is_taken(
    run: RunInMemory,
) -> None:
    send(run, "seven")
    send(run, 7)
    send(run, 8)
    with pytest.raises(
        RunHalted, match=r"gate paid, which stands at @paid, does not fit: answer: Input should"
    ):
        await ends(run, paid_twice)
    (halted,) = run.events(Halted)
    assert halted.gate is not None
    assert (halted.reason, halted.gate.options) == ("AnswerInvalid", (AnswerType.ACCEPT,))
    skip_it(run)

    assert [await ends(run, paid_twice), await ends(run, paid_twice)] == [[7, 8], [7, 8]]


async def test_an_event_that_the_code_stopped_waiting_for_is_for_the_next_gate(run: RunInMemory) -> None:
    async def agent(run: Run) -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await run.event("paid", int)
        send(run_, 7)
        return await run.event("paid", int)

    run_ = run
    assert await ends(run, agent) == 7


@tool(effect="keyed", version="2", requires_approval=True)
async def pay(_: Call, amount: int, *, to: str = "ann", note: str | None = None) -> str:
    called.append(f"{amount} {to}{note or ''}")
    return f"paid {amount}"


called: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    called.clear()


async def paying(run: Run) -> str:
    return await run.step("pay", pay, 30)


@pytest.mark.req("F3")
async def test_a_tool_that_requires_an_approval_is_called_once_it_has_one_and_once_only(
    run: RunInMemory,
) -> None:
    (at,) = await waits(run, paying)
    (opened,) = [event.gate for event in run.events(GateOpened)]
    assert (at.place, at.name, called) == ("@pay", "pay", [])
    assert opened.request is not None
    assert opened.request.inline == {
        "tool": "pay",
        "version": "2",
        "arguments": {"amount": 30, "to": "ann", "note": None},
    }
    answer(run)

    assert [await ends(run, paying), await ends(run, paying)] == ["paid 30", "paid 30"]
    assert (called, len(run.events(Decided))) == (["30 ann"], 1)


@pytest.mark.req("F3")
async def test_a_call_with_other_arguments_needs_another_approval(run: RunInMemory) -> None:
    async def other(run: Run) -> str:
        return await run.step("pay", pay, 3_000)

    (first,) = await waits(run, paying)
    answer(run)
    (second,) = await waits(run, other)

    assert first.id != second.id
    assert called == []


@pytest.mark.req("F3")
async def test_a_call_that_was_declared_to_stand_no_more_is_approved_anew(run: RunInMemory) -> None:
    (first,) = await waits(run, paying)
    answer(run)
    await ends(run, paying)
    await run.journals[-1].commit(Withdrawn(step="pay", reason="it is not there any more", anew=True))

    (second,) = await waits(run, paying)
    answer(run)

    assert (second.place, second.id != first.id) == ("@pay~1", True)
    assert [await ends(run, paying), await ends(run, paying)] == ["paid 30", "paid 30"]
    assert called == ["30 ann", "30 ann"]


async def test_a_denied_call_is_not_made(run: RunInMemory) -> None:
    await waits(run, paying)
    answer(run, AnswerType.DENY, reason="no money")

    for _ in range(2):
        with pytest.raises(Denied, match="gate pay was denied by ann: no money"):
            await ends(run, paying)
    assert called == []


async def test_a_failed_try_of_an_approved_call_is_not_asked_about_again(run: RunInMemory) -> None:
    tries: list[int] = []

    @tool(effect="keyed", requires_approval=True)
    async def flaky(_: Call, amount: int) -> int:
        tries.append(amount)
        if len(tries) == 1:
            raise OSError("later")
        return amount

    async def agent(run: Run) -> int:
        return await run.step("pay", flaky, 3, retry=Retry(wait=0))

    await waits(run, agent)
    answer(run)

    assert (await ends(run, agent), tries, len(run.events(Decided))) == (3, [3, 3], 1)


@pytest.mark.req("F2", "F3")
async def test_an_approval_nested_in_a_branch_holds_in_a_new_process_and_the_tool_runs_once(
    run: RunInMemory,
) -> None:
    async def assistant(run: Run, name: str) -> str:
        await run.step("plan", str, name)
        return await run.step("pay", pay, len(name))

    async def agent(run: Run) -> list[str]:
        return await run.parallel([assistant(run, "a"), assistant(run, "bb")])

    gates = await waits(run, agent)
    assert [gate.place for gate in gates] == ["1:0/@pay", "1:1/@pay"]
    answer(run, gate=gates[0].id)
    (left,) = await waits(run, agent)
    assert (left.place, called) == ("1:1/@pay", ["1 ann"])
    answer(run)

    assert [await ends(run, agent), await ends(run, agent)] == [["paid 1", "paid 2"]] * 2
    assert called == ["1 ann", "2 ann"]


@pytest.mark.req("F1", "F2", "F3")
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("at", range(1, 12))
async def test_a_process_that_dies_at_any_write_around_a_gate_loses_no_decision_and_doubles_none(
    run: RunInMemory, at: int, *, applied: bool
) -> None:
    async def agent(run: Run) -> list[Any]:
        await run.step("before", str, 1)
        decision = await run.approval("publish", request=1, answer=int)
        paid = await run.step("pay", pay, decision.answer)
        return [paid, await run.event("paid", int)]

    run.store.next_puts(*[None] * (at - 1), Fault.crash(applied=applied), only="/head")
    arrived: Arrived[list[Any]] = Arrived()
    died = 0
    for _ in range(12):
        try:
            arrived = await arrives(run, agent)
        except Crashed:
            died += 1
        if arrived.result:
            break
        for gate in gates_of(run):
            data = {"publish": 5, "pay": None, "paid": 9}[gate.name]
            answer(run, AnswerType.EVENT if gate.name == "paid" else AnswerType.APPROVE, data, gate=gate.id)

    assert arrived.result == ["paid 5", 9]
    assert died == 1
    assert len(run.events(Decided)) == 3
    assert len(run.events(GateOpened)) == 3


@pytest.mark.req("F1")
async def test_a_gate_that_the_code_waits_for_no_more_is_closed_when_the_run_waits_again(
    run: RunInMemory,
) -> None:
    """An answer at it, a time that has come for instance, would let the run go on and come no further."""

    async def code(run: Run) -> str:
        asking = asyncio.ensure_future(run.approval("publish", request="?"))
        sleeping = asyncio.ensure_future(run.sleep(3600))
        await asyncio.wait([asking, sleeping], return_when=asyncio.FIRST_COMPLETED)
        sleeping.cancel()
        return (await run.approval("pay", request=(await asking).by)).by

    assert {gate.name for gate in await waits(run, code)} == {"publish", "sleep"}
    answer(run, gate=gate_of(run, "publish").id)
    assert [gate.name for gate in await waits(run, code)] == ["pay"]
    answer(run)
    assert await ends(run, code) == "ann"
