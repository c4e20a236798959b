"""What a test cluster offers, whatever it is made of.

The one back end is `tools.cluster.local`; kind and an existing cluster fit behind the same protocols.
Nothing here starts anything.

The surprising one is `Cluster.host`: a host is no node but a network namespace beside the cluster, so
that a program which pods must reach (a receiver of calls, a proxy) has an address that can be cut off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ClusterError(Exception):
    """Something that the cluster needs is missing or did not come up; the message says what to do."""


@dataclass(frozen=True)
class Identity:
    """A pair of keys of the S3 server, and where in the bucket they may read, write and list.

    `prefixes` are beginnings of keys and end in a slash; none at all means everywhere.
    """

    name: str
    access_key: str
    secret_key: str = field(repr=False)
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class S3Server:
    """Where an S3 server listens and who may use it."""

    endpoint: str
    bucket: str
    region: str
    admin: Identity
    scoped: Mapping[str, Identity] = field(default_factory=dict)

    @property
    def access_key(self) -> str:
        """The administrator's."""
        return self.admin.access_key

    @property
    def secret_key(self) -> str:
        """The administrator's."""
        return self.admin.secret_key

    def identity(self, namespace: str) -> Identity:
        """Return the keys that open only this namespace's part of the bucket; KeyError if there are none."""
        return self.scoped[namespace]


class Host(Protocol):
    """A place on the cluster's network that runs ordinary programs."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program there; `options` are those of `subprocess.Popen`. The caller ends it."""
        ...


class Node(Protocol):
    """A node, and what can go wrong with it."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...

    def freeze(self) -> None:
        """Stop the kubelet where it stands: containers go on, heartbeats end."""
        ...

    def thaw(self) -> None:
        """Let a frozen kubelet go on."""
        ...

    def cut_off(self, *peers: str) -> None:
        """Cut the node and its pods off from the given peers ("api", "s3", a host's name), or from all."""
        ...

    def reconnect(self) -> None:
        """Undo every `cut_off`."""
        ...

    def lose(self) -> None:
        """Kill everything that runs on the node, containers included, as a power cut would."""
        ...

    def bring_back(self) -> None:
        """Start the node anew after `lose`; its pods' containers are gone."""
        ...

    def container_pids(self, pod: str, namespace: str, container: str) -> list[int]:
        """Return the process ids, as this machine numbers them, in a running container: first the oldest."""
        ...


class Cluster(Protocol):
    """A Kubernetes cluster with an S3 server beside it."""

    @property
    def kubeconfig(self) -> Path: ...
    @property
    def kubectl(self) -> Path: ...
    @property
    def helm(self) -> Path: ...
    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def s3(self) -> S3Server: ...

    def up(self) -> None:
        """Bring the cluster up, or return at once where it is up and healthy. Raises ClusterError."""
        ...

    def down(self) -> None:
        """End everything that `up` started, and whatever the cluster ran."""
        ...

    def healthy(self) -> bool:
        """Say whether the API answers, every node is Ready and the S3 server takes writes."""
        ...

    def identity(self, namespace: str) -> Identity:
        """Return keys of the S3 server that open only this namespace's part; they are made if need be."""
        ...

    def load(self, archive: Path, reference: str) -> None:
        """Give every node the image in a docker-archive, unless it has that very image."""
        ...

    def host(self, name: str) -> Host:
        """Return a host by name: "receiver", "s3" or "control-plane". KeyError for any other."""
        ...
