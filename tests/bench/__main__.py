"""Run the benchmarks: `python -m tests.bench [NAME ...]`."""

from __future__ import annotations

import sys

from tests.bench import recovery, step_overhead

BENCHES = {"step_overhead": step_overhead.main, "recovery": recovery.main}

for name in sys.argv[1:] or BENCHES:
    BENCHES[name]()
