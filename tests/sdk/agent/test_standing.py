"""Whether what is recorded stands: the order of the code, inputs, the author's check, and a new beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel

from milepost import Call, Retry, Run, StepFailed, record_usage, tool
from milepost import agent as agent_of
from milepost.agent.journal import Rules
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, Decided
from milepost.checkpoint.records import Halted, Noted, Resumed, StepCompleted, Withdrawn
from milepost.checkpoint.sending import Patience
from milepost.errors import RunHalted, RunRestarts
from milepost.testing import Asked, Decide, simulate
from tests.support.sessions import RunInMemory

Code = Callable[[Run], Awaitable[Any]]


@pytest.fixture
def run() -> RunInMemory:
    return RunInMemory()


def steps(*names: str, then: str = "") -> Code:
    """Return an agent that runs these steps in turn; it is lost before `then`."""

    async def agent(run: Run) -> list[str]:
        done = []
        for name in names:
            if name == then:
                raise Lost
            done.append(await run.step(name, str, name))
        return done

    return agent


class Lost(BaseException):
    """The process is gone."""


async def lost(run: RunInMemory, agent: Code) -> None:
    with pytest.raises(Lost):
        await run.go_on(agent)


async def halted(run: RunInMemory, agent: Code) -> Halted:
    with pytest.raises(RunHalted):
        await run.go_on(agent)
    return run.events(Halted)[-1]


def decide(run: RunInMemory, halt: Halted, what: AnswerType) -> None:
    assert halt.gate is not None
    answer = inbox.Answer(halt.gate.id, what, by="ann", at="2026-03-01T00:00:00+00:00", reason="seen")
    assert inbox.give(run.store, run.keys, answer, Patience(lambda n: b"x" * n)) is answer


async def test_the_same_code_on_the_same_path_is_never_halted(run: RunInMemory) -> None:
    await lost(run, steps("a", "b", "c", then="c"))
    assert await run.go_on(steps("a", "b", "c")) == ["a", "b", "c"]
    assert run.events(Halted) == []


@pytest.mark.req("F-E7")
@pytest.mark.parametrize(
    ("second", "says"),
    [
        (("a", "c", "b"), "after step a the code comes to step c, and the log has step b there"),
        (("b", "a"), "step b follows the beginning now, and followed step a when it was recorded"),
        (("x", "b"), "after the beginning the code comes to step x, and the log has step a there"),
    ],
    ids=["another step", "reordered", "another first"],
)
async def test_the_same_code_on_another_path_halts_and_says_where(
    run: RunInMemory, second: tuple[str, ...], says: str
) -> None:
    await lost(run, steps("a", "b", "c", then="c"))
    halt = await halted(run, steps(*second))
    assert (halt.reason, halt.message.startswith(says)) == ("Diverged", True), halt.message
    assert "run.now(), run.random() or a step" in halt.message


async def test_other_code_on_another_path_is_noted_and_goes_on(run: RunInMemory) -> None:
    await lost(run, steps("a", "b", "c", then="c"))
    run.rules = Rules(same_code=False)
    assert await run.go_on(steps("a", "x", "b", "z")) == ["a", "x", "b", "z"]
    assert [note.reason for note in run.events(Noted)] == ["Diverged", "Diverged"]


@pytest.mark.req("F-E7")
def test_the_same_code_that_ends_before_a_recorded_step_halts_and_goes_on_once_it_is_accepted() -> None:
    asked = []
    lives = count(1)

    @agent_of(version="1")
    async def shorter(run: Run) -> None:
        life = next(lives)
        await run.step("a", str, "a")
        if life == 1:
            await run.step("b", str, "b")
            await run.event("go", int)

    def answers(each: Asked) -> Any:
        asked.append((each.name, each.message.partition(", by the same code")[0]))
        return 1 if each.kind == "event" else Decide("accept")

    assert simulate(shorter, answers=answers).phase == "Succeeded"
    says = "after step a the code comes to its end, and the log has step b there"
    assert asked == [("go", ""), ("Diverged", says)]
    assert next(lives) == 4


@pytest.mark.parametrize("same_code", [True, False])
async def test_a_branch_that_ends_before_a_recorded_step_halts_or_is_noted(
    run: RunInMemory, *, same_code: bool
) -> None:
    def agent(*names: str) -> Code:
        async def branch(run: Run) -> None:
            for name in names:
                await run.step(name, str, name)

        async def code(run: Run) -> None:
            await run.parallel([branch(run)])

        return code

    await run.go_on(agent("a", "b"))
    await run.go_on(agent("a", "b"))
    says = "after step 1:0/a the code comes to its end, and the log has step 1:0/b there"
    run.rules = Rules(same_code=same_code)
    if same_code:
        assert (await halted(run, agent("a"))).message.startswith(says)
    else:
        await run.go_on(agent("a"))
        await run.journals[-1].commit()
        assert run.events(Noted)[0].message.startswith(says)


async def test_what_was_accepted_is_not_asked_again(run: RunInMemory) -> None:
    await lost(run, steps("a", "b", then="b"))
    await lost(run, steps("a", "b", "c", then="c"))
    halt = await halted(run, steps("b", "a"))
    decide(run, halt, AnswerType.ACCEPT)

    halt = await halted(run, steps("b", "a"))
    assert halt.message.startswith("step a follows step b now")
    decide(run, halt, AnswerType.ACCEPT)

    assert await run.go_on(steps("b", "a")) == ["b", "a"]
    assert [(decided.by, decided.reason) for decided in run.events(Decided)] == [("ann", "seen")] * 2


async def test_an_answer_that_is_no_option_is_left_where_it_is_and_asked_anew(run: RunInMemory) -> None:
    await lost(run, told("first"))
    first = await halted(run, told("second"))
    decide(run, first, AnswerType.DONE)

    second = await halted(run, told("second"))
    assert first.gate is not None
    assert second.gate is not None
    assert second.gate.id != first.gate.id
    assert second.message.endswith("Done was answered, which is none of Accept, RestartWithContext")
    decide(run, second, AnswerType.ACCEPT)
    assert await run.go_on(told("second")) == "first"


async def test_concurrent_tasks_may_take_any_order(run: RunInMemory) -> None:
    """The order in which tasks of the author's reach their steps depends on timing, and is no divergence."""

    def agent(delays: tuple[float, float], *, end: bool) -> Code:
        async def line(run: Run, name: str, delay: float) -> None:
            await run.step(f"{name}-1", lambda: name)
            await asyncio.sleep(delay)
            await run.step(f"{name}-2", lambda: name)

        async def code(run: Run) -> str:
            await asyncio.gather(line(run, "x", delays[0]), line(run, "y", delays[1]))
            if end:
                raise Lost
            return await run.step("end", lambda: "end")

        return code

    await lost(run, agent((0.0, 0.05), end=True))
    assert await run.go_on(agent((0.05, 0.0), end=False)) == "end"


