"""Run one S3 server as a process of one's own: its ports, its log, and its end.

How a server is told what to do is the business of its own module (`tools.cluster.seaweedfs`, `versitygw`).
A server that does conditional writes is ready once it took one and refused the same one again; for others
the caller says what readiness is.

The surprise: a server dies with the process that started it, however that one ends, where the machine has
`setpriv`. A test process that is killed runs no clean-up.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster import s3_request
from tools.cluster.interface import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tools.cluster.interface import S3Server

PORTS_EACH = 4
"""How many ports one claim is for."""

READY_WITHIN_S = 60.0
_ENDS_BY_ITSELF_S = 0.5
# Below the range that Linux takes ports of outgoing connections from, for the second block as well.
_FIRST_PORT, _LAST_PORT = 12_000, 22_000
_SECOND_BLOCK = 10_000


@contextlib.contextmanager
def ports() -> Iterator[range]:
    """Claim a block of free ports, and the one that is 10,000 higher, for as long as the context lasts.

    A lock on a file keeps other servers of ours away, and binding shows that nobody else has them.
    """
    folder = Path(tempfile.gettempdir()) / f"milepost-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for first in range(_FIRST_PORT, _LAST_PORT, PORTS_EACH):
        block = range(first, first + PORTS_EACH)
        with (folder / str(first)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if all(_free(port) and _free(port + _SECOND_BLOCK) for port in block):
                yield block
                return
    raise ClusterError(f"no {PORTS_EACH} free ports together between {_FIRST_PORT} and {_LAST_PORT}")


@contextlib.contextmanager
def running(
    argv: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str],
    wait_until_ready: Callable[[Callable[[], bool]], None],
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server for as long as the context lasts, with its log in `folder`, and yield its process.

    `wait_until_ready` gets a function that says whether the process still lives, and raises ClusterError
    where the server does not come up; the end of the log is added to its words.
    """
    log = folder / "log"
    # A test process that is killed runs no clean-up, and the server must not outlive it.
    if setpriv := shutil.which("setpriv"):
        argv = [setpriv, "--pdeathsig", "KILL", *argv]
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, cwd=folder
        )
    try:
        try:
            wait_until_ready(lambda: process.poll() is None)
        except ClusterError as error:
            raise ClusterError(f"{error}; its log ends:\n{log.read_text()[-2000:]}") from None
        yield process
    finally:
        stop(process)


def wait_until(
    ready: Callable[[], bool], alive: Callable[[], bool], what: str, within: float = READY_WITHIN_S
) -> None:
    """Wait until the server called `what` is ready, for `within` seconds at most.

    Raises ClusterError when it takes longer or `alive` says that it ended.
    """
    end = time.monotonic() + within
    while not ready():
        if not alive():
            raise ClusterError(f"{what} ended while it started")
        if time.monotonic() > end:
            raise ClusterError(f"{what} took no write within {within:.0f} s")
        time.sleep(0.1)


def takes_conditional_writes(server: S3Server) -> bool:
    """Say whether the server accepts a conditional write and refuses the same one when it is repeated.

    Its bucket is made first where there is none.
    """
    key = f"/.ready/{secrets.token_hex(8)}"
    create = {"if-none-match": "*"}
    try:
        if put(server) not in {200, 409}:
            return False
        return [put(server, key, b"x", create), put(server, key, b"x", create)] == [200, 412]
    except (OSError, http.client.HTTPException):
        return False


def put(server: S3Server, key: str = "", body: bytes = b"", headers: Mapping[str, str] | None = None) -> int:
    """Send one PUT as the administrator and return its status; without a key it makes the bucket.

    Raises OSError or http.client.HTTPException where there is no answer.
    """
    path = f"/{server.bucket}{key}"
    return s3_request.send(
        server.endpoint, server.region, server.admin, "PUT", path, body=body, headers=headers
    )


def wait_until_ready(server: S3Server, alive: Callable[[], bool], within: float = READY_WITHIN_S) -> None:
    """Wait until the server takes conditional writes into its bucket, which is made here.

    `within` is in seconds. Raises ClusterError when it takes longer or `alive` says that it ended.
    """
    what = f"the S3 server at {server.endpoint}"
    wait_until(lambda: takes_conditional_writes(server), alive, what, within)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server: a short moment to end by itself, then SIGKILL."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=_ENDS_BY_ITSELF_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104  a probe, closed at once: it finds users of any address
        except OSError:
            return False
    return True
