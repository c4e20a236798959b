"""Recorded calls: what stands for ever, what a withdrawal makes anew, and a tool that is another today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milepost import Call, Misuse, NotHappened, PriorCall, Retry, Run, StepFailed, Try, this_try, tool
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.records import Halted, Resumed, StepFailure, ToolCalled, Withdrawn
from milepost.errors import RunHalted
from tests.support.effects import Died, Outside, Paused, Receipt, proved
from tests.support.sessions import RunInMemory

AT_ONCE = Retry(wait=0)
RUN_ID = "a" * 20
SEVEN = Receipt(number=7)
EFFECTS = ("repeatable", "keyed", "verified", "irreversible")


@pytest.fixture
def run() -> RunInMemory:
    return RunInMemory(pause=Paused())


def sending(outside: Outside, number: int = 7, kind: str = "mail") -> Callable[[Run], Any]:
    async def agent(run: Run) -> Receipt:
        result: Receipt = await run.step("send", getattr(outside, kind), number)
        return result

    return agent


def sending_in_a_body(outside: Outside, number: int = 7, kind: str = "mail") -> Callable[[Run], Any]:
    async def agent(run: Run) -> Receipt:
        async def body(number: int) -> Receipt:
            result: Receipt = await getattr(outside, kind)(number)
            return result

        return await run.step("send", body, number)

    return agent


PLACES = pytest.mark.parametrize("placed", [sending, sending_in_a_body])


async def withdraw(run: RunInMemory) -> None:
    async def code(_: Run) -> None:
        await run.journals[-1].commit(Withdrawn(step="send", reason="not valid any more", anew=True))

    await run.go_on(code)


async def restart(run: RunInMemory) -> None:
    async def code(_: Run) -> None:
        await run.journals[-1].commit(Resumed(strategy="RestartWithContext"))

    await run.go_on(code)


@pytest.mark.req("E1", "E2", "D5")
@PLACES
@pytest.mark.parametrize("anew", [withdraw, restart])
async def test_what_is_declared_to_stand_no_more_is_done_again_under_another_key(
    run: RunInMemory, placed: Callable[..., Any], anew: Callable[[RunInMemory], Any]
) -> None:
    outside = Outside()
    await run.go_on(placed(outside, 7, "upload"))
    await anew(run)
    number = 7 if anew is withdraw else 8

    assert await run.go_on(placed(outside, number, "upload")) == Receipt(number=number)

    assert outside.log == [("upload", f"{RUN_ID}/send", 7), ("upload", f"{RUN_ID}/send~1", number)]


@pytest.mark.req("E2", "E3", "D5", "D6")
@PLACES
@pytest.mark.parametrize("anew", [withdraw, restart])
async def test_what_an_irreversible_tool_did_stands_whatever_becomes_of_its_step(
    run: RunInMemory, placed: Callable[..., Any], anew: Callable[[RunInMemory], Any]
) -> None:
    outside = Outside()
    await run.go_on(placed(outside))
    await anew(run)

    # Another step's function would not be adopted: its own inputs are others.
    async def other_inputs(run: Run) -> Receipt:
        async def body(_: str) -> Receipt:
            return await outside.mail(7)

        return await run.step("send", body, "something else")

    assert await run.go_on(other_inputs if anew is restart else placed(outside)) == SEVEN
    assert outside.calls("mail") == 1


@pytest.mark.req("E2", "D6")
@PLACES
async def test_an_irreversible_call_with_other_arguments_in_its_place_is_left_to_a_person(
    run: RunInMemory, placed: Callable[..., Any]
) -> None:
    outside = Outside()
    await run.go_on(placed(outside))
    await restart(run)
    changed = placed(outside, 8)
    for _ in range(2):
        with pytest.raises(RunHalted, match="made once"):
            await run.go_on(changed)
    assert [each.reason for each in run.events(Halted)] == ["EffectDiffers"] * 2
    run.decide(AnswerType.ACCEPT)

    assert await run.go_on(changed) == SEVEN
    assert outside.calls("mail") == 1


@pytest.mark.req("E3")
async def test_an_open_irreversible_call_stays_open_when_the_run_begins_anew(run: RunInMemory) -> None:
    outside = Outside(after=[Died()])
    with pytest.raises(Died):
        await run.go_on(sending(outside))
    await restart(run)
    with pytest.raises(RunHalted, match="may have happened or not"):
        await run.go_on(sending(outside), end=proved(1))

    assert outside.calls("mail") == 1


def a_tool(effect: str, version: str, made: list[str], *, name: str = "act", dies: bool = False) -> Any:
    """Return the tool `act` as an image has it."""

    async def was_made(call: Call, number: int) -> NotHappened:
        assert (call.key, number) == (f"{RUN_ID}/it", 7)
        return NotHappened()

    async def act(call: Call, number: int) -> str:
        made.append(version)
        if dies:
            raise Died
        return f"{version} {call.attempt} {number}"

    act.__name__ = name
    asked: dict[str, Any] = {"verify": was_made, "settles_within": 0} if effect == "verified" else {}
    declare: Any = tool
    return declare(effect=effect, version=version, **asked)(act)


def after_a_call(called: Any, *, fails: bool) -> Callable[[Run], Any]:
    async def agent(run: Run) -> str:
        async def body() -> str:
            result: str = await called(7)
            if fails:
                raise Died
            return result

        return await run.step("it", body)

    return agent


@pytest.mark.req("D11")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("open_", ["recorded", "intended"])
async def test_a_recorded_call_of_a_tool_that_is_gone_halts_with_its_name(
    run: RunInMemory, effect: str, open_: str
) -> None:
    made: list[str] = []
    intended = open_ == "intended"
    if intended and effect in ("repeatable", "keyed"):
        return
    with pytest.raises(Died):
        await run.go_on(after_a_call(a_tool(effect, "1", made, dies=intended), fails=True))
    other = a_tool(effect, "1", made, name="other")
    with pytest.raises(RunHalted, match=r"tool act with key .*/it, is recorded, .* calls tool other"):
        await run.go_on(after_a_call(other, fails=False), end=proved(1))

    assert (len(made), [each.reason for each in run.events(Halted)]) == (1, ["ToolChanged"])
    assert run.events(StepFailure) == []
    if intended and effect == "irreversible":
        return
    # An image that has it goes on.
    assert await run.go_on(after_a_call(a_tool(effect, "1", made), fails=False), end=proved(1)) == "1 1 7"


@pytest.mark.req("D11")
@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_recorded_call_of_another_version_halts_until_a_person_accepts_it(
    run: RunInMemory, effect: str
) -> None:
    made: list[str] = []
    with pytest.raises(Died):
        await run.go_on(after_a_call(a_tool(effect, "1", made), fails=True))
    second = after_a_call(a_tool(effect, "2", made), fails=False)
    with pytest.raises(RunHalted, match=r"for version 1 of the tool, and today's code has version 2"):
        await run.go_on(second)
    run.decide(AnswerType.ACCEPT)

    assert await run.go_on(second) == "1 1 7"
    assert made == ["1"]


@pytest.mark.req("D11", "D8")
async def test_a_version_that_was_accepted_for_the_whole_run_is_accepted_for_its_calls(
    run: RunInMemory,
) -> None:
    made: list[str] = []
    with pytest.raises(Died):
        await run.go_on(after_a_call(a_tool("keyed", "1", made), fails=True))

    async def accept(_: Run) -> None:
        await run.journals[-1].commit(Resumed(strategy="Exact", environment={"tool act": "2"}))

    await run.go_on(accept)

    assert await run.go_on(after_a_call(a_tool("keyed", "2", made), fails=False)) == "1 1 7"


@pytest.mark.req("B1", "E2")
async def test_with_calls_recorded_one_by_one_those_without_an_effect_are_not_made_again(
    run: RunInMemory,
) -> None:
    asked: list[tuple[str, int]] = []

    @tool(effect="none")
    async def ask(number: int) -> int:
        asked.append(("ask", number))
        return number * 2

    tries: list[int] = []

    async def agent(run: Run) -> list[int]:
        async def body() -> list[int]:
            tries.append(len(tries))
            found = [await ask(1), await ask(2), await ask(2 + len(tries))]
            if len(tries) < 3:
                raise OSError("after them")
            return found

        return await run.step("it", body, granularity="tool-call", retry=AT_ONCE)

    assert await run.go_on(agent) == [2, 4, 10]

    # The third has other arguments each time, so it is another call.
    assert [number for _, number in asked] == [1, 2, 3, 4, 5]
    calls = [(each.call, each.arguments != "", each.key, each.effect) for each in run.events(ToolCalled)]
    assert [each[0] for each in calls] == [-1, -2, -3, -3, -3]
    assert {each[1:] for each in calls} == {(True, "", "none")}


@pytest.mark.req("B1")
@pytest.mark.parametrize("granularity", ["tool-call", "step"])
async def test_calls_that_are_recorded_one_by_one_survive_their_process(granularity: str) -> None:
    run, asked, dies = RunInMemory(granularity=granularity), [], [True]

    @tool(effect="none")
    async def ask(number: int) -> int:
        asked.append(number)
        return number

    async def agent(run: Run) -> int:
        async def body() -> int:
            found = await ask(7)
            if dies:
                dies.clear()
                raise Died
            return found

        return await run.step("it", body)

    with pytest.raises(Died):
        await run.go_on(agent)
    assert await run.go_on(agent) == 7

    assert len(asked) == {"tool-call": 1, "step": 2}[granularity]


@pytest.mark.req("B1")
async def test_calls_in_a_plain_functions_thread_are_recorded_one_by_one_where_they_can_be(
    run: RunInMemory,
) -> None:
    @tool(effect="none")
    async def ask(number: int) -> int:
        return number

    async def agent(run: Run) -> int:
        return await run.step("it", lambda: ask(7), granularity="tool-call")

    assert await run.go_on(agent) == 7
    assert [each.call for each in run.events(ToolCalled)] == [-1]


@pytest.mark.req("E2")
async def test_arguments_that_a_bound_tool_has_are_all_that_it_takes(run: RunInMemory) -> None:
    outside = Outside()

    async def agent(run: Run) -> Any:
        return await run.step("it", outside.mail.from_json({"number": 7}), 8)  # type: ignore[arg-type]

    with pytest.raises(StepFailed, match="has its arguments already"):
        await run.go_on(agent)
    assert outside.log == []


@pytest.mark.req("E2")
async def test_a_step_can_see_its_try_and_what_earlier_ones_have_called(run: RunInMemory) -> None:
    seen: list[Try] = []

    @tool(effect="keyed", version="2")
    async def send(call: Call, number: int) -> int:
        call.record(external_id=f"m-{number}", size=number)
        if call.attempt == 1 and number == 2:
            raise OSError("reset")
        return number

    async def agent(run: Run) -> None:
        async def body() -> None:
            seen.append(this_try())
            await send(1)
            await send(2)

        await run.step("it", body, retry=AT_ONCE)

    await run.go_on(agent)

    first = PriorCall(
        1, "send", "2", f"{RUN_ID}/it", "", unconfirmed=False, external_id="m-1", evidence={"size": 1}
    )
    second = PriorCall(
        2,
        "send",
        "2",
        f"{RUN_ID}/it/2",
        "builtins.OSError: reset",
        unconfirmed=False,
        external_id="m-2",
        evidence={"size": 2},
    )
    assert seen == [Try("it", 1, ()), Try("it", 2, (first, second))]


async def test_there_is_no_try_outside_of_a_step(run: RunInMemory) -> None:
    async def agent(_: Run) -> None:
        this_try()

    with pytest.raises(Misuse, match="inside a step"):
        await run.go_on(agent)
