"""What a fresh executor pays before its agent's first instruction: claim and load a run that is long already.

The histories have one record for each step of 1 KB. They are made by the committer on a store in memory and
then copied to the S3 server. The executor is a real one in a fresh process; its requests are all that it
sends up to the agent's first instruction, and its seconds are from the first of them to that instruction.
Starting Python and importing comes before that, and is told apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any, NoReturn

from milepost.api.names import StoreKeys
from milepost.checkpoint import codec, history
from milepost.checkpoint.claim import Ended, claim
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Claimed, StepCompleted, StepPlace, Value
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found, Stored
from tests.bench import report
from tests.bench.ours import Bucket, Place, now
from tests.bench.payload import text
from tests.bench.scene import warm_bucket
from tools.cluster.progress import say

__all__ = ["main", "measure"]

SIZE = 1024
STEPS = (0, 1_000, 10_000, 100_000)
TIMES = 3
GOALS = {"requests_1000": 12, "seconds_1000": 1.0, "requests_10000": 20}


def main() -> None:
    """Measure, and write `load.json`."""
    machine = report.machine()
    with warm_bucket() as bucket:
        rows = [measure(bucket, steps) for steps in STEPS]
    figures: dict[str, Any] = {}
    for row in rows:
        figures |= {f"requests_{row['steps']}": row["requests"], f"seconds_{row['steps']}": row["seconds"]}
    report.write("load", {**figures, "goals": GOALS, "rows": rows, "machine": machine})


def measure(bucket: Bucket, steps: int) -> dict[str, Any]:
    """Make a run of so many steps, and return what it costs to load it."""
    began = time.perf_counter()
    place = _long_run(bucket, steps)
    made = time.perf_counter() - began
    say(f"{steps:,} steps: {place.objects()} objects, {place.stored():,} bytes, made in {made:.0f} s")
    starts = [_start(place, attempt) for attempt in range(2, 2 + TIMES)]
    row = {
        "steps": steps,
        "requests": max(start.requests for start in starts),
        "calls": starts[-1].calls,
        "seconds": round(median(start.seconds for start in starts), 3),
        "process_seconds": round(median(start.process_seconds for start in starts), 3),
        "objects": place.objects(),
        "stored_bytes": place.stored(),
    }
    say(f"{steps:,} steps: {row['requests']} requests, {row['seconds']} s")
    return row


@dataclass(frozen=True)
class Start:
    """One executor's start: what it asked of the store, by call, and how long that and all of it took."""

    calls: dict[str, int]
    seconds: float
    process_seconds: float

    @property
    def requests(self) -> int:
        """All of them."""
        return sum(self.calls.values())


def _start(place: Place, attempt: int) -> Start:
    arrived, requests = place.file("arrived"), place.file(f"requests-{attempt}")
    arrived.unlink(missing_ok=True)
    began = time.monotonic()
    place.carry_out(attempt, BENCH_REQUESTS=str(requests))
    at: float = json.loads(arrived.read_text())["at"]
    lines = [line.split() for line in requests.read_text().splitlines()]
    sent = [(float(moment), call) for moment, call, _ in lines if float(moment) <= at]
    return Start(dict(Counter(call for _, call in sent)), at - sent[0][0], at - began)


def _long_run(bucket: Bucket, steps: int) -> Place:
    place = bucket.place(f"load-{steps}")
    memory = MemoryStore()
    kept, place.store = place.store, memory
    place.begin("arrive", arrived=str(place.file("arrived")))
    asyncio.run(_record(memory, place.keys, steps))
    # The requests of a load are the same without it, and so much less is copied.
    place.prune()
    place.store = kept
    for listed in memory.list(""):
        found = memory.get(listed.key)
        assert isinstance(found, Found), "nothing is deleted while it is copied"
        assert isinstance(kept.put_new(listed.key, found.body, found.metadata), Stored)
    return place


async def _record(store: MemoryStore, keys: StoreKeys, steps: int) -> None:
    """Record steps as an executor would, each in a record of its own."""
    patience = Patience(os.urandom)
    claimed = Claimed(attempt=1, writer="pod-1")
    taken = claim(store, keys, claimed, at=now(), entropy=os.urandom, patience=patience)
    assert not isinstance(taken, Ended), "it has just begun"
    state = history.load(store, taken.head)
    committer = Committer(
        store, taken, state, clock=now, entropy=os.urandom, patience=patience, on_lost=_lost
    )
    at = now().isoformat()
    for number in range(1, steps + 1):
        result = text(number, SIZE)
        name = "work" if number == 1 else f"work#{number}"
        await committer.commit(
            StepCompleted(
                step=StepPlace(id=name, name="work", number=number, ordinal=number),
                attempt=1,
                declared="str",
                result=Value(inline=result, size=len(result) + 2),
                result_digest=codec.digest(result),
                started_at=at,
                ended_at=at,
            )
        )
        if number % 20_000 == 0:
            say(f"{number:,} steps recorded")


def _lost(error: Exception) -> NoReturn:
    raise SystemExit(f"the bench lost its run: {error}")
