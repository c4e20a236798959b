"""The log from outside, with real pods: damaged and repaired, kept and deleted, many records at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from milepost.api.names import StoreKeys
from milepost.checkpoint.opening import open_store
from milepost.checkpoint.store import Found, Store, Stored
from tests.e2e.scene import IN_NO_HURRY, Scene, condition
from tools.cluster.progress import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SWEEPS = 200.0


@pytest.fixture
def keys(scene: Scene, tmp_path: Path) -> Path:
    """The administrator's keys, as files."""
    (tmp_path / "access-key-id").write_text(scene.deployment.cluster.s3.access_key)
    (tmp_path / "secret-access-key").write_text(scene.deployment.cluster.s3.secret_key)
    return tmp_path


def url(scene: Scene) -> str:
    s3 = scene.deployment.cluster.s3
    return f"s3://{s3.bucket}/milepost?endpoint={s3.endpoint}&region={s3.region}"


@pytest.fixture
def store(scene: Scene, keys: Path) -> Store:
    return open_store(url(scene), keys)


def milepost(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("milepost")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=os.environ)


@pytest.mark.req("D3", "F-D6", "I4")
def test_a_run_whose_head_is_damaged_halts_and_goes_on_once_it_is_repaired(
    scene: Scene, store: Store, keys: Path
) -> None:
    scene.apply(scene.manifest("hurt", steps=20, **IN_NO_HURRY))
    run_id = scene.until_done("hurt", 4)["runId"]
    scene.kube.patch_run(scene.namespace, "hurt", {"suspend": True})
    scene.until_phase("hurt", "Suspended")
    scene.until_no_pods("hurt")
    head = store.get(StoreKeys(scene.namespace, run_id).head)
    assert isinstance(head, Found)
    damaged = head.body.replace(b'"step_completed"', b'"step_compleated"', 1)
    answer = store.put_if(StoreKeys(scene.namespace, run_id).head, damaged, head.metadata, etag=head.etag)
    assert isinstance(answer, Stored)

    scene.kube.patch_run(scene.namespace, "hurt", {"suspend": False})
    halted = scene.until_phase("hurt", "Halted")
    assert condition(halted, "Ready") == ("False", "Corrupt")
    verified = milepost("store", "verify", url(scene), f"{scene.namespace}/hurt", "--credentials", str(keys))
    assert (verified.returncode, "head" in verified.stdout) == (1, True)

    repaired = milepost(
        "store", "repair", url(scene), f"{scene.namespace}/hurt", "--credentials", str(keys), "--apply",
        "--nobody-writes",
    )  # fmt: skip
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    # Any change of the resource has it looked at; without one the next sweep of the API server does.
    scene.kube.patch_run(scene.namespace, "hurt", {"retentionSeconds": 3600})
    ended = scene.until_phase("hurt", "Succeeded")

    assert ended["runId"] != run_id
    # The one step whose record was damaged is done again, under the key of the first time.
    begun = Counter(start["step"] for start in scene.starts(run_id))
    assert sum(begun.values()) - len(begun) <= 2, begun
    scene.expect_once_each(run_id, 20)
    assert (
        milepost(
            "store", "verify", url(scene), f"{scene.namespace}/hurt", "--credentials", str(keys)
        ).returncode
        == 0
    )


@pytest.mark.req("K6", "C6")
def test_checkpoints_go_with_their_resource_where_that_is_the_policy(scene: Scene, store: Store) -> None:
    for name, policy in (("kept", "Retain"), ("gone", "Delete")):
        scene.apply(scene.manifest(name, steps=2, spec={"deletionPolicy": policy}))
    runs = {name: scene.until_phase(name, "Succeeded")["runId"] for name in ("kept", "gone")}
    prefixes = {name: StoreKeys(scene.namespace, run_id).run for name, run_id in runs.items()}

    for name in runs:
        scene.kube.delete_run(scene.namespace, name)
    wait_until(lambda: not list(store.list(prefixes["gone"])), "the checkpoints to be gone", within=SWEEPS)

    assert list(store.list(prefixes["kept"]))
    scene.apply(scene.manifest("gone", steps=2, spec={"deletionPolicy": "Delete"}))
    again = scene.until_phase("gone", "Succeeded")
    assert again["runId"] != runs["gone"]
    scene.expect_once_each(again["runId"], 2)


@pytest.mark.req("B3", "C3")
def test_an_evicted_run_that_records_five_steps_at_a_time_repeats_none_of_those(scene: Scene) -> None:
    scene.apply(scene.manifest("batched", steps=29, spec={"checkpoint": {"everySteps": 5}}, **IN_NO_HURRY))
    run_id = scene.until_done("batched", 8)["runId"]
    scene.deployment.kube.evict(scene.namespace, scene.pod("batched", 1)["metadata"]["name"])
    status = scene.until_phase("batched", "Succeeded")

    assert (status["progress"], status["attempt"]) == ("29/29", 2)
    assert [start["step"] for start in scene.starts(run_id)] == [f"step-{n}" for n in range(1, 30)]
    scene.expect_once_each(run_id, 29)
