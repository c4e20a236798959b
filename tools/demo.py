"""The main job, for people to watch: a run over ten documents that loses its pod in the middle.

Everything is real: a two-node cluster, an S3 server, the chart, an eviction through the Eviction API. What
happened is held against the receiver's ledger, which no pod can change: no step that was recorded may have
started again, and no document may have been applied twice. `build/demo.json` says how it went; the exit
code is 0 only if all of it held.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.cluster import local_cluster
from tools.cluster.images import PROJECT
from tools.cluster.progress import say, wait_until
from tools.deployment import Deployment, NotFound, Receiver, documents_run, installed, receiving

NAMESPACE: Final = "demo"
NAME: Final = "documents"
DOCUMENTS: Final = 10
EVICT_AFTER: Final = 5
REPORT: Final = PROJECT / "build" / "demo.json"


@dataclass
class Story:
    """What the demo saw. Times are seconds of this machine's clock."""

    deployment: Deployment
    receiver: Receiver
    applied_at: float = 0.0
    evicted_at: float = 0.0
    recorded_at_eviction: set[str] = field(default_factory=set)
    table: list[list[str]] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.deployment.kube.run(NAMESPACE, NAME).get("status", {})
        return status

    def starts(self) -> list[dict[str, Any]]:
        """Return the starts of this run's steps as the receiver was told of them."""
        prefix = f"{self.status().get('runId', '')}/"
        return [start for start in self.receiver.ledger()["starts"] if start["key"].startswith(prefix)]

    def show_if_moved(self) -> None:
        table = self.deployment.kubectl("get", "agentruns", "-n", NAMESPACE)
        without_age = [line.split()[:-1] for line in table.splitlines()]
        if without_age != self.table:
            self.table = without_age
            print(table, flush=True)


