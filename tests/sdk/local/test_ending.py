"""What follows the end of an executor, one row a case."""

import signal
from dataclasses import replace

import pytest

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.api.summary import HeadSummary, Outcome
from milepost.checkpoint.records import PreviousEnd
from milepost.local.ending import (
    FRUITLESS,
    Again,
    Attempt,
    GiveUp,
    Next,
    Report,
    Stop,
    Wait,
    after_exit,
    phrase,
    worth_telling,
)
from milepost.local.process import Exited

ATTEMPT = Attempt(number=2, steps_before=3)


def a_head(phase: Phase = Phase.RUNNING, *, attempt: int = 2, steps: int = 3) -> HeadSummary:
    return HeadSummary(
        run_id="a" * 20,
        resource_uid="u",
        spec_digest="d",
        phase=phase,
        epoch=attempt,
        attempt=attempt,
        seq=9,
        writer="w",
        digest="c",
        steps_done=steps,
        outcome=Outcome("Because") if phase in (Phase.SUCCEEDED, Phase.HALTED) else None,
    )


def an_end(cause: str, fault: str, code: int, message: str = "") -> PreviousEnd:
    return PreviousEnd.model_validate(
        {
            "attempt": 2,
            "cause": cause,
            "fault": fault,
            "exit_code": code,
            "message": message,
            "proved": True,
        }
    )


KILLED = an_end("KilledBySignal", "disruption", 137, "SIGKILL")


@pytest.mark.parametrize(
    ("exited", "head", "expected"),
    [
        pytest.param(Exited(0), a_head(Phase.SUCCEEDED), Report(), id="ended, exit 0"),
        pytest.param(Exited(-9), a_head(Phase.SUCCEEDED), Report(), id="ended, then killed"),
        pytest.param(Exited(1), a_head(Phase.FAILED), Report(), id="failed by its record"),
        pytest.param(Exited(83), a_head(Phase.HALTED), Report(), id="halted"),
        pytest.param(Exited(-9), a_head(Phase.HALTED), Report(), id="halted, then killed"),
        pytest.param(
            Exited(-9),
            a_head(Phase.HALTED, attempt=1),
            Again(KILLED, 0, 1),
            id="killed, an earlier one halted",
        ),
        pytest.param(
            Exited(0), a_head(Phase.WAITING), Wait(an_end("Waiting", "disruption", 0)), id="waits, exit 0"
        ),
        pytest.param(
            Exited(-9),
            a_head(Phase.WAITING),
            Wait(an_end("Waiting", "disruption", 137)),
            id="waits, then killed",
        ),
        pytest.param(
            Exited(-9),
            a_head(Phase.WAITING, attempt=1),
            Again(KILLED, 0, 1),
            id="killed, an earlier one waited",
        ),
        pytest.param(
            Exited(0),
            None,
            Stop("RunDeleted", "the run was deleted from the store while it was running"),
            id="head gone",
        ),
        pytest.param(
            Exited(81),
            a_head(Phase.DELETING),
            Stop("RunDeleted", "the run was deleted from the store while it was running"),
            id="head deleting",
        ),
        pytest.param(
            Exited(-9),
            a_head(attempt=3),
            Stop("Fenced", "attempt 3 of the run was started elsewhere, and goes on there"),
            id="killed, a later attempt is elsewhere",
        ),
        pytest.param(
            Exited(Exit.FENCED),
            a_head(),
            Stop("Fenced", "another writer has taken the run over, and goes on with it"),
            id="fenced",
        ),
        pytest.param(
            Exited(Exit.START_ERROR, "BucketMissing", "no bucket b"),
            a_head(),
            Stop("BucketMissing", "no bucket b"),
            id="start error",
        ),
        pytest.param(
            Exited(Exit.RELEASED),
            a_head(steps=4),
            Again(an_end("Released", "disruption", 80), 0),
            id="released by somebody",
        ),
        pytest.param(
            Exited(Exit.STORE_UNKNOWN, "StoreUnavailable", "no answer"),
            a_head(),
            Again(an_end("StoreUnknown", "disruption", 82, "no answer"), 0, 1, pause=5.0),
            id="store unknown",
        ),
        pytest.param(Exited(-9), a_head(), Again(KILLED, 0, 1), id="killed without progress"),
        pytest.param(Exited(-9), a_head(steps=4), Again(KILLED, 0), id="killed with progress"),
        pytest.param(
            Exited(-signal.SIGSEGV),
            a_head(),
            Again(an_end("Crashed", "agent", 139, "SIGSEGV"), 1, pause=1.0),
            id="crashed",
        ),
        pytest.param(
            Exited(0),
            a_head(),
            Again(an_end("ExitedWithoutOutcome", "agent", 0), 1, pause=1.0),
            id="exit 0 and no outcome",
        ),
        pytest.param(
            Exited(83),
            a_head(),
            Again(an_end("HaltedWithoutRecord", "agent", 83), 1, pause=1.0),
            id="halted and not recorded",
        ),
        pytest.param(
            Exited(7, message="boom"),
            a_head(),
            Again(an_end("AgentFailed", "agent", 7, "boom"), 1, pause=1.0),
            id="the agent's own exit code",
        ),
    ],
)
def test_what_follows_an_end(exited: Exited, head: HeadSummary | None, expected: Next) -> None:
    assert after_exit(exited, head, ATTEMPT) == expected


