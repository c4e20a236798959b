"""Processes that end because their run waits, and those that go on with it once it was answered."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.checkpoint.gates import AnswerType, Decided, GateOpened, Waiting
from milepost.checkpoint.records import Claimed, Finished, StepCompleted
from milepost.testing.fake_s3 import FakeS3, Fault, Hold
from tests.support.at_gates import answer, gate_of, gates_of, send
from tests.support.sessions import Ended, RunOnDisk, wait_until

QUICK = {"MILEPOST_LINGER_SECONDS": "0.1"}


def outcome(run: RunOnDisk) -> Finished:
    found = run.state.outcome
    assert isinstance(found, Finished)
    return found


def result_of(run: RunOnDisk) -> Any:
    result = outcome(run).result
    assert result is not None
    return result.inline


def waited(ended: Ended) -> bool:
    return (ended.code, ended.said["reason"]) == (Exit.COMMITTED, "Waiting")


@pytest.mark.req("F1")
def test_a_process_ends_without_an_error_once_its_run_only_waits_and_unwinds_nothing(run: RunOnDisk) -> None:
    ended = run.begin("waiting:publishing", world=str(run.world)).go_on()

    assert (ended.code, ended.said) == (
        0,
        {"reason": "Waiting", "message": "waits for Approval publish", "step": ""},
    )
    assert (run.head.head.phase, gate_of(run).name) == (Phase.WAITING, "publish")
    assert run.lines("unwound") == []


@pytest.mark.req("F1", "F2")
@pytest.mark.parametrize(
    ("type_", "data", "result"),
    [
        (AnswerType.APPROVE, {"rows": 2}, "ann rows=2 title='as it is'"),
        (AnswerType.DENY, None, "no: ann, later"),
        (AnswerType.EXPIRED, None, "too late"),
    ],
)
def test_an_answer_lets_the_next_process_go_on(
    run: RunOnDisk, type_: AnswerType, data: Any, result: str
) -> None:
    run.begin("waiting:publishing", world=str(run.world)).go_on(**QUICK)
    answer(run, type_, data, reason="later")

    ended = run.go_on(**QUICK)

    assert (ended.code, ended.said["reason"], result_of(run)) == (0, "Completed", result)
    assert (run.lines("ran"), run.lines("unwound")) == (["1"], ["finally"])


@pytest.mark.req("F2")
def test_a_month_later_another_node_and_another_image_go_on(run: RunOnDisk) -> None:
    first = run.begin("waiting:asleep", world=str(run.world)).go_on(
        MILEPOST_IMAGE="agent:1", MILEPOST_NODE="node-1", **QUICK
    )
    at = gate_of(run)
    until = datetime.fromisoformat(at.until)
    assert waited(first)
    assert until - datetime.fromisoformat(at.since) == timedelta(days=30)
    assert waited(run.go_on(MILEPOST_IMAGE="agent:1", MILEPOST_NODE="node-2", **QUICK)), (
        "nobody said it is due"
    )
    answer(run, AnswerType.DUE, at=at.until, by="")

    last = run.go_on(MILEPOST_IMAGE="agent:2", MILEPOST_NODE="node-3", **QUICK)

    assert (last.code, run.lines("ran")) == (0, ["1", "2"])
    assert datetime.fromisoformat(result_of(run)) >= until
    assert [(each.node, each.image) for each in run.events(Claimed)] == [
        ("node-1", "agent:1"),
        ("node-2", "agent:1"),
        ("node-3", "agent:2"),
    ]


@pytest.mark.req("F1")
def test_with_one_slot_all_other_branches_end_before_the_process_does(run: RunOnDisk) -> None:
    ended = run.begin("waiting:one_by_one", world=str(run.world), branches=6).go_on(**QUICK)

    assert waited(ended)
    assert run.lines("ran") == ["0", "1", "2", "3", "4", "5"]
    assert run.lines("after") == ["1", "3", "5"]
    for gate in gates_of(run):
        answer(run, gate=gate.id)
    assert run.go_on(**QUICK).code == 0
    assert sorted(run.lines("after")) == ["0", "1", "2", "3", "4", "5"]
    assert len(run.lines("ran")) == 6


@pytest.mark.req("F1")
def test_a_process_stays_for_the_step_of_another_branch_and_what_follows_it(run: RunOnDisk) -> None:
    run.begin("waiting:beside_a_step", world=str(run.world))
    with run.executor(**QUICK) as executor:
        wait_until(lambda: run.lines("holding") and gates_of(run))
        time.sleep(0.5)
        assert executor.process.poll() is None
        (run.world / "let-go").touch()
        ended = executor.ended()

    assert waited(ended)
    assert (run.lines("ran"), len(run.events(Waiting))) == (["2"], 1)
    answer(run)
    assert (run.go_on(**QUICK).code, result_of(run)) == (0, "ann let go")


@pytest.mark.req("F1")
def test_a_process_stays_for_a_pause_before_another_try(run: RunOnDisk) -> None:
    ended = run.begin("waiting:beside_a_retry", world=str(run.world)).go_on(**QUICK)

    assert (waited(ended), run.lines("ran")) == (True, ["try", "try"])


@pytest.mark.req("F1", "F-A9")
@pytest.mark.parametrize("moment", ["a step in flight", "nothing in flight"])
def test_sigterm_at_a_gate_releases_the_run_as_always(run: RunOnDisk, moment: str) -> None:
    beside = moment == "a step in flight"
    run.begin("waiting:beside_a_step" if beside else "waiting:publishing", world=str(run.world))
    with run.executor(MILEPOST_LINGER_SECONDS="60") as executor:
        wait_until(lambda: gates_of(run) and (run.lines("holding") or not beside))
        executor.stop()
        executor.wait_for("stopping")
        (run.world / "let-go").touch()
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (Exit.RELEASED, "Released")
    assert (run.lines("unwound"), run.events(Waiting)) == ([], [])
    assert run.head.head.phase is Phase.RUNNING
    assert [each.step.id for each in run.events(StepCompleted)] == (["1:1/hold"] if beside else ["draft"])
    assert waited(run.go_on(**QUICK))
    assert len(run.events(GateOpened)) == 1


@pytest.mark.req("F2")
def test_an_event_that_comes_before_the_run_waits_for_it_is_kept(run: RunOnDisk) -> None:
    run.begin("waiting:events", world=str(run.world))
    send(run, {"rows": 1})
    assert waited(run.go_on(**QUICK))
    assert run.lines("came") == ["1"]
    send(run, {"rows": 2})

    assert (run.go_on(**QUICK).code, result_of(run)) == (0, [1, 2])
    assert [each.by for each in run.events(Decided)] == ["shop", "shop"]


@pytest.mark.req("F1", "F2")
def test_a_run_in_a_bucket_waits_and_goes_on(run: RunOnDisk, s3: FakeS3) -> None:
    run.in_s3(s3).begin("waiting:events", world=str(run.world))
    assert waited(run.go_on(**QUICK))
    send(run, {"rows": 1})
    assert waited(run.go_on(**QUICK))
    send(run, {"rows": 2})

    assert (run.go_on(**QUICK).code, result_of(run)) == (0, [1, 2])


@pytest.mark.req("F1", "F3")
@pytest.mark.parametrize("seq", range(2, 10))
def test_killed_at_any_record_around_a_gate_it_decides_once_and_goes_on(run: RunOnDisk, seq: int) -> None:
    run.begin("waiting:publishing", world=str(run.world))
    for _ in range(5):
        with run.executor(**QUICK) as executor:
            wait_until(lambda: run.head.head.seq >= seq or executor.process.poll() is not None)
            if run.head.head.seq >= seq:
                executor.process.kill()
            executor.process.wait()
        if run.head.head.seq >= seq:
            break
        answer(run, data={"rows": 2})
    while not run.head.head.phase.terminal:
        if gates_of(run):
            answer(run, data={"rows": 2})
        assert run.go_on(**QUICK).code == 0

    assert result_of(run) == "ann rows=2 title='as it is'"
    assert (len(run.events(GateOpened)), len(run.events(Decided))) == (1, 1)
    assert len(set(run.lines("published"))) == 1


@pytest.mark.req("F3")
def test_of_two_processes_that_go_on_at_once_with_one_answer_one_acts(run: RunOnDisk) -> None:
    run.begin("waiting:publishing", world=str(run.world)).go_on(**QUICK)
    answer(run, data={"rows": 2})

    with run.executor(**QUICK) as one, run.executor(**QUICK) as other:
        codes = {one.ended().code, other.ended().code}

    assert codes in ({Exit.COMMITTED}, {Exit.COMMITTED, Exit.FENCED})
    assert len(run.events(Decided)) == 1
    assert [each.step.id for each in run.events(StepCompleted)] == ["draft", "publish"]


def test_a_run_that_ends_while_something_is_left_at_a_gate_just_ends(run: RunOnDisk) -> None:
    ended = run.begin("waiting:left_behind", world=str(run.world)).go_on()

    assert (ended.code, ended.said["reason"]) == (0, "Completed")
    assert (result_of(run), gates_of(run)) == ("left one behind, done: False", ())


def test_code_that_comes_to_its_end_while_it_is_recorded_that_it_waits_ends_the_run(
    run: RunOnDisk, s3: FakeS3
) -> None:
    run.in_s3(s3).begin("waiting:busy_beside", world=str(run.world))
    hold = Hold()
    # After the claim and the gate.
    s3.fail(Fault(hold, method="PUT", key="/head", nth=3))
    with run.executor(**QUICK) as executor:
        assert hold.reached.wait(60)
        (run.world / "let-go").touch()
        wait_until(lambda: run.lines("returned"))
        time.sleep(0.5)
        hold.release.set()
        ended = executor.ended()

    assert (ended.code, ended.said["reason"]) == (0, "Completed")
    assert (result_of(run), len(run.events(Waiting))) == ("done: False", 1)


def test_steps_that_were_never_awaited_are_the_runs_error(run: RunOnDisk) -> None:
    ended = run.begin("waiting:forgetting", world=str(run.world)).go_on()

    message = (
        "the agent's code has begun and never awaited forgotten, @this%20too; write `await run.step(...)`"
    )
    assert (ended.code, ended.said["reason"], ended.said["message"]) == (0, "StepNeverAwaited", message)
    assert (outcome(run).phase, outcome(run).result) == (Phase.FAILED, None)
    assert "never awaited" not in ended.text.replace(message, "")


@pytest.mark.req("D12")
def test_a_run_that_went_on_without_something_says_so_at_its_end(run: RunOnDisk) -> None:
    ended = run.begin("waiting:making_do", world=str(run.world)).go_on()

    message = "1 step failed; 1 skipped; phase sum went on without b"
    assert (ended.code, ended.said["reason"], ended.said["message"]) == (0, "CompletedWithErrors", message)
    assert (outcome(run).phase, outcome(run).reason, outcome(run).message, result_of(run)) == (
        Phase.SUCCEEDED,
        "CompletedWithErrors",
        message,
        "b",
    )
