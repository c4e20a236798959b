"""`milepost approve`, `deny`, `signal`, `decide` and `gates`: what they take, refuse, write and say."""

import getpass
import json
import re

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, event_gate_id
from tests.support.gated_runs import bring, command, errors_of, questions
from tests.support.local_runs import Desk

WHO = getpass.getuser()
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


def undated(text: str) -> str:
    return re.sub(r"\(id [a-z2-7]{20}", "(id ID", TIME.sub("TIME", text))


@pytest.mark.req("F4", "S4")
def test_an_approval_is_given_by_name_and_the_run_goes_on_with_it(desk: Desk) -> None:
    bring(desk, "publish")

    given = command(desk, "approve", "publish", "publish", "--reason", "fine")
    outcome = bring(desk, "publish")

    assert (given.exit_code, given.stdout) == (0, "")
    assert given.stderr == (
        "publish: publish is approved; a runner that waits for it goes on by itself, and else `milepost run` "
        "does\n"
    )
    assert outcome.result == f"sent, as {WHO} said: fine"


@pytest.mark.req("F4")
def test_a_denial_and_its_reason_reach_the_agent(desk: Desk) -> None:
    bring(desk, "publish")

    assert command(desk, "deny", "publish", "publish", "--reason", "too early").exit_code == 0
    assert bring(desk, "publish").result == f"no, says {WHO}: too early"


@pytest.mark.req("I9")
def test_what_is_asked_is_shown_whole_and_as_it_is(desk: Desk) -> None:
    bring(desk, "publish", inputs={"text": "a\u202e\x1b[2Jb"})

    shown = command(desk, "gates", "publish")

    store = f"--store {desk.store.uri}"
    assert undated(shown.stdout).splitlines() == [
        "approval publish  (id ID, since TIME)",
        "request:",
        "  {",
        r'    "body": "A\u202e\u001b[2JB",',
        '    "to": "everybody"',
        "  }",
        "waits for approval publish",
        f"  milepost gates publish {store}    shows what is asked",
        f"  milepost approve publish publish {store}",
        f"  milepost deny publish publish {store}",
        "",
    ]


def test_scripts_get_gates_as_json(desk: Desk) -> None:
    outcome = bring(desk, "book")
    (question,) = questions(desk, outcome)

    (gate,) = json.loads(command(desk, "gates", "book", "--json").stdout)

    assert gate == {
        "id": question.gate.id,
        "type": "Approval",
        "name": "room",
        "key": None,
        "label": "room",
        "place": "@room",
        "since": question.gate.since,
        "until": "",
        "request": "which room?",
        "request_digest": question.gate.request_digest,
        "answer_schema": question.gate.answer_schema,
        "options": [],
        "answer": None,
    }


def test_a_run_that_waits_for_nothing_is_said_to(desk: Desk) -> None:
    bring(desk, "publish")
    command(desk, "decide", "publish", "cancel")

    told = command(desk, "gates", "publish").stderr

    assert told == f"publish waits for nothing; it is Cancelled (Cancelled: ended by {WHO})\n"


def test_an_answer_has_to_fit_the_gates_schema(desk: Desk) -> None:
    outcome = bring(desk, "book")

    missing = errors_of(command(desk, "approve", "book", "room"))
    wrong = errors_of(command(desk, "approve", "book", "room", "--answer", '{"room": "b", "seats": "x"}'))
    (question,) = questions(desk, outcome)
    right = command(desk, "approve", "book", "room", "--answer", '{"room": "b", "seats": 4}')

    assert missing.startswith("milepost: --answer: is needed; asked for is JSON of this schema: {")
    assert wrong.startswith("milepost: --answer: answer.seats: 'x' is not of type 'integer'; asked for is ")
    assert question.answer is None
    assert right.exit_code == 0
    assert bring(desk, "book").result == "b for 4"


