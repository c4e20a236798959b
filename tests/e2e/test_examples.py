"""Two of the examples as pods: one that waits without a pod until an editor answers, one killed at 347."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.api.names import StoreKeys
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.opening import open_store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store
from milepost.local.questions import Question, read_questions
from tests.e2e.scene import Scene
from tools.cluster import images
from tools.cluster.images import PROJECT
from tools.cluster.progress import wait_until
from tools.deployment import Deployment, Receiver, receiving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

DOCUMENTS = 500
KILLED_AT = 347
AT_ONCE = 10


@pytest.fixture(scope="module")
def ledger(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver of these tests' own: 500 documents fill it."""
    host = deployment.cluster.host("receiver")
    with receiving(host, tmp_path_factory.mktemp("examples"), port=8902) as receiver:
        yield receiver


@pytest.fixture
def store(scene: Scene, tmp_path: Path) -> Store:
    """The store, with the administrator's keys."""
    s3 = scene.deployment.cluster.s3
    (tmp_path / "access-key-id").write_text(s3.access_key)
    (tmp_path / "secret-access-key").write_text(s3.secret_key)
    return open_store(f"s3://{s3.bucket}/milepost?endpoint={s3.endpoint}&region={s3.region}", tmp_path)


def example_run(scene: Scene, folder: str, image_name: str, receiver: Receiver, **inputs: Any) -> str:
    """Build an example's image, load it, apply the example's manifest for this cluster; return its name."""
    example = PROJECT / "examples" / folder
    image = images.agent(example, f"localhost/{image_name}")
    scene.deployment.load(image)
    manifest: dict[str, Any] = yaml.safe_load((example / "run.yaml").read_text())
    name: str = manifest["metadata"]["name"]
    manifest["metadata"]["namespace"] = scene.namespace
    manifest["spec"]["agent"]["image"] = image.reference
    manifest["spec"]["inputs"] |= {"receiver": receiver.url, **inputs}
    manifest["spec"]["pod"] = {"imagePullPolicy": "IfNotPresent", "gracePeriodSeconds": 10}
    scene.apply(manifest)
    return name


def question(store: Store, scene: Scene, run_id: str) -> Question:
    head = read_head(store, StoreKeys(scene.namespace, run_id))
    assert isinstance(head, HeadAt)
    (asked,) = read_questions(store, head.head)[1]
    return asked


def answer(store: Store, scene: Scene, run_id: str, asked: Question, said: inbox.Answer) -> None:
    given = inbox.give(store, StoreKeys(scene.namespace, run_id), said, Patience(os.urandom))
    assert given is said, f"{asked.label} had an answer already"


@pytest.mark.req("F1", "F2", "F3", "K1")
def test_a_run_waits_without_a_pod_and_publishes_what_was_approved(
    scene: Scene, ledger: Receiver, store: Store
) -> None:
    name = example_run(scene, "02-approval", "milepost-example-announcement", ledger)
    run_id = scene.until_phase(name, "Waiting")["runId"]
    first = question(store, scene, run_id)
    wait_until(
        lambda: all(pod["status"]["phase"] != "Running" for pod in scene.kube.pods(scene.namespace, name)),
        "no pod to run while the run waits",
        within=60,
    )

    no = said(first, AnswerType.DENY, reason="without parser")
    answer(store, scene, run_id, first, no)
    second = wait_until(
        lambda: another(store, scene, run_id, first), "the second draft to be asked about", within=90
    )
    yes = said(second, AnswerType.APPROVE, answer={"title": "New in July", "audience": "everybody"})
    answer(store, scene, run_id, second, yes)
    status = scene.until_phase(name, "Succeeded", "Failed")

    assert (first.label, second.label) == ("publish=1", "publish=2")
    assert (status["phase"], status["result"]["said"]) == ("Succeeded", "approved by editor as draft 2")
    pages = [row["body"] for row in ledger.ledger()["applied"] if row["key"].startswith(f"{run_id}/")]
    assert pages == [
        {
            "heading": "What is new: 2 changes",
            "lines": [
                "Runs wait for people, and no process is alive meanwhile",
                "Checkpoints take less space",
            ],
            "title": "New in July",
            "audience": "everybody",
            "approved_by": "editor",
        }
    ]


def said(asked: Question, kind: AnswerType, *, reason: str = "", answer: Any = None) -> inbox.Answer:
    at = datetime.now(UTC).isoformat()
    return inbox.Answer(asked.gate.id, kind, "editor", at, reason, answer, asked.gate.request_digest)


def another(store: Store, scene: Scene, run_id: str, before: Question) -> Question | None:
    """Return what the run waits for now, once that is something else than before."""
    head = read_head(store, StoreKeys(scene.namespace, run_id))
    assert isinstance(head, HeadAt)
    now = [each for each in read_questions(store, head.head)[1] if each.gate.id != before.gate.id]
    return now[0] if now else None


@pytest.mark.req("G7", "E6", "F-A3")
def test_500_documents_survive_the_kill_at_347(scene: Scene, ledger: Receiver) -> None:
    name = example_run(scene, "06-500-documents", "milepost-example-library", ledger)

    status = scene.until_phase(name, "Succeeded", "Failed", within=240)

    assert (status["phase"], status["progress"], status["attempt"]) == ("Succeeded", "1001/1001", 2)
    lost = [*status.get("failures", {}).values(), *status.get("disruptions", {}).values()]
    assert sum(lost) == 1
    seen = ledger.ledger()
    documents = Counter(row["body"]["document"] for row in seen["applied"] if "document" in row["body"])
    assert (len(documents), set(documents.values())) == (DOCUMENTS, {1})
    begun = Counter(start["key"] for start in seen["starts"])
    twice = [key for key, times in begun.items() if times > 1]
    assert set(begun.values()) == {1, 2}
    # What was under way when the process was killed, and nothing that was recorded before.
    assert 1 <= len(twice) <= AT_ONCE
