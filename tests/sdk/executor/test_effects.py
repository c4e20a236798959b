"""Executors that are killed around calls that must not be repeated blindly, and their successors."""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, Decided
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.records import Finished, Halted, Intended, PreviousEnd, ToolCalled
from milepost.checkpoint.sending import Patience
from tests.support.sessions import RunOnDisk

RESULT = [{"number": number} for number in (1, 2, 5, 3, 4)]


@pytest.fixture
def run(tmp_path: Path) -> RunOnDisk:
    return RunOnDisk(tmp_path)


def begin(run: RunOnDisk, end: str) -> None:
    run.begin("effectful:effects", world=str(run.world), end=end)


def ended(attempt: int, *, proved: bool) -> dict[str, str]:
    end = PreviousEnd(attempt=attempt, cause="Evicted", fault="disruption", proved=proved)
    return {"MILEPOST_PREVIOUS_END": end.model_dump_json()}


def killed(run: RunOnDisk, end: str) -> str:
    """Let the first executor be killed, and return the id of the step in whose call it was."""
    begin(run, end)
    assert run.go_on().code == -signal.SIGKILL
    (step,) = run.state.intents
    return step


def calls(run: RunOnDisk, what: str) -> Counter[str]:
    """Return how often the world was called like this, by what follows the run's id in the key."""
    lines = [line.split(" ") for line in run.lines("calls")]
    return Counter(key.removeprefix(f"{run.keys.run_id}/") for name, key in lines if name == what)


def finished(run: RunOnDisk) -> list[dict[str, int]]:
    (end,) = run.events(Finished)
    assert end.result is not None
    assert (end.phase, run.state.intents) == (Phase.SUCCEEDED, {})
    result: list[dict[str, int]] = end.result.inline
    return result


@pytest.mark.req("B2", "E3", "F-A2", "F-A3", "F-A4")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_verified_call_in_which_its_process_is_killed_happens_once(run: RunOnDisk, when: str) -> None:
    assert killed(run, f"{when}-upload") == "upload"

    assert run.go_on(**ended(1, proved=True)).code == Exit.COMMITTED

    assert finished(run) == RESULT
    again = when == "before"
    assert calls(run, "upload") == {"before": 1, "upload": 1 + again, "both": 1}
    assert calls(run, "ask") == {"upload": 1}
    assert calls(run, "mail") == {"mail": 1, "both/2": 1}
    outcomes = [each.outcome for each in run.events(ToolCalled) if each.step == "upload"]
    assert outcomes == (["verified", "answered"] if again else ["verified"])


@pytest.mark.req("E3")
def test_a_call_whose_process_may_be_alive_waits_for_the_proof_that_it_is_not(run: RunOnDisk) -> None:
    killed(run, "after-upload")

    halted = run.go_on(**ended(1, proved=False))
    assert (halted.code, halted.said["reason"]) == (Exit.HALTED, "OutcomeUnknown")
    assert calls(run, "ask") == {}
    assert run.go_on(**ended(1, proved=True)).code == Exit.COMMITTED

    assert finished(run) == RESULT
    assert calls(run, "upload")["upload"] == 1


@pytest.mark.req("E3", "F-A2", "F-A3")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fault", ["disruption", "agent"])
def test_an_irreversible_call_in_which_its_process_is_killed_halts_until_a_person_says(
    run: RunOnDisk, when: str, fault: str
) -> None:
    assert killed(run, f"{when}-mail") == "mail"
    end = PreviousEnd.model_validate({"attempt": 1, "cause": "Killed", "fault": fault, "proved": True})

    for _ in range(2):
        halted = run.go_on(MILEPOST_PREVIOUS_END=end.model_dump_json())
        assert (halted.code, halted.said["reason"]) == (Exit.HALTED, "OutcomeUnknown")
    assert calls(run, "mail") == {"mail": 1}
    happened = when == "after"
    gate = run.events(Halted)[-1].gate
    assert gate is not None
    answer = Answer(
        gate.id,
        AnswerType.DONE if happened else AnswerType.NOT_DONE,
        "kim",
        datetime.now(UTC).isoformat(),
        answer={"number": 5} if happened else None,
    )
    inbox.give(run.store, run.keys, answer, Patience(os.urandom))

    assert run.go_on().code == Exit.COMMITTED
    assert finished(run) == RESULT
    assert calls(run, "mail") == {"mail": 1 if happened else 2, "both/2": 1}
    assert [each.by for each in run.events(Decided)] == ["kim"]


@pytest.mark.req("B2")
def test_each_call_has_an_intent_that_stands_before_its_completion(run: RunOnDisk) -> None:
    begin(run, "")

    assert run.go_on().code == Exit.COMMITTED

    intents = [(each.step, each.call) for each in run.events(Intended)]
    completed = [(each.step, each.call) for each in run.events(ToolCalled)]
    assert intents == completed == [("before", 1), ("upload", 1), ("mail", 1), ("both", 1), ("both", 2)]
