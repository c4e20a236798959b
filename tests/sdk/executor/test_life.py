"""From the claim to the outcome: what an executor records, logs and leaves, and that every start resumes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint import values
from milepost.checkpoint.records import Claimed, Finished, StepCompleted, ToolCalled
from tests.support.sessions import AGENTS, RunOnDisk, wait_until

FIVE = {"1": 1, "2": 3, "3": 6, "4": 10, "5": 15}


def result_of(run: RunOnDisk) -> Any:
    outcome = run.state.outcome
    assert isinstance(outcome, Finished)
    assert outcome.result is not None
    return values.read(run.store, run.keys, outcome.result)


@pytest.mark.req("D1", "G3")
def test_a_run_that_is_not_disturbed_succeeds_and_says_so(run: RunOnDisk) -> None:
    ended = run.begin("stepping:five", world=str(run.world)).go_on()

    assert (ended.code, ended.said) == (0, {"reason": "Completed", "message": "", "step": ""})
    assert (run.state.phase, result_of(run)) == (Phase.SUCCEEDED, FIVE)
    assert run.lines("ran") == ["1", "2", "3", "4", "5"]


@pytest.mark.req("D1", "D4", "E4")
@pytest.mark.parametrize("recorded", range(6))
def test_killed_after_any_commit_it_resumes_and_repeats_nothing_that_was_recorded(
    run: RunOnDisk, recorded: int
) -> None:
    run.begin("stepping:five", world=str(run.world))
    with run.executor() as executor:
        wait_until(lambda: run.head.head.epoch == 1 and run.head.head.totals.steps_done >= recorded)
        executor.process.kill()
        executor.process.wait()
    done, seq = run.head.head.totals.steps_done, run.head.head.seq
    before = run.lines("ran")

    ended = run.go_on()

    again = run.lines("ran")[len(before) :]
    assert (ended.code, result_of(run)) == (0, FIVE)
    assert again == [str(number) for number in range(done + 1, 6)] or run.head.head.seq == seq
    assert [each.step.id for each in run.events(StepCompleted)] == [f"step-{n}" for n in range(1, 6)]


@pytest.mark.req("D1")
def test_a_second_start_of_a_run_that_has_ended_writes_nothing(run: RunOnDisk) -> None:
    run.begin("stepping:five", world=str(run.world)).go_on()
    before = run.head

    ended = run.go_on()

    assert (ended.code, ended.said["reason"]) == (0, "AlreadyEnded")
    assert run.head == before


@pytest.mark.req("B5")
def test_every_write_is_logged_with_run_steps_worker_epoch_size_and_duration(run: RunOnDisk) -> None:
    ended = run.begin("stepping:five", world=str(run.world)).go_on()

    lines = [*ended.logged("claimed"), *ended.logged("checkpoint")]
    assert [line["seq"] for line in lines] == list(range(2, run.state.seq + 1))
    assert [line["steps"] for line in lines] == [[], *([f"step-{n}"] for n in range(1, 6)), []]
    assert {(line["run"], line["worker"], line["epoch"]) for line in lines} == {(run.keys.run_id, "pod-1", 1)}
    assert all(line["bytes"] > 0 and line["duration_ms"] >= 0 for line in lines)
    # The last body is the file, but for the line of metadata before it.
    stored = run.store.get(run.keys.head)
    assert lines[-1]["bytes"] == len(stored.body)  # type: ignore[union-attr]  # it is there
    assert ended.text.count("\n") == len(ended.lines)


@pytest.mark.req("A7")
def test_each_claim_records_what_it_runs_on_and_how_the_pod_before_ended(run: RunOnDisk) -> None:
    run.begin("stepping:sending", world=str(run.world))
    previous = {
        "attempt": 0,
        "cause": "Evicted",
        "fault": "disruption",
        "exit_code": None,
        "message": "node drained",
        "proved": False,
    }
    ended = run.go_on(
        MILEPOST_IMAGE="agent@sha256:1",
        MILEPOST_POD_NAME="triage-1",
        MILEPOST_NODE="node-1",
        MILEPOST_PREVIOUS_END=json.dumps(previous),
    )

    (claimed,) = run.events(Claimed)
    source = (AGENTS / "stepping.py").read_bytes()
    assert ended.code == 0
    assert claimed.code_digest == hashlib.sha256(b"stepping.py\0" + source + b"\0").hexdigest()
    assert claimed.previous_end is not None
    assert claimed.previous_end.model_dump() == previous
    assert claimed.model_dump(exclude={"code_digest", "previous_end", "milepost_version"}) == {
        "kind": "claimed",
        "attempt": 1,
        "writer": "pod-1",
        "pod": "triage-1",
        "node": "node-1",
        "image": "agent@sha256:1",
        "agent_version": "1",
        "tools": {"send": "3"},
        "environment": {},
        "policy": {},
    }
    assert "Python 3" in claimed.milepost_version
    assert run.state.totals.ends == {"Evicted": 1}


@pytest.mark.req("E1")
def test_a_tools_key_is_made_of_the_run_and_the_step(run: RunOnDisk) -> None:
    run.begin("stepping:sending", world=str(run.world)).go_on()

    assert run.lines("sent") == [f"{run.keys.run_id}/send 1"]
    assert [each.key for each in run.events(ToolCalled)] == [f"{run.keys.run_id}/send"]


def test_inputs_become_what_the_agent_declares(run: RunOnDisk) -> None:
    run.begin("stepping:typed", world=str(run.world), day="2026-03-01", limits=[1, 2]).go_on()

    assert result_of(run) == "2026-03-01 (1, 2)"


@pytest.mark.req("A6")
def test_a_large_result_of_the_run_is_a_blob(run: RunOnDisk) -> None:
    run.begin("stepping:large", size=20_000).go_on()

    outcome = run.state.outcome
    assert isinstance(outcome, Finished)
    assert outcome.result is not None
    assert (outcome.result.inline, outcome.result.size) == (None, 20_002)
    assert result_of(run) == "x" * 20_000


@pytest.mark.req("A6")
@pytest.mark.parametrize(("size", "inline"), [(4_094, True), (4_095, False)])
def test_a_result_that_the_status_cannot_hold_is_a_blob(run: RunOnDisk, size: int, *, inline: bool) -> None:
    run.begin("stepping:large", size=size).go_on()

    outcome = run.state.outcome
    assert isinstance(outcome, Finished)
    assert outcome.result is not None
    assert (outcome.result.blob == "") is inline
    assert result_of(run) == "x" * size


def test_steps_that_nobody_waits_for_are_recorded_before_the_end(run: RunOnDisk) -> None:
    run.begin("stepping:leaving", world=str(run.world))
    with run.executor() as executor:
        wait_until(lambda: run.lines("ran"))
        wait_until(lambda: run.head.head.totals.steps_done == 1)
        (run.world / "let-go").touch()
        ended = executor.ended()

    assert (ended.code, result_of(run)) == (0, "left one behind, done: False")
    assert set(run.state.completed) == {"hold", "one"}


def test_a_log_that_nobody_reads_any_more_does_not_end_the_run(run: RunOnDisk) -> None:
    ended = run.begin("stepping:five", world=str(run.world)).go_on(
        MILEPOST_TERMINATION_LOG=str(Path("/nowhere/last-words"))
    )

    assert (ended.code, ended.said) == (0, {})
    assert len(ended.logged("termination-message-lost")) == 1


@pytest.mark.req("I2", "I7")
def test_a_call_that_takes_longer_than_all_deadlines_and_holds_the_loop_is_made_once(run: RunOnDisk) -> None:
    """Nobody takes a slow call for a dead one: no heartbeat has to get through while it runs."""
    run.begin("changing:blocking", world=str(run.world))
    ended = run.go_on(
        AGENT_WORLD=str(run.world), MILEPOST_STORE_DEADLINE_SECONDS="1", MILEPOST_GRACE_SECONDS="1"
    )
    assert (ended.code, run.lines("ran")) == (0, ["slow"])
    assert [event.step.id for event in run.events(StepCompleted)] == ["slow"]
