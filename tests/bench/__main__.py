"""Run the benchmarks: `python -m tests.bench [NAME ...]`; without a name all, and the page about them."""

from __future__ import annotations

import sys

from tests.bench import (
    conversation,
    load,
    overhead,
    page,
    recovery,
    sdk,
    step_overhead,
    storage,
    two_writers,
)

BENCHES = {
    "step_overhead": step_overhead.main,
    "overhead": overhead.main,
    "sdk": sdk.main,
    "load": load.main,
    "storage": storage.main,
    "conversation": conversation.main,
    "two_writers": two_writers.main,
    # The page does not need the cluster, so it does not wait for it either.
    "page": page.main,
    "recovery": recovery.main,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHES:
        BENCHES[name]()
