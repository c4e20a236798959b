"""A PostgreSQL of one's own on loopback, for the peers that store there, with its defaults.

It takes the programs that the machine has and refuses to install any. The surprise: PostgreSQL does not run
as root, so for root it runs as `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peer import Unavailable

__all__ = ["Postgres", "postgres", "postgres_or_reason"]

_READY_WITHIN_S = 30.0


@dataclass(frozen=True)
class Postgres:
    """Where it listens; every database in it belongs to the user `bench`."""

    port: int
    password: str
    programs: Path

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://bench:{self.password}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Create a database and return its address."""
        self._ask("postgres", f'create database "{database}"')
        return self.url(database)

    def size(self, database: str) -> int:
        """Return a database's bytes on disk, without those that a vacuum gives back."""
        self._ask(database, "vacuum full")
        return int(self._ask(database, "select pg_database_size(current_database())"))

    def _ask(self, database: str, statement: str) -> str:
        done = subprocess.run(
            [str(self.programs / "psql"), "-XAtq", "-c", statement, self.url(database)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"PostgreSQL refuses {statement!r}: {done.stderr.strip()[-200:]}")
        return done.stdout.strip()


@contextlib.contextmanager
def postgres_or_reason() -> Iterator[Postgres | str]:
    """Yield a server, or the reason why there is none."""
    with contextlib.ExitStack() as stack:
        try:
            found: Postgres | str = stack.enter_context(postgres())
        except Unavailable as error:
            found = str(error)
        yield found


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server in a temporary folder. Raises Unavailable where there is none to be had."""
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="milepost-pg-", ignore_cleanup_errors=True) as name:
        folder, password = Path(name), secrets.token_hex(16)
        _own(folder)
        _make(programs, folder, password)
        server = Postgres(_free_port(), password, programs)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*_as_nobody(), *_command(programs, folder, server.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        try:
            _wait(server, process, folder / "log")
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _programs() -> Path:
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        raise Unavailable("this machine has no PostgreSQL (initdb is in no folder that is searched)")
    return versions[-1].parent


def _as_nobody() -> list[str]:
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig=KILL"]


def _own(folder: Path) -> None:
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")


def _make(programs: Path, folder: Path, password: str) -> None:
    secret = folder / "password"
    secret.write_text(password)
    _own(secret)
    made = subprocess.run(
        [
            *_as_nobody(),
            str(programs / "initdb"),
            f"--pgdata={folder / 'data'}",
            "--username=bench",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    if made.returncode != 0:
        raise Unavailable(f"initdb failed: {made.stderr.strip()[-200:]}")


def _command(programs: Path, folder: Path, port: int) -> list[str]:
    settings = ["listen_addresses=127.0.0.1", f"port={port}", f"unix_socket_directories={folder}"]
    options = [part for setting in settings for part in ("-c", setting)]
    return [str(programs / "postgres"), "-D", str(folder / "data"), *options]


def _wait(server: Postgres, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        try:
            server._ask("postgres", "select 1")
        except Unavailable:
            time.sleep(0.1)
        else:
            return
    raise Unavailable(f"PostgreSQL did not start: {log.read_text(errors='replace')[-200:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
