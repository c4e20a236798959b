"""A run that waits, with real executors: nothing runs meanwhile, and it goes on once an answer is there."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.runs import HeadSeen
from milepost.checkpoint.store import Store
from milepost.errors import StoreUnavailable
from milepost.local.answering import Said, decide, give, send
from milepost.local.closing import end_run
from milepost.local.manifest import Manifest
from milepost.local.questions import Question, read_questions
from milepost.local.runner import Outcome, Standing, run_here
from milepost.local.waiting import Ask, Waiting
from milepost.local.ways import Commands
from tests.support.local_runs import Desk, a_manifest

YES = Said(AnswerType.APPROVE, "fine")
NO = Said(AnswerType.DENY, "not today")


def gated(agent: str, **spec: Any) -> Manifest:
    return a_manifest(f"gated:{agent}", name=agent, **spec)


def head_of(desk: Desk, name: str) -> HeadSeen:
    known = desk.runs().look_up("default", name)
    assert known is not None
    seen = desk.runs().observe(desk.keys_of(known.record.run_id))
    assert isinstance(seen, HeadSeen)
    return seen


def questions_of(desk: Desk, name: str) -> list[Question]:
    return read_questions(desk.store, head_of(desk, name).at.head)[1]


def run(
    desk: Desk, manifest: Manifest, *steps: Callable[[], object], ask: Ask | None = None, **here: Any
) -> Outcome:
    """Bring the run as far as it goes: at each look into the inbox one step is done, and then Ctrl-C."""
    left = iter(steps)

    def pause(_: float) -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    return run_here(manifest, replace(desk.here(), pause=pause, ask=ask, user="ann", **here))


def saying(desk: Desk, name: str, said: Said, by: str = "bob") -> Callable[[], object]:
    """Return what answers each approval that is open by then."""

    def answer() -> None:
        for question in questions_of(desk, name):
            give(desk.runs(), head_of(desk, name).at.head, question, said, by)

    return answer


@pytest.mark.req("F1", "S4")
def test_a_run_at_an_approval_waits_without_a_process_and_goes_on_with_the_answer(desk: Desk) -> None:
    asked = run(desk, gated("publish"))
    outcome = run(desk, gated("publish"), saying(desk, "publish", YES))

    assert (asked.phase, asked.interrupted, asked.steps) == (Phase.WAITING, True, 1)
    assert outcome == Outcome(
        asked.run_id, Phase.SUCCEEDED, "Completed", "", "sent, as bob said: fine", steps=2
    )
    assert desk.attempts() == 2


def test_what_it_waits_for_is_told_with_the_commands_that_answer(desk: Desk) -> None:
    run(desk, gated("publish"), options="--store s3://bucket/p")

    assert desk.said[-4:] == [
        "waits for approval publish",
        "  milepost gates publish --store s3://bucket/p    shows what is asked",
        "  milepost approve publish publish --store s3://bucket/p",
        "  milepost deny publish publish --store s3://bucket/p",
    ]


def test_no_executor_is_started_for_a_run_that_still_waits(desk: Desk) -> None:
    first = run(desk, gated("publish"))
    again = run(desk, gated("publish"), lambda: None, lambda: None)

    assert replace(again, ways=()) == replace(first, ways=())
    assert desk.attempts() == 1


def test_a_denial_reaches_the_agent(desk: Desk) -> None:
    outcome = run(desk, gated("publish"), saying(desk, "publish", NO))

    assert outcome.result == "no, says bob: not today"


def test_an_answer_that_came_while_nothing_ran_is_found_at_the_start(desk: Desk) -> None:
    run(desk, gated("publish"))
    saying(desk, "publish", YES)()

    assert run(desk, gated("publish")).result == "sent, as bob said: fine"


@pytest.mark.req("F2")
def test_a_sleep_that_is_over_is_ended_by_the_runners_clock(desk: Desk) -> None:
    late = desk.here().clock() + timedelta(days=30)

    asleep = run(desk, gated("nap", inputs={"seconds": 86_400}))
    awake = run(desk, gated("nap", inputs={"seconds": 86_400}), clock=lambda: late)

    assert (asleep.phase, awake.phase, awake.result) == (Phase.WAITING, Phase.SUCCEEDED, "awake")


def test_an_approval_that_nobody_gives_in_time_expires(desk: Desk) -> None:
    manifest = gated("publish", inputs={"expires": 3600})
    late = desk.here().clock() + timedelta(hours=2)

    run(desk, manifest)
    outcome = run(desk, manifest, clock=lambda: late)

    assert outcome.result == "nobody said anything"


def test_an_approval_is_open_until_its_time_is_over(desk: Desk) -> None:
    manifest = gated("publish", inputs={"expires": 3600})
    early = desk.here().clock() + timedelta(minutes=50)

    run(desk, manifest)
    outcome = run(desk, manifest, clock=lambda: early)

    assert (outcome.phase, outcome.interrupted) == (Phase.WAITING, True)


@pytest.mark.req("F-E1")
def test_an_answer_that_was_there_in_time_beats_the_clock(desk: Desk) -> None:
    manifest = gated("publish", inputs={"expires": 3600})
    run(desk, manifest)
    saying(desk, "publish", YES)()
    late = desk.here().clock() + timedelta(hours=2)

    assert run(desk, manifest, clock=lambda: late).result == "sent, as bob said: fine"


def test_events_that_came_early_are_each_consumed_once(desk: Desk) -> None:
    head = None

    def send_two() -> None:
        nonlocal head
        head = head_of(desk, "order").at.head
        for amount in ("20", "30"):
            send(desk.runs(), head, "paid", "7", amount, "shop")

    assert run(desk, gated("order"), send_two).result == [20, 30]
    assert desk.attempts() == 2


def answering(*answers: Said | None) -> tuple[Ask, list[str]]:
    """Return a person who gives these answers one after the other, and whom they were asked by."""
    left, asked = iter(answers), list[str]()

    def ask(question: Question, _: Callable[[], str]) -> Said | None:
        asked.append(question.label)
        return next(left)

    return ask, asked


def test_approvals_are_asked_one_after_the_other_before_the_run_goes_on(desk: Desk) -> None:
    ask, asked = answering(YES, NO)

    outcome = run(desk, gated("review"), ask=ask)

    assert len(asked) == 2
    assert sorted(outcome.result.values()) == [False, True]
    assert desk.attempts() == 2


def test_what_is_put_off_stays_open_and_is_waited_for(desk: Desk) -> None:
    ask, _ = answering(None)

    outcome = run(desk, gated("publish"), saying(desk, "publish", YES), ask=ask)

    assert outcome.result == "sent, as bob said: fine"
    assert "  milepost approve publish publish" in desk.said


def test_somebody_else_may_answer_while_a_person_thinks(desk: Desk) -> None:
    told = []

    def slow(_: Question, interrupted: Callable[[], str]) -> Said | None:
        assert interrupted() == ""
        saying(desk, "publish", NO)()
        told.append(interrupted())
        return None

    outcome = run(desk, gated("publish"), ask=slow)

    assert outcome.result == "no, says bob: not today"
    assert [line.partition(" at ")[0] for line in told] == ["publish is denied by bob"]


@pytest.mark.req("F-E1")
def test_of_two_answers_at_once_the_first_stands_and_the_second_is_told(desk: Desk) -> None:
    def overtaken(_: Question, __: Callable[[], str]) -> Said | None:
        saying(desk, "publish", NO)()
        return YES

    outcome = run(desk, gated("publish"), ask=overtaken)

    assert outcome.result == "no, says bob: not today"
    assert any(line.startswith("publish has its answer: denied by bob at ") for line in desk.said)


def test_a_run_that_is_ended_elsewhere_while_it_waits_is_reported(desk: Desk) -> None:
    def cancel() -> None:
        end_run(
            desk.runs(), head_of(desk, "publish"), phase=Phase.CANCELLED, reason="Cancelled", message="by bob"
        )

    outcome = run(desk, gated("publish"), cancel)

    assert outcome == Outcome(outcome.run_id, Phase.CANCELLED, "Cancelled", "by bob", steps=1)


@pytest.mark.req("C3")
def test_a_run_that_is_taken_over_elsewhere_while_it_waits_is_left_alone(desk: Desk) -> None:
    def elsewhere() -> None:
        saying(desk, "publish", YES)()
        known = desk.runs().look_up("default", "publish")
        assert known is not None
        other = replace(desk.here("data"), data=desk.root / "other", recover_from=(desk.owner(),))
        run_here(gated("publish"), other)

    outcome = run(desk, gated("publish"), elsewhere)

    assert outcome.phase is Phase.SUCCEEDED
    assert desk.attempts() == 2


def test_a_run_that_is_deleted_while_it_waits_is_said_to_be(desk: Desk) -> None:
    outcome = run(
        desk, gated("publish"), lambda: desk.store.delete(head_of(desk, "publish").at.head.keys.head)
    )

    assert (outcome.reason, outcome.message) == (
        "RunDeleted",
        "the run was deleted from the store while it waited",
    )


class Failing:
    """A store that gives no answer while `down`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise StoreUnavailable("inbox", waited=1.0, cause="down")
        return getattr(self.inner, name)


