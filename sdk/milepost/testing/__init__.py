"""The test kit for agents: kill them everywhere, let days pass, break their store, wake a stale worker.

It needs nothing but Milepost and a test that calls it. What is listed here is for agents' authors; the other
modules hold what Milepost's own tests share with them: a fake S3 server, and the contract that a store has to
keep. Nothing here is imported by the running product.
"""

from milepost.testing.answers import Answers, Approve, Asked, Decide, Deny, Expire
from milepost.testing.clock import Clock
from milepost.testing.crashes import Crash, Report, crash_everywhere
from milepost.testing.faults import Delay, Drop, Fault, Hold, Reply
from milepost.testing.faulty_store import FaultyStore
from milepost.testing.ledger import Ledger, Received
from milepost.testing.outcome import Passed, Ran
from milepost.testing.simulation import simulate
from milepost.testing.stale import Overtaken, StaleReport, overtake_everywhere

__all__ = [
    "Answers",
    "Approve",
    "Asked",
    "Clock",
    "Crash",
    "Decide",
    "Delay",
    "Deny",
    "Drop",
    "Expire",
    "Fault",
    "FaultyStore",
    "Hold",
    "Ledger",
    "Overtaken",
    "Passed",
    "Ran",
    "Received",
    "Reply",
    "Report",
    "StaleReport",
    "crash_everywhere",
    "overtake_everywhere",
    "simulate",
]
