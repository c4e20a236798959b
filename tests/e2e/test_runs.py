"""Whole runs on a real cluster with a real S3 server: what a user sees, and what the receiver counts."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.scene import IN_NO_HURRY, Scene, condition
from tools.cluster.progress import wait_until
from tools.deployment.installation import RELEASE, SYSTEM

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.req("K1", "K2", "D1")
def test_a_run_completes_and_says_so(scene: Scene) -> None:
    scene.apply(scene.manifest("plain", steps=4, pause=0.05))

    status = scene.until_phase("plain", "Succeeded", "Failed")

    assert (status["phase"], status["progress"], status["attempt"], status["result"]) == (
        "Succeeded",
        "4/4",
        1,
        10,
    )
    assert condition(status, "Ready") == ("True", "Completed")
    scene.expect_once_each(status["runId"], 4)
    row = next(row for row in scene.kube.table(scene.namespace) if row["Name"] == "plain")
    assert (row["Phase"], row["Progress"], row["Attempt"], row["Reason"]) == (
        "Succeeded",
        "4/4",
        1,
        "Completed",
    )


@pytest.mark.req("K1", "F-B1", "E6")
def test_an_evicted_run_goes_on_at_the_next_step(scene: Scene) -> None:
    scene.apply(scene.manifest("evicted", steps=20, **IN_NO_HURRY))
    scene.until_done("evicted", 4)
    first = scene.pod("evicted", 1)

    scene.kube.evict(scene.namespace, first["metadata"]["name"])
    status = scene.until_phase("evicted", "Succeeded", "Failed")

    assert (status["phase"], status["attempt"], sum(status["disruptions"].values())) == ("Succeeded", 2, 1)
    assert status.get("failures", {}) == {}
    scene.expect_once_each(status["runId"], 20)
    # The step in flight ends within the grace period, so that none is repeated at all.
    assert [start["step"] for start in scene.starts(status["runId"])] == [f"step-{n}" for n in range(1, 21)]


@pytest.mark.req("E6", "F-B6")
def test_a_pod_deleted_by_force_is_replaced_while_its_container_still_runs(scene: Scene) -> None:
    scene.apply(scene.manifest("forced", steps=20, **IN_NO_HURRY))
    scene.until_done("forced", 3)
    first = scene.pod("forced", 1)

    scene.kube.delete_pod(scene.namespace, first["metadata"]["name"], grace=0)
    status = scene.until_phase("forced", "Succeeded", "Failed")

    assert (status["phase"], status["result"], status["attempt"]) == ("Succeeded", 210, 2)
    scene.expect_once_each(status["runId"], 20)


@pytest.mark.req("C3", "F-A7", "F-B6")
def test_an_executor_that_slept_through_its_replacement_is_refused_and_ends(scene: Scene) -> None:
    scene.apply(scene.manifest("asleep", steps=20, **IN_NO_HURRY))
    run_id = scene.until_done("asleep", 3)["runId"]
    first, pids = scene.pod("asleep", 1), scene.processes("asleep", 1)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        scene.kube.delete_pod(scene.namespace, first["metadata"]["name"], grace=0)
        scene.pod("asleep", 2)
        wait_until(
            lambda: any(s["pod"].endswith("-2") for s in scene.starts(run_id)),
            "the second pod to start a step",
            within=60,
            hint=lambda: scene.told("asleep"),
        )
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    status = scene.until_phase("asleep", "Succeeded", "Failed")
    wait_until(lambda: not any(_alive(pid) for pid in pids), "the old executor to end", within=60)

    assert (status["phase"], status["attempt"]) == ("Succeeded", 2)
    scene.expect_once_each(run_id, 20)
    woken = [s for s in scene.starts(run_id) if s["pod"].endswith("-1")]
    assert len(woken) <= 4, "the old one may finish the step that it was at, and starts no other"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.req("E4")
def test_a_crash_after_a_record_repeats_nothing(scene: Scene) -> None:
    scene.apply(scene.manifest("crash-after", steps=5, pause=0.05, death="after-record", at=2))
    scene.until_told("crash-after", "after-2")

    scene.kill("crash-after", 1)
    status = scene.until_phase("crash-after", "Succeeded", "Failed")

    assert (status["phase"], status["attempt"]) == ("Succeeded", 2)
    assert scene.calls(status["runId"]) == {f"{status['runId']}/step-{n}": 1 for n in range(1, 6)}


@pytest.mark.req("E5", "E1")
def test_a_crash_before_a_record_calls_again_with_the_same_key(scene: Scene) -> None:
    scene.apply(scene.manifest("crash-before", steps=5, pause=0.05, death="before-record", at=3))
    scene.until_called("crash-before", 3)

    scene.kill("crash-before", 1)
    status = scene.until_phase("crash-before", "Succeeded", "Failed")

    run_id = status["runId"]
    assert (status["phase"], status["attempt"], sum(status["failures"].values())) == ("Succeeded", 2, 1)
    assert scene.calls(run_id)[f"{run_id}/step-3"] == 2
    scene.expect_once_each(run_id, 5)


@pytest.mark.req("F-A10", "K1")
def test_an_executor_that_exits_0_in_the_middle_is_no_success(scene: Scene) -> None:
    scene.apply(scene.manifest("early", steps=5, pause=0.05, death="exit-0", at=3))

    status = scene.until_phase("early", "Succeeded", "Failed")

    assert (status["phase"], status["attempt"], status["failures"]) == (
        "Succeeded",
        2,
        {"ExitedWithoutOutcome": 1},
    )
    scene.expect_once_each(status["runId"], 5)


@pytest.mark.req("K5", "F-C1")
def test_an_operator_that_is_killed_in_the_middle_picks_the_run_up(scene: Scene) -> None:
    scene.apply(scene.manifest("killed-operator", steps=20, **IN_NO_HURRY))
    scene.until_done("killed-operator", 3)
    for pod in scene.kube.pods(SYSTEM):
        scene.kube.delete_pod(SYSTEM, pod["metadata"]["name"], grace=0)
    executor = scene.pod("killed-operator", 1)
    scene.kube.evict(scene.namespace, executor["metadata"]["name"])

    status = scene.until_phase("killed-operator", "Succeeded", "Failed")

    assert (status["phase"], status["attempt"]) == ("Succeeded", 2)
    scene.expect_once_each(status["runId"], 20)


@pytest.mark.req("K5", "F-C2", "F-A6")
def test_a_run_that_ends_while_no_operator_is_there_is_seen_to_have_ended(scene: Scene) -> None:
    # Long enough for the operator to be gone before the end.
    scene.apply(scene.manifest("unattended", steps=8, pause=1.5))
    scene.until_done("unattended", 2)
    _scale_operator(scene, 0)
    try:
        wait_until(
            lambda: all(
                p["status"]["phase"] != "Running" for p in scene.kube.pods(scene.namespace, "unattended")
            ),
            "the executor to end by itself",
            within=60,
        )
        # The executor may be done before its kubelet has told anybody that it runs.
        assert scene.status("unattended")["phase"] in ("Pending", "Running")
    finally:
        _scale_operator(scene, 1)

    status = scene.until_phase("unattended", "Succeeded", "Failed")

    assert (status["phase"], status["attempt"], status["result"]) == ("Succeeded", 1, 36)


def _scale_operator(scene: Scene, replicas: int) -> None:
    deployment = f"deployment/{RELEASE}"
    scene.deployment.kubectl("-n", SYSTEM, "scale", deployment, f"--replicas={replicas}")
    if replicas == 0:
        wait_until(lambda: not scene.kube.pods(SYSTEM), "the operator to be gone", within=60)


@pytest.mark.req("F-A13", "K1")
def test_an_image_that_does_not_exist_is_named_and_not_tried_with_pod_after_pod(scene: Scene) -> None:
    scene.apply(scene.manifest("no-image", spec={"agent": {"image": "localhost/nobody-made-this:1"}}))

    status = scene.until(
        "no-image",
        "a reason that names the image's pull",
        lambda s: condition(s, "Ready")[1] in ("ErrImagePull", "ImagePullBackOff"),
    )

    assert status["phase"] == "Pending"
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
    assert "nobody-made-this" in message
    assert len(scene.kube.pods(scene.namespace, "no-image")) == 1


@pytest.mark.req("K6", "K3", "D1")
def test_a_run_deleted_and_applied_again_goes_on_where_it_was(scene: Scene) -> None:
    manifest = scene.manifest("again", steps=20, **IN_NO_HURRY)
    scene.apply(manifest)
    run_id = scene.until_done("again", 3)["runId"]

    scene.kube.delete_run(scene.namespace, "again")
    scene.until_no_run("again")
    scene.until_no_pods("again")
    scene.apply(manifest)
    status = scene.until_phase("again", "Succeeded", "Failed")

    assert (status["phase"], status["runId"], status["result"]) == ("Succeeded", run_id, 210)
    assert condition(status, "Adopted")[0] == "True"
    scene.expect_once_each(run_id, 20)


@pytest.mark.req("K3", "K6")
def test_a_finished_run_applied_again_is_reported_and_nothing_runs(scene: Scene) -> None:
    manifest = scene.manifest("finished", steps=2, pause=0.05)
    scene.apply(manifest)
    run_id = scene.until_phase("finished", "Succeeded")["runId"]
    scene.kube.delete_run(scene.namespace, "finished")
    scene.until_no_run("finished")
    scene.until_no_pods("finished")

    scene.apply(manifest)
    status = scene.until_phase("finished", "Succeeded", "Failed")

    assert (status["phase"], status["runId"], status["result"]) == ("Succeeded", run_id, 3)
    assert condition(status, "Adopted")[0] == "True"
    assert scene.kube.pods(scene.namespace, "finished") == []
    assert len(scene.starts(run_id)) == 2


@pytest.mark.req("F4")
def test_a_suspended_run_has_no_pod_and_goes_on_when_it_is_let(scene: Scene) -> None:
    scene.apply(scene.manifest("held", steps=20, **IN_NO_HURRY))
    scene.until_done("held", 3)

    scene.kube.patch_run(scene.namespace, "held", {"suspend": True})
    status = scene.until_phase("held", "Suspended")
    wait_until(
        lambda: all(p["status"]["phase"] != "Running" for p in scene.kube.pods(scene.namespace, "held")),
        "no running pod",
        within=60,
    )
    assert condition(status, "Ready") == ("False", "Suspended")

    scene.kube.patch_run(scene.namespace, "held", {"suspend": False})
    status = scene.until_phase("held", "Succeeded", "Failed")
    assert status["phase"] == "Succeeded"
    scene.expect_once_each(status["runId"], 20)


@pytest.mark.req("F4")
def test_a_cancelled_run_ends_and_stays_ended(scene: Scene) -> None:
    scene.apply(scene.manifest("called-off", steps=20, pause=1.0))
    scene.until_done("called-off", 3)

    scene.kube.patch_run(scene.namespace, "called-off", {"cancel": True})
    status = scene.until_phase("called-off", "Cancelled", "Succeeded", "Failed")
    wait_until(
        lambda: all(
            p["status"]["phase"] != "Running" for p in scene.kube.pods(scene.namespace, "called-off")
        ),
        "no running pod",
        within=60,
    )

    assert status["phase"] == "Cancelled"
    assert len(scene.starts(status["runId"])) < 20