def test_an_answer_that_nobody_asked_for_is_refused(desk: Desk) -> None:
    bring(desk, "publish")

    assert errors_of(command(desk, "approve", "publish", "publish", "--answer", "1")) == (
        "milepost: --answer: the gate asks for no answer beyond yes or no; leave it out\n"
    )


@pytest.mark.req("F-E1", "I9")
def test_a_second_decision_is_refused_with_who_decided_first_and_when(desk: Desk) -> None:
    bring(desk, "publish")
    command(desk, "approve", "publish", "publish", "--reason", "fine")

    second = command(desk, "deny", "publish", "publish")

    assert second.exit_code == 1
    assert undated(errors_of(second)) == (
        f"Answered: gate publish has its answer, and nothing was changed: approved by {WHO} at TIME: fine\n"
    )
    assert bring(desk, "publish").result == f"sent, as {WHO} said: fine"


@pytest.mark.req("F-E2")
def test_a_gate_that_the_run_has_passed_is_refused_with_how(desk: Desk) -> None:
    bring(desk, "twice")
    command(desk, "approve", "twice", "first", "--reason", "yes")
    bring(desk, "twice")

    passed = errors_of(command(desk, "deny", "twice", "first"))
    never = errors_of(command(desk, "deny", "twice", "third"))

    assert undated(passed) == f"Answered: gate first is open no more: approved by {WHO} at TIME: yes\n"
    assert never == "milepost: GATE: no open gate is called 'third'; open is second (approval)\n"


@pytest.mark.req("F-E2")
def test_a_gate_of_a_run_that_has_ended_takes_no_answer(desk: Desk) -> None:
    bring(desk, "publish")
    command(desk, "decide", "publish", "cancel")

    for words in (
        ("approve", "publish", "publish"),
        ("signal", "publish", "x"),
        ("decide", "publish", "done"),
    ):
        assert errors_of(command(desk, *words)) == (
            "milepost: RUN: default/publish ended as Cancelled, and takes no answers\n"
        )


def test_a_run_that_is_not_there_is_named(desk: Desk) -> None:
    assert errors_of(command(desk, "approve", "absent", "publish")) == (
        f"milepost: RUN: {desk.store.uri} has no run default/absent\n"
    )


def test_a_gate_of_another_kind_is_refused_with_what_answers_it(desk: Desk) -> None:
    bring(desk, "order")

    assert errors_of(command(desk, "approve", "order", "paid=7")) == (
        "milepost: GATE: paid=7 is no approval but event: `milepost signal` sends it\n"
    )


def test_gates_of_one_name_are_told_apart_by_place_or_id(desk: Desk) -> None:
    outcome = bring(desk, "review")
    first, second = questions(desk, outcome)

    both = errors_of(command(desk, "approve", "review", "review"))
    by_place = command(desk, "approve", "review", first.gate.place)
    by_id = command(desk, "deny", "review", second.gate.id[:6])

    assert both.startswith("milepost: GATE: 'review' fits ")
    assert f"{first.gate.place} ({first.gate.id})" in both
    assert (by_place.exit_code, by_id.exit_code) == (0, 0)
    assert sorted(bring(desk, "review").result.values()) == [False, True]


@pytest.mark.req("F4")
def test_an_event_is_sent_checked_and_consumed(desk: Desk) -> None:
    bring(desk, "order")

    wrong = errors_of(command(desk, "signal", "order", "paid", "--key", "7", "--data", '"twenty"'))
    awaited = command(desk, "signal", "order", "paid", "--key", "7", "--data", "20")
    early = command(desk, "signal", "order", "paid", "--key", "7", "--data", "30")

    assert wrong.startswith("milepost: --data: answer: 'twenty' is not of type 'integer'; ")
    assert awaited.stderr.startswith(
        "order: event paid=7 is sent; a runner that waits for it goes on by itself"
    )
    assert early.stderr == (
        "order: event paid=7 is sent; nothing waits for it yet, so it is kept, as number 2 of its name\n"
    )
    assert bring(desk, "order").result == [20, 30]


