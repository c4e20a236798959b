"""A model's agent in an executor that dies by SIGKILL, for real, and the run that goes on in the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.checkpoint.records import StepFailure
from milepost.local.runner import Outcome
from milepost.testing import Ledger, Received
from tests.support.local_runs import Desk, a_manifest
from tests.support.sessions import RunOnDisk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def worked(desk: Desk, end: str, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setenv("ADDING_FOLDER", str(desk.world))
    monkeypatch.setenv("ADDING_ENDS", end)
    return desk.run(a_manifest("llm_agent:adding", goal="Add the numbers from 1 to 5."))


def ended(outcome: Outcome) -> tuple[Any, ...]:
    result = outcome.result
    return (outcome.phase, outcome.reason, result["summary"], result["steps"], result["stopped"])


ADDED = (Phase.SUCCEEDED, "Completed", "10", 5, "Done")


def key(run: str, number: int) -> str:
    return f"{run}/add" if number == 1 else f"{run}/add#{number}"


@pytest.mark.req("E4", "G1")
def test_killed_after_the_record_of_step_2_the_tool_gets_each_step_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = worked(desk, "after-record-2", monkeypatch)

    assert ended(outcome) == ADDED
    assert Ledger.in_folder(desk.world).received() == [
        Received(key(outcome.run_id, number), number, applied=True) for number in range(1, 6)
    ]
    assert desk.attempts() == 2


@pytest.mark.req("E5", "G1")
def test_killed_between_step_3_and_its_record_the_key_comes_twice_and_is_applied_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = worked(desk, "before-record-3", monkeypatch)

    assert ended(outcome) == ADDED
    ledger = Ledger.in_folder(desk.world)
    third = key(outcome.run_id, 3)
    assert [each for each in ledger.received() if each.key == third] == [
        Received(third, 3, applied=True),
        Received(third, 3, applied=False),
    ]
    assert ledger.applied() == [1, 2, 3, 4, 5]
    assert desk.attempts() == 2


@pytest.mark.req("G4")
def test_a_process_that_waits_out_a_rate_limit_can_be_stopped(tmp_path: Path) -> None:
    run = RunOnDisk(tmp_path).begin("llm_agent:limited", spec={"goal": "Wait."})

    with run.executor(MILEPOST_GRACE_SECONDS="8") as executor:
        executor.wait_for("RateLimited until ")
        executor.stop()
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.RELEASED, "Released")
    assert run.events(StepFailure) == []


@pytest.mark.req("A7", "D8")
def test_another_model_halts_the_run_and_both_are_shown(tmp_path: Path) -> None:
    run = RunOnDisk(tmp_path).begin("llm_agent:adding", spec={"goal": "Add."})
    world = {"ADDING_FOLDER": str(run.world)}
    run.go_on(**world, ADDING_MODEL="model-1", ADDING_ENDS="after-record-2")

    ended = run.go_on(**world, ADDING_MODEL="model-2")

    assert ended.code == Exit.HALTED
    assert "function:model-1" in ended.said["message"]
    assert "function:model-2" in ended.said["message"]
    assert Ledger.in_folder(run.world).applied() == [1, 2]
