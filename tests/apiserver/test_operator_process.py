"""The operator's own process against a real API server, with a bucket; the tests play the kubelet.

What is under test here is what no fake can vouch for: Kopf's watches, JSON patches with a version, deletion
by uid, evictions as the API server does them, Events, and the way the process starts and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from milepost.testing.fake_s3 import FakeS3
from tests.support.api_server import JSON_PATCH, MERGE_PATCH, ApiServer, Refused
from tools.cluster import s3_process
from tools.cluster.progress import wait_until

Json = dict[str, Any]

PODS = "/api/v1/namespaces/team/pods"
RUNS = "/apis/milepost.dev/v1alpha1/namespaces/team/agentruns"

pytestmark = pytest.mark.usefixtures("definition")


@dataclass
class Operator:
    """A running operator."""

    process: subprocess.Popen[bytes]
    health_port: int
    log: Path

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def start(folder: Path, kubeconfig: Path, stores: str, port: int) -> Operator:
    (folder / "stores.yaml").write_text(stores)
    log = folder / "operator.log"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")},
        "KUBECONFIG": str(kubeconfig),
        "MILEPOST_STORES": str(folder / "stores.yaml"),
        "MILEPOST_STORE_CREDENTIALS": str(folder / "credentials"),
        "MILEPOST_HEALTH_PORT": str(port),
        "MILEPOST_LOG_LEVEL": "DEBUG",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "milepost_operator"], env=environment, stdout=out, stderr=out
        )
    return Operator(process, port, log)


@pytest.fixture
def ports() -> Iterator[range]:
    """Ports that nobody else takes while the test runs."""
    with s3_process.ports() as block:
        yield block


@pytest.fixture
def bucket() -> Iterator[FakeS3]:
    with FakeS3() as s3:
        yield s3


@pytest.fixture
def deep_json() -> Iterator[None]:
    """Let this process read what the API server lets anybody write. Set up first, so torn down last."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture
