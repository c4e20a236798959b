"""From an eviction to the next step's first instruction: Milepost, and a plain Job beside it.

The same image on the same cluster. The Job is a fresh one for each eviction and ends at once on SIGTERM; its
time is from the eviction to its next pod's first instruction. All clocks are the receiver's host's, which is
this machine: the eviction is timed here, starts by the receiver.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench import report
from tools.cluster import images, local_cluster
from tools.cluster.progress import say, wait_until
from tools.deployment import Deployment, NotFound, Receiver, installed, receiving

EVICTIONS = 20
JOBS = 5
NAMESPACE = "bench"
AGENT = Path(__file__).resolve().parents[1] / "e2e" / "agent"
RUN = "recovery"

# The same first instruction as a step's: tell the receiver. SIGTERM ends it at once.
JOB_CODE = """
import json, os, signal, socket, sys, time, urllib.request
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
body = {"step": "job", "key": sys.argv[2], "attempt": 1, "pod": socket.gethostname()}
headers = {"Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/starts", json.dumps(body).encode(), headers))
time.sleep(600)
"""


def main() -> None:
    """Measure, and write `recovery.json`."""
    deployment = installed(local_cluster())
    image = images.agent(AGENT, "localhost/milepost-scenario")
    deployment.load(image)
    deployment.namespace(NAMESPACE)
    host = deployment.cluster.host("receiver")
    with TemporaryDirectory() as folder, receiving(host, Path(folder), port=8902) as receiver:
        ours = _ours(deployment, receiver, image.reference)
        jobs = [_job(deployment, receiver, image.reference, number) for number in range(JOBS)]
    figures = {
        "n": len(ours),
        "p50_s": round(median(ours), 2),
        "p99_s": round(report.quantile(ours, 0.99), 2),
        "job_n": len(jobs),
        "job_p50_s": round(median(jobs), 2),
        "times_faster": round(median(jobs) / median(ours), 2),
    }
    report.write("recovery", figures)


def _ours(deployment: Deployment, receiver: Receiver, image: str) -> list[float]:
    kube = deployment.kube
    manifest = {
        "apiVersion": "milepost.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": RUN, "namespace": NAMESPACE},
        "spec": {
            "agent": {"image": image, "entrypoint": "scenario.agent:scripted"},
            "inputs": {"receiver": receiver.url, "steps": 100_000, "pause": 0.2},
            "rerun": str(time.time_ns()),
        },
    }
    _forget_run(deployment)
    kube.apply_run(manifest)
    took = []
    for number in range(1, EVICTIONS + 1):
        pod = _working_pod(deployment, receiver, number)
        began = time.time()
        kube.evict(NAMESPACE, pod)
        took.append(_first_start_after(receiver, began, not_in=pod) - began)
        say(f"eviction {number}: {took[-1]:.2f} s")
    kube.patch_run(NAMESPACE, RUN, {"cancel": True})
    _forget_run(deployment)
    return took


def _forget_run(deployment: Deployment) -> None:
    try:
        deployment.kube.delete_run(NAMESPACE, RUN)
    except NotFound:
        return
    wait_until(lambda: not deployment.kube.pods(NAMESPACE, RUN), "the run's pods to be gone", within=90)


def _working_pod(deployment: Deployment, receiver: Receiver, attempt: int) -> str:
    """Wait until the attempt's pod has started three steps, and return its name."""

    def look() -> str | None:
        for pod in deployment.kube.pods(NAMESPACE, RUN):
            name: str = pod["metadata"]["name"]
            starts = [start for start in receiver.ledger()["starts"] if start["pod"] == name]
            if name.endswith(f"-{attempt}") and len(starts) >= 3:  # at work, no longer starting
                return name
        return None

    return wait_until(look, f"attempt {attempt} at work", within=90)


def _first_start_after(receiver: Receiver, moment: float, *, not_in: str, key: str = "") -> float:
    """Wait for the first start in another pod, and return its time in seconds."""

    def look() -> float | None:
        times = [
            start["at"] / 1e9
            for start in receiver.ledger()["starts"]
            if start["pod"] != not_in and start["at"] / 1e9 > moment and (not key or start["key"] == key)
        ]
        return min(times, default=None)

    return wait_until(look, "the next start", within=120, pause=0.05)


def _job(deployment: Deployment, receiver: Receiver, image: str, number: int) -> float:
    kube, name = deployment.kube, f"job-{number}-{time.time_ns() % 1_000_000}"
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    kube.request("POST", path, _job_manifest(name, image, receiver.url))
    _first_start_after(receiver, 0, not_in="", key=name)
    pods = [pod for pod in kube.pods(NAMESPACE) if pod["metadata"]["labels"].get("job-name") == name]
    pod = pods[0]["metadata"]["name"]
    began = time.time()
    kube.evict(NAMESPACE, pod)
    took = _first_start_after(receiver, began, not_in=pod, key=name) - began
    say(f"job {number}: {took:.2f} s")
    kube.request("DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})
    return took


def _job_manifest(name: str, image: str, receiver: str) -> dict[str, Any]:
    container = {
        "name": "job",
        "image": image,
        "command": ["python", "-c", JOB_CODE, receiver, name],
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    spec = {"backoffLimit": 1000, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