def told(value: Any) -> Code:
    async def agent(run: Run) -> str:
        told = await run.step("tell", str, value)
        if value == "first":
            raise Lost
        return told

    return agent


@pytest.mark.req("A5")
async def test_changed_inputs_halt_with_what_they_were_and_are(run: RunInMemory) -> None:
    await lost(run, told("first"))
    halt = await halted(run, told("second"))
    assert halt.reason == "InputsChanged"
    assert halt.message == (
        "step tell has other inputs than those that its result is recorded for: "
        'argument 1 was "first" and is "second"'
    )


async def test_a_long_input_shows_where_it_differs(run: RunInMemory) -> None:
    text = "same " * 300

    def agent(value: str, *, end: bool) -> Code:
        async def code(run: Run) -> str:
            told = await run.step("tell", len, value)
            if end:
                raise Lost
            return str(told)

        return code

    await lost(run, agent(text + "old", end=True))
    halt = await halted(run, agent(text + "new", end=False))
    assert 'same old"' in halt.message
    assert 'same new"' in halt.message
    assert len(halt.message) < 1000


async def test_accepted_inputs_give_what_is_recorded(run: RunInMemory) -> None:
    await lost(run, told("first"))
    decide(run, await halted(run, told("second")), AnswerType.ACCEPT)
    assert await run.go_on(told("second")) == "first"
    assert await run.go_on(told("third")) == "first"


async def test_given_inputs_stand_for_the_arguments(run: RunInMemory) -> None:
    def agent(argument: str, inputs: Any, *, end: bool = False) -> Code:
        async def code(run: Run) -> str:
            found = await run.step("tell", str, argument, inputs=inputs)
            if end:
                raise Lost
            return found

        return code

    await lost(run, agent("one", {"version": 1}, end=True))
    assert await run.go_on(agent("another", {"version": 1})) == "one"
    assert "argument 1 was" in (await halted(run, agent("one", {"version": 2}))).message


