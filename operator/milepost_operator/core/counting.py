"""How many pods were lost, and by whose fault: each ended attempt once, whatever the operator lives through.

An attempt's end is counted when its successor appears, in the same status write that raises the attempt
number. The successor's pod carries the end as an annotation, so an operator that died between making the pod
and writing the status counts it afterwards, from the pod, exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping

from milepost_operator.core.ended import AGENT_CAUSES, UNCOUNTED
from milepost_operator.core.observation import End, Fault, Observation

__all__ = ["Tally", "agent_failures", "pods_at_this_step", "tally"]

Tally = tuple[dict[str, int], dict[str, int]]
"""Disruptions and failures, cause to count."""


def tally(seen: Observation, newest: End | None = None) -> Tally:
    """Return the status's counts, with the ends that it does not hold yet: what pods tell, and `newest`."""
    disruptions, failures = dict(seen.run.status.disruptions), dict(seen.run.status.failures)
    counted = seen.run.status.attempt
    told = {
        pod.attempt: pod.previous_end
        for pod in seen.pods
        if pod.owned and pod.previous_end and pod.attempt > counted
    }
    for end in (*told.values(), newest):
        if end is not None and end.cause not in UNCOUNTED:
            counts = failures if end.fault in (Fault.AGENT, Fault.MEMORY) else disruptions
            counts[end.cause] = counts.get(end.cause, 0) + 1
    return disruptions, failures


def agent_failures(seen: Observation, end: End) -> int:
    """Return how many pods failed by the agent's own fault, this one included.

    The log counts too, because it remembers what an earlier resource of the same name lost.
    """
    _, failures = tally(seen, end)
    recorded = _of_agent(seen.head.ends) + 1 if seen.head else 0
    return max(_of_agent(failures), recorded)


def _of_agent(counts: Mapping[str, int]) -> int:
    return sum(count for cause, count in counts.items() if cause in AGENT_CAUSES)


def pods_at_this_step(seen: Observation) -> int:
    """Return how many pods ran out of memory since the last recorded step, the last one included."""
    return (seen.head.oom_at_step if seen.head else 0) + 1
