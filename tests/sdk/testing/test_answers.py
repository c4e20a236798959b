"""Gates in tests: answers by name, by a function, or by the time, which passes at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from milepost.testing import Approve, Asked, Decide, Deny, Expire, crash_everywhere

pytestmark = pytest.mark.req("S5")

UNTIL = datetime(2030, 1, 1, tzinfo=UTC)
ANSWERS = {"spend": Approve({"euros": 7, "until": UNTIL}, by="ann"), "delivery=parts": "bolts"}
RESULT = {"delivery": "bolts", "posted": "posted ann: 7", "days": 30}


def test_an_agent_that_asks_and_sleeps_is_crashed_everywhere_in_no_time() -> None:
    report = crash_everywhere("kit_agents:asking", answers=ANSWERS, max_points=2)

    assert report.undisturbed.result == RESULT
    assert report.undisturbed.attempts == 4
    assert {each.attempts for each in report.crashes} == {5}


def test_a_function_is_asked_with_what_people_are_shown() -> None:
    asked: list[Asked] = []

    def answer(question: Asked) -> Any:
        asked.append(question)
        return "bolts" if question.kind == "event" else {"euros": 7, "until": UNTIL}

    crash_everywhere("kit_agents:asking", answers=answer, max_points=1, at_once=1)

    assert [(each.kind, each.name, each.key, each.place, each.request) for each in asked[:2]] == [
        ("approval", "spend", None, "@spend", {"offer": 42}),
        ("event", "delivery", "parts", "@delivery=parts", None),
    ]


@pytest.mark.parametrize(
    ("answer", "result"),
    [(Deny("too dear"), "no: too dear"), (Expire(), "nobody cared until 20:00"), (None, "yes")],
)
def test_a_gate_may_be_denied_or_left_to_the_time(answer: Any, result: str) -> None:
    report = crash_everywhere("kit_agents:denied", answers={"spend": answer}, max_points=1)

    assert report.undisturbed.result == result


def test_a_gate_that_nobody_answers_is_an_error_that_says_how_to_answer() -> None:
    with pytest.raises(AssertionError) as found:
        crash_everywhere("kit_agents:asking", answers={"delivery": "bolts"})

    assert str(found.value) == (
        "the agent does not come to its end, though nothing happens to it: "
        "nobody answers approval spend: give answers={'spend': ...}"
    )


def test_an_answer_of_a_wrong_type_halts_as_it_does_for_a_person() -> None:
    with pytest.raises(AssertionError, match=r"halted as AnswerInvalid: .*answer\.euros: "):
        crash_everywhere("kit_agents:asking", answers={"spend": {"euros": "many", "until": UNTIL}})


def test_what_cannot_be_repeated_halts_where_nobody_knows_and_the_test_may_decide() -> None:
    with pytest.raises(AssertionError) as found:
        crash_everywhere("kit_agents:shouting")
    assert "killed after record 3 (the intent to call shout in step shout), " in str(found.value)
    assert "it halted as OutcomeUnknown: " in str(found.value)

    def look(question: Asked) -> Decide:
        return Decide("done" if (question.world / "sent").exists() else "not-done")

    report = crash_everywhere("kit_agents:shouting", answers=look, max_points=4)

    assert report.undisturbed.effects == {"sent": "now\n"}


def test_what_takes_an_hour_to_settle_is_verified_in_no_time() -> None:
    report = crash_everywhere("kit_agents:audible", max_points=4)

    assert report.undisturbed.effects == {"sent": "now\n"}


def test_pauses_between_tries_take_no_time() -> None:
    assert crash_everywhere("kit_agents:stubborn", max_points=1).undisturbed.result == 3
