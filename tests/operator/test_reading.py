"""Raw objects of the API server read into what the rules look at."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from milepost_operator.core.observation import End, Fault, PodSeen, Started, Terminated
from milepost_operator.core.reading import read_pod, read_run, trimmed
from tests.support.builders import OTHER_UID, RUN_ID, UID, Phase


def a_raw_pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "docs-xl66r-2",
            "namespace": "team",
            "uid": "pod-2",
            "resourceVersion": "7",
            "creationTimestamp": "2026-03-01T11:00:00Z",
            "deletionTimestamp": "2026-03-01T12:01:00Z",
            "managedFields": [{"manager": "kubelet"}],
            "labels": {"milepost.dev/run": "docs", "milepost.dev/attempt": "2"},
            "annotations": {
                "milepost.dev/run-id": RUN_ID,
                "milepost.dev/image": "agent:1",
                "milepost.dev/agent-version": "3",
                "milepost.dev/previous-end": '{"attempt":1,"cause":"Evicted","fault":"disruption"}',
                "milepost.dev/fruitless-in-a-row": "1",
                "milepost.dev/resumes-after": "5/10",
            },
            "ownerReferences": [{"uid": UID, "controller": True}],
        },
        "spec": {"nodeName": "node-2", "containers": [{"name": "executor", "image": "agent@sha256:0"}]},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
                {"type": "PodScheduled", "status": "True"},
            ],
            "containerStatuses": [
                {"name": "mesh", "state": {"running": {}}},
                {
                    "name": "executor",
                    "state": {
                        "terminated": {
                            "exitCode": 80,
                            "reason": "Error",
                            "message": "{}",
                            "finishedAt": "2026-03-01T12:00:00Z",
                        }
                    },
                },
            ],
            **status,
        },
    }


def test_a_pod_is_read_from_its_trimmed_form() -> None:
    pod = read_pod(trimmed(a_raw_pod(), pod=True), UID, RUN_ID)

    assert pod == PodSeen(
        name="docs-xl66r-2",
        uid="pod-2",
        attempt=2,
        phase="Running",
        node="node-2",
        container=Terminated(80, "Error", "{}", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        deadline=datetime(2026, 3, 1, 12, 1, tzinfo=UTC),
        disruption="EvictionByEvictionAPI",
        created=datetime(2026, 3, 1, 11, tzinfo=UTC),
        image="agent:1",
        agent_version="3",
        run_id=RUN_ID,
        previous_end=End(1, "Evicted", Fault.DISRUPTION),
        in_a_row=1,
        resumes_after="5/10",
    )


def test_trimming_drops_what_no_rule_looks_at() -> None:
    kept = json.dumps(trimmed(a_raw_pod(podIP="10.0.0.1"), pod=True))

    assert "managedFields" not in kept
    assert "podIP" not in kept
    assert "containers" not in kept


def test_another_containers_state_is_not_the_executors() -> None:
    raw = a_raw_pod(containerStatuses=[{"name": "mesh", "state": {"terminated": {"exitCode": 0}}}])

    pod = read_pod(raw, UID, RUN_ID)
    assert pod is not None
    assert pod.container is None


def test_a_pod_of_another_resource_counts_only_if_it_works_on_the_same_run() -> None:
    mine, works_on_it, foreign = (
        read_pod(a_raw_pod(), UID, ""),
        read_pod(a_raw_pod(), OTHER_UID, RUN_ID),
        read_pod(a_raw_pod(), OTHER_UID, "b" * 20),
    )

    assert mine is not None
    assert works_on_it is not None
    assert (mine.owned, works_on_it.owned, foreign) == (True, False, None)


def test_a_disruption_that_was_called_off_is_none() -> None:
    raw = a_raw_pod(
        conditions=[{"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"}]
    )

    pod = read_pod(raw, UID, RUN_ID)
    assert pod is not None
    assert pod.disruption == ""


@pytest.mark.parametrize(
    ("previous_end", "in_a_row"),
    [
        ("[]", "many"),
        ('{"attempt":Infinity,"cause":"Evicted","fault":"disruption"}', "9" * 5000),
        ('{"attempt":1,"cause":"Evicted","fault":"nobody"}', "-1"),
    ],
)
def test_annotations_that_somebody_changed_are_ignored(previous_end: str, in_a_row: str) -> None:
    raw = a_raw_pod(containerStatuses=[{"name": "executor", "state": {"running": {"startedAt": "x"}}}])
    raw["metadata"]["annotations"] = {
        "milepost.dev/previous-end": previous_end,
        "milepost.dev/fruitless-in-a-row": in_a_row,
    }

    pod = read_pod(raw, UID, RUN_ID)
    assert pod is not None
    assert (pod.previous_end, pod.in_a_row, pod.container) == (None, 0, Started())


def a_raw_run(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "docs", "namespace": "team", "uid": UID, "generation": 2}, "spec": spec} | (
        {"status": status} if status else {}
    )


def test_a_spec_that_does_not_fit_is_reported_with_its_field() -> None:
    _, invalid = read_run(a_raw_run({"agent": {"image": "a", "entrypoint": "no colon"}}))

    assert invalid.startswith("spec.agent.entrypoint: ")


def test_a_status_of_another_version_is_read_as_far_as_it_goes() -> None:
    raw = a_raw_run(
        {"agent": {"image": "a", "entrypoint": "a:b"}},
        {"phase": "Running", "attempt": 3, "tokens": 12, "progress": {"done": 1}},
    )
    run, invalid = read_run(raw)

    assert invalid == ""
    assert (run.status.phase, run.status.attempt, run.status.progress) == (Phase.RUNNING, 3, "")
