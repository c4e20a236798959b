"""Build, load and install Milepost on a cluster, and make namespaces in which runs can live."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tools.cluster import images
from tools.cluster.images import PROJECT, Image
from tools.cluster.interface import Cluster, Identity
from tools.cluster.progress import step
from tools.deployment.kube import Kube

__all__ = ["RELEASE", "SYSTEM", "Deployment", "installed"]

RELEASE: Final = "milepost"
SYSTEM: Final = "milepost-system"
SECRET: Final = "milepost-store"  # noqa: S105  (the name of a Secret)
EXAMPLE: Final = PROJECT / "examples" / "01-documents"
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True)
class Deployment:
    """Milepost on a cluster."""

    cluster: Cluster
    kube: Kube
    operator: Image
    executor: Image
    example: Image

    def namespace(self, name: str, identity: Identity | None = None) -> None:
        """Make a namespace: restricted pods only, and the Secret that opens the store.

        Without an identity the keys are the namespace's own, which open nothing of another's.
        """
        namespace = {"metadata": {"name": name, "labels": RESTRICTED}}
        self.kube.ensure("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", **namespace})
        keys = identity or self.cluster.identity(name)
        self.kube.ensure(f"/api/v1/namespaces/{name}/secrets", store_secret(keys))

    def load(self, image: Image) -> None:
        """Give the nodes another image."""
        self.cluster.load(image.archive, image.reference)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as a person would, and return what it prints. Raises CalledProcessError."""
        return self._program(self.cluster.kubectl, *arguments)

    def helm(self, *arguments: str) -> str:
        """Run helm, and return what it prints. Raises CalledProcessError."""
        return self._program(self.cluster.helm, *arguments)

    def install(self) -> None:
        """Install the chart, or upgrade it where something changed, and wait until the operator is ready."""
        repository, _, tag = self.operator.reference.rpartition(":")
        s3 = self.cluster.s3
        store = {"endpoint": s3.endpoint, "bucket": s3.bucket, "region": s3.region, "prefix": "milepost"}
        values = {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "stores": {"default": {**store, "credentials": {"secretName": SECRET}}},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
            # Ten minutes, the default, are longer than a test may wait.
            "storeSweepSeconds": 60,
        }
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values, file)
            file.flush()
            chart = str(PROJECT / "charts" / "milepost")
            release = ["upgrade", "--install", RELEASE, chart, "--namespace", SYSTEM, "--values", file.name]
            self.helm(*release, "--wait", "--timeout", "180s")

    def _program(self, program: Path, *arguments: str) -> str:
        command = [str(program), "--kubeconfig", str(self.cluster.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program.name} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


def store_secret(identity: Identity) -> dict[str, Any]:
    """Return the Secret that the chart and the executors' pods expect for a store."""
    keys = {"access-key-id": identity.access_key, "secret-access-key": identity.secret_key}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in keys.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}


def installed(cluster: Cluster) -> Deployment:
    """Return Milepost installed on a cluster, which is brought up first. What is there is reused."""
    cluster.up()
    operator, executor = images.operator(), images.executor()
    example = images.agent(EXAMPLE, "localhost/milepost-example-documents")
    deployment = Deployment(cluster, Kube(cluster.kubeconfig), operator, executor, example)
    with step("loading the images into the nodes"):
        deployment.load(operator)
        deployment.load(example)
    with step("installing the chart"):
        deployment.namespace(SYSTEM, cluster.s3.admin)
        deployment.install()
    return deployment


def documents_run(name: str, namespace: str, image: Image, receiver: str, **inputs: Any) -> dict[str, Any]:
    """Return the documents example's manifest, as it stands in its folder, for this cluster."""
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLE / "run.yaml").read_text())
    manifest["metadata"] = {"name": name, "namespace": namespace}
    manifest["spec"]["agent"]["image"] = image.reference
    manifest["spec"]["inputs"] |= {"receiver": receiver, **inputs}
    return manifest
