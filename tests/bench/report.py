"""Where figures go. What is compared is measured side by side in one run: machines are shared and noisy."""

from __future__ import annotations

import json
import math
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "machine", "quantile", "read", "write"]

FOLDER = Path(__file__).resolve().parents[2] / "build" / "bench"


def write(name: str, figures: dict[str, Any]) -> None:
    """Write one benchmark's figures, and print them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=2)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {text}", flush=True)


def read(name: str) -> dict[str, Any]:
    """Return one benchmark's figures; none where it has not run."""
    file = FOLDER / f"{name}.json"
    figures: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return figures


def machine() -> dict[str, Any]:
    """Return what the figures were measured on, and how busy it was when the measuring began.

    `load` is the average number of runnable processes over the last minute, of which `cpus` can run at once.
    """
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
