"""What a test on the cluster does and sees: one namespace, its runs, their pods, the receiver's ledger."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.cluster.progress import wait_until
from tools.deployment import Deployment, Kube, NotFound, Receiver

__all__ = ["IN_NO_HURRY", "Scene", "condition"]

Resource = dict[str, Any]

# Generous on purpose: machines are shared, and a test here fails by what happens, not by how fast.
PATIENCE = 90.0

IN_NO_HURRY: dict[str, Any] = {"pause": 1.0, "later": 0.05}
"""Inputs of a run that its first pod cannot end before something has befallen it; later ones hurry."""


@dataclass(frozen=True)
class Scene:
    """One namespace on the cluster."""

    deployment: Deployment
    namespace: str
    agent_image: str
    receiver: Receiver

    @property
    def kube(self) -> Kube:
        return self.deployment.kube

    def manifest(
        self, name: str, *, agent: str = "scripted", spec: Resource | None = None, **inputs: Any
    ) -> Resource:
        """Return a manifest of the scripted agent with these inputs; `spec` adds to it or changes it."""
        own: Resource = {
            "agent": {"image": self.agent_image, "entrypoint": f"scenario.agent:{agent}"},
            "inputs": {"receiver": self.receiver.url, **inputs} if agent == "scripted" else inputs,
            "pod": {"imagePullPolicy": "IfNotPresent", "gracePeriodSeconds": 10},
        }
        for key, value in (spec or {}).items():
            own[key] = {**own[key], **value} if isinstance(own.get(key), dict) else value
        return {
            "apiVersion": "milepost.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": own,
        }

    def apply(self, manifest: Resource) -> Resource:
        return self.kube.apply_run(manifest)

    def run(self, name: str) -> Resource:
        return self.kube.run(self.namespace, name)

    def status(self, name: str) -> Resource:
        status: Resource = self.run(name).get("status", {})
        return status

    def until(
        self, name: str, what: str, holds: Callable[[Resource], object], *, within: float = PATIENCE
    ) -> Resource:
        """Wait until the run's status is as described, and return it."""

        def look() -> Resource | None:
            status = self.status(name)
            return status if status and holds(status) else None

        return wait_until(look, f"run {name}: {what}", within=within, hint=lambda: self.told(name))

    def until_phase(self, name: str, *phases: str, within: float = PATIENCE) -> Resource:
        return self.until(name, " or ".join(phases), lambda s: s.get("phase") in phases, within=within)

    def until_done(self, name: str, steps: int) -> Resource:
        """Wait until the receiver has seen step `steps` begin: by then all before it are recorded."""
        return self.until_told(name, f"step-{steps}")

    def until_told(self, name: str, step: str) -> Resource:
        """Wait until the receiver was told that this step begins, and return the run's status."""
        run_id = self.until(name, "a run id", lambda s: s.get("runId"))["runId"]
        wait_until(
            lambda: any(start["step"] == step for start in self.starts(run_id)),
            f"{step} of {name} to begin",
            within=PATIENCE,
            hint=lambda: self.told(name),
        )
        return self.status(name)

    def until_called(self, name: str, number: int) -> None:
        """Wait until step `number` has had its effect."""
        run_id = self.until(name, "a run id", lambda s: s.get("runId"))["runId"]
        wait_until(
            lambda: f"{run_id}/step-{number}" in self.calls(run_id),
            f"the effect of step {number} of {name}",
            within=PATIENCE,
            hint=lambda: self.told(name),
        )

    def pod(self, name: str, attempt: int, *, within: float = PATIENCE) -> Resource:
        """Wait for the pod of an attempt to run, and return it."""

        def look() -> Resource | None:
            for pod in self.kube.pods(self.namespace, name):
                mine = pod["metadata"]["labels"]["milepost.dev/attempt"] == str(attempt)
                if mine and pod["status"].get("phase") == "Running":
                    return pod
            return None

        return wait_until(look, f"pod {attempt} of {name}", within=within, hint=lambda: self.told(name))

    def kill(self, name: str, attempt: int) -> None:
        """End the attempt's processes with SIGKILL, from outside of its container."""
        for pid in self.processes(name, attempt):
            os.kill(pid, signal.SIGKILL)

    def processes(self, name: str, attempt: int) -> list[int]:
        """Return the ids of the attempt's processes, as this machine numbers them."""
        pod = self.pod(name, attempt)
        node = next(n for n in self.deployment.cluster.nodes if n.name == pod["spec"]["nodeName"])
        return node.container_pids(pod["metadata"]["name"], self.namespace, "executor")

    def until_no_run(self, name: str) -> None:
        def gone() -> bool:
            try:
                self.run(name)
            except NotFound:
                return True
            return False

        wait_until(gone, f"run {name} to be gone", within=PATIENCE)

    def until_no_pods(self, name: str) -> None:
        wait_until(
            lambda: not self.kube.pods(self.namespace, name),
            f"the pods of {name} to be gone",
            within=PATIENCE,
        )

    def starts(self, run_id: str) -> list[dict[str, Any]]:
        return [start for start in self.receiver.ledger()["starts"] if start["key"].startswith(f"{run_id}/")]

    def calls(self, run_id: str) -> Counter[str]:
        """Return how often each key was called."""
        calls = self.receiver.ledger()["calls"]
        return Counter(call["key"] for call in calls if call["key"].startswith(f"{run_id}/"))

    def applied(self, run_id: str) -> Counter[str]:
        """Return how often each key was applied."""
        rows = self.receiver.ledger()["applied"]
        return Counter(row["key"] for row in rows if row["key"].startswith(f"{run_id}/"))

    def expect_once_each(self, run_id: str, steps: int) -> None:
        """Assert that each of the steps had its effect, and none had it twice."""
        assert self.applied(run_id) == {f"{run_id}/step-{n}": 1 for n in range(1, steps + 1)}

    def told(self, name: str) -> str:
        """Return all that can help to understand a failure."""
        pods = [
            {"name": p["metadata"]["name"], "node": p["spec"].get("nodeName"), "status": p["status"]}
            for p in self.kube.pods(self.namespace, name)
        ]
        events = [
            f"{event['reason']}: {event.get('message', '')}" for event in self.kube.events(self.run(name))
        ]
        seen = {"status": self.status(name), "pods": pods, "events": events}
        return json.dumps(seen, indent=1)[:6000]


def condition(status: Resource, kind: str) -> tuple[str, str]:
    """Return a condition's status and reason; ("", "") where there is none."""
    for found in status.get("conditions", []):
        if found["type"] == kind:
            return found["status"], found["reason"]
    return "", ""
