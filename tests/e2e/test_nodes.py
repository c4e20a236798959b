"""Nodes that fall silent: the run goes on elsewhere, and whoever wakes up is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.scene import Scene
from tools.cluster.interface import Node
from tools.cluster.progress import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

# 30 s until a node counts as silent, and as long again for a machine that is busy.
SILENCE = 150.0


def _node_of(scene: Scene, name: str, attempt: int) -> Node:
    pod = scene.pod(name, attempt)
    return next(n for n in scene.deployment.cluster.nodes if n.name == pod["spec"]["nodeName"])


@pytest.mark.req("C3", "F-B4", "K1")
def test_a_run_leaves_a_node_whose_kubelet_is_frozen_while_its_executor_still_works(scene: Scene) -> None:
    _avoid_the_operators_node(scene)
    scene.apply(scene.manifest("split", steps=400, pause=0.3))
    run_id = scene.until_done("split", 3)["runId"]
    _open_every_node(scene)
    node = _node_of(scene, "split", 1)

    with _trouble(scene, node.freeze, node.thaw):
        second = scene.pod("split", 2, within=SILENCE)
        _until_at_work(scene, "split", run_id)
        from_then_on = len(scene.starts(run_id))
        wait_until(lambda: len(scene.starts(run_id)) > from_then_on + 5, "five more steps", within=60)

    assert second["spec"]["nodeName"] != node.name
    late = [start["step"] for start in scene.starts(run_id)[from_then_on:] if start["pod"].endswith("-1")]
    assert late == [], "the first executor ended at its next commit"
    assert set(scene.applied(run_id).values()) == {1}
    assert scene.status("split")["disruptions"] == {"NodeSilent": 1}
    scene.kube.patch_run(scene.namespace, "split", {"cancel": True})
    scene.until_phase("split", "Cancelled")


@pytest.mark.req("K1", "F-B5")
def test_a_run_survives_the_loss_of_its_node(scene: Scene) -> None:
    _avoid_the_operators_node(scene)
    scene.apply(scene.manifest("lost", steps=400, pause=0.3))
    run_id = scene.until_done("lost", 3)["runId"]
    _open_every_node(scene)
    node = _node_of(scene, "lost", 1)

    with _trouble(scene, node.lose, node.bring_back):
        second = scene.pod("lost", 2, within=SILENCE)
        _until_at_work(scene, "lost", run_id)

    assert second["spec"]["nodeName"] != node.name
    assert set(scene.applied(run_id).values()) == {1}
    scene.kube.patch_run(scene.namespace, "lost", {"cancel": True})
    scene.until_phase("lost", "Cancelled")


@contextmanager
def _trouble(scene: Scene, begin: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    """Let a node fail, and have it back afterwards, whatever the test found."""
    begin()
    try:
        yield
    finally:
        end()
        wait_until(scene.deployment.cluster.healthy, "both nodes Ready", within=120, pause=0.5)


def _until_at_work(scene: Scene, name: str, run_id: str) -> None:
    wait_until(
        lambda: any(start["pod"].endswith("-2") for start in scene.starts(run_id)),
        "the second executor at work",
        within=60,
        hint=lambda: scene.told(name),
    )


def _avoid_the_operators_node(scene: Scene) -> None:
    """Let the run's first pod stand where the operator does not: this is about executors that lose a node."""
    operator = next(p for p in scene.kube.pods("milepost-system") if p["status"]["phase"] == "Running")
    scene.kube.cordon(operator["spec"]["nodeName"])


def _open_every_node(scene: Scene) -> None:
    for node in scene.deployment.cluster.nodes:
        scene.kube.cordon(node.name, closed=False)
