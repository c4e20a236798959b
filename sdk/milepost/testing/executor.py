"""Entry point of a test's executor: `python -m milepost.testing.executor`.

It is the pod's own, with a clock that stands where the test says, pauses that take no time, and a store that
strikes the process at one write. Nothing else about it is different: what is tested is what runs.
"""

from __future__ import annotations

import os
from functools import partial

import structlog

from milepost.checkpoint.store import Store
from milepost.executor import __main__ as executor
from milepost.executor.session import Session
from milepost.executor.settings import Settings
from milepost.testing.clock import Clock
from milepost.testing.points import ORDER, Order, Watched, in_no_time

__all__: list[str] = []


def _begin(order: Order, settings: Settings, store: Store, log: structlog.stdlib.BoundLogger) -> Session:
    watched = Watched(store, settings.keys, order)
    return Session(settings, watched, log, clock=Clock(order.now), pause=in_no_time)


if __name__ == "__main__":
    executor.main(partial(_begin, Order.loads(os.environ[ORDER])))
