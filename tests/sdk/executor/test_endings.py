"""How an executor ends: what is the run's outcome, what is the agent's own failure, and what is neither."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.checkpoint.claim import claim
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import Claimed, Finished, Halted, StepCompleted
from milepost.checkpoint.store import Found
from milepost.executor.ending import MAX_TERMINATION_MESSAGE, Ending
from milepost.testing.fake_s3 import Drop, FakeS3, Fault, Reply
from tests.support.histories import some_patience
from tests.support.sessions import RunOnDisk, wait_until
from tests.support.store_doubles import Numbers


def test_what_the_agent_raises_is_the_runs_outcome_with_its_traceback_in_the_log(run: RunOnDisk) -> None:
    ended = run.begin("ending:end", how="raise_surrogate").go_on()

    assert (ended.code, ended.said["reason"]) == (0, "AgentRaised")
    assert run.state.outcome == Finished(
        phase=Phase.FAILED, reason="AgentRaised", message="ending.Broken: as \\udcff asked"
    )
    (line,) = ended.logged("agent-failed")
    assert "raise_surrogate" in line["exception"]


@pytest.mark.req("G4")
@pytest.mark.parametrize(
    ("how", "reason", "message"),
    [
        ("fail_a_step", "StepFailed", "step it failed after 1 attempt: ending.Broken: no"),
        ("fail_in_a_group", "StepFailed", "step it failed after 1 attempt: ending.Broken: no"),
        (
            "raise_unprintable",
            "AgentRaised",
            "ending.Unprintable: (its message cannot be printed: RuntimeError)",
        ),
        ("raise_base", "AgentRaised", "builtins.BaseException: beyond Exception"),
        ("cancel_itself", "AgentRaised", "asyncio.exceptions.CancelledError: "),
        ("cancel_everything", "AgentRaised", "asyncio.exceptions.CancelledError: "),
        ("return_what_is_not_storable", "ResultNotStorable", "result.deep[1] cannot be stored"),
        ("record_what_is_not_storable", "ResultNotStorable", "result.deep cannot be stored"),
    ],
)
def test_a_failure_of_the_agents_is_recorded_with_its_reason_and_keeps_what_was_done(
    run: RunOnDisk, how: str, reason: str, message: str
) -> None:
    ended = run.begin("ending:end", how=how).go_on()

    outcome = run.state.outcome
    assert isinstance(outcome, Finished)
    assert (ended.code, ended.said["reason"]) == (0, reason)
    assert (outcome.phase, outcome.reason) == (Phase.FAILED, reason)
    assert message in outcome.message
    assert "first" in run.state.completed


def test_a_failed_step_is_named_in_the_termination_message(run: RunOnDisk) -> None:
    ended = run.begin("ending:end", how="fail_a_step").go_on()

    assert ended.said == {
        "reason": "StepFailed",
        "message": "step it failed after 1 attempt: ending.Broken: no",
        "step": "it",
    }


@pytest.mark.parametrize("message", ["", "ä" * 5000, '\n\\"' * 5000, "\udcff" * 3000, "😀" * 4000])
def test_a_termination_message_is_always_json_that_fits(message: str) -> None:
    raw = Ending(0, "AgentRaised", message, "it").termination_message()

    said = json.loads(raw)
    assert len(raw) <= MAX_TERMINATION_MESSAGE
    assert (said["reason"], said["step"]) == ("AgentRaised", "it")
    assert len(said["message"]) >= min(len(message), 300)


def test_a_long_message_of_the_agents_is_cut(run: RunOnDisk) -> None:
    ended = run.begin("ending:end", how="raise_long").go_on()

    assert ended.code == 0
    assert ended.said["message"].startswith("ending.Broken: ä\nä")
    assert isinstance(run.state.outcome, Finished)
    assert len(run.state.outcome.message) <= 2000


@pytest.mark.parametrize(
    ("how", "code", "expected"),
    [
        ("leave", 0, 0),
        ("leave", None, 0),
        ("leave", 7, 7),
        ("leave", "for a reason", 1),
        ("leave", 80, 1),
        ("leave", 83, 1),
        ("leave", 256 + 7, 7),
        ("leave_in_a_step", 0, 0),
        ("leave_in_a_branch", 7, 7),
    ],
)
def test_an_agent_that_ends_its_process_leaves_no_outcome_and_no_reserved_code(
    run: RunOnDisk, how: str, code: Any, expected: int
) -> None:
    ended = run.begin("ending:end", how=how, code=code).go_on()

    assert (ended.code, ended.said["reason"]) == (expected, "AgentExited")
    assert (run.state.phase, run.state.outcome) == (Phase.RUNNING, None)
    assert [each.step.id for each in run.events(StepCompleted)] == ["first"]


def test_a_forked_child_that_returns_can_neither_record_nor_speak_for_its_parent(run: RunOnDisk) -> None:
    ended = run.begin("ending:end", how="fork_and_return").go_on()

    assert (ended.code, ended.said["reason"]) == (0, "Completed")
    assert isinstance(run.state.outcome, Finished)
    assert run.state.outcome.result is not None
    assert run.state.outcome.result.inline == "in the parent"
    assert len(ended.logged("end")) == 1


def test_warnings_are_lines_of_the_log(run: RunOnDisk) -> None:
    ended = run.begin("ending:end", how="warn").go_on()

    warned = "".join(line["event"] for line in ended.lines if line.get("logger") == "py.warnings")
    assert ended.code == 0
    assert "so be it" in warned
    assert "never awaited" in warned


@pytest.mark.req("C3")
def test_once_another_has_claimed_the_run_the_next_commit_ends_the_process(run: RunOnDisk) -> None:
    run.begin("stepping:stubborn", world=str(run.world))
    with run.executor() as executor:
        wait_until(lambda: run.lines("holding"))
        newer = Claimed(attempt=2, writer="pod-2")
        taken = claim(
            run.store,
            run.keys,
            newer,
            at=datetime(2026, 3, 1, tzinfo=UTC),
            entropy=Numbers(),
            patience=some_patience(),
        )
        (run.world / "let-go").touch()
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.FENCED, "Fenced")
    assert isinstance(taken, HeadAt)
    assert run.head == taken
    assert (run.lines("caught"), len(run.lines("holding"))) == ([], 1)


@pytest.mark.req("C3")
def test_an_executor_of_an_older_attempt_claims_nothing(run: RunOnDisk) -> None:
    run.begin("stepping:held", world=str(run.world))
    run.attempt = 4
    with run.executor() as executor:
        wait_until(lambda: run.lines("holding"))
        before = run.head
        old = run.go_on(MILEPOST_ATTEMPT="3", MILEPOST_POD_UID="pod-3")
        executor.process.kill()

    assert (old.code, old.said["reason"]) == (Exit.FENCED, "Fenced")
    assert run.head == before


@pytest.mark.req("C3")
def test_a_run_that_is_deleted_while_it_runs_is_not_brought_back(run: RunOnDisk) -> None:
    run.begin("stepping:stubborn", world=str(run.world))
    with run.executor() as executor:
        wait_until(lambda: run.lines("holding"))
        run.store.delete(run.keys.head)
        (run.world / "let-go").touch()
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.FENCED, "RunDeleted")
    assert list(run.store.list("")) == [each for each in run.store.list("") if "runs/" not in each.key]
    assert run.lines("caught") == []


def test_a_run_that_is_not_there_is_not_created(run: RunOnDisk) -> None:
    run.begin("stepping:held", world=str(run.world))
    run.store.delete(run.keys.head)

    ended = run.go_on()

    assert (ended.code, ended.said["reason"]) == (Exit.FENCED, "RunDeleted")


def test_a_store_that_goes_away_ends_the_process_and_the_agent_sees_nothing_of_it(
    run: RunOnDisk, s3: FakeS3
) -> None:
    run.in_s3(s3).begin("stepping:stubborn", world=str(run.world))
    with run.executor(MILEPOST_STORE_DEADLINE_SECONDS="1") as executor:
        wait_until(lambda: run.lines("holding"))
        s3.fail(Fault(Drop(), times=10**6))
        (run.world / "let-go").touch()
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.STORE_UNKNOWN, "StoreUnavailable")
    assert run.lines("caught") == []


def test_a_store_that_does_not_answer_at_the_start_is_waited_for(run: RunOnDisk, s3: FakeS3) -> None:
    run.in_s3(s3).begin("stepping:five", world=str(run.world))
    # More than the tries of one read.
    s3.fail(Fault(Reply(503, "SlowDown"), method="GET", times=6))

    assert run.go_on(MILEPOST_STORE_DEADLINE_SECONDS="30").code == 0


def test_a_store_that_never_answers_at_the_start_ends_the_process(run: RunOnDisk, s3: FakeS3) -> None:
    run.in_s3(s3).begin("stepping:five", world=str(run.world))
    s3.fail(Fault(Drop(), times=10**6))

    ended = run.go_on(MILEPOST_STORE_DEADLINE_SECONDS="1")

    assert (ended.code, ended.said["reason"]) == (Exit.STORE_UNKNOWN, "StoreUnavailable")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(403, "AccessDenied"), "StoreForbidden"),
        (Reply(403, "InvalidAccessKeyId"), "CredentialsInvalid"),
        (Reply(404, "NoSuchBucket"), "BucketMissing"),
    ],
)
def test_a_store_that_refuses_is_a_start_error_that_says_what_to_do(
    run: RunOnDisk, s3: FakeS3, reply: Reply, reason: str
) -> None:
    run.in_s3(s3).begin("stepping:five", world=str(run.world))
    s3.fail(Fault(reply, times=10**6))

    ended = run.go_on()

    assert (ended.code, ended.said["reason"]) == (Exit.START_ERROR, reason)
    assert "; " in ended.said["message"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MILEPOST_RUN_ID", "", "the variable MILEPOST_RUN_ID is not set"),
        ("MILEPOST_RUN_ID", "../other", "MILEPOST_RUN_ID"),
        ("MILEPOST_ATTEMPT", "first", "MILEPOST_ATTEMPT: 'first' is no number"),
        ("MILEPOST_ATTEMPT", "0", "MILEPOST_ATTEMPT: '0' is no number from 1 on"),
        ("MILEPOST_GRACE_SECONDS", "nan", "MILEPOST_GRACE_SECONDS"),
        ("MILEPOST_PREVIOUS_END", "{", "MILEPOST_PREVIOUS_END"),
        (
            "MILEPOST_PREVIOUS_END",
            '{"attempt": 1, "cause": "x", "fault": "y"}',
            "PREVIOUS_END: fault",
        ),
        ("MILEPOST_STORE", "ftp://somewhere", "names no store"),
    ],
)
def test_an_environment_that_is_wrong_is_a_start_error_that_names_the_variable(
    run: RunOnDisk, name: str, value: str, message: str
) -> None:
    ended = run.begin("stepping:five", world=str(run.world)).go_on(**{name: value})

    assert ended.code == Exit.START_ERROR
    assert message in ended.said["message"]
    assert run.head.head.epoch == 0


@pytest.mark.parametrize(
    ("entrypoint", "inputs", "version", "reason", "message"),
    [
        ("nowhere:agent", {}, "", "EntrypointNotFound", "importing nowhere failed: ModuleNotFoundError"),
        ("exiting_import:agent", {}, "", "EntrypointNotFound", "SystemExit: not a module"),
        ("stepping:missing", {}, "", "EntrypointNotFound", "has no 'missing'; its agents are blocking, "),
        (
            "stepping:not_an_agent",
            {},
            "",
            "EntrypointNotAgent",
            "is a int; decorate it",
        ),
        ("misspelt:dated", {"day": "2026-03-01"}, "", "EntrypointNotAgent", "name 'date' is not defined"),
        ("stepping:five", {}, "", "InputsInvalid", "spec.inputs.world is missing: agent five takes world"),
        ("stepping:five", {"world": "w", "x": 1}, "", "InputsInvalid", "spec.inputs.x is not known"),
        (
            "stepping:five",
            {"world": 3},
            "",
            "InputsInvalid",
            "spec.inputs.world: Input should be a",
        ),
        ("stepping:typed", {"world": "", "day": "soon"}, "", "InputsInvalid", "spec.inputs.day"),
        (
            "stepping:typed",
            {"world": "", "day": "2026-03-01", "limits": [1, "2"]},
            "",
            "InputsInvalid",
            "spec.inputs.limits.1",
        ),
        (
            "stepping:held",
            {"world": ""},
            "1",
            "VersionMismatch",
            "but the image has version '2'",
        ),
    ],
)
def test_an_agent_that_cannot_start_halts_the_run_and_the_message_names_the_field(
    run: RunOnDisk, entrypoint: str, inputs: dict[str, Any], version: str, reason: str, message: str
) -> None:
    ended = run.begin(entrypoint, version=version, **inputs).go_on()

    assert (ended.code, ended.said["reason"]) == (Exit.HALTED, reason)
    assert run.state.phase == Phase.HALTED
    assert isinstance(run.state.outcome, Halted)
    assert run.state.outcome.reason == run.head.head.reason == reason
    assert message in run.state.outcome.message
    assert message in ended.said["message"]


def test_a_halted_run_goes_on_once_the_cause_is_mended(run: RunOnDisk, tmp_path: Path) -> None:
    run.begin("late:five", world=str(run.world))
    halted = run.go_on()
    (tmp_path / "late.py").write_text("from stepping import five\n")

    ended = run.go_on(PYTHONPATH=f"{tmp_path}:{run.environment()['PYTHONPATH']}")

    assert (halted.code, ended.code) == (Exit.HALTED, 0)
    assert run.state.phase == Phase.SUCCEEDED


@pytest.mark.parametrize("what", ["segments/", "blobs/"])
@pytest.mark.parametrize("how", ["gone", "changed"])
def test_a_history_that_is_damaged_halts_the_run_and_is_not_skipped(
    run: RunOnDisk, what: str, how: str
) -> None:
    run.begin("stepping:bulky", world=str(run.world))
    with run.executor() as executor:
        wait_until(lambda: run.lines("holding"))
        executor.process.kill()
    (key,) = [each.key for each in run.store.list("") if what in each.key]
    found = run.store.get(key)
    assert isinstance(found, Found)
    run.store.delete(key)
    if how == "changed":
        run.store.put_new(key, found.body.replace(b"x", b"y", 1), {})

    ended = run.go_on()

    reason = "Missing" if how == "gone" else "Corrupt"
    assert (ended.code, ended.said["reason"]) == (Exit.HALTED, reason)
    assert (run.head.head.phase, run.head.head.reason) == (Phase.HALTED, reason)
    assert key in run.head.head.message
    assert len(run.lines("holding")) == 1
