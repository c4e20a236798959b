"""Run the benchmarks: `python -m tests.bench [NAME ...]`."""

from __future__ import annotations

import sys

from tests.bench import conversation, load, overhead, recovery, step_overhead, storage, two_writers

BENCHES = {
    "storage": storage.main,
    "conversation": conversation.main,
    "overhead": overhead.main,
    "load": load.main,
    "two_writers": two_writers.main,
    "step_overhead": step_overhead.main,
    "recovery": recovery.main,
}

for name in sys.argv[1:] or BENCHES:
    BENCHES[name]()
