"""The operator's parts put together: what start-up refuses, and what it leaves behind where it fails."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import kopf
import pytest

from milepost_operator.shell.settings import BadSettings, Settings
from milepost_operator.shell.startup import Operator
from tests.operator.conftest import STORES, World

PARTS = {"stores", "workers", "nodes", "sweep", "store-sweep"}


@pytest.fixture
def kubeconfig(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let whoever logs in find the fake API server."""
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": world.server}}],
        "users": [{"name": "me", "user": {}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return file


def an_operator(folder: Path, stores: str = STORES, port: int = 0) -> Operator:
    file = folder / "stores.yaml"
    file.write_text(stores)
    return Operator(Settings(stores_file=file, health_port=port), kopf.OperatorSettings())


def parts() -> list[str]:
    return sorted(task.get_name() for task in asyncio.all_tasks() if task.get_name() in PARTS)


@pytest.mark.usefixtures("kubeconfig")
async def test_all_parts_run_once_it_has_started_and_none_once_it_has_stopped(tmp_path: Path) -> None:
    operator = an_operator(tmp_path)
    await operator.start()
    running = parts()
    await operator.stop()

    assert running == sorted(PARTS)
    assert (parts(), operator.failure, operator.stop_flag.is_set()) == ([], "", True)


@pytest.mark.usefixtures("kubeconfig")
async def test_a_start_that_fails_leaves_no_part_running_beside_those_of_the_next(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        operator = an_operator(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(OSError, match="address already in use"):
            await operator.start()

    assert parts() == []
    await operator.start()
    assert parts() == sorted(PARTS)
    await operator.stop()


@pytest.mark.usefixtures("kubeconfig")
async def test_a_mistake_in_the_stores_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"stores\.default\.bucket"):
        await an_operator(tmp_path, stores="stores: {default: {allowedNamespaces: [team]}}").start()


@pytest.mark.usefixtures("kubeconfig")
async def test_a_cluster_whose_identity_cannot_be_told_stops_the_start(tmp_path: Path, world: World) -> None:
    world.api.forbidden.add("namespaces")
    operator = an_operator(tmp_path)

    with pytest.raises(BadSettings, match="one is needed to tell this cluster's checkpoints from another's"):
        await operator.start()
    await operator.stop()
