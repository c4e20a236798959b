"""What a step costs over the one write that it cannot do without.

A step with 1 KB of result, through `run.step` on a real S3 server, alternates with one raw conditional PUT of
1 KB through the same client. The ratio is that of the medians.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NoReturn

from milepost import Run
from milepost.agent.branch import Branch, current_branch
from milepost.agent.journal import Journal
from milepost.api.digest import spec_digest
from milepost.api.names import StoreKeys
from milepost.api.resource import RunSpec
from milepost.checkpoint import history
from milepost.checkpoint.claim import Ended, claim
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.records import Claimed
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Answer, Stored
from tests.bench import report
from tools.cluster import seaweedfs
from tools.cluster.interface import S3Server

STEPS = 400
WARM_UP = 40
PAYLOAD = "x" * 1024


@dataclass
class Counting:
    """The same store, counting the PUTs that go through it."""

    inner: S3Store
    puts: int = 0
    uri: str = field(init=False)

    def __post_init__(self) -> None:
        self.uri = self.inner.uri
        self.get, self.list, self.delete = self.inner.get, self.inner.list, self.inner.delete

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        self.puts += 1
        return self.inner.put_new(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        self.puts += 1
        return self.inner.put_if(key, body, metadata, etag=etag)


def main() -> None:
    """Measure, and write `step_overhead.json`."""
    with TemporaryDirectory() as folder, seaweedfs.server() as server:
        store = Counting(open_store(_config(server, Path(folder))))
        steps, raw, puts = asyncio.run(_measure(store))
    figures = {
        "ratio": round(median(steps) / median(raw), 3),
        "puts_per_step": round(puts / len(steps), 3),
        "n": len(steps),
        "step_p50_ms": round(median(steps) * 1000, 2),
        "step_p99_ms": round(report.quantile(steps, 0.99) * 1000, 2),
        "raw_put_p50_ms": round(median(raw) * 1000, 2),
        "raw_put_p99_ms": round(report.quantile(raw, 0.99) * 1000, 2),
    }
    report.write("step_overhead", figures)


def _config(server: S3Server, folder: Path) -> S3Config:
    (folder / "access-key-id").write_text(server.access_key)
    (folder / "secret-access-key").write_text(server.secret_key)
    return S3Config(server.endpoint, server.bucket, "bench", server.region, folder)


async def _measure(store: Counting) -> tuple[list[float], list[float], int]:
    run, etag = await _begin(store), ""
    thread = ThreadPoolExecutor(1)
    steps, raw, puts = [], [], 0
    for number in range(WARM_UP + STEPS):
        before, began = store.puts, time.perf_counter()
        await run.step("step", _result, number)
        took = time.perf_counter() - began
        step_puts = store.puts - before
        began = time.perf_counter()
        etag = await asyncio.get_running_loop().run_in_executor(thread, _raw_put, store.inner, etag, number)
        raw_took = time.perf_counter() - began
        if number >= WARM_UP:
            steps.append(took)
            raw.append(raw_took)
            puts += step_puts
    return steps, raw, puts


async def _result(number: int) -> str:
    return f"{number:06d}{PAYLOAD[6:]}"


def _raw_put(store: S3Store, etag: str, number: int) -> str:
    body = f"{number:06d}{PAYLOAD[6:]}".encode()
    answer = store.put_if("raw", body, {}, etag=etag) if etag else store.put_new("raw", body, {})
    assert isinstance(answer, Stored)
    return answer.etag


async def _begin(store: Counting) -> Run:
    patience = Patience(os.urandom)
    spec = RunSpec.model_validate({"agent": {"image": "bench", "entrypoint": "bench:agent"}})
    runs = Runs(store, _now, os.urandom)
    run_id = runs.start(NewRun("bench", "bench", "uid", "cluster", spec, spec_digest(spec)))
    keys = StoreKeys("bench", run_id)
    claimed = Claimed(attempt=1, writer="bench")
    taken = claim(store, keys, claimed, at=_now(), entropy=os.urandom, patience=patience)
    assert not isinstance(taken, Ended)
    state = history.load(store, taken.head)
    committer = Committer(
        store, taken, state, clock=_now, entropy=os.urandom, patience=patience, on_lost=_lost
    )
    current_branch.set(Branch())
    return Run(Journal(store, committer, clock=_now, entropy=os.urandom, patience=patience))


def _lost(error: Exception) -> NoReturn:
    raise SystemExit(f"the bench lost its run: {error}")


def _now() -> datetime:
    return datetime.now(UTC)