def operator(api: ApiServer, bucket: FakeS3, ports: range, tmp_path: Path) -> Iterator[Operator]:
    for path, name, kind in (
        ("/api/v1/namespaces", "team", "Namespace"),
        ("/api/v1/namespaces/team/serviceaccounts", "default", "ServiceAccount"),
    ):
        api.apply(f"{path}/{name}", {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "default").symlink_to(bucket.credentials)
    entry = {
        "endpoint": bucket.endpoint,
        "bucket": bucket.bucket,
        "allowedNamespaces": ["*"],
        "credentials": {"secretName": "keys"},
    }
    running = start(tmp_path, api.kubeconfig, json.dumps({"stores": {"default": entry}}), ports[0])
    try:
        wait_until(
            running.healthy, "a healthy operator", within=60, hint=lambda: running.log.read_text()[-4000:]
        )
        yield running
    finally:
        running.process.terminate()
        running.process.wait(60)
        for raw in api.request("GET", RUNS)["items"]:
            api.request("DELETE", f"{RUNS}/{raw['metadata']['name']}")
        for raw in api.request("GET", PODS)["items"]:
            delete_now(api, raw["metadata"]["name"])


def delete_now(api: ApiServer, name: str) -> None:
    api.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def apply(api: ApiServer, name: str, **spec: Any) -> None:
    agent = {"image": "agent:1", "entrypoint": "documents.agent:index"}
    body = {
        "apiVersion": "milepost.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name},
        "spec": {"agent": agent, **spec},
    }
    api.apply(f"{RUNS}/{name}", body)


def run(api: ApiServer, name: str) -> Json:
    return api.request("GET", f"{RUNS}/{name}")


def reason(api: ApiServer, name: str) -> str:
    parts = (run(api, name).get("status") or {}).get("conditions") or ()
    return next((str(part["reason"]) for part in parts if part["type"] == "Ready"), "")


def pods(api: ApiServer, name: str) -> list[str]:
    found = api.request("GET", PODS, query={"labelSelector": f"milepost.dev/run={name}"})
    return sorted(raw["metadata"]["name"] for raw in found["items"])


def run_pod(api: ApiServer, name: str, node: str = "node-1") -> None:
    """Bind the pod to a node, and say that its container runs."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    api.request(
        "POST",
        f"{PODS}/{name}/binding",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target},
    )
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    patch_pod(api, name, {"phase": "Running", "containerStatuses": [container(state)]})


def end_pod(api: ApiServer, name: str, code: int) -> None:
    ended = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
    patch_pod(
        api, name, {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container(ended)]}
    )


def container(state: Json) -> Json:
    return {
        "name": "executor",
        "image": "agent:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }


def patch_pod(api: ApiServer, name: str, status: Json) -> None:
    api.request("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=MERGE_PATCH)


def test_a_run_gets_a_status_before_its_pod_and_resumes_after_an_eviction(
    api: ApiServer, operator: Operator
) -> None:
    apply(api, "docs")
    wait_until(lambda: len(pods(api, "docs")) == 1, "a first pod", within=60, hint=operator.log.read_text)
    first = pods(api, "docs")[0]
    run_pod(api, first)
    wait_until(lambda: reason(api, "docs") == "Running", "Running", within=60, hint=operator.log.read_text)

    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first}}
    api.request("POST", f"{PODS}/{first}/eviction", eviction)
    wait_until(lambda: reason(api, "docs") == "PodTerminating", "its end to be awaited", within=60)
    assert pods(api, "docs") == [first]
    end_pod(api, first, 80)
    delete_now(api, first)
    wait_until(
        lambda: any(name.endswith("-2") for name in pods(api, "docs")),
        "a second pod",
        within=60,
        hint=operator.log.read_text,
    )

    wait_until(lambda: run(api, "docs")["status"]["attempt"] == 2, "attempt 2 in the status", within=60)
    status = run(api, "docs")["status"]
    assert status["disruptions"] == {"Evicted": 1}
    assert status["observedGeneration"] == 1
    events = api.request("GET", "/api/v1/namespaces/team/events")["items"]
    told = {raw["reason"] for raw in events if raw["involvedObject"]["name"] == "docs"}
    assert told == {"Started", "Disrupted"}
    assert "kopf" not in json.dumps(run(api, "docs")["metadata"])


def test_an_operator_that_is_killed_and_started_again_makes_no_second_pod(
    api: ApiServer, operator: Operator, ports: range, tmp_path: Path
) -> None:
    apply(api, "again")
    wait_until(lambda: len(pods(api, "again")) == 1, "a pod", within=60, hint=operator.log.read_text)
    run_pod(api, pods(api, "again")[0])
    operator.process.send_signal(signal.SIGKILL)
    operator.process.wait(60)

    successor = start(tmp_path, api.kubeconfig, (tmp_path / "stores.yaml").read_text(), ports[1])
    try:
        wait_until(
            lambda: reason(api, "again") == "Running", "Running", within=60, hint=successor.log.read_text
        )
        assert len(pods(api, "again")) == 1
    finally:
        successor.process.terminate()
        assert successor.process.wait(60) == 0


def test_suspending_deletes_the_pod_and_cancelling_ends_the_run(api: ApiServer, operator: Operator) -> None:
    apply(api, "held")
    wait_until(lambda: len(pods(api, "held")) == 1, "a pod", within=60, hint=operator.log.read_text)
    patch = [{"op": "add", "path": "/spec/suspend", "value": True}]
    api.request("PATCH", f"{RUNS}/held", patch, content_type=JSON_PATCH)
    wait_until(lambda: pods(api, "held") == [], "no pod", within=60, hint=operator.log.read_text)
    wait_until(lambda: reason(api, "held") == "Suspended", "Suspended", within=60)

    patch = [{"op": "add", "path": "/spec/cancel", "value": True}]
    api.request("PATCH", f"{RUNS}/held", patch, content_type=JSON_PATCH)
    wait_until(lambda: run(api, "held")["status"]["phase"] == "Cancelled", "Cancelled", within=60)


@pytest.mark.parametrize(
    ("stores", "said"), [("stores: [", "not YAML"), ("stores: {a: {}}", "stores.a.bucket: Field required")]
)
def test_a_stores_file_with_a_mistake_ends_the_operator_with_its_message(
    api: ApiServer, ports: range, tmp_path: Path, stores: str, said: str
) -> None:
    broken = start(tmp_path, api.kubeconfig, stores, ports[0])

    assert broken.process.wait(60) == 2
    assert said in broken.log.read_text()


def test_a_status_made_from_an_older_version_is_refused(api: ApiServer, operator: Operator) -> None:
    apply(api, "versions")
    wait_until(
        lambda: reason(api, "versions") == "Starting", "Starting", within=60, hint=operator.log.read_text
    )
    stale: list[Json] = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "add", "path": "/status", "value": {"phase": "Succeeded"}},
    ]

    with pytest.raises(Refused) as refused:
        api.request("PATCH", f"{RUNS}/versions/status", stale, content_type=JSON_PATCH)
    assert refused.value.code == 409


def test_the_pod_passes_the_restricted_standard(api: ApiServer, operator: Operator) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": labels}}
    api.apply("/api/v1/namespaces/team", namespace)
    apply(api, "safe")

    wait_until(lambda: len(pods(api, "safe")) == 1, "a pod", within=60, hint=operator.log.read_text)
    assert reason(api, "safe") != "PodRefused"


def test_a_pod_that_breaks_a_rule_of_the_cluster_is_said(api: ApiServer, operator: Operator) -> None:
    apply(api, "wrong", pod={"priorityClassName": "none-such"})

    wait_until(
        lambda: reason(api, "wrong") == "PodRefused", "a refusal", within=60, hint=operator.log.read_text
    )
    with pytest.raises(Refused):
        api.request("GET", f"{PODS}/wrong")


@pytest.mark.req("F-C12")
@pytest.mark.usefixtures("deep_json")
def test_one_run_with_inputs_nested_beyond_reason_is_refused_and_harms_no_other(
    api: ApiServer, operator: Operator
) -> None:
    deep = '{"a":' * 9_000 + "1" + "}" * 9_000
    body = (
        '{"apiVersion": "milepost.dev/v1alpha1", "kind": "AgentRun", "metadata": {"name": "deep"}, "spec": '
        '{"agent": {"image": "agent:1", "entrypoint": "documents.agent:index"}, "inputs": ' + deep + "}}"
    )
    api.request("POST", RUNS, body)
    apply(api, "other")

    wait_until(lambda: pods(api, "other"), "a pod of the other run", within=60, hint=operator.log.read_text)
    wait_until(lambda: reason(api, "deep") == "InvalidSpec", "the deep run to be refused", within=60)
    assert operator.process.poll() is None