def test_the_failure_that_reaches_the_limit_ends_the_run() -> None:
    assert after_exit(Exited(7, message="boom"), a_head(), replace(ATTEMPT, failures=2)) == GiveUp(
        "ExecutorFailed",
        "3 attempts failed by the agent's own fault, which spec.retry.executorFailures allows no more; "
        "attempt 2 failed with exit code 7: boom",
    )


def test_a_limit_of_0_ends_the_run_at_the_first_failure() -> None:
    verdict = after_exit(Exited(7), a_head(), replace(ATTEMPT, limit=0))

    assert isinstance(verdict, GiveUp)


def test_losses_never_use_up_the_agents_failures() -> None:
    assert after_exit(Exited(-9), a_head(steps=4), replace(ATTEMPT, failures=2)) == Again(KILLED, 2)


def test_losses_that_repeat_without_progress_stop_the_attempts_and_leave_the_run() -> None:
    assert after_exit(Exited(-9), a_head(), replace(ATTEMPT, fruitless=FRUITLESS - 1)) == Stop(
        "NoProgress",
        "the last 5 attempts were lost before they recorded a step; attempt 2 was killed (SIGKILL); "
        "is there enough memory?",
    )


def test_a_recorded_step_starts_the_count_of_losses_anew() -> None:
    assert after_exit(Exited(-9), a_head(steps=4), replace(ATTEMPT, fruitless=FRUITLESS - 1)) == Again(
        KILLED, 0
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (KILLED, "was killed (SIGKILL)"),
        (an_end("Crashed", "agent", 139, "SIGSEGV"), "crashed (SIGSEGV)"),
        (an_end("AgentFailed", "agent", 7), "failed with exit code 7"),
        (an_end("StoreUnknown", "disruption", 82, "no answer"), "could not reach its store: no answer"),
        (an_end("Evicted", "disruption", 137), "Evicted"),
    ],
)
def test_an_end_in_words(end: PreviousEnd, expected: str) -> None:
    assert phrase(end) == expected


@pytest.mark.req("E3")
def test_an_attempt_that_never_held_the_run_does_not_hide_the_end_of_the_one_that_did() -> None:
    held = PreviousEnd(attempt=1, cause="KilledBySignal", fault="disruption", proved=True)
    lost, broken = an_end("KilledBySignal", "disruption", 137), an_end("AgentFailed", "agent", 1)

    assert worth_telling(held, lost, a_head(attempt=1)) == held
    assert worth_telling(held, lost, a_head(attempt=2)) == lost
    assert worth_telling(None, lost, a_head(attempt=1)) == lost
    # What uses up the run's failures has to be counted.
    assert worth_telling(held, broken, a_head(attempt=1)) == broken
