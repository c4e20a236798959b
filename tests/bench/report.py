"""Where figures go. What is compared is measured side by side in one run: machines are shared and noisy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

__all__ = ["quantile", "write"]

FOLDER = Path(__file__).resolve().parents[2] / "build" / "bench"


def write(name: str, figures: dict[str, Any]) -> None:
    """Write one benchmark's figures, and print them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=2)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {text}", flush=True)


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