def test_a_store_that_gives_no_answer_for_a_while_does_not_end_the_wait(desk: Desk) -> None:
    run(desk, gated("publish"))
    store = Failing(desk.store)
    runs = replace(desk.runs(), store=store)
    said: list[str] = []
    steps = iter([lambda: setattr(store, "down", True), lambda: None, lambda: setattr(store, "down", False)])

    def pause(_: float) -> None:
        next(steps, saying(desk, "publish", YES))()

    head = head_of(desk, "publish")
    found = Waiting(runs, head, Commands("publish"), "ann", said.append, pause).until_answered()

    assert found is head
    assert [line for line in said if "down" in line] == [
        "inbox: no clear answer from the store within 1 s; last: down; still looking"
    ]


def test_how_far_the_run_is_and_what_it_waits_for_is_told(desk: Desk) -> None:
    standings: list[Standing] = []

    run(desk, gated("publish", inputs={"expires": 86_400}), on_standing=standings.append)

    begun, waits = standings
    assert (begun.attempt, begun.totals.steps_done, begun.waits_for) == (1, 0, ())
    assert (waits.totals.steps_done, waits.totals.tokens, waits.totals.cost_nano_usd) == (1, 1234, 12_500_000)
    assert waits.waits_for[0].startswith("approval publish until ")


