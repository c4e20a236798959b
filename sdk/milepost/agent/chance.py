"""Random numbers that are the same on a resume."""

from __future__ import annotations

import hashlib
import json
import random  # noqa: TID251  (only for streams that are seeded by the run)

__all__ = ["stream"]


def stream(root: str, branch: str, name: str, number: int) -> random.Random:
    """Return the `number`-th stream of this name in a branch of the run with this key root.

    Seeded by all four and nothing else. Not for secrets: whoever knows the run can compute it.
    """
    seed = hashlib.sha256(json.dumps([root, branch, name, number]).encode()).digest()
    return random.Random(seed)  # noqa: S311  (to be repeated is the point)
