"""An executor that dies by SIGKILL, for real, and the run that goes on in the next one."""

import pytest

from milepost.api.resource import Phase
from milepost.local.runner import Outcome
from tests.support.local_runs import Desk, a_manifest

RESULT = {"step-1": 2, "step-2": 4, "step-3": 6, "step-4": 8, "step-5": 10}


@pytest.mark.req("E4", "D1", "S4", "I2")
def test_killed_after_a_record_it_goes_on_with_the_next_step(desk: Desk) -> None:
    outcome = desk.run(a_manifest(inputs={"world": str(desk.world), "end": "kill-after-record-2"}))

    run = outcome.run_id
    assert outcome == Outcome(run, Phase.SUCCEEDED, "Completed", "", RESULT, steps=5)
    assert desk.calls() == [(f"{run}/step-{number}", True) for number in range(1, 6)]
    assert desk.attempts() == 2
    assert "attempt 2 goes on after 2 recorded steps; attempt 1 was killed (SIGKILL)" in desk.said


@pytest.mark.req("E5", "D1", "S4", "E1")
def test_killed_between_effect_and_record_the_key_is_sent_again_and_applied_once(desk: Desk) -> None:
    outcome = desk.run(a_manifest(inputs={"world": str(desk.world), "end": "kill-before-record-3"}))

    run = outcome.run_id
    assert outcome == Outcome(run, Phase.SUCCEEDED, "Completed", "", RESULT, steps=5)
    assert desk.calls() == [
        (f"{run}/step-1", True),
        (f"{run}/step-2", True),
        (f"{run}/step-3", True),
        (f"{run}/step-3", False),
        (f"{run}/step-4", True),
        (f"{run}/step-5", True),
    ]
    assert desk.attempts() == 2


def test_the_log_says_how_the_attempt_before_ended(desk: Desk) -> None:
    outcome = desk.run(a_manifest(inputs={"world": str(desk.world), "end": "kill-after-record-2"}))

    assert desk.state(outcome).totals.ends == {"KilledBySignal": 1}