class World:
    """What steps find outside of the run, and how often each was executed."""

    def __init__(self) -> None:
        self.good: dict[str, bool] = {}
        self.ran: list[str] = []

    def make(self, name: str) -> str:
        self.ran.append(name)
        self.good[name] = True
        return f"{name} {self.ran.count(name)}"

    async def still(self, result: str) -> bool:
        return self.good[result.partition(" ")[0]]

    def agent(self, *names: str, end: bool = True, checked: tuple[str, ...] | None = None) -> Code:
        async def code(run: Run) -> list[str]:
            done = []
            for name in names:
                valid = self.still if checked is None or name in checked else None
                done.append(await run.step(name, self.make, name, valid=valid))
            if end:
                raise Lost
            return done

        return code


async def revalidate(run: RunInMemory, agent: Code) -> Any:
    """Go on as an executor does that was told to revalidate."""

    async def code(inner: Run) -> Any:
        await run.journals[-1].commit(Resumed(strategy="Revalidate"))
        await run.journals[-1].begin()
        return await agent(inner)

    return await run.go_on(code)


@pytest.mark.req("D5")
async def test_revalidating_withdraws_what_fails_its_check_and_all_that_follows(run: RunInMemory) -> None:
    world = World()
    await lost(run, world.agent("a", "b", "c"))
    world.good["b"] = False

    assert await revalidate(run, world.agent("a", "b", "c", end=False)) == ["a 1", "b 2", "c 2"]

    assert [(each.step, each.anew) for each in run.events(Withdrawn)] == [("b", True), ("c", False)]
    assert run.events(Withdrawn)[0].reason == "its recorded result is not valid any more"
    assert run.state.totals.steps_done == 3


@pytest.mark.req("D5")
async def test_a_crash_while_revalidating_loses_nothing_of_it(run: RunInMemory) -> None:
    world = World()
    await lost(run, world.agent("a", "b", "c", "d"))
    world.good["b"] = False
    with pytest.raises(Lost):
        await revalidate(run, world.agent("a", "b"))  # lost once b is made again

    assert await run.go_on(world.agent("a", "b", "c", "d", end=False)) == ["a 1", "b 2", "c 2", "d 2"]
    assert await run.go_on(world.agent("a", "b", "c", "d", end=False)) == ["a 1", "b 2", "c 2", "d 2"]


async def test_a_check_that_raises_says_no(run: RunInMemory) -> None:
    world = World()
    await lost(run, world.agent("a"))
    world.good.clear()
    await revalidate(run, world.agent("a", end=False))
    assert run.events(Withdrawn)[0].reason == "checking its recorded result raised builtins.KeyError: 'a'"


@pytest.mark.parametrize(("holds", "withdrawn"), [(True, []), (False, ["make"])])
async def test_a_check_that_is_a_plain_function_is_taken_at_its_word(
    run: RunInMemory, *, holds: bool, withdrawn: list[str]
) -> None:
    plain: Any = lambda _: holds  # noqa: E731  (what an author writes who forgets that it is async)

    async def agent(run: Run) -> None:
        await run.step("make", str, valid=plain)

    await run.go_on(agent)
    await revalidate(run, agent)
    assert [each.step for each in run.events(Withdrawn)] == withdrawn


async def test_without_being_told_nothing_is_checked(run: RunInMemory) -> None:
    world = World()
    await lost(run, world.agent("a", "b"))
    world.good["a"] = False
    assert await run.go_on(world.agent("a", "b", end=False)) == ["a 1", "b 1"]


async def test_branches_beside_what_was_withdrawn_stand(run: RunInMemory) -> None:
    world = World()

    def agent(*, end: bool) -> Code:
        async def line(run: Run, name: str) -> str:
            await run.step("make", world.make, name, valid=world.still)
            return await run.step("use", world.make, f"{name}-used")

        async def code(run: Run) -> list[str]:
            made = await run.parallel({name: line(run, name) for name in ("x", "y")})
            after = await run.step("after", world.make, "after")
            if end:
                raise Lost
            return [*made.values(), after]

        return code

    await lost(run, agent(end=True))
    world.good["x"] = False
    assert await revalidate(run, agent(end=False)) == ["x-used 2", "y-used 1", "after 2"]


