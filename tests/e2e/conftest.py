from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.scene import Scene
from tools.cluster import images, local_cluster
from tools.deployment import Deployment, Receiver, installed, receiving

AGENT = Path(__file__).parent / "agent"


@pytest.fixture(scope="session")
def deployment() -> Iterator[Deployment]:
    """Milepost on this machine's cluster, with the image of the scripted agent on every node."""
    deployment = installed(local_cluster())
    for node in deployment.cluster.nodes:
        deployment.kube.cordon(node.name, closed=False)
    yield deployment
    deployment.kube.close()


@pytest.fixture(scope="session")
def agent_image(deployment: Deployment) -> str:
    """The scripted agent's image, loaded into every node."""
    image = images.agent(AGENT, "localhost/milepost-scenario")
    deployment.load(image)
    return image.reference


@pytest.fixture(scope="session")
def receiver(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """The world outside of every pod, which keeps count."""
    host = deployment.cluster.host("receiver")
    with receiving(host, tmp_path_factory.mktemp("receiver"), port=8901) as receiver:
        yield receiver


@pytest.fixture
def scene(
    deployment: Deployment, agent_image: str, receiver: Receiver, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """A namespace of the test's own, in which it can apply runs; it is deleted afterwards."""
    namespace = f"t-{os.urandom(4).hex()}"
    deployment.namespace(namespace)
    scene = Scene(deployment, namespace, agent_image, receiver)
    yield scene
    if request.session.testsfailed == 0:
        deployment.kube.request("DELETE", f"/api/v1/namespaces/{namespace}")
