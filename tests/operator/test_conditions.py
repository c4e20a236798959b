"""The status that a pass writes, and what kstatus, and so Argo CD and Flux, make of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from milepost.api.resource import CheckpointStatus, Condition, RunStatus
from milepost.api.summary import Outcome
from milepost_operator.core.conditions import status_of
from milepost_operator.core.observation import End, Fault
from milepost_operator.core.plan import CreatePod, Plan
from milepost_operator.core.rules import plan
from tests.support.builders import (
    NOON,
    OTHER_UID,
    Phase,
    StoreProblem,
    a_head,
    a_name,
    a_pod,
    a_run,
    a_spec,
    an_ended_pod,
    an_observation,
)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {part["type"]: (part["status"], part["reason"]) for part in status["conditions"]}


@pytest.mark.req("K3")
@pytest.mark.parametrize(
    ("phase", "ready", "reconciling", "stalled"),
    [
        (Phase.PENDING, "False", "True", "False"),
        (Phase.RUNNING, "False", "True", "False"),
        (Phase.WAITING, "False", "False", "False"),
        (Phase.SUSPENDED, "False", "False", "False"),
        (Phase.HALTED, "False", "False", "True"),
        (Phase.FAILED, "False", "False", "True"),
        (Phase.CANCELLED, "False", "False", "True"),
        (Phase.SUCCEEDED, "True", "False", "False"),
    ],
)
def test_each_phase_has_the_conditions_that_kstatus_reads(
    phase: Phase, ready: str, reconciling: str, stalled: str
) -> None:
    status = status_of(an_observation(a_run(), a_pod()), Plan(phase, "Because"))

    found = conditions(status)
    assert (found["Ready"], found["Reconciling"][0], found["Stalled"][0]) == (
        (ready, "Because"),
        reconciling,
        stalled,
    )
    assert status["observedGeneration"] == 1


@pytest.mark.req("K2")
def test_the_whole_status_of_a_running_run() -> None:
    seen = an_observation(a_run(), a_pod(), store_uri="s3://b/p")
    at = "2026-03-01T12:00:00Z"

    def condition(kind: str, status: str, reason: str, message: str = "", since: str = at) -> dict[str, Any]:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
            "observedGeneration": 1,
        }

    assert status_of(seen, plan(seen)) == {
        "observedGeneration": 1,
        "phase": "Running",
        "conditions": [
            condition("Ready", "False", "Running", "attempt 1 on node-1", "2026-03-01T11:00:00Z"),
            condition("Reconciling", "True", "Running"),
            condition("Stalled", "False", "Running"),
            condition("StoreReady", "True", "Readable"),
        ],
        "progress": "5/10",
        "attempt": 1,
        "runId": "aaaaaaaaaaaaaaaaaaaa",
        "pod": {"name": "docs-xl66r-1", "node": "node-1"},
        "disruptions": {},
        "failures": {},
        "startTime": at,
        "completionTime": None,
        "result": None,
        "resultRef": "",
        "checkpoint": {
            "uri": "s3://b/p/team/runs/aaaaaaaaaaaaaaaaaaaa",
            "seq": 6,
            "epoch": 1,
            "digest": "0" * 64,
        },
    }


def test_a_pass_that_finds_nothing_new_builds_the_same_status() -> None:
    seen = an_observation(a_run(), a_pod(), store_uri="s3://b/p")
    first = status_of(seen, plan(seen))
    run = seen.run.model_copy(update={"status": RunStatus.model_validate(first)})
    later = replace(seen, run=run, now=NOON + timedelta(hours=1))

    assert status_of(later, plan(later)) == first


def test_an_end_is_counted_with_the_pod_that_follows_it() -> None:
    seen = an_observation(a_run(), an_ended_pod(deadline=NOON))
    status = status_of(seen, plan(seen))

    assert (status["attempt"], status["disruptions"], status["failures"]) == (2, {"Deleted": 1}, {})
    assert status["pod"] == {"name": "docs-xl66r-2", "node": ""}


@pytest.mark.req("K5")
def test_an_end_is_counted_once_by_an_operator_that_died_before_it_wrote_so() -> None:
    end = End(1, "AgentFailed", Fault.AGENT)
    seen = an_observation(a_run(), an_ended_pod(code=3), a_pod(2, previous_end=end))
    first = status_of(seen, plan(seen))
    written = replace(seen, run=seen.run.model_copy(update={"status": RunStatus.model_validate(first)}))

    assert (first["attempt"], first["failures"]) == (2, {"AgentFailed": 1})
    assert status_of(written, plan(written))["failures"] == {"AgentFailed": 1}


def test_two_ends_are_counted_where_the_second_pod_ended_before_the_first_was_counted() -> None:
    end = End(1, "AgentFailed", Fault.AGENT)
    seen = an_observation(
        a_run(),
        an_ended_pod(code=3),
        an_ended_pod(2, deadline=NOON, previous_end=end),
        head=a_head(attempt=2),
    )
    status = status_of(seen, plan(seen))

    assert (status["attempt"], status["failures"], status["disruptions"]) == (
        3,
        {"AgentFailed": 1},
        {"Deleted": 1},
    )


def test_the_failure_that_ended_the_run_is_counted_once_too() -> None:
    head = a_head(Phase.FAILED, outcome=Outcome("ExecutorFailed", "3 pods failed"))
    seen = an_observation(a_run(failures={"AgentFailed": 2}), an_ended_pod(code=3), head=head)
    first = status_of(seen, plan(seen))
    written = replace(seen, run=seen.run.model_copy(update={"status": RunStatus.model_validate(first)}))

    assert first["failures"] == {"AgentFailed": 3}
    assert status_of(written, plan(written))["failures"] == {"AgentFailed": 3}


def test_a_result_that_fits_is_in_the_status() -> None:
    head = a_head(Phase.SUCCEEDED, outcome=Outcome("Succeeded", result={"documents": 10, "none": None}))
    seen = an_observation(a_run(), an_ended_pod(code=0), head=head)
    status = status_of(seen, plan(seen))

    assert status["result"] == {"documents": 10, "none": None}
    assert status["completionTime"] == "2026-03-01T12:00:00Z"


@pytest.mark.parametrize("result", ["ü" * 2047, [0] * 2047], ids=["beyond-ascii", "many-parts"])
def test_a_result_of_as_many_bytes_as_fit_is_in_the_status_whatever_it_is_made_of(result: object) -> None:
    head = a_head(Phase.SUCCEEDED, outcome=Outcome("Succeeded", result=result))
    seen = an_observation(a_run(), an_ended_pod(code=0), head=head)

    assert status_of(seen, plan(seen))["result"] == result


def test_a_result_that_is_too_large_is_left_to_its_reference() -> None:
    head = a_head(Phase.SUCCEEDED, outcome=Outcome("Succeeded", result="x" * 5000, result_ref="s3://b/blob"))
    seen = an_observation(a_run(), an_ended_pod(code=0), head=head)
    status = status_of(seen, plan(seen))

    assert (status["result"], status["resultRef"]) == (None, "s3://b/blob")


def test_progress_without_a_total_is_the_number_of_steps() -> None:
    seen = an_observation(a_run(), a_pod(), head=a_head(total=None))

    assert status_of(seen, plan(seen))["progress"] == "5"


@pytest.mark.req("D9")
def test_a_spec_that_changed_under_the_same_uid_is_said() -> None:
    seen = an_observation(a_run(a_spec(inputs={"folder": "other"})), a_pod())

    assert conditions(status_of(seen, plan(seen)))["SpecChanged"] == ("True", "RecordedSpecStands")


def test_a_changed_spec_is_still_said_once_the_run_has_ended_and_its_record_is_not_read_any_more() -> None:
    shown = Condition(
        type="SpecChanged",
        status="True",
        reason="RecordedSpecStands",
        last_transition_time="2026-03-01T11:00:00Z",
    )
    seen = an_observation(a_run(phase=Phase.SUCCEEDED, conditions=(shown,)), name=None, head=None)

    assert conditions(status_of(seen, plan(seen)))["SpecChanged"] == ("True", "RecordedSpecStands")


def test_a_run_that_is_superseded_is_no_changed_spec() -> None:
    seen = an_observation(a_run(attempt=0), name=a_name(uid=OTHER_UID, digest="f" * 64))

    assert "SpecChanged" not in conditions(status_of(seen, plan(seen)))


def test_a_run_that_supersedes_another_reports_nothing_of_it_as_its_own() -> None:
    seen = an_observation(
        a_run(phase=Phase.PENDING, attempt=0),
        a_pod(3, owned=False),
        name=a_name(uid=OTHER_UID, digest="f" * 64),
        head=a_head(uid=OTHER_UID, attempt=3),
    )
    status = status_of(seen, plan(seen))

    assert (status["attempt"], status["progress"]) == (0, "")
    assert (status["pod"], status["checkpoint"]["seq"]) == ({"name": "", "node": ""}, 0)


def test_a_run_that_was_adopted_says_how_to_start_anew() -> None:
    seen = an_observation(
        a_run(phase=Phase.PENDING, attempt=0), name=a_name(uid=OTHER_UID), head=a_head(uid=OTHER_UID)
    )
    status = status_of(seen, plan(seen))

    adopted = next(part for part in status["conditions"] if part["type"] == "Adopted")
    assert "apply it with another spec.rerun" in adopted["message"]


def test_adopted_stays_once_it_is_shown() -> None:
    shown = Condition(
        type="Adopted", status="True", reason="SameSpec", last_transition_time="2026-03-01T11:00:00Z"
    )
    seen = an_observation(a_run(conditions=(shown,)), a_pod())

    assert conditions(status_of(seen, plan(seen)))["Adopted"] == ("True", "SameSpec")


def test_a_store_that_fails_is_a_condition_and_keeps_what_was_known() -> None:
    run = a_run()
    run = run.model_copy(update={"status": run.status.model_copy(update={"progress": "5/10"})})
    seen = an_observation(
        run, a_pod(), name=None, head=None, store_problem=StoreProblem("BucketMissing", "make it")
    )
    status = status_of(seen, plan(seen))

    assert conditions(status)["StoreReady"] == ("False", "BucketMissing")
    assert conditions(status)["Ready"] == ("False", "BucketMissing")
    assert (status["phase"], status["progress"], status["runId"]) == ("Running", "5/10", "a" * 20)


def test_a_disturbed_control_plane_is_a_condition() -> None:
    seen = an_observation(a_run(), a_pod(), disturbed="2 of 2 nodes")

    assert conditions(status_of(seen, plan(seen)))["ControlPlaneDisturbed"] == ("True", "NodesSilent")


def test_a_disturbed_control_plane_does_not_change_what_has_ended() -> None:
    seen = an_observation(a_run(phase=Phase.SUCCEEDED), name=None, head=None, disturbed="2 of 2 nodes")

    assert "ControlPlaneDisturbed" not in conditions(status_of(seen, plan(seen)))


def test_a_reason_that_is_none_is_not_taken_from_the_log() -> None:
    head = a_head(Phase.FAILED, outcome=Outcome("not a reason", "x" * 9000))
    seen = an_observation(a_run(), an_ended_pod(code=0), head=head)
    status = status_of(seen, plan(seen))

    assert conditions(status)["Ready"] == ("False", "Other")
    assert len(json.dumps(status)) < 16 * 1024


def test_a_created_pod_is_in_the_status_before_it_was_seen() -> None:
    status = status_of(
        an_observation(a_run(phase=Phase.PENDING, attempt=0)),
        Plan(Phase.PENDING, "Starting", actions=(CreatePod(1),)),
    )

    assert (status["attempt"], status["pod"]["name"]) == (1, "docs-xl66r-1")


@pytest.mark.req("I4")
def test_a_store_that_went_back_does_not_take_the_status_with_it() -> None:
    known = CheckpointStatus(uri="s3://b/p/x", seq=50, epoch=3, digest="a" * 64)
    seen = an_observation(a_run(checkpoint=known), head=a_head(seq=2), store_uri="s3://b/p")

    assert status_of(seen, plan(seen))["checkpoint"] == known.model_dump()