async def test_what_was_begun_beside_what_was_withdrawn_stands_each_time(run: RunInMemory) -> None:
    world = World()

    def agent(*, end: bool) -> Code:
        async def code(run: Run) -> list[str]:
            made = await asyncio.gather(
                run.step("x", world.make, "x", valid=world.still), run.step("y", world.make, "y")
            )
            after = await run.step("after", world.make, "after")
            if end:
                raise Lost
            return [*made, after]

        return code

    await lost(run, agent(end=True))
    world.good["x"] = False
    assert await revalidate(run, agent(end=False)) == ["x 2", "y 1", "after 2"]

    assert await run.go_on(agent(end=False)) == ["x 2", "y 1", "after 2"]


@pytest.mark.req("D5")
async def test_a_check_is_made_though_something_new_has_ended_beside_it(run: RunInMemory) -> None:
    world, ended = World(), asyncio.Event()

    async def line(run: Run) -> str:
        await run.step("first", world.make, "first")
        await ended.wait()
        return await run.step("second", world.make, "second", valid=world.still)

    async def beside(run: Run, *, lasts: bool) -> None:
        if lasts:
            await run.step("new", world.make, "new")
        ended.set()

    def agent(*, lasts: bool) -> Code:
        async def code(run: Run) -> str:
            ended.clear()
            made, _ = await asyncio.gather(line(run), beside(run, lasts=lasts))
            return made

        return code

    assert await run.go_on(agent(lasts=False)) == "second 1"
    world.good["second"] = False
    assert await revalidate(run, agent(lasts=True)) == "second 2"


@tool(effect="irreversible")
async def launch(what: str) -> str:
    return what


@pytest.mark.req("E3")
async def test_what_cannot_be_taken_back_stands_whatever_was_withdrawn(run: RunInMemory) -> None:
    world = World()

    def agent(*, end: bool) -> Code:
        async def code(run: Run) -> list[str]:
            made = await run.step("make", world.make, "a", valid=world.still)
            launched = await run.step("launch", launch, "rocket")
            if end:
                raise Lost
            return [made, launched]

        return code

    await lost(run, agent(end=True))
    world.good["a"] = False
    assert await revalidate(run, agent(end=False)) == ["a 2", "rocket"]
    assert [each.step for each in run.events(Withdrawn)] == ["make"]


@pytest.mark.req("D5", "I3b")
async def test_what_follows_from_a_withdrawn_step_has_a_new_key_only_where_its_inputs_are_others(
    run: RunInMemory,
) -> None:
    world = World()
    paid: list[tuple[str, str]] = []

    @tool(effect="keyed")
    async def pay(call: Call, what: str) -> str:
        paid.append((call.key.partition("/")[2], what))
        return what

    def agent(*, end: bool) -> Code:
        async def code(run: Run) -> list[str]:
            made = await run.step("make", world.make, "a", valid=world.still)
            done = [await run.step("for it", pay, made), await run.step("beside it", pay, "the same")]
            if end:
                raise Lost
            return done

        return code

    await lost(run, agent(end=True))
    world.good["a"] = False

    assert await revalidate(run, agent(end=False)) == ["a 2", "the same"]
    assert paid == [
        ("for%20it", "a 1"),
        ("beside%20it", "the same"),
        ("for%20it~1", "a 2"),
        ("beside%20it", "the same"),
    ]
    assert [each.anew for each in run.events(Withdrawn)] == [True, True, False]


@pytest.mark.req("D5")
async def test_what_cannot_be_taken_back_and_was_done_with_other_inputs_halts(run: RunInMemory) -> None:
    world = World()

    def agent(*, end: bool) -> Code:
        async def code(run: Run) -> str:
            made = await run.step("make", world.make, "a", valid=world.still)
            launched = await run.step("launch", launch, made)
            if end:
                raise Lost
            return launched

        return code

    await lost(run, agent(end=True))
    world.good["a"] = False
    with pytest.raises(RunHalted):
        await revalidate(run, agent(end=False))
    halt = run.events(Halted)[-1]

    assert halt.reason == "InputsChanged"
    decide(run, halt, AnswerType.ACCEPT)
    assert await run.go_on(agent(end=False)) == "a 1"


