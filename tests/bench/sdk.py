"""What the SDK itself costs an agent: its import, a step's own work, memory, writes, and false alarms.

Each part has a process of its own, since each would see the others' memory and warm caches. CPU seconds are
those of all threads of the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, TypeVar

from milepost import Run
from milepost.agent.branch import Branch, current_branch
from milepost.agent.journal import Journal
from milepost.api.digest import spec_digest
from milepost.api.names import StoreKeys
from milepost.api.resource import RunSpec
from milepost.checkpoint import history
from milepost.checkpoint.claim import Ended, claim
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Claimed
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Answer, Store
from milepost.errors import RunHalted
from tests.bench import report
from tests.bench.peer import ROOT
from tools.cluster.progress import say

__all__ = ["PARTS", "main"]

T = TypeVar("T")

GOALS = {
    "import_s": 0.4,
    "noop_step_cpu_us": 200,
    "rss_growth_mb": 20,
    "parallel_puts": 150,
    "false_halts": 0,
}
IMPORTS = 9
WARM_UP = 500
STEPS = 2_000
ROUNDS = 5
LONG = 10_000
RESULT = 1024
BRANCHES = 1_000
LIMIT = 50
RESUMES = 100


def now() -> datetime:
    return datetime.now(UTC)


class Gone(BaseException):
    """Stands for the end of a process."""


class Lineage:
    """One run, gone on with by one process after another: each `go_on` claims it anew."""

    def __init__(self, store: Store) -> None:
        self.store = store
        spec = RunSpec.model_validate({"agent": {"image": "none", "entrypoint": "bench:agent"}})
        new = NewRun("bench", "sdk", "uid-1", "bench", spec, spec_digest(spec))
        self.keys = StoreKeys("bench", Runs(store, now, os.urandom).start(new))
        self.attempt = 0

    async def go_on(self, agent: Callable[[Run], Awaitable[T]]) -> T:
        """Run the agent in the next attempt. What ends the process is raised."""
        self.attempt += 1
        claimed = Claimed(attempt=self.attempt, writer=f"pod-{self.attempt}", agent_version="1")
        patience = Patience(os.urandom)
        taken = claim(self.store, self.keys, claimed, at=now(), entropy=os.urandom, patience=patience)
        assert not isinstance(taken, Ended)
        committer = Committer(
            self.store,
            taken,
            history.load(self.store, taken.head),
            clock=now,
            entropy=os.urandom,
            patience=patience,
            on_lost=_lost,
        )
        journal = Journal(self.store, committer, clock=now, entropy=os.urandom, patience=patience)
        await journal.begin()
        current_branch.set(Branch(now=now(), main=asyncio.current_task()))
        try:
            return await agent(Run(journal))
        finally:
            await asyncio.to_thread(committer.close)


def _lost(error: Exception) -> NoReturn:
    raise error


async def _nothing() -> None:
    return None


async def _text() -> str:
    return "x" * RESULT


def noop_step() -> dict[str, Any]:
    """Return what a step costs that does nothing and whose store is a dictionary.

    It is the least of a few rounds: whatever else the machine does can only add to it.
    """
    rounds = [_noop_round() for _ in range(ROUNDS)]
    return {name: min(each[name] for each in rounds) for name in rounds[0]}


def _noop_round() -> dict[str, float]:

    async def agent(run: Run) -> dict[str, float]:
        for _ in range(WARM_UP):
            await run.step("warm", _nothing)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(STEPS):
            await run.step("it", _nothing)
        return {
            "noop_step_cpu_us": round((time.process_time() - cpu) / STEPS * 1e6, 1),
            "noop_step_us": round((time.perf_counter() - wall) / STEPS * 1e6, 1),
        }

    return asyncio.run(Lineage(MemoryStore()).go_on(agent))


def memory() -> dict[str, Any]:
    """Return how much a process grows by 10,000 steps of 1 KB beyond the results that its code keeps."""

    async def agent(run: Run) -> dict[str, Any]:
        for _ in range(WARM_UP):
            await run.step("warm", _text)
        before = _resident()
        kept = [await run.step("it", _text) for _ in range(LONG)]
        grown = _resident() - before
        carried = sum(sys.getsizeof(each) for each in kept) + sys.getsizeof(kept)
        return {"rss_growth_mb": round((grown - carried) / 1e6, 2), "carried_mb": round(carried / 1e6, 2)}

    with TemporaryDirectory() as folder:
        return asyncio.run(Lineage(FileStore(Path(folder))).go_on(agent))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Mortal:
    """A process's way to its store, which is gone with it."""

    def __init__(self, inner: Store) -> None:
        self.dead = False
        self.inner = inner
        self.uri, self.get, self.list, self.delete = inner.uri, inner.get, inner.list, inner.delete

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        self._live()
        return self.inner.put_new(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        self._live()
        return self.inner.put_if(key, body, metadata, etag=etag)

    def _live(self) -> None:
        if self.dead:
            raise Gone


class Counting:
    """Counts its writes, each of which takes as long as one of a bucket nearby does."""

    def __init__(self, latency_s: float = 0.01) -> None:
        self.inner = MemoryStore()
        self.puts = 0
        self.latency_s = latency_s
        self.uri = self.inner.uri
        self.get, self.list, self.delete = self.inner.get, self.inner.list, self.inner.delete

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        self._count()
        return self.inner.put_new(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        self._count()
        return self.inner.put_if(key, body, metadata, etag=etag)

    def _count(self) -> None:
        self.puts += 1
        time.sleep(self.latency_s)


def parallel() -> dict[str, Any]:
    """Return how many writes 1,000 steps take of which 50 run at once, each for up to 50 ms."""
    store = Counting()
    chance = random.Random(1)  # noqa: S311  (to be repeated)

    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def agent(run: Run) -> None:
        branches = {n: _one(run, work, chance.uniform(0.01, 0.05)) for n in range(BRANCHES)}
        await run.parallel(branches, limit=LIMIT)

    lineage = Lineage(store)
    before = store.puts
    asyncio.run(lineage.go_on(agent))
    return {"parallel_puts": store.puts - before, "parallel_steps": BRANCHES}


async def _one(run: Run, work: Callable[[float], Awaitable[None]], seconds: float) -> None:
    await run.step("it", work, seconds)


def false_halts() -> dict[str, Any]:
    """Return how often a resume of unchanged code that runs side by side was taken for another path."""
    # A process that is gone leaves tasks behind, and each is complained of.
    logging.disable()
    halts = 0
    for seed in range(RESUMES // 4):
        store, chance = MemoryStore(), random.Random(seed)  # noqa: S311  (to be repeated)
        lineage = Lineage(store)
        for last in (False, False, False, False, True):
            lineage.store = Mortal(store)
            try:
                asyncio.run(lineage.go_on(_side_by_side(lineage.store, chance, whole=last)))
            except Gone:
                continue
            except RunHalted:
                halts += 1
    return {"false_halts": halts, "resumes": RESUMES}


def _side_by_side(store: Mortal, chance: random.Random, *, whole: bool) -> Callable[[Run], Awaitable[None]]:
    """Return an agent of gathered tasks, branches and steps with keys; it is lost at any of its steps."""
    fuse = [chance.randrange(8, 30)]

    async def work() -> None:
        await asyncio.sleep(chance.uniform(0, 0.002))
        fuse[0] -= 1
        if fuse[0] == 0 and not whole:
            store.dead = True
            raise Gone

    async def line(run: Run, name: str) -> None:
        for step in ("a", "b", "c"):
            await asyncio.sleep(chance.uniform(0, 0.002))
            await run.step(f"{name}-{step}", work)

    async def agent(run: Run) -> None:
        await run.step("begin", work)
        await asyncio.gather(line(run, "x"), line(run, "y"), line(run, "z"))
        await run.parallel({n: line(run, "in") for n in range(6)}, limit=3)
        tasks = [asyncio.ensure_future(run.step("keyed", work, key=n)) for n in range(5)]
        for done in asyncio.as_completed(tasks):
            await done
        await run.step("end", work)

    return agent


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "noop_step": noop_step,
    "memory": memory,
    "parallel": parallel,
    "false_halts": false_halts,
}


def main() -> None:
    """Measure, and write `sdk.json`."""
    machine = report.machine()
    figures = {"import_s": _import_s()}
    for part in PARTS:
        say(part)
        figures |= _in_a_process(part)
    report.write("sdk", {**figures, "goals": GOALS, "machine": machine})


def _import_s() -> float:
    """Return the seconds that `import milepost` takes, those of an empty interpreter subtracted."""
    with_it, empty = [], []
    for _ in range(IMPORTS):
        empty.append(_seconds("pass"))
        with_it.append(_seconds("import milepost"))
    return round(median(with_it) - median(empty), 3)


def _seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    return time.perf_counter() - began


def _in_a_process(part: str) -> dict[str, Any]:
    code = f"import json; from tests.bench.sdk import PARTS; print(json.dumps(PARTS[{part!r}]()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
