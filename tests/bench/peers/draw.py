"""Draw the figures as pictures, in an environment of its own that has matplotlib.

    python -m tests.bench.peers.draw FOLDER_OF_FIGURES FOLDER_OF_PICTURES

It draws what there is and leaves the picture alone of what was not measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found]  # only in its own environment

mpl.use("Agg")
from matplotlib import pyplot as plt

OURS = "#1a7f5a"
COLOURS = {
    "milepost": OURS,
    "langgraph-sqlite": "#c25b12",
    "langgraph-postgres": "#e08b3e",
    "langgraph-s3": "#f0b985",
    "dbos-sqlite": "#3b5b92",
    "dbos-postgres": "#7f9fd0",
    "payload": "#888888",
}


def storage(figures: dict[str, Any]) -> Any:
    """Bytes stored over the number of steps; a straight line of slope 1 is one that does not grow."""
    picture, axes = plt.subplots(figsize=(6.4, 4.2))
    _line(axes, "milepost", figures["series"])
    for name, peer in figures["peers"].items():
        _line(axes, name, peer.get("series", {}))
    each = figures["payload_bytes"] / 100
    _line(axes, "payload", {steps: int(steps) * each for steps in figures["series"]})
    axes.set(xscale="log", yscale="log", xlabel="steps of 5 KB", ylabel="MB stored")
    axes.set_xticks([50, 100, 200, 400], ["50", "100", "200", "400"])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    return picture


def conversation(figures: dict[str, Any]) -> Any:
    """Bytes stored for one conversation."""
    picture, axes = plt.subplots(figsize=(6.4, 2.8))
    stored = {"payload": figures["payload_bytes"], "milepost": figures["stored_bytes"]}
    stored |= {name: peer.get("stored_bytes", 0) for name, peer in figures["peers"].items()}
    _bars(axes, {name: each / 1e6 for name, each in stored.items() if each})
    axes.set(xscale="log", xlabel="MB stored for a conversation of 836 KB and 100 tool calls of 5 KB")
    return picture


def overhead(figures: dict[str, Any]) -> Any:
    """Milliseconds a step, and what they become where the store answers later."""
    picture, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4))
    took = {"milepost": figures["ms_per_step"]}
    took |= {name: peer.get("ms_per_step", 0) for name, peer in figures["peers"].items()}
    _bars(left, {name: each for name, each in took.items() if each})
    left.set(xlabel="ms a step of 1 KB, one after the other, on loopback")
    kinds = {
        (1, True): ("one branch", "-"),
        (10, False): ("ten branches, a record each", ":"),
        (10, True): ("ten branches, group commit", "--"),
    }
    for kind, (label, style) in kinds.items():
        rows = [row for row in figures["delayed"] if (row["branches"], row["group_commit"]) == kind]
        delays, steps = [row["delay_ms"] for row in rows], [row["ms_per_step"] for row in rows]
        right.plot(delays, steps, style, marker="o", markersize=4, color=OURS, label=label)
    right.set(xlabel="ms added to each answer of the store", ylabel="ms a step")
    right.legend(fontsize=8)
    return picture


def load(figures: dict[str, Any]) -> Any:
    """Requests and seconds to load a history, over its length."""
    picture, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.2))
    rows = [row for row in figures["rows"] if row["steps"]]
    steps = [row["steps"] for row in rows]
    left.plot(steps, [row["requests"] for row in rows], marker="o", color=OURS)
    left.set(xscale="log", xlabel="recorded steps of 1 KB", ylabel="requests to the store")
    left.set_ylim(0, 1.2 * max(row["requests"] for row in rows))
    right.plot(steps, [row["seconds"] for row in rows], marker="o", color=OURS)
    right.set(xscale="log", yscale="log", xlabel="recorded steps of 1 KB", ylabel="seconds to load")
    return picture


def _line(axes: Any, name: str, series: dict[str, float]) -> None:
    if series:
        style = ":" if name == "payload" else "-"
        steps, stored = [int(each) for each in series], [each / 1e6 for each in series.values()]
        axes.plot(steps, stored, style, marker="o", markersize=4, label=name, color=COLOURS[name])


def _bars(axes: Any, values: dict[str, float]) -> None:
    names = list(values)
    bars = axes.barh(names, list(values.values()), color=[COLOURS[name] for name in names])
    axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
    axes.margins(x=0.15)
    axes.invert_yaxis()


PICTURES = {"storage": storage, "conversation": conversation, "overhead": overhead, "load": load}


def main() -> None:
    """Draw all of them."""
    figures, pictures = Path(sys.argv[1]), Path(sys.argv[2])
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw in PICTURES.items():
        file = figures / f"{name}.json"
        if not file.exists():
            continue
        picture = draw(json.loads(file.read_text()))
        for axes in picture.axes:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(visible=True, linewidth=0.4, alpha=0.5)
            axes.set_axisbelow(True)
        picture.tight_layout()
        # Without the date and the version of what drew it, equal figures give equal files.
        picture.savefig(pictures / f"{name}.png", dpi=90, metadata={"Software": None})
        drawn.append(name)
    print(json.dumps({"drawn": drawn}))


if __name__ == "__main__":
    main()
