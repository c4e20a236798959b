"""Where the tool keeps what it builds and what it runs: one cache folder outside any checkout.

    bin/<name>-<version>-<go version>/   programs, complete or absent
    images/<digest of the inputs>/       image archives, complete or absent
    run/                                 the running cluster: configuration, logs, data

Sockets lie in /run/milepost, since a socket's path may hold only 107 bytes. That folder, the control
groups and the network namespaces have one name per machine: two caches cannot run two clusters.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster.interface import ClusterError
from tools.cluster.progress import say

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = Path("/run/milepost")


@dataclass(frozen=True)
class Paths:
    """The folders of one cache."""

    cache: Path

    @classmethod
    def from_environment(cls) -> Paths:
        """Return the folders below $MILEPOST_CACHE, by default ~/.cache/milepost."""
        return cls(Path(os.environ.get("MILEPOST_CACHE") or Path.home() / ".cache" / "milepost").absolute())

    @property
    def bin(self) -> Path:
        return self.cache / "bin"

    @property
    def images(self) -> Path:
        return self.cache / "images"

    @property
    def run(self) -> Path:
        return self.cache / "run"

    @property
    def logs(self) -> Path:
        return self.run / "logs"


@contextlib.contextmanager
def complete_or_absent(target: Path) -> Iterator[Path]:
    """Yield a folder to fill, which takes the name `target` at the end and is removed on any error.

    What an interrupted run left half filled is removed first, so the caller holds the lock on the cache.
    """
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock file of a folder; wait, and say so, while another process holds it.

    The lock ends with the process that holds it, so a crash leaves none behind.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise ClusterError(f"cannot write to {folder}: {error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that works in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
