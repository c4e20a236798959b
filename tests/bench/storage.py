"""How many bytes a run leaves in its store: steps that return 5 KB each, and nothing else.

Counted are all objects of the run, of whatever kind, once it has ended and what it no longer needs has been
pruned. `slope` of n steps is what the second half of them added, over what the first half took: 1 where
each step costs the same, 3 where the whole state is stored at each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.bench import report
from tests.bench.ours import Bucket
from tests.bench.peer import figures
from tests.bench.rivals import Rival
from tests.bench.scene import scene
from tools.cluster.progress import say

__all__ = ["main", "measure", "slope"]

SIZE = 5 * 1024
STEPS = 100
SERIES = (50, 100, 200, 400)
# Theirs that store the whole state at each step need four times as long for twice as many.
FEWER = SERIES[:3]


def main() -> None:
    """Measure, and write `storage.json`."""
    with scene() as here:
        ours = {total: measure(here.bucket, total, SIZE) for total in SERIES}
        say(f"ours: {ours}")
        peers = {rival.name: figures(partial(_theirs, rival)) for rival in here.rivals}
    payload = STEPS * SIZE
    report.write(
        "storage",
        {
            "payload_bytes": payload,
            "stored_bytes": ours[STEPS]["stored_bytes"],
            "slope": slope({total: each["stored_bytes"] for total, each in ours.items()}, STEPS),
            "ratio": round(ours[STEPS]["stored_bytes"] / payload, 3),
            "goal_ratio": 1.3,
            "objects": ours[STEPS]["objects"],
            "series": {str(total): each["stored_bytes"] for total, each in ours.items()},
            "peers": peers,
            "machine": here.machine,
        },
    )


def measure(bucket: Bucket, total: int, size: int) -> dict[str, int]:
    """Return what a run of ours leaves behind: `stored_bytes` and `objects`."""
    place = bucket.place(f"storage-{total}")
    place.begin("collect", total=total, size=size, times=str(place.file("times")))
    place.carry_out()
    place.prune()
    return {"stored_bytes": place.stored(), "objects": place.objects()}


def slope(series: Mapping[int, int], total: int) -> float:
    """Return what the second half of `total` steps added over what the first half took."""
    half = series[total // 2]
    return round((series[total] - half) / half, 3)


def _theirs(rival: Rival) -> dict[str, Any]:
    totals = SERIES if rival.name.startswith("dbos") else FEWER
    series = {}
    for total in totals:
        series[total] = rival.stores("steps", total=total, size=SIZE)["stored_bytes"]
        say(f"{rival.name}: {total} steps, {series[total]:,} bytes")
    return {
        "stored_bytes": series[STEPS],
        "slope": slope(series, STEPS),
        "series": {str(total): stored for total, stored in series.items()},
    }
