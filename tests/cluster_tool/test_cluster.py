from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tools.cluster import archives, cgroups, images, local_cluster, mounts, s3_process
from tools.cluster.paths import STATE
from tools.cluster.processes import started_at
from tools.cluster.progress import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.cluster.images import Image
    from tools.cluster.local import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAMESPACE = "cluster-tool-tests"
# Asks a program on the host "receiver", which stands outside the cluster, and tells the log what it heard.
ASK = """
import sys, time, urllib.error, urllib.request
def ask(address):
    try:
        return urllib.request.urlopen(address, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
print([ask(address) for address in sys.argv[1:]], flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    running = local_cluster()
    running.up()
    kubectl(running, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    kubectl(running, "create", "namespace", NAMESPACE)
    yield running
    running.up()
    kubectl(running, "delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def image(cluster: LocalCluster) -> Image:
    built = images.executor()
    cluster.load(built.archive, built.reference)
    return built


def kubectl(cluster: LocalCluster, *words: str, stdin: str | None = None) -> str:
    command = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}", *words]
    return subprocess.run(command, input=stdin, check=True, capture_output=True, text=True).stdout


def start_pod(cluster: LocalCluster, image: Image, name: str, node: str, *arguments: str) -> None:
    container = {
        "name": "main",
        "image": image.reference,
        "command": ["python", "-c", ASK, *arguments],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }
    wait_until(
        lambda: "default" in kubectl(cluster, "-n", NAMESPACE, "get", "serviceaccounts", "-o", "name"),
        "the namespace's service account",
        within=60,
    )
    kubectl(cluster, "apply", "-f", "-", stdin=json.dumps(pod))
    kubectl(cluster, "-n", NAMESPACE, "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")


def ready(cluster: LocalCluster, node: str) -> bool:
    path = '{.status.conditions[?(@.type=="Ready")].status}'
    return kubectl(cluster, "get", "node", node, "-o", f"jsonpath={path}") == "True"


def test_a_second_start_of_a_healthy_cluster_starts_nothing(cluster: LocalCluster) -> None:
    before = [program.pid for program in cluster._programs]
    cluster.up()

    assert [program.pid for program in cluster._programs] == before
    assert None not in before


@pytest.mark.parametrize("node", ["node-1", "node-2"])
def test_a_pod_runs_on_each_node_and_reaches_what_lies_beside_the_cluster(
    cluster: LocalCluster, image: Image, node: str
) -> None:
    receiver = cluster.host("receiver")
    server = receiver.popen(
        [sys.executable, "-m", "http.server", "9000", "--bind", receiver.address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        start_pod(
            cluster,
            image,
            f"asks-{node}",
            node,
            f"{cluster.s3.endpoint}/",
            f"http://{receiver.address}:9000/",
        )
        wait_until(lambda: logs(cluster, f"asks-{node}"), "an answer", within=60)

        # The S3 server refuses who brings no keys, which is an answer all the same.
        assert logs(cluster, f"asks-{node}") == "[403, 200]\n"
    finally:
        server.kill()
        server.wait()


def logs(cluster: LocalCluster, pod: str) -> str:
    return kubectl(cluster, "-n", NAMESPACE, "logs", pod)


def test_the_process_of_a_container_is_found_by_its_pod(cluster: LocalCluster, image: Image) -> None:
    start_pod(cluster, image, "found", "node-1")
    node, other = cluster.nodes

    (pid,) = node.container_pids("found", NAMESPACE, "main")

    assert other.container_pids("found", NAMESPACE, "main") == []
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: started_at(pid) is None, "the process to be dead", within=60)


def test_an_image_that_a_node_has_is_known_to_be_there(cluster: LocalCluster, image: Image) -> None:
    """It is the nodes that lack one that it is imported into."""
    digest = archives.image_digest(image.archive)

    assert [node.name for node in cluster.nodes if not node.has(digest, image.reference)] == []


def test_a_frozen_node_is_seen_as_not_ready_until_it_thaws(cluster: LocalCluster) -> None:
    node = cluster.nodes[1]
    node.freeze()
    try:
        wait_until(lambda: not ready(cluster, node.name), "a silent node", within=120, pause=0.5)
    finally:
        node.thaw()
    wait_until(lambda: ready(cluster, node.name), "a ready node", within=120, pause=0.5)


def test_a_node_can_be_cut_off_from_the_store_alone(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    address = cluster.s3.endpoint

    def reaches(url: str) -> bool:
        words = ["nsenter", f"--net=/run/netns/{node.place.namespace}", "curl", "-ksm2", "-o/dev/null", url]
        return subprocess.run(words, check=False).returncode == 0

    assert reaches(address)
    node.cut_off("s3")
    try:
        assert not reaches(address)
        assert reaches("https://172.30.0.10:6443/readyz")
    finally:
        node.reconnect()
    assert reaches(address)


def test_a_lost_node_loses_its_containers_and_comes_back(cluster: LocalCluster, image: Image) -> None:
    start_pod(cluster, image, "lost", "node-2")
    node = cluster.nodes[1]
    (pid,) = node.container_pids("lost", NAMESPACE, "main")

    node.lose()

    assert started_at(pid) is None
    assert [program.pid for program in node.programs] == [None, None, None]
    node.bring_back()
    wait_until(lambda: ready(cluster, node.name), "a ready node", within=120, pause=0.5)
    wait_until(
        lambda: node.container_pids("lost", NAMESPACE, "main") not in ([], [pid]), "the pod again", within=60
    )


def test_a_start_clears_what_a_crash_left(cluster: LocalCluster, image: Image) -> None:
    start_pod(cluster, image, "orphan", "node-1")
    (orphan,) = cluster.nodes[0].container_pids("orphan", NAMESPACE, "main")
    containerd = cluster.nodes[0].programs[0]
    assert containerd.pid is not None
    os.kill(containerd.pid, signal.SIGKILL)
    wait_until(lambda: containerd.pid is None, "containerd to be dead", within=60)
    assert not cluster.healthy()

    cluster.up()

    assert cluster.healthy()
    assert started_at(orphan) is None
    assert s3_process.takes_conditional_writes(cluster.s3)


def test_a_start_that_was_killed_half_way_is_no_obstacle(cluster: LocalCluster) -> None:
    cluster.down()
    half = subprocess.Popen([sys.executable, "-m", "tools.cluster", "up"], stderr=subprocess.DEVNULL)
    etcd = cluster.paths.run / "programs" / "etcd"
    wait_until(etcd.exists, "the start to be under way", within=120, pause=0.02)
    half.kill()
    half.wait()

    cluster.up()

    assert cluster.healthy()


def test_a_stop_leaves_nothing_behind(cluster: LocalCluster) -> None:
    cluster.down()

    namespaces = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    folders = (STATE, cluster.paths.run)
    mounted = mounts.below(folders, Path("/proc/self/mountinfo").read_text())
    groups = list(cgroups.MOUNT.glob(f"*/{cgroups.NAME}"))
    links = list(Path("/sys/class/net").glob("mp-*"))
    assert "milepost" not in namespaces
    assert (mounted, groups, links, cluster.paths.run.exists()) == ([], [], [], False)