def main() -> int:
    """Run the demo; return 0 if everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up and say how to use it")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as folder, _cluster(keep=keep) as deployment:
        host = deployment.cluster.host("receiver")
        with receiving(host, Path(folder)) as receiver:
            story = Story(deployment, receiver)
            _prepare(story)
            _apply(story)
            _evict_in_the_middle(story)
            _watch_the_end(story)
            report, complaints = _judge(story)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    for complaint in complaints:
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


@contextmanager
def _cluster(*, keep: bool) -> Iterator[Deployment]:
    cluster = local_cluster()
    deployment = installed(cluster)
    try:
        yield deployment
    finally:
        for node in cluster.nodes:
            deployment.kube.cordon(node.name, closed=False)
        deployment.kube.close()
        if keep:
            say('the cluster is left up; to use it: eval "$(.venv/bin/python -m tools.cluster env)"')
            say("then: kubectl get agentruns -A; to end it: make cluster-down")
        else:
            cluster.down()


def _prepare(story: Story) -> None:
    kube = story.deployment.kube
    story.deployment.namespace(NAMESPACE)
    with suppress(NotFound):
        kube.delete_run(NAMESPACE, NAME)
    wait_until(lambda: not kube.pods(NAMESPACE, NAME), "an earlier demo's pods to be gone", within=90)
    for node in story.deployment.cluster.nodes:
        kube.cordon(node.name, closed=False)


def _apply(story: Story) -> None:
    deployment = story.deployment
    # Another `rerun` begins anew where an earlier demo's run is still in the bucket under this name.
    rerun = {"rerun": str(time.time_ns())}
    manifest = documents_run(NAME, NAMESPACE, deployment.example, story.receiver.url, pause=0.5)
    manifest["spec"] |= rerun
    say(f"kubectl apply -f examples/01-documents/run.yaml, in the namespace {NAMESPACE}")
    story.applied_at = time.time()
    deployment.kube.apply_run(manifest)
    wait_until(lambda: story.status().get("runId"), "the operator to take the run up", within=60)


def _evict_in_the_middle(story: Story) -> None:
    """Wait until document 5 is recorded, close its node for new pods, and evict the pod."""
    kube = story.deployment.kube

    def recorded() -> bool:
        # A step that starts says that every step before it is recorded.
        story.show_if_moved()
        return any(start["step"].startswith(f"extract={EVICT_AFTER + 1:02d}") for start in story.starts())

    wait_until(recorded, f"document {EVICT_AFTER} to be recorded", within=120, pause=0.3)
    pod = next(p for p in kube.pods(NAMESPACE, NAME) if p["status"]["phase"] == "Running")
    node = pod["spec"]["nodeName"]
    say(f"document {EVICT_AFTER} is recorded: cordoning {node} and evicting {pod['metadata']['name']}")
    kube.cordon(node)
    story.recorded_at_eviction = {start["step"] for start in story.starts()[:-1]}
    story.evicted_at = time.time()
    kube.evict(NAMESPACE, pod["metadata"]["name"])


def _watch_the_end(story: Story) -> None:
    def ended() -> bool:
        story.show_if_moved()
        return story.status().get("phase") in {"Succeeded", "Failed", "Cancelled", "Halted"}

    wait_until(ended, "the run to end", within=180, pause=0.3, hint=lambda: json.dumps(story.status()))
    deployment = story.deployment
    print(deployment.kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide"))
    print("The story, as `kubectl describe` tells it:")
    for event in deployment.kube.events(deployment.kube.run(NAMESPACE, NAME)):
        print(f"  {event.get('reason', ''):<12} {event.get('message', event.get('note', ''))}")
    print("The result:")
    print(json.dumps(story.status().get("result"), indent=2))


def _judge(story: Story) -> tuple[dict[str, Any], list[str]]:
    """Return the report, and a sentence for each thing that did not hold."""
    status = story.status()
    run_id = status["runId"]
    starts = story.starts()
    after = [start for start in starts if start["at"] / 1e9 > story.evicted_at]
    resumed = [start for start in after if start["pod"] != starts[0]["pod"]]
    ledger = story.receiver.ledger()
    applied = Counter(
        json.dumps(row["body"]) for row in ledger["applied"] if row["key"].startswith(f"{run_id}/")
    )
    repeated = [start["step"] for start in after if start["step"] in story.recorded_at_eviction]
    repeated += _started_after_its_record(starts)
    report = {
        "outcome": status["phase"],
        "documents": len(applied),
        "evictions": sum(status.get("disruptions", {}).values()),
        "effects": {"total": sum(applied.values()), "duplicates": sum(applied.values()) - len(applied)},
        "recorded_steps_repeated": len(set(repeated)),
        "eviction_to_next_step_s": round(resumed[0]["at"] / 1e9 - story.evicted_at, 2) if resumed else None,
        "first_start_s": round(starts[0]["at"] / 1e9 - story.applied_at, 2),
    }
    _print_ledger(ledger, run_id)
    expected = {
        "outcome": "Succeeded",
        "documents": DOCUMENTS,
        "evictions": 1,
        "effects": {"total": DOCUMENTS, "duplicates": 0},
        "recorded_steps_repeated": 0,
    }
    complaints = [
        f"{name} is {report[name]}, and should be {value}"
        for name, value in expected.items()
        if report[name] != value
    ]
    if not resumed:
        complaints.append("no step was started by a second pod")
    return report, complaints


def _started_after_its_record(starts: list[dict[str, Any]]) -> list[str]:
    """Return steps that started although a later one had, which waits until all before it are recorded."""
    repeated, seen, newest = [], set[str](), ""
    for start in starts:
        if start["step"] in seen and start["step"] != newest:
            repeated.append(start["step"])
        seen.add(start["step"])
        newest = start["step"]
    return repeated


def _print_ledger(ledger: dict[str, list[dict[str, Any]]], run_id: str) -> None:
    print("The receiver's ledger, kept outside of every pod:")
    calls = Counter(call["key"] for call in ledger["calls"] if call["key"].startswith(f"{run_id}/"))
    for row in ledger["applied"]:
        if row["key"] in calls:
            times = "once" if calls[row["key"]] == 1 else f"{calls[row['key']]} times"
            print(f"  {row['key']:<64} called {times}, applied once")


if __name__ == "__main__":
    sys.exit(main())
