"""Verified and irreversible calls that raise, are cancelled, or outlive their step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from milepost import Misuse, NotApplied, NotHappened, Permanent, Retry, Run, StepFailed, Unknown, tool
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.records import Halted, Intended, StepCompleted, StepFailure, ToolCalled
from milepost.errors import RunHalted
from tests.support.effects import Died, Outside, Paused, Receipt, proved
from tests.support.loop_time import pass_time
from tests.support.sessions import RunInMemory, wait_until

AT_ONCE = Retry(wait=0)
SEVEN = Receipt(number=7)
TIMEOUT = 60.0

Agent = Callable[[Run], Awaitable[Receipt]]


def time_is_up() -> None:
    pass_time(TIMEOUT)


@pytest.fixture
def paused() -> Paused:
    return Paused()


@pytest.fixture
def run(paused: Paused) -> RunInMemory:
    return RunInMemory(pause=paused)


def as_step(outside: Outside, kind: str, *, attempts: int = 3, timeout: float | None = None) -> Agent:
    async def agent(run: Run) -> Receipt:
        called = getattr(outside, kind)
        result: Receipt = await run.step("it", called, 7, retry=AT_ONCE, attempts=attempts, timeout=timeout)
        return result

    return agent


def in_body(outside: Outside, kind: str, *, attempts: int = 3, timeout: float | None = None) -> Agent:
    async def agent(run: Run) -> Receipt:
        async def body() -> Receipt:
            result: Receipt = await getattr(outside, kind)(7)
            return result

        return await run.step("it", body, retry=AT_ONCE, attempts=attempts, timeout=timeout)

    return agent


PLACES = pytest.mark.parametrize("placed", [as_step, in_body])
KINDS = pytest.mark.parametrize("kind", ["upload", "mail"])


@pytest.mark.req("E3")
@PLACES
async def test_a_verified_call_that_raises_after_its_effect_has_succeeded(
    run: RunInMemory, paused: Paused, placed: Callable[..., Agent]
) -> None:
    outside = Outside(after=[OSError("the answer was lost")])

    assert await run.go_on(placed(outside, "upload")) == SEVEN

    assert (outside.calls("upload"), outside.calls("ask")) == (1, 1)
    assert paused.seconds == [60.0]
    assert run.events(StepFailure) == []
    (called,) = run.events(ToolCalled)
    assert (called.outcome, called.error, called.external_id) == ("verified", None, "object-7")


@pytest.mark.req("E3")
@PLACES
async def test_a_verified_call_that_raises_before_its_effect_fails_the_try(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(before=[OSError("no route")])

    assert await run.go_on(placed(outside, "upload")) == SEVEN

    assert [name for name, _, _ in outside.log] == ["upload", "ask", "upload"]
    (failure,) = run.events(StepFailure)
    assert (failure.error.message, failure.final) == ("no route", False)
    first, second = run.events(ToolCalled)
    assert first.error is not None
    assert (first.error.message, first.outcome, second.error) == ("no route", "verified", None)


@pytest.mark.req("E3", "G4")
@PLACES
async def test_a_verified_call_that_fails_for_good_is_not_tried_again(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(before=[Permanent("no such account")])
    with pytest.raises(StepFailed, match="no such account") as failed:
        await run.go_on(placed(outside, "upload"))

    assert (failed.value.of(Permanent), failed.value.attempts) == (True, 1)
    assert [name for name, _, _ in outside.log] == ["upload", "ask"]


@pytest.mark.req("E3")
@PLACES
async def test_a_verified_call_that_raises_and_cannot_be_verified_halts_the_run(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(after=[OSError("reset")], says=[Unknown("two match")])
    with pytest.raises(RunHalted, match=r"it raised builtins\.OSError: reset; the tool says: two match"):
        await run.go_on(placed(outside, "upload"))

    (called,) = run.events(ToolCalled)
    assert (called.unconfirmed, called.error is not None) == (True, True)
    run.decide(AnswerType.DONE, {"number": 7})
    assert await run.go_on(placed(outside, "upload")) == SEVEN
    assert outside.calls("upload") == 1


@pytest.mark.req("E3")
@PLACES
@pytest.mark.parametrize("error", [OSError("reset"), Permanent("refused")])
async def test_what_an_irreversible_call_raises_is_an_unconfirmed_outcome(
    run: RunInMemory, placed: Callable[..., Agent], error: Exception
) -> None:
    outside = Outside(after=[error])
    for _ in range(2):
        with pytest.raises(RunHalted, match="may have happened or not"):
            await run.go_on(placed(outside, "mail"))

    assert outside.calls("mail") == 1
    (called,) = run.events(ToolCalled)
    assert called.error is not None
    assert (called.unconfirmed, called.error.message) == (True, str(error))
    assert [each.reason for each in run.events(Halted)] == ["OutcomeUnknown"] * 2
    assert run.events(StepFailure) == []
    run.decide(AnswerType.DONE, {"number": 7})
    assert await run.go_on(placed(outside, "mail")) == SEVEN
    assert outside.calls("mail") == 1


@pytest.mark.req("E3")
@PLACES
@KINDS
async def test_a_call_that_says_that_it_was_not_applied_is_tried_again(
    run: RunInMemory, placed: Callable[..., Agent], kind: str
) -> None:
    outside = Outside(before=[NotApplied("the server was busy")])

    assert await run.go_on(placed(outside, kind)) == SEVEN

    assert [name for name, _, _ in outside.log] == [kind, kind]
    first, second = run.events(ToolCalled)
    assert first.error is not None
    assert (first.error.message, first.unconfirmed, second.error) == ("the server was busy", False, None)
    assert [each.error.message for each in run.events(StepFailure)] == ["the server was busy"]


@pytest.mark.req("E3", "G4")
@PLACES
@KINDS
async def test_a_call_that_is_never_applied_fails_its_step_in_the_end(
    run: RunInMemory, placed: Callable[..., Agent], kind: str
) -> None:
    outside = Outside(before=[NotApplied("busy")] * 3)
    with pytest.raises(StepFailed) as failed:
        await run.go_on(placed(outside, kind))

    assert (failed.value.of(NotApplied), failed.value.attempts) == (True, 3)
    assert run.state.intents.get("it", {}) == {}


@pytest.mark.req("E3")
@PLACES
async def test_a_timeout_goes_on_once_it_is_known_what_the_call_came_to(
    run: RunInMemory, paused: Paused, placed: Callable[..., Agent]
) -> None:
    outside = Outside(hang="after", hangs=time_is_up)
    assert await run.go_on(placed(outside, "upload", timeout=TIMEOUT)) == SEVEN

    # The first try has timed out, the second is given what the first had come to.
    (failure,) = run.events(StepFailure)
    assert failure.error.kind == "builtins.TimeoutError"
    assert (outside.calls("upload"), outside.calls("ask"), paused.seconds) == (1, 1, [60.0])
    assert [each.outcome for each in run.events(ToolCalled)] == ["verified"]


@pytest.mark.req("E3")
@PLACES
async def test_a_call_that_was_cut_off_before_its_effect_is_made_again(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(hang="before", hangs=time_is_up)
    assert await run.go_on(placed(outside, "upload", timeout=TIMEOUT)) == SEVEN

    assert [name for name, _, _ in outside.log] == ["upload", "ask", "upload"]


@pytest.mark.req("E3")
@PLACES
@pytest.mark.parametrize("first", ["raises", "dies"])
async def test_finding_out_what_a_call_came_to_takes_no_time_of_the_steps(
    placed: Callable[..., Agent], first: str
) -> None:
    async def long(_: float) -> None:
        pass_time(2 * TIMEOUT)

    outside, run = Outside(after=[OSError("reset") if first == "raises" else Died()]), RunInMemory(pause=long)
    agent = placed(outside, "upload", attempts=1, timeout=TIMEOUT)
    if first == "dies":
        with pytest.raises(Died):
            await run.go_on(agent)

    assert await run.go_on(agent, end=proved(1) if first == "dies" else None) == SEVEN
    assert (outside.calls("upload"), run.events(StepFailure)) == (1, [])


@pytest.mark.req("E3")
async def test_the_time_of_a_step_runs_again_once_its_calls_are_settled() -> None:
    async def long(_: float) -> None:
        pass_time(2 * TIMEOUT)

    outside, run = Outside(after=[OSError("reset"), OSError("reset")]), RunInMemory(pause=long)

    async def agent(run: Run) -> None:
        async def body() -> None:
            await asyncio.gather(outside.upload(7), outside.upload(8))
            time_is_up()
            await asyncio.sleep(600)

        await run.step("it", body, attempts=1, timeout=TIMEOUT)

    with pytest.raises(StepFailed, match="no result within the step's timeout"):
        await run.go_on(agent)
    assert [each.outcome for each in run.events(ToolCalled)] == ["verified", "verified"]


@pytest.mark.req("E3")
@PLACES
async def test_an_irreversible_call_that_is_cut_off_by_a_timeout_halts_the_run(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside(hang="after", hangs=time_is_up)
    with pytest.raises(RunHalted, match="CancelledError"):
        await run.go_on(placed(outside, "mail", timeout=TIMEOUT))
    with pytest.raises(RunHalted):
        await run.go_on(placed(outside, "mail"))

    assert (outside.calls("mail"), run.events(StepFailure)) == (1, [])


@pytest.mark.req("E3")
@PLACES
async def test_a_step_that_the_agent_stops_is_stopped_once_its_call_is_settled(
    run: RunInMemory, placed: Callable[..., Agent]
) -> None:
    outside = Outside()
    outside.hang = "after"
    caught: list[str] = []

    async def agent(run: Run) -> str:
        going = asyncio.create_task(_awaited(placed(outside, "upload")(run)))
        await asyncio.to_thread(wait_until, lambda: outside.applied)
        going.cancel()
        await asyncio.sleep(0)
        going.cancel()
        try:
            await going
        except asyncio.CancelledError:
            caught.append("stopped")
        return "went on"

    assert await run.go_on(agent) == "went on"

    assert caught == ["stopped"]
    (called,), (failure,) = run.events(ToolCalled), run.events(StepFailure)
    assert (called.outcome, called.error, failure.cancelled) == ("verified", None, True)


async def _awaited(result: Awaitable[Receipt]) -> Receipt:
    return await result


@pytest.mark.req("E3")
async def test_a_call_that_is_cancelled_before_it_is_made_is_not_open(run: RunInMemory) -> None:
    outside = Outside()

    async def agent(run: Run) -> str:
        async def body() -> str:
            task = asyncio.create_task(outside.mail(7))
            # It has handed its intent over, and waits for the record.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return "cancelled"
            return "made"

        return await run.step("it", body)

    assert await run.go_on(agent) == "cancelled"
    assert (outside.log, len(run.events(Intended))) == ([], 1)
    (called,) = run.events(ToolCalled)
    assert called.error is not None
    assert called.error.kind == "asyncio.exceptions.CancelledError"


@pytest.mark.req("E3")
async def test_a_step_waits_for_the_calls_that_it_did_not_wait_for(run: RunInMemory) -> None:
    outside = Outside()
    outside.hang = "moment"
    started: list[asyncio.Task[Receipt]] = []

    async def agent(run: Run) -> str:
        async def body() -> str:
            started.append(asyncio.create_task(outside.upload(7)))
            await asyncio.sleep(0)
            return "returned"

        return await run.step("it", body)

    assert await run.go_on(agent) == "returned"

    kinds = [type(event) for event in (*run.events(ToolCalled), *run.events(StepCompleted))]
    assert kinds == [ToolCalled, StepCompleted]
    assert started[0].result() == SEVEN


@KINDS
async def test_a_body_that_catches_what_a_call_raises_goes_on(run: RunInMemory, kind: str) -> None:
    outside = Outside(before=[NotApplied("busy")])

    async def agent(run: Run) -> Receipt:
        async def body() -> Receipt:
            try:
                return await (outside.upload if kind == "upload" else outside.mail)(6)
            except NotApplied:
                return await (outside.upload if kind == "upload" else outside.mail)(7)

        return await run.step("it", body)

    assert await run.go_on(agent) == SEVEN
    assert [key for _, key, _ in outside.log] == [f"{'a' * 20}/it", f"{'a' * 20}/it/2"]


@pytest.mark.parametrize("effect", ["none", "irreversible"])
async def test_a_tool_that_needs_an_approval_is_refused_where_it_is_no_step(
    run: RunInMemory, effect: str
) -> None:
    made: list[int] = []

    @tool(effect=effect, requires_approval=True)  # type: ignore[call-overload, untyped-decorator]  # one of two
    async def act(number: int) -> None:
        made.append(number)

    async def agent(run: Run) -> None:
        async def body() -> None:
            await act(7)

        await run.step("it", body)

    async def outside_of_a_step(_: Run) -> None:
        await act(7)

    with pytest.raises(StepFailed, match="requires an approval") as failed:
        await run.go_on(agent)
    with pytest.raises(Misuse, match="requires an approval"):
        await run.go_on(outside_of_a_step)
    assert (failed.value.of(Misuse), made) == (True, [])


def test_what_a_tool_says_of_a_call_that_is_not_there_is_a_value() -> None:
    assert NotHappened() == NotHappened()


@tool(effect="irreversible")
async def launch(what: str) -> str:
    raise OSError(f"{what} was lost from sight")


@pytest.mark.req("B2")
async def test_a_step_of_which_two_calls_halt_the_run_leaves_other_steps_their_time(run: RunInMemory) -> None:
    async def both() -> None:
        await asyncio.gather(launch("a"), launch("b"))

    async def slow() -> str:
        # Until both calls have looked twice for a person's word, and for longer than a write takes.
        while sum("/inbox/" in key for key in run.store.gets) < 4:  # noqa: ASYNC110  (of another thread's)
            await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        return "done"

    async def agent(run: Run) -> None:
        await run.parallel([run.step("slow", slow, key=1), run.step("both", both, key=2, attempts=1)])

    with pytest.raises(RunHalted, match="may have happened or not"):
        await run.go_on(agent)
    assert list(run.state.completed) == ["slow=1"]