def test_a_halt_that_somebody_can_decide_names_the_ways_out(desk: Desk) -> None:
    outcome = run(desk, gated("pay"))

    assert (outcome.phase, outcome.reason) == (Phase.HALTED, "OutcomeUnknown")
    assert outcome.ways == (
        "somebody has to decide how it goes on:",
        "  milepost decide pay done      says that it did happen; --result JSON says what came of it",
        "  milepost decide pay not-done  says that it did not happen, so that it is done now",
        "  milepost decide pay cancel    ends the run",
    )


def test_a_decided_halt_goes_on_when_it_is_called_again(desk: Desk) -> None:
    run(desk, gated("pay"))
    decide(desk.runs(), head_of(desk, "pay").at.head, "done", '"it arrived"', "bank says so", "bob")

    outcome = run(desk, gated("pay"))

    assert (outcome.phase, outcome.result) == (Phase.SUCCEEDED, "it arrived")


@pytest.mark.req("D8")
def test_another_environment_halts_with_both_values_and_goes_on_once_it_is_accepted(desk: Desk) -> None:
    small = {**os.environ, **desk.here().environ, "MODEL": "small"}
    run(desk, gated("depends"), environ=small)
    saying(desk, "depends", YES)()

    halted = run(desk, gated("depends"), environ={**small, "MODEL": "large"})
    decide(desk.runs(), head_of(desk, "depends").at.head, "accept", None, "", "bob")
    outcome = run(desk, gated("depends"), environ={**small, "MODEL": "large"})

    assert (halted.phase, halted.reason) == (Phase.HALTED, "EnvironmentChanged")
    assert "small" in halted.message
    assert "large" in halted.message
    assert [line.split()[3] for line in halted.ways[1:]] == [
        "accept",
        "revalidate",
        "restart-with-context",
        "cancel",
    ]
    assert (outcome.phase, outcome.result) == (Phase.SUCCEEDED, "done")
