"""Intents: on record before a call that must not be repeated blindly, and what becomes of an open one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from milepost import Call, Happened, NotHappened, NotStorable, Retry, Run, Unknown, tool
from milepost.checkpoint import codec
from milepost.checkpoint.gates import AnswerType, Decided
from milepost.checkpoint.records import (
    Halted,
    Input,
    Intended,
    StepCompleted,
    StepFailure,
    ToolCalled,
    Value,
)
from milepost.errors import RunHalted
from tests.support.effects import Died, Outside, Paused, Receipt, proved, unproved
from tests.support.sessions import RunInMemory, records_of

AT_ONCE = Retry(wait=0)
RUN_ID = "a" * 20
SEVEN = Receipt(number=7)
STORED = Value(inline=codec.encode(SEVEN, Receipt), size=32)


@pytest.fixture
def paused() -> Paused:
    return Paused()


@pytest.fixture
def run(paused: Paused) -> RunInMemory:
    return RunInMemory(pause=paused)


Agent = Callable[[Run], Awaitable[Receipt]]


def as_step(outside: Outside, kind: str) -> Agent:
    """Return an agent whose step is the tool itself."""

    async def agent(run: Run) -> Receipt:
        result: Receipt = await run.step("it", getattr(outside, kind), 7)
        return result

    return agent


def in_body(outside: Outside, kind: str) -> Agent:
    """Return an agent whose step calls the tool in its body."""

    async def agent(run: Run) -> Receipt:
        async def body() -> Receipt:
            result: Receipt = await getattr(outside, kind)(7)
            return result

        return await run.step("it", body)

    return agent


PLACES = pytest.mark.parametrize("placed", [as_step, in_body])
KINDS = pytest.mark.parametrize("kind", ["upload", "mail"])


def kinds_of(run: RunInMemory) -> list[list[str]]:
    """Return the kinds of the events of each record after the claim."""
    return [[str(event.kind) for event in each.events] for each in records_of(run.store, run.keys)][2:]


@pytest.mark.req("B2", "A2")
@KINDS
async def test_the_intent_is_stored_before_the_call_and_its_completion_with_the_step(
    run: RunInMemory, kind: str
) -> None:
    outside = Outside()
    seen: list[Intended] = []
    outside.looking = lambda: seen.extend(run.events(Intended))

    assert await run.go_on(as_step(outside, kind)) == SEVEN

    assert [each.model_dump(exclude={"arguments", "started_at"}) for each in seen] == [
        {
            "kind": "intent",
            "step": "it",
            "call": 1,
            "tool": kind,
            "version": {"upload": "3", "mail": "1"}[kind],
            "effect": {"upload": "verified", "mail": "irreversible"}[kind],
            "key": f"{RUN_ID}/it",
            "inputs": (seen[0].inputs[0].model_dump(),),
            "named": {},
            "attempt": 1,
            "settles_within_s": {"upload": 60.0, "mail": 0.0}[kind],
        }
    ]
    assert seen[0].inputs == (Input(digest=seen[0].inputs[0].digest, inline=Value(inline=7, size=1)),)
    assert kinds_of(run) == [["intent"], ["tool_called", "step_completed"]]
    (called,) = run.events(ToolCalled)
    assert (called.effect, called.arguments, called.outcome) == (
        seen[0].effect,
        seen[0].arguments,
        "answered",
    )


@pytest.mark.req("B2")
@KINDS
async def test_in_a_steps_body_the_completion_is_a_record_of_its_own(run: RunInMemory, kind: str) -> None:
    outside = Outside()

    assert await run.go_on(in_body(outside, kind)) == SEVEN

    assert kinds_of(run) == [["intent"], ["tool_called"], ["step_completed"]]
    assert run.events(ToolCalled)[0].result == STORED


@pytest.mark.req("B2", "B3")
@KINDS
async def test_what_was_only_handed_over_is_stored_in_the_same_record_as_the_intent(kind: str) -> None:
    outside, run = Outside(), RunInMemory(every_steps=5)

    async def agent(run: Run) -> Receipt:
        for _ in range(3):
            await run.step("think", lambda: 7)
        return await as_step(outside, kind)(run)

    await run.go_on(agent)

    assert kinds_of(run) == [["step_completed"] * 3 + ["intent"]]
    assert outside.calls(kind) == 1


@pytest.mark.req("B1", "B2")
@KINDS
@pytest.mark.parametrize("granularity", ["tool-call", "step", "phase"])
async def test_an_intent_is_stored_at_any_granularity(kind: str, granularity: str) -> None:
    outside, run = Outside(), RunInMemory(granularity=granularity)
    seen: list[Intended] = []
    outside.looking = lambda: seen.extend(run.events(Intended))

    async def agent(run: Run) -> Receipt:
        async with run.phase("all"):
            return await as_step(outside, kind)(run)

    await run.go_on(agent)

    assert len(seen) == 1


@pytest.mark.req("E3", "F-A2")
@PLACES
async def test_a_call_that_never_reached_the_world_is_made_once_that_is_verified(
    run: RunInMemory, paused: Paused, placed: Callable[..., Agent]
) -> None:
    outside = Outside(before=[Died()])
    with pytest.raises(Died):
        await run.go_on(placed(outside, "upload"))

    assert await run.go_on(placed(outside, "upload"), end=proved(1)) == SEVEN

    key = f"{RUN_ID}/it"
    assert outside.log == [("upload", key, 7), ("ask", key, 7), ("upload", key, 7)]
    assert paused.seconds == [pytest.approx(60, abs=10)]
    first, second = run.events(ToolCalled)
    assert first.error is not None
    assert (first.error.kind, first.outcome) == ("milepost.errors.NotApplied", "verified")
    assert (second.error, second.outcome) == (None, "answered")
    assert [each.attempt for each in run.events(Intended)] == [1, 2]


@pytest.mark.req("E3", "F-A3")
@PLACES
async def test_a_call_that_reached_the_world_is_recorded_once_that_is_verified(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(placed(outside, "upload"))

    live = await run.go_on(placed(outside, "upload"), end=proved(1))
    again = await run.go_on(placed(outside, "upload"))

    assert live == again == SEVEN
    assert (outside.calls("upload"), outside.calls("ask")) == (1, 1)
    (called,) = run.events(ToolCalled)
    assert (called.outcome, called.evidence, called.error) == ("verified", {"etag": "e7"}, None)
    assert run.state.intents == {}
    assert len(run.events(Intended)) == 1


@pytest.mark.req("E3")
async def test_the_question_waits_only_as_long_as_the_process_has_not_lived_yet(
    run: RunInMemory, paused: Paused
) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(as_step(outside, "upload"))

    async def late(task: Run) -> Receipt:
        journal = run.journals[-1]
        journal.began -= 45
        return await as_step(outside, "upload")(task)

    await run.go_on(late, end=proved(1))

    assert paused.seconds == [pytest.approx(15, abs=5)]


@pytest.mark.req("E3")
@pytest.mark.parametrize(("today", "waited"), [(5.0, 60), (120.0, 120)], ids=["shorter", "longer"])
async def test_the_question_waits_for_the_longer_of_what_was_and_what_is_declared(
    run: RunInMemory, paused: Paused, today: float, waited: float
) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(as_step(outside, "upload"))
    outside.upload.settles_within = today

    await run.go_on(as_step(outside, "upload"), end=proved(1))

    assert paused.seconds == [pytest.approx(waited, abs=10)]


@pytest.mark.req("E3")
async def test_a_call_of_a_process_that_may_be_alive_is_left_to_a_person(
    run: RunInMemory, paused: Paused
) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(as_step(outside, "upload"))
    with pytest.raises(RunHalted, match="executor 1, which made it, cannot be proved to have ended"):
        await run.go_on(as_step(outside, "upload"), end=unproved(1))

    assert (outside.calls("ask"), paused.seconds) == (0, [])
    (halted,) = run.events(Halted)
    assert halted.gate is not None
    assert (halted.reason, halted.gate.options) == (
        "OutcomeUnknown",
        (AnswerType.DONE, AnswerType.NOT_DONE),
    )
    assert halted.gate.request is not None
    assert halted.gate.request.inline == {
        "step": "it",
        "call": 1,
        "tool": "upload",
        "version": "3",
        "key": f"{RUN_ID}/it",
        "executor": 1,
        "started": run.events(Intended)[0].started_at,
        "arguments": [7],
        "named": {},
    }


@pytest.mark.req("E3")
async def test_a_later_proof_that_its_process_has_ended_lets_the_tool_be_asked(run: RunInMemory) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(as_step(outside, "upload"))
    with pytest.raises(RunHalted):
        await run.go_on(as_step(outside, "upload"), end=unproved(1))

    assert await run.go_on(as_step(outside, "upload"), end=proved(1)) == SEVEN
    assert (outside.calls("upload"), outside.calls("ask")) == (1, 1)


@pytest.mark.req("E3")
@PLACES
@pytest.mark.parametrize("says", [Unknown("two objects match"), "gibberish", None])
async def test_a_tool_that_cannot_tell_leaves_it_to_a_person(
    run: RunInMemory, placed: Callable[..., Agent], says: object
) -> None:
    outside = Outside(after=[Died()], says=[says])
    with pytest.raises(Died):
        await run.go_on(placed(outside, "upload"))

    if says is None:
        assert await run.go_on(placed(outside, "upload"), end=proved(1)) == SEVEN
        return
    with pytest.raises(RunHalted, match=r"two objects match|'gibberish'"):
        await run.go_on(placed(outside, "upload"), end=proved(1))
    run.decide(AnswerType.DONE, {"number": 7})

    # What the person said stands: the tool is not asked once more.
    assert await run.go_on(placed(outside, "upload")) == SEVEN
    assert (outside.calls("upload"), outside.calls("ask")) == (1, 1)
    (called,) = run.events(ToolCalled)
    assert (called.outcome, called.result) == ("decided", STORED)
    assert [(each.type, each.by) for each in run.events(Decided)] == [(AnswerType.DONE, "kim")]


@pytest.mark.req("E3")
async def test_a_question_that_fails_is_asked_again_and_then_left_to_a_person(
    run: RunInMemory, paused: Paused
) -> None:
    outside = Outside(after=[Died()], says=[OSError("no route")] * 4)
    with pytest.raises(Died):
        await run.go_on(as_step(outside, "upload"))
    with pytest.raises(RunHalted, match=r"asking the tool raised builtins\.OSError: no route"):
        await run.go_on(as_step(outside, "upload"), end=proved(1))

    assert paused.seconds[1:] == [1.0, 5.0]
    assert outside.calls("ask") == 3
    assert await run.go_on(as_step(outside, "upload"), end=proved(2)) == SEVEN
    assert outside.calls("upload") == 1


@pytest.mark.req("E3", "F-A2", "F-A3")
@PLACES
@pytest.mark.parametrize("died", ["before", "after"])
async def test_an_irreversible_call_that_was_cut_off_is_never_made_again_by_itself(
    run: RunInMemory, placed: Callable[..., Agent], died: str
) -> None:
    outside = Outside(before=[Died() if died == "before" else None], after=[Died()])
    with pytest.raises(Died):
        await run.go_on(placed(outside, "mail"))
    for attempt in (1, 2):
        with pytest.raises(RunHalted, match="nobody has seen how it ended"):
            await run.go_on(placed(outside, "mail"), end=proved(attempt))

    assert outside.calls("mail") == 1
    assert [each.reason for each in run.events(Halted)] == ["OutcomeUnknown"] * 2


@pytest.mark.req("E3")
@PLACES
async def test_a_person_who_says_that_it_happened_ends_it(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(placed(outside, "mail"))
    with pytest.raises(RunHalted):
        await run.go_on(placed(outside, "mail"), end=proved(1))
    run.decide(AnswerType.DONE, {"number": 7})

    live = await run.go_on(placed(outside, "mail"))
    again = await run.go_on(placed(outside, "mail"))

    assert live == again == SEVEN
    assert outside.calls("mail") == 1
    assert run.events(ToolCalled)[-1].outcome == "decided"


@pytest.mark.req("E3")
@PLACES
async def test_a_person_who_says_that_it_did_not_happen_has_it_made_once_more(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(before=[Died(), Died()])
    with pytest.raises(Died):
        await run.go_on(placed(outside, "mail"))
    with pytest.raises(RunHalted):
        await run.go_on(placed(outside, "mail"))
    run.decide(AnswerType.NOT_DONE)
    with pytest.raises(Died):
        await run.go_on(placed(outside, "mail"))
    # The decision was about the first call, and says nothing of the second.
    with pytest.raises(RunHalted):
        await run.go_on(placed(outside, "mail"))

    assert outside.calls("mail") == 2
    run.decide(AnswerType.NOT_DONE)
    assert await run.go_on(placed(outside, "mail")) == SEVEN
    assert outside.calls("mail") == 3


@pytest.mark.req("E3")
async def test_an_answer_that_is_no_result_of_the_tool_is_asked_for_again(run: RunInMemory) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(as_step(outside, "mail"))
    with pytest.raises(RunHalted):
        await run.go_on(as_step(outside, "mail"))
    gate = run.decide(AnswerType.DONE, {"number": "seven"})
    assert gate.answer_schema["required"] == ["number"]
    with pytest.raises(RunHalted, match=r"answer\.number"):
        await run.go_on(as_step(outside, "mail"))

    assert run.events(Halted)[-1].reason == "AnswerInvalid"
    run.decide(AnswerType.DONE, {"number": 8})
    assert await run.go_on(as_step(outside, "mail")) == Receipt(number=8)


@pytest.mark.req("E3")
async def test_a_tool_without_a_result_needs_none_from_a_person(run: RunInMemory) -> None:
    died = [Died()]

    @tool(effect="irreversible")
    async def ring() -> None:
        if died:
            raise died.pop()

    async def agent(run: Run) -> Any:
        return await run.step("ring", ring)

    with pytest.raises(Died):
        await run.go_on(agent)
    with pytest.raises(RunHalted):
        await run.go_on(agent)
    assert run.decide(AnswerType.DONE).answer_schema is None

    assert await run.go_on(agent) is None


@pytest.mark.req("E3", "A1")
@pytest.mark.parametrize("kind", ["upload", "mail"])
async def test_pods_that_use_up_the_attempts_do_not_hide_an_unknown_outcome(
    kind: str, paused: Paused
) -> None:
    outside, run = Outside(after=[Died()]), RunInMemory(step_attempts=1, pause=paused)
    with pytest.raises(Died):
        await run.go_on(as_step(outside, kind))
    crashed = proved(1).model_copy(update={"fault": "agent", "cause": "Crashed"})

    if kind == "mail":
        with pytest.raises(RunHalted):
            await run.go_on(as_step(outside, kind), end=crashed)
    else:
        assert await run.go_on(as_step(outside, kind), end=crashed) == SEVEN
    assert run.events(StepFailure) == []
    assert outside.calls(kind) == 1


@pytest.mark.req("E3")
async def test_a_step_does_not_end_while_a_call_that_it_does_not_come_to_is_open(run: RunInMemory) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(in_body(outside, "mail"))

    async def other(run: Run) -> str:
        async def body() -> str:
            return "without it"

        return await run.step("it", body)

    async def failing(run: Run) -> str:
        async def body() -> str:
            raise OSError("before it")

        return await run.step("it", body, attempts=1)

    with pytest.raises(RunHalted, match="does not come to it any more"):
        await run.go_on(other)
    with pytest.raises(RunHalted, match="does not come to it any more"):
        await run.go_on(failing)
    assert (run.events(StepCompleted), run.events(StepFailure)) == ([], [])
    run.decide(AnswerType.DONE, {"number": 7})

    assert await run.go_on(other) == "without it"


@pytest.mark.req("E3")
@KINDS
async def test_an_open_call_whose_arguments_are_others_today_is_left_to_a_person(
    run: RunInMemory, kind: str
) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(as_step(outside, kind))

    async def other(run: Run) -> Receipt:
        result: Receipt = await run.step("it", getattr(outside, kind), 8)
        return result

    with pytest.raises(RunHalted):
        await run.go_on(other, end=proved(1))

    assert run.events(Halted)[-1].reason == "EffectDiffers"
    run.decide(AnswerType.NOT_DONE)
    assert await run.go_on(other) == Receipt(number=8)
    assert [each for each in outside.log if each[0] != "ask"] == [
        (kind, f"{RUN_ID}/it", 7),
        (kind, f"{RUN_ID}/it", 8),
    ]


async def test_a_tool_with_some_of_its_arguments_is_verified_with_all_of_them(run: RunInMemory) -> None:
    outside = Outside(after=[Died()])

    async def agent(run: Run) -> Receipt:
        return await run.step("it", partial(outside.upload, draft=True), 7)

    with pytest.raises(Died):
        await run.go_on(agent)

    assert await run.go_on(agent, end=proved(1)) == SEVEN
    assert outside.calls("upload") == 1
    assert set(run.events(Intended)[0].named) == {"draft"}


async def test_arguments_from_a_model_are_verified_and_recorded_by_their_names(run: RunInMemory) -> None:
    outside = Outside(after=[Died()])

    async def agent(run: Run) -> Receipt:
        return await run.step("it", outside.upload.from_json({"number": 7}))

    with pytest.raises(Died):
        await run.go_on(agent)

    assert await run.go_on(agent, end=proved(1)) == SEVEN
    assert (outside.calls("upload"), outside.calls("ask")) == (1, 1)
    assert run.events(Intended)[0].named["number"].inline == Value(inline=7, size=1)
    assert run.step("it").inputs[0].inline == Value(inline={"number": 7}, size=12)


@pytest.mark.req("E3")
async def test_a_verified_effect_is_recorded_even_if_its_result_cannot_be(run: RunInMemory) -> None:
    made: list[str] = []

    async def was_made(_: Call) -> Happened[Any] | NotHappened:
        return NotHappened()

    @tool(effect="verified", verify=was_made, settles_within=0)
    async def make(call: Call) -> Any:
        made.append(call.key)
        return object()

    caught: list[str] = []

    async def agent(run: Run) -> str:
        async def body() -> str:
            try:
                await make()
            except NotStorable as error:
                caught.append(str(error))
            if len(caught) == 1:
                raise OSError("once more")
            return "without its result"

        return await run.step("it", body, retry=AT_ONCE)

    assert await run.go_on(agent) == "without its result"

    assert len(made) == 1
    assert "had one that could not be stored" in caught[1]
    (called,) = run.events(ToolCalled)
    assert (called.error, called.result) == (None, None)


@pytest.mark.req("E3")
@KINDS
async def test_an_effect_is_not_repeated_where_the_step_fails_after_it(run: RunInMemory, kind: str) -> None:
    outside = Outside()
    said: list[Receipt] = []

    def summary(receipt: Receipt) -> str:
        said.append(receipt)
        if len(said) == 1:
            raise OSError("no words")
        return "sent"

    async def agent(run: Run) -> Receipt:
        result: Receipt = await run.step("it", getattr(outside, kind), 7, summary=summary, retry=AT_ONCE)
        return result

    await run.go_on(agent)

    assert outside.calls(kind) == 1
    assert len(run.events(StepFailure)) == 1