def test_who_sent_an_event_and_when_is_kept(desk: Desk) -> None:
    outcome = bring(desk, "order")
    sent = command(desk, "signal", "order", "refunded", "--data", '{"why": "late"}')

    assert sent.stderr == (
        "order: event refunded is sent; nothing waits for it yet, so it is kept, as number 1 of its name; "
        "the run waits for paid=7\n"
    )
    kept = inbox.read(desk.store, desk.keys(outcome), event_gate_id("refunded", None, 1))

    assert kept is not None
    assert (kept.type, kept.by, kept.answer) == (AnswerType.EVENT, WHO, {"why": "late"})


@pytest.mark.req("F4")
def test_a_call_of_which_nobody_knew_is_decided_with_its_result(desk: Desk) -> None:
    halted = bring(desk, "pay")

    given = command(desk, "decide", "pay", "done", "--result", '"it arrived"', "--reason", "the bank says so")
    outcome = bring(desk, "pay")

    assert (halted.phase, halted.reason) == (Phase.HALTED, "OutcomeUnknown")
    assert given.stderr == "pay: done is decided; `milepost run` goes on with it\n"
    assert (outcome.phase, outcome.result) == (Phase.SUCCEEDED, "it arrived")


def test_a_call_that_is_done_needs_its_result(desk: Desk) -> None:
    bring(desk, "pay")

    assert errors_of(command(desk, "decide", "pay", "done")) == (
        'milepost: --result: is needed; asked for is JSON of this schema: {"type": "string"}\n'
    )


def test_a_way_out_that_a_halt_does_not_offer_is_refused_with_those_it_does(desk: Desk) -> None:
    bring(desk, "pay")

    assert errors_of(command(desk, "decide", "pay", "revalidate")) == (
        "milepost: DECISION: revalidate is no way out of OutcomeUnknown; there are done, not-done, cancel\n"
    )
    assert errors_of(command(desk, "decide", "pay", "retry")) == (
        "milepost: DECISION: 'retry' is none of accept, revalidate, restart-with-context, done, not-done, "
        "cancel\n"
    )
    assert errors_of(command(desk, "decide", "pay", "not-done", "--result", "1")) == (
        "milepost: --result: goes with done, not with not-done\n"
    )


def test_why_a_run_halted_is_shown_with_what_can_be_decided(desk: Desk) -> None:
    bring(desk, "pay")

    shown = command(desk, "gates", "pay").stdout

    assert "OutcomeUnknown" in shown
    assert f"  milepost decide pay done --store {desk.store.uri}      says that it did happen" in shown


def test_a_run_that_has_not_halted_has_nothing_to_decide(desk: Desk) -> None:
    bring(desk, "publish")

    assert errors_of(command(desk, "decide", "publish", "accept")) == (
        "milepost: RUN: default/publish has not halted; open is publish (approval)\n"
    )


def test_a_halt_that_no_decision_resolves_says_so(desk: Desk) -> None:
    bring(desk, "absent")

    told = errors_of(command(desk, "decide", "absent", "accept"))

    assert told.startswith(
        "milepost: RUN: default/absent halted as EntrypointNotFound, which no decision can "
    )
    assert told.endswith("Once the cause is gone `milepost run` goes on; `decide cancel` ends it\n")


@pytest.mark.req("F4")
def test_a_run_is_cancelled_from_outside_and_says_by_whom(desk: Desk) -> None:
    waiting = bring(desk, "publish")

    command(desk, "decide", "publish", "cancel", "--reason", "wrong text")
    outcome = bring(desk, "publish")

    assert (outcome.run_id, outcome.phase, outcome.message) == (
        waiting.run_id,
        Phase.CANCELLED,
        f"ended by {WHO}: wrong text",
    )
    name = desk.runs().look_up("default", "publish")
    assert name is not None
    assert name.record.outcome == "Cancelled"
