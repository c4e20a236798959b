"""`crash_everywhere`: a sound agent passes, and each of the classic mistakes is found and named."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from milepost import Run, agent
from milepost.testing import Crash, crash_everywhere
from milepost.testing.crashes import spec_of
from milepost.testing.points import Point, When
from milepost.testing.trial import Case, Trial, entrypoint_of

pytestmark = pytest.mark.req("S5")


def mistake_of(name: str, **options: Any) -> str:
    """Return what is said of an agent that is not sound."""
    with pytest.raises(AssertionError) as found:
        crash_everywhere(f"kit_agents:{name}", **options)
    return str(found.value)


def test_a_sound_agent_comes_to_the_same_wherever_it_is_killed() -> None:
    report = crash_everywhere("kit_agents:sound", {"steps": 1})

    ran = report.undisturbed
    assert (ran.phase, ran.result) == (
        "Succeeded",
        {"total": 2, "posted": "posted 2 at 12:00", "halves": [0, 2], "lot": 924},
    )
    assert ran.effects == {"the ledger": ['aaaaaaaaaaaaaaaaaaaa/post: "2 at 12:00"']}
    records = range(2, len(ran.records) + 1)
    assert [(each.record, each.when) for each in report.crashes] == [
        (record, when) for record in records for when in ("before", "after")
    ]
    assert report.crashes[3] == Crash(3, "after", "step double", attempts=2)
    # After the last record there is nothing left to go on with. Halves that share a record make one less.
    assert {each.attempts for each in report.crashes[:-1] if each.said is not None} == {2}
    assert report.crashes[-1].attempts == 1


def test_state_left_by_a_recorded_step_is_found() -> None:
    assert mistake_of("forgetful").startswith(
        "killed after record 3 (step open), the agent comes to something else:\n"
        '    the run was "Succeeded", and is "Failed as StepFailed (step read failed after 1 attempt: '
        'builtins.IndexError: list index out of range)"\n'
        "    step read is not completed\n"
    )


def test_state_left_by_a_recorded_step_is_found_in_code_that_passes_over_every_error() -> None:
    said = mistake_of("forgiving")

    assert said.startswith("killed after record 3 (step open), the agent comes to something else:\n")
    assert '\n    its result was "LETTERS", and is "nothing"\n    step read is not completed\n' in said


def test_an_effect_that_is_done_again_with_its_step_is_found() -> None:
    assert mistake_of("unkeyed", max_points=2).startswith(
        "killed before record 4 (step send), the agent comes to something else:\n"
        '    outside, sent was "a letter\\n", and is "a letter\\na letter\\n"\n'
    )


def test_a_key_that_is_not_passed_on_is_found() -> None:
    said = mistake_of("keyless", max_points=3)

    assert said.startswith("killed before record 3 (the call of post_unkeyed in step send, step send), ")
    assert '["\\"a letter\\""], and is ["\\"a letter\\"", "\\"a letter\\""]' in said


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("timely", "InputsChanged: step check has other inputs"),
        ("chancy", "InputsChanged: step check has other inputs"),
        ("unordered", "InputsChanged: step check has other inputs"),
    ],
)
def test_what_is_read_outside_of_steps_is_found(name: str, what: str) -> None:
    said = mistake_of(name, max_points=2)

    assert "the agent does not come to its end any more: it halted as" in said
    assert what in said


def test_an_agent_that_comes_to_something_else_each_time_is_told_from_one_that_a_crash_changes() -> None:
    said = mistake_of("erratic")

    assert said.startswith("two runs to which nothing happens come to something else:\n    its result was ")


def test_an_agent_that_fails_by_itself_is_no_agent_to_crash() -> None:
    assert mistake_of("failing") == (
        "the agent fails though nothing happens to it: StepFailed: step fail failed after 1 attempt: "
        "builtins.IndexError: list index out of range"
    )


def test_an_agent_that_does_not_end_any_more_is_found_in_the_end() -> None:
    # Before the first step, in the middle of it, and after it; it is the second that does not end any more.
    said = mistake_of("hanging", timeout=12.0, max_points=3)

    assert "the agent does not come to its end any more: a process had not ended after 12 s" in said


def test_effects_may_be_read_by_a_function_of_the_authors() -> None:
    def lines(world: Path) -> int:
        return len((world / "sent").read_text().splitlines())

    assert "its effects was 1, and is 2" in mistake_of("unkeyed", effects=lines, max_points=2)


def test_points_may_be_fewer_and_are_spread() -> None:
    report = crash_everywhere("kit_agents:plain", max_points=3)

    assert [each.record for each in report.crashes] == [2, 3, 4]


def test_a_run_that_comes_to_no_such_record_is_not_struck(tmp_path: Path) -> None:
    case = Case(spec_of("kit_agents:plain", None, "", None))
    trial = Trial(case, tmp_path, seed=1, point=Point(99, When.AFTER))

    assert (trial.to_its_end().attempts, trial.struck) == (1, None)


@pytest.mark.parametrize(
    ("entrypoint", "reason"),
    [("no_such_module:agent", "EntrypointNotFound"), ("kit_agents:double", "EntrypointNotAgent")],
)
def test_an_agent_that_cannot_be_found_is_said_to_be(entrypoint: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=f"nothing happens to it: it halted as {reason}"):
        crash_everywhere(entrypoint)


def test_an_agent_is_found_by_itself_where_another_process_can_import_it() -> None:
    module = import_module("kit_agents")

    assert entrypoint_of(module.sound) == "kit_agents:sound"


def test_an_agent_that_no_other_process_can_import_is_refused() -> None:
    @agent(version="1")
    async def inner(run: Run) -> None: ...

    with pytest.raises(ValueError, match=r"agent inner is no name in module .*test_crashes"):
        crash_everywhere(inner)
    inner.fn.__module__ = "__main__"
    with pytest.raises(ValueError, match="agent inner is defined in the program that runs the test"):
        crash_everywhere(inner)
