"""A store, a scene on it, and what clean runs of the agents come to: once for all tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.campaign import AGENTS, Clean, Outcome, Task, clean_run, perform
from tests.faults.scene import Scene
from tests.faults.workers import Scenes, scenes
from tools.cluster import seaweedfs
from tools.cluster.interface import S3Server

SEED = 1


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    with seaweedfs.server() as running:
        yield running


@pytest.fixture(scope="session")
def forking(server: S3Server) -> Iterator[Scenes]:
    with scenes({"seaweedfs": server}) as made:
        yield made


@pytest.fixture(scope="session")
def scene(forking: Scenes) -> Scene:
    return forking.on("seaweedfs")


@pytest.fixture(scope="session")
def clean(scene: Scene) -> dict[str, Clean]:
    """What an undisturbed run of each agent comes to, and how many requests it makes at least."""
    found = {agent: [clean_run(scene, agent) for _ in range(2)] for agent in AGENTS}
    return {agent: min(runs, key=lambda run: run.requests.store) for agent, runs in found.items()}


@pytest.fixture
def outcome_of(scene: Scene, clean: dict[str, Clean], tmp_path: Path) -> Callable[[Task], Outcome]:
    """Return what does a task and judges it."""
    return lambda task: perform(scene, task, clean[task.agent], seed=SEED, journals=tmp_path)
