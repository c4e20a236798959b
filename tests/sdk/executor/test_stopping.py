"""SIGTERM: the step in flight may end, no other begins, and the author's code is never unwound."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from milepost.api.exits import Exit
from milepost.checkpoint.records import Finished, StepCompleted, StepFailure
from milepost.testing.fake_s3 import FakeS3, Fault, Hold
from tests.support.sessions import Executor, RunOnDisk, wait_until

# For what does not wait for the end of it.
LONG = {"MILEPOST_GRACE_SECONDS": "600"}


@contextmanager
def stopped(run: RunOnDisk, grace: float) -> Iterator[Executor]:
    """Start an executor and stop it once it holds, as a kubelet does: SIGTERM, and later SIGKILL."""
    with run.executor(MILEPOST_GRACE_SECONDS=str(grace)) as executor:
        wait_until(lambda: run.lines("holding"))
        kill = threading.Timer(grace, executor.process.kill)
        kill.start()
        executor.stop()
        yield executor
        kill.cancel()


@pytest.mark.req("D4", "F-A9")
def test_a_step_that_fits_the_grace_period_is_recorded_and_no_other_is_started(run: RunOnDisk) -> None:
    run.begin("stepping:held", world=str(run.world))
    with run.executor() as executor:
        wait_until(lambda: run.lines("holding"))
        executor.stop()
        executor.wait_for("stopping")
        (run.world / "let-go").touch()
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.RELEASED, "Released")
    assert [each.step.id for each in run.events(StepCompleted)] == ["hold"]
    assert (run.lines("ran"), run.lines("unwound")) == ([], [])
    assert run.go_on().code == 0
    assert (run.lines("ran"), len(run.lines("holding"))) == (["2"], 1)


@pytest.mark.req("F-A9")
def test_a_step_that_does_not_fit_is_left_before_the_kill(run: RunOnDisk) -> None:
    run.begin("stepping:held", world=str(run.world))
    with stopped(run, grace=4) as executor:
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.RELEASED, "Released")
    assert (run.events(StepCompleted), run.events(StepFailure), run.lines("unwound")) == ([], [], [])


@pytest.mark.req("F-A9")
def test_an_agent_that_blocks_the_event_loop_is_left_before_the_kill(run: RunOnDisk) -> None:
    run.begin("stepping:blocking", world=str(run.world))
    with stopped(run, grace=4) as executor:
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.RELEASED, "Released")


def test_a_pause_before_the_next_try_is_not_waited_for(run: RunOnDisk) -> None:
    run.begin("stepping:pausing", world=str(run.world))
    with run.executor(**LONG) as executor:
        wait_until(lambda: run.head.head.epoch and run.events(StepFailure))
        executor.stop()
        ended = executor.ended()

    assert ended.code == Exit.RELEASED
    assert [each.attempt for each in run.events(StepFailure)] == [1]


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_stop_while_the_store_keeps_the_claim_waiting_is_obeyed_at_once(
    run: RunOnDisk, s3: FakeS3, method: str
) -> None:
    run.in_s3(s3).begin("stepping:held", world=str(run.world))
    hold = Hold()
    s3.fail(Fault(hold, method=method))
    with run.executor(**LONG) as executor:
        assert hold.reached.wait(60)
        executor.stop()
        ended = executor.ended()
        assert not hold.release.is_set()

    assert (ended.code, ended.said["reason"]) == (Exit.RELEASED, "Released")
    assert run.lines("holding") == []


def test_a_child_that_is_ended_by_a_step_ends_and_does_not_stop_the_run(run: RunOnDisk) -> None:
    ended = run.begin("ending:end", how="stop_a_child").go_on()

    outcome = run.state.outcome
    assert (ended.code, ended.logged("stopping")) == (0, [])
    assert isinstance(outcome, Finished)
    assert outcome.result is not None
    assert outcome.result.inline == signal.SIGTERM


@pytest.mark.req("B3")
def test_what_was_only_handed_over_is_recorded_when_the_pod_is_stopped(run: RunOnDisk) -> None:
    run.begin("stepping:four_then_held", every_steps=3, world=str(run.world))
    with run.executor(MILEPOST_GRACE_SECONDS="4") as executor:
        wait_until(lambda: run.lines("holding"))
        assert set(run.state.completed) == {"step-1", "step-2", "step-3"}
        executor.stop()
        ended = executor.ended()

    assert ended.code == Exit.RELEASED
    assert set(run.state.completed) == {"step-1", "step-2", "step-3", "step-4"}


@pytest.mark.req("B3")
def test_a_killed_pod_loses_at_most_what_was_only_handed_over(run: RunOnDisk) -> None:
    run.begin("stepping:four_then_held", every_steps=3, world=str(run.world))
    with run.executor() as executor:
        wait_until(lambda: run.lines("holding"))
        executor.process.kill()
        executor.ended()
    (run.world / "let-go").touch()

    assert run.go_on().code == 0
    assert run.lines("ran") == ["1", "2", "3", "4", "4"]
