"""What durability adds to a step that does nothing but return 1 KB.

Several rounds; in each, ours and every peer do the same number of steps one after the other, in turns on
one machine. A round's figure is the mean over its steps, those of a warm-up left out; the figure is the
rounds' median. Then ours with a store whose every answer comes later: one branch, and ten side by side,
with group commit and with a record for each step.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from tests.bench import report
from tests.bench.ours import Bucket
from tests.bench.peer import figures
from tests.bench.rivals import Rival
from tests.bench.scene import scene
from tests.bench.slow import slower
from tools.cluster.progress import say

__all__ = ["main", "measure"]

SIZE = 1024
STEPS = 200
WARM_UP = 20
ROUNDS = 3
SYNCS = 20
SIDE = "collect_side_by_side"
# Milliseconds that each answer is late, and how many steps are enough to tell.
DELAYS = {0: 200, 20: 100, 100: 50}


def main() -> None:
    """Measure, and write `overhead.json`."""
    with scene() as here:
        ours: list[list[float]] = []
        syncs: list[float] = []
        theirs: dict[str, list[dict[str, Any]]] = {rival.name: [] for rival in here.rivals}
        for number in range(ROUNDS):
            say(f"round {number + 1} of {ROUNDS}")
            syncs += _syncs(here.folder)
            ours.append(measure(here.bucket, f"overhead-{number}", STEPS, WARM_UP))
            for rival in here.rivals:
                theirs[rival.name].append(figures(partial(_theirs, rival)))
        table = [row for delay, total in DELAYS.items() for row in _delayed(here.bucket, delay, total)]
    steps = [took for each in ours for took in each]
    peers = {name: _of_rounds(rounds) for name, rounds in theirs.items()}
    report.write(
        "overhead",
        {
            "ms_per_step": round(median(mean(each) for each in ours) * 1000, 2),
            "p50_ms": round(median(steps) * 1000, 2),
            "p99_ms": round(report.quantile(steps, 0.99) * 1000, 2),
            "rounds_ms": [round(mean(each) * 1000, 2) for each in ours],
            "n": len(steps),
            "sync_p50_ms": round(median(syncs) * 1000, 2),
            "goal_ms": peers["dbos-sqlite"].get("ms_per_step"),
            "delayed": table,
            "peers": peers,
            "machine": here.machine,
        },
    )


def measure(bucket: Bucket, label: str, total: int, warm_up: int) -> list[float]:
    """Return the seconds that each step of ours took."""
    place = bucket.place(label)
    place.begin("collect", total=warm_up + total, size=SIZE, times=str(place.file("times")))
    place.carry_out()
    return place.times()[warm_up:]


def _syncs(folder: Path) -> list[float]:
    """Return the seconds that the disk takes to sync 4 KB, which is what a step costs those who do."""
    took = []
    with (folder / "synced").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return took


def _theirs(rival: Rival) -> dict[str, Any]:
    return rival.asks("steps", total=STEPS, size=SIZE, warm_up=WARM_UP)


def _of_rounds(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    missing = [each for each in rounds if "unavailable" in each]
    if missing:
        return missing[0]
    took = [each["ms_per_step"] for each in rounds]
    return {"ms_per_step": round(median(took), 2), "rounds_ms": [round(each, 2) for each in took]}


def _delayed(bucket: Bucket, delay: int, total: int) -> list[dict[str, Any]]:
    """Return the rows of one delay: how many branches, whether they share records, ms per step."""
    rows = []
    with slower(bucket.server.endpoint, delay) as endpoint:
        for branches, group, entrypoint in ((1, True, "collect"), (10, True, SIDE), (10, False, SIDE)):
            place = bucket.place(f"delayed-{delay}-{branches}-{group}", endpoint)
            place.begin(entrypoint, total=total, size=SIZE, times=str(place.file("times")))
            place.carry_out(BENCH_ALONE="" if group else "1")
            took = round(mean(place.times()) * 1000, 2)
            say(f"{delay} ms, {branches} branches, group commit {group}: {took} ms a step")
            rows.append({"delay_ms": delay, "branches": branches, "group_commit": group, "ms_per_step": took})
    return rows