async def test_what_failed_for_good_before_a_withdrawal_is_tried_again(run: RunInMemory) -> None:
    world = World()
    fail = [True]

    def use() -> str:
        if fail[0]:
            raise OSError("no")
        return "used"

    def agent(*, end: bool) -> Code:
        async def code(run: Run) -> str:
            await run.step("make", world.make, "a", valid=world.still)
            try:
                used = await run.step("use", use, attempts=1)
            except StepFailed:
                used = "not used"
            if end:
                raise Lost
            return used

        return code

    await lost(run, agent(end=True))
    world.good["a"], fail[0] = False, False
    assert await revalidate(run, agent(end=False)) == "used"


@pytest.mark.req("D5")
async def test_what_failed_for_good_before_what_was_withdrawn_stays_failed(run: RunInMemory) -> None:
    """The code has gone on from that failure, so that each process has to come to it."""
    world = World()
    fail = [True]

    def use() -> str:
        if fail[0]:
            raise OSError("no")
        return "used"

    def agent(*, end: bool) -> Code:
        async def code(run: Run) -> list[str]:
            try:
                used = await run.step("use", use, attempts=1)
            except StepFailed:
                used = await run.step("instead", world.make, "instead")
            made = await run.step("make", world.make, "a", valid=world.still)
            if end:
                raise Lost
            return [used, made]

        return code

    await lost(run, agent(end=True))
    world.good["a"], fail[0] = False, False
    with pytest.raises(Lost):
        await revalidate(run, agent(end=True))
    assert await run.go_on(agent(end=False)) == ["instead 1", "a 2"]


async def test_what_is_tried_again_after_a_withdrawal_has_all_of_its_attempts(run: RunInMemory) -> None:
    world = World()
    tried: list[int] = []

    def use() -> None:
        tried.append(len(tried))
        raise OSError("no")

    def agent(*, end: bool) -> Code:
        async def code(run: Run) -> None:
            await run.step("make", world.make, "a", valid=world.still)
            with pytest.raises(StepFailed):
                await run.step("use", use, retry=Retry(attempts=2, wait=0.001))
            if end:
                raise Lost

        return code

    await lost(run, agent(end=True))
    world.good["a"] = False
    await revalidate(run, agent(end=False))
    assert tried == [0, 1, 2, 3]
    await run.go_on(agent(end=False))
    assert tried == [0, 1, 2, 3]


async def restart(run: RunInMemory, agent: Code) -> Any:
    """Go on as an executor does that was told to begin anew."""

    async def code(_: Run) -> Any:
        await run.journals[-1].commit(Resumed(strategy="RestartWithContext"))
        raise Lost

    await lost(run, code)
    return await run.go_on(agent)


@pytest.mark.req("D6")
async def test_beginning_anew_adopts_what_has_the_same_name_key_and_inputs(run: RunInMemory) -> None:
    world = World()
    await lost(run, world.agent("a", "b", "c"))

    async def new_plan(run: Run) -> list[str]:
        c = await run.step("c", world.make, "c")
        a = await run.step("a", world.make, "other")
        return [c, a, *(fact.result for fact in await run.facts())]

    assert await restart(run, new_plan) == ["c 1", "other 1", "a 1", "b 1", "c 1"]
    assert world.ran == ["a", "b", "c", "other"]
    adopted = [step for step in run.events(StepCompleted) if step.adopted]
    assert [(step.step.id, step.adopted) for step in adopted] == [("c", "c")]

    assert await run.go_on(new_plan) == ["c 1", "other 1", "a 1", "b 1", "c 1"]
    assert world.ran == ["a", "b", "c", "other"]


class Page(BaseModel):
    url: str
    words: set[int]


def fetch(url: str) -> list[Page]:
    return [Page(url=url, words={len(url)})]


@pytest.mark.req("D6")
async def test_a_fact_that_is_a_model_comes_as_what_it_holds(run: RunInMemory) -> None:
    async def fetching(run: Run) -> None:
        await run.step("fetch", fetch, "/a")
        raise Lost

    await lost(run, fetching)

    async def new_plan(run: Run) -> Any:
        return [fact.result for fact in await run.facts()]

    assert await restart(run, new_plan) == [[{"url": "/a", "words": {2}}]]


