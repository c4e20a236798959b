"""A long conversation that grows: 836 KB to begin with, then 100 tool calls whose results of 5 KB join it.

At each turn the model reads all of it. Ours gets it from a first step, since a manifest holds no such thing,
and each turn is one step with the whole conversation as its input. The payload is what was said: counted
once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.bench import report
from tests.bench.ours import Bucket
from tests.bench.peer import figures
from tests.bench.rivals import Rival
from tests.bench.scene import scene
from tests.bench.storage import slope
from tools.cluster.progress import say

__all__ = ["main", "measure"]

OPENING = 836_000
TURNS = 100
SIZE = 5 * 1024


def main() -> None:
    """Measure, and write `conversation.json`."""
    with scene() as here:
        halves = {total: measure(here.bucket, OPENING, total, SIZE) for total in (1, TURNS // 2, TURNS)}
        say(f"ours: {halves}")
        peers = {rival.name: figures(partial(_theirs, rival)) for rival in here.rivals}
    report.write(
        "conversation",
        {
            "payload_bytes": OPENING + TURNS * SIZE,
            **_of({total: each["stored_bytes"] for total, each in halves.items()}),
            "goal_bytes": 2_700_000,
            "ms_per_step": round(halves[TURNS]["ms_per_step"], 2),
            "peers": peers,
            "machine": here.machine,
        },
    )


def measure(bucket: Bucket, opening: int, total: int, size: int) -> dict[str, Any]:
    """Return what a run of ours leaves behind, and how long a turn took."""
    place = bucket.place(f"conversation-{total}")
    place.begin("talk", opening=opening, total=total, size=size, times=str(place.file("times")))
    place.carry_out()
    place.prune()
    return {"stored_bytes": place.stored(), "ms_per_step": place.times()[0] * 1000}


def _theirs(rival: Rival) -> dict[str, Any]:
    found = {
        total: rival.stores("talk", opening=OPENING, total=total, size=SIZE)
        for total in (1, TURNS // 2, TURNS)
    }
    say(f"{rival.name}: {found[TURNS]}")
    series = {total: each["stored_bytes"] for total, each in found.items()}
    return {**_of(series), "ms_per_step": round(found[TURNS]["ms_per_step"], 2)}


def _of(stored: dict[int, int]) -> dict[str, Any]:
    # The opening is no step's, so the run of one turn is what the halves are counted from.
    added = {total: stored[total] - stored[1] for total in (TURNS // 2, TURNS)}
    return {
        "stored_bytes": stored[TURNS],
        "slope": slope(added, TURNS),
        "bytes_per_step": added[TURNS] // (TURNS - 1),
    }
