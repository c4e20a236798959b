"""Milepost's side of a bench: runs in a bucket, carried out by real executors, and what they leave there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from milepost.api.digest import spec_digest
from milepost.api.names import StoreKeys
from milepost.api.resource import RunSpec
from milepost.checkpoint.deletion import Sweeper
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.s3 import S3Config, open_store
from milepost.checkpoint.store import Store
from milepost.checkpoint.sweep import Ages
from tests.bench.peer import ROOT
from tools.cluster.interface import S3Server

__all__ = ["NAMESPACE", "Bucket", "Place", "now"]

NAMESPACE = "bench"
_WITHIN_S = 300.0


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Bucket:
    """A server's bucket, and a folder for credentials and what executors leave outside."""

    server: S3Server
    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "access-key-id").write_text(self.server.access_key)
        (self.folder / "secret-access-key").write_text(self.server.secret_key)

    def place(self, prefix: str, endpoint: str = "") -> Place:
        """Return a prefix to put one run into; `endpoint` is a proxy's for its executors."""
        config = S3Config(self.server.endpoint, self.server.bucket, prefix, self.server.region, self.folder)
        seen = replace(config, endpoint=endpoint) if endpoint else config
        return Place(open_store(config), seen.url, self.folder, prefix.replace("/", "-"))

    def stored(self, prefix: str) -> int:
        """Return the bytes of all objects under a prefix, whoever wrote them."""
        return self.place(prefix).stored()


@dataclass
class Place:
    """A store that holds one run, and how its executors see it."""

    store: Store
    url: str
    folder: Path
    label: str
    keys: StoreKeys = field(init=False)

    def stored(self) -> int:
        """Return the bytes of all objects there are."""
        return sum(listed.size for listed in self.store.list(""))

    def objects(self) -> int:
        """Return how many objects there are."""
        return sum(1 for _ in self.store.list(""))

    def file(self, name: str) -> Path:
        """Return a file of this run outside of the store."""
        return self.folder / f"{self.label}-{name}"

    def begin(self, entrypoint: str, **inputs: Any) -> Place:
        """Write record 1, as the operator does. `entrypoint` is a name in `tests.bench.agents`."""
        spec = RunSpec.model_validate(
            {"agent": {"image": "bench", "entrypoint": f"tests.bench.agents:{entrypoint}"}, "inputs": inputs}
        )
        new = NewRun(NAMESPACE, "bench", "uid", "cluster", spec, spec_digest(spec))
        self.keys = StoreKeys(NAMESPACE, Runs(self.store, now, os.urandom).start(new))
        return self

    @contextlib.contextmanager
    def executor(self, attempt: int, who: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start an executor; it is killed if it is still there in the end. Its log is the file `log-WHO`."""
        with self.file(f"log-{who}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.executor"],
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": f"{ROOT / 'sdk'}:{ROOT}",
                    "MILEPOST_STORE": self.url,
                    "MILEPOST_CREDENTIALS": str(self.folder),
                    "MILEPOST_NAMESPACE": self.keys.namespace,
                    "MILEPOST_RUN_ID": self.keys.run_id,
                    "MILEPOST_ATTEMPT": str(attempt),
                    "MILEPOST_POD_UID": who,
                    "MILEPOST_TERMINATION_LOG": str(self.file(f"said-{who}")),
                    **env,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def carry_out(self, attempt: int = 1, **env: str) -> None:
        """Run an executor to the end of the run. Raises RuntimeError, with its log's end, on another code."""
        who = f"pod-{attempt}"
        with self.executor(attempt, who, **env) as process:
            code = process.wait(_WITHIN_S)
        if code != 0:
            raise RuntimeError(
                f"executor {who} ended with {code}: {self.file(f'log-{who}').read_text()[-2000:]}"
            )

    def prune(self) -> None:
        """Remove what the run no longer needs, as `milepost store gc --apply` does once it is old enough."""
        sweeper = Sweeper(Runs(self.store, now, os.urandom), ages=Ages(passed_over=0.0))
        for finding in sweeper.look([self.keys.namespace]):
            done = sweeper.carry_out(finding)
            if done.left:
                raise RuntimeError(f"{finding.key} was not pruned: {done.left}")

    def times(self) -> list[float]:
        """Return what the agent left in its file `times`, in seconds."""
        took: list[float] = json.loads(self.file("times").read_text())
        return took