@pytest.mark.req("D6")
async def test_a_fact_is_adopted_once(run: RunInMemory) -> None:
    world = World()
    await lost(run, world.agent("a"))

    async def twice(run: Run) -> list[str]:
        return [await run.step("a", world.make, "a"), await run.step("a", world.make, "a")]

    assert await restart(run, twice) == ["a 1", "a 2"]
    assert await run.go_on(twice) == ["a 1", "a 2"]


@pytest.mark.req("A7")
async def test_what_an_adopted_step_has_used_up_counts_once(run: RunInMemory) -> None:
    async def think() -> str:
        record_usage(input_tokens=10, cost_usd=1)
        return "so"

    async def agent(run: Run) -> str:
        return await run.step("think", think)

    await run.go_on(agent)
    assert await restart(run, agent) == "so"
    assert (run.state.totals.tokens, run.state.totals.cost_nano_usd) == (10, 10**9)


async def test_what_was_accepted_as_not_valid_stands_in_whatever_words_the_check_fails(
    run: RunInMemory,
) -> None:
    asked = []

    async def still(_: str) -> bool:
        asked.append(1)
        raise OSError(f"no answer at try {len(asked)}")

    async def agent(run: Run) -> str:
        return await run.step("launch", launch, "rocket", valid=still)

    await run.go_on(agent)
    with pytest.raises(RunHalted, match="step launch cannot be taken back"):
        await revalidate(run, agent)
    run.decide(AnswerType.ACCEPT)
    assert await revalidate(run, agent) == "rocket"


async def test_a_decision_to_begin_anew_ends_the_process_and_the_next_one_does(run: RunInMemory) -> None:
    await lost(run, told("first"))
    decide(run, await halted(run, told("second")), AnswerType.RESTART_WITH_CONTEXT)
    with pytest.raises(RunRestarts):
        await run.go_on(told("second"))
    assert await run.go_on(told("second")) == "second"
    assert run.state.executions == 1


@pytest.mark.req("D6")
async def test_steps_in_flight_end_before_the_run_begins_anew_and_are_facts_of_it(run: RunInMemory) -> None:
    slow_ran = []

    def agent(asked: str, *, beside: bool = False, end: bool = False) -> Code:
        async def slow() -> str:
            slow_ran.append(1)
            await asyncio.sleep(0.1)
            return "slow"

        async def asking(run: Run) -> str:
            said = await run.step("ask", lambda said: said, asked)
            if end:
                raise Lost
            return said

        async def code(run: Run) -> list[str]:
            branches = {"ask": asking(run)} | ({"slow": run.step("slow", slow)} if beside else {})
            return list((await run.parallel(branches)).values())

        return code

    await lost(run, agent("first", end=True))
    decide(run, await halted(run, agent("second")), AnswerType.RESTART_WITH_CONTEXT)
    with pytest.raises(RunRestarts):
        await run.go_on(agent("second", beside=True))
    assert (list(run.state.facts), list(run.state.completed)) == (["1:ask/ask", "slow"], [])
    assert await run.go_on(agent("second", beside=True)) == ["second", "slow"]
    assert len(slow_ran) == 1


@pytest.mark.req("A4", "D6")
async def test_memory_that_was_not_copied_yet_is_when_a_person_has_to_decide(run: RunInMemory) -> None:
    seen = []

    def agent(said: str) -> Code:
        async def code(run: Run) -> None:
            seen.append(dict(run.memory))
            run.memory["style"] = "short"
            await run.step("ask", str, said)
            await run.step("end", str, "")

        return code

    await run.go_on(agent("first"))
    decide(run, await halted(run, agent("second")), AnswerType.RESTART_WITH_CONTEXT)
    with pytest.raises(RunRestarts):
        await run.go_on(agent("second"))
    await run.go_on(agent("second"))

    assert seen == [{}, {}, {}, {"style": "short"}]


async def test_memory_is_kept_over_a_new_beginning_and_else_made_by_the_code(run: RunInMemory) -> None:
    seen: list[dict[str, Any]] = []

    async def code(run: Run) -> None:
        seen.append(dict(run.memory))
        run.memory["style"] = "short"
        await run.step("a", lambda: "a")

    run.rules = Rules(memory_every=1)
    await run.go_on(code)
    await run.go_on(code)
    await restart(run, code)
    assert seen == [{}, {}, {"style": "short"}]
