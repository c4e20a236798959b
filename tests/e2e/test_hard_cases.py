"""What is allowed and unusual: large inputs, another spec under a name, a node without its store."""

from __future__ import annotations

import pytest

from tests.e2e.scene import IN_NO_HURRY, Scene
from tools.cluster.interface import ClusterError
from tools.cluster.progress import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.req("A3", "K1")
def test_a_run_whose_inputs_do_not_fit_a_head_survives_an_eviction(scene: Scene) -> None:
    scene.apply(scene.manifest("large", steps=12, padding="x" * 100_000, **IN_NO_HURRY))
    scene.until_done("large", 3)

    scene.kube.evict(scene.namespace, scene.pod("large", 1)["metadata"]["name"])
    status = scene.until_phase("large", "Succeeded", "Failed", "Halted")

    assert (status["phase"], status["attempt"], status["result"]) == ("Succeeded", 2, 78)
    assert [start["step"] for start in scene.starts(status["runId"])] == [f"step-{n}" for n in range(1, 13)]


@pytest.mark.req("K3", "K6")
def test_another_spec_under_the_same_name_ends_the_run_that_is_there_and_begins_its_own(scene: Scene) -> None:
    scene.apply(scene.manifest("replaced", steps=60, pause=0.2))
    first = scene.until_done("replaced", 3)["runId"]

    scene.kube.delete_run(scene.namespace, "replaced")
    scene.until_no_run("replaced")
    scene.apply(scene.manifest("replaced", steps=4, pause=0.2))
    status = scene.until_phase("replaced", "Succeeded", "Failed")

    assert (status["phase"], status["attempt"], status["disruptions"]) == ("Succeeded", 1, {})
    assert status["runId"] != first
    scene.expect_once_each(status["runId"], 4)
    assert len(scene.starts(first)) < 60


@pytest.mark.req("F4")
def test_a_run_that_is_held_and_let_go_again_and_again_goes_on_where_it_was(scene: Scene) -> None:
    scene.apply(scene.manifest("flapping", steps=20, pause=0.3))
    run_id = scene.until_done("flapping", 3)["runId"]

    for number in range(10):
        scene.kube.patch_run(scene.namespace, "flapping", {"suspend": number % 2 == 0})
    scene.until_told("flapping", "step-6")
    for number in range(10):
        scene.kube.patch_run(scene.namespace, "flapping", {"suspend": number % 2 == 0})
    status = scene.until_phase("flapping", "Succeeded", "Failed")

    assert (status["phase"], status["failures"]) == ("Succeeded", {})
    scene.expect_once_each(run_id, 20)


@pytest.mark.req("F-D5", "K1")
def test_a_run_whose_node_loses_the_store_for_a_while_waits_and_repeats_nothing(scene: Scene) -> None:
    scene.apply(scene.manifest("unstored", steps=20, pause=0.2))
    run_id = scene.until_done("unstored", 3)["runId"]
    pod = scene.pod("unstored", 1)
    node = next(n for n in scene.deployment.cluster.nodes if n.name == pod["spec"]["nodeName"])

    node.cut_off("s3")
    try:
        began = len(scene.starts(run_id))
        with pytest.raises(ClusterError):
            wait_until(lambda: len(scene.starts(run_id)) > began + 1, "a step past the cut", within=10)
    finally:
        node.reconnect()
    status = scene.until_phase("unstored", "Succeeded", "Failed")

    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert [start["step"] for start in scene.starts(run_id)] == [f"step-{n}" for n in range(1, 21)]
