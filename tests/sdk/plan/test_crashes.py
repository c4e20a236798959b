"""Agents whose work is a plan, in processes of their own that are killed before and after each record."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.testing import crash_everywhere


@pytest.fixture(autouse=True)
def _agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "agents"))


@pytest.mark.req("G2", "D12", "E4")
def test_a_plan_that_degrades_and_is_replaced_comes_to_the_same_wherever_it_is_killed() -> None:
    report = crash_everywhere("plan_agents:surveying")

    ran = report.undisturbed
    assert ran.phase == "Succeeded"
    assert ran.result == {
        "results": {
            "measure-north": 5,
            "measure-east": 4,
            "add": 9,
            "tell": "9 is at the board",
            "tell-others": "9 is at the other board",
        },
        "failed": {},
        "skipped": {},
        "gaps": {"add": ["measure-south"]},
        "replans": 1,
    }
    assert ran.effects == {
        "the ledger": [
            'aaaaaaaaaaaaaaaaaaaa/tell-others=survey.1: [9, "the other board"]',
            'aaaaaaaaaaaaaaaaaaaa/tell=survey: [9, "the board"]',
        ]
    }
    assert len(report.crashes) >= 12


@pytest.mark.req("G2")
def test_a_failed_plan_that_nobody_catches_fails_the_run_as_its_step_does() -> None:
    with pytest.raises(AssertionError) as found:
        crash_everywhere("plan_agents:hopeless", {"on_failure": "fail"}, max_points=1)

    assert str(found.value) == (
        "the agent fails though nothing happens to it: StepFailed: plan survey: step measure-south failed "
        "after 1 attempt: builtins.ConnectionError: south does not answer; 2 more did not run"
    )


@pytest.mark.req("G2")
def test_a_plan_that_goes_on_succeeds_with_errors_and_counts_them() -> None:
    report = crash_everywhere("plan_agents:hopeless", {"on_failure": "continue"}, max_points=2)

    ran = report.undisturbed
    assert (ran.phase, ran.reason) == ("Succeeded", "CompletedWithErrors")
    assert ran.message == "1 step failed; 1 skipped"
    assert ran.steps == {"measure-north=survey": 5}
