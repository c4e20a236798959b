"""How an attempt ended, told from what is left of its pod.

Phase and conditions come before the containers' states, since those can be missing (a node that is gone) or
never have existed (a kubelet that refused the pod). Exit code 0 is never taken for success: whether the run
has ended is only ever read in its log, before anybody asks here.

The surprise: a DisruptionTarget condition is a hint. It is written before the deletion it announces and may
outlive one that failed, so an agent's own exit code counts against it unless the pod is really being deleted.
"""

from __future__ import annotations

import json
import re
from typing import Final

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.api.summary import HeadSummary
from milepost_operator.core.observation import End, Fault, PodSeen, Terminated

__all__ = ["AGENT_CAUSES", "UNCOUNTED", "classify", "lost", "phrase"]

_DISRUPTIONS: Final = {
    "EvictionByEvictionAPI": "Evicted",
    "PreemptionByScheduler": "Preempted",
    "DeletionByTaintManager": "NodeTainted",
    "DeletionByPodGC": "NodeGone",
    "TerminationByKubelet": "TerminatedByKubelet",
}
# These announce a deletion, so without one they prove nothing about a container that ended by itself.
_ANNOUNCED: Final = frozenset({"EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager"})
_BY_SIGNAL: Final = frozenset({0, 128 + 9, 128 + 15})

_RESERVED: Final = {
    Exit.RELEASED: ("Released", Fault.DISRUPTION),
    Exit.FENCED: ("Fenced", Fault.DISRUPTION),
    Exit.STORE_UNKNOWN: ("StoreUnknown", Fault.DISRUPTION),
    Exit.HALTED: ("Halted", Fault.DISRUPTION),
    Exit.START_ERROR: ("StartError", Fault.START),
}

AGENT_CAUSES: Final = frozenset({"AgentFailed", "Killed", "ExitedWithoutOutcome", "OutOfMemoryAtStart"})
"""The causes that use up `retry.executorFailures`."""

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_LONGEST: Final = 1024

UNCOUNTED: Final = frozenset({"Suspended", "Adopted", "Halted", "Waited"})
"""Ends that somebody asked for, so that they are no losses."""

_PHRASES: Final = {
    "Evicted": "was evicted",
    "Preempted": "was preempted",
    "NodeTainted": "was removed from its tainted node",
    "NodeGone": "went with its node",
    "NodeSilent": "is on a node that has stopped reporting",
    "TerminatedByKubelet": "was ended by its node",
    "RefusedByKubelet": "was refused by its node",
    "Deleted": "was deleted",
    "PodGone": "is gone",
    "Released": "was asked to stop",
    "Fenced": "was taken over by another writer",
    "StoreUnknown": "could not reach its store",
    "StartError": "could not start",
    "Suspended": "was suspended",
    "Halted": "halted",
    "Waited": "came to a gate",
    "OOMKilled": "ran out of memory",
    "OutOfMemoryAtStart": "ran out of memory before it began",
    "ExitedWithoutOutcome": "exited with code 0 and recorded no outcome",
    "Killed": "was killed",
}


def phrase(end: End) -> str:
    """Return the end as the rest of a sentence about the pod, such as "was evicted"."""
    said = _PHRASES.get(end.cause) or f"failed with exit code {end.exit_code}"
    return f"{said}: {end.message}" if end.message and end.fault is not Fault.DISRUPTION else said


def lost(attempt: int) -> End:
    """Return the end of an attempt of which nothing is left to look at."""
    return End(attempt, "PodGone", Fault.DISRUPTION)


def classify(pod: PodSeen, head: HeadSummary | None) -> End:
    """Return how an ended pod ended. The head tells whether it ever claimed the run."""
    done = pod.container if isinstance(pod.container, Terminated) else None
    code = done.exit_code if done else None
    reason, message = _said(done.message if done else "")
    cause, fault = _cause(pod, done, head)
    return End(pod.attempt, cause, fault, code, message or pod.message, reason, pod.node)


def _cause(pod: PodSeen, done: Terminated | None, head: HeadSummary | None) -> tuple[str, Fault]:
    claimed = head is not None and head.attempt >= pod.attempt
    if done and done.reason == "OOMKilled":
        return ("OOMKilled", Fault.MEMORY) if claimed else ("OutOfMemoryAtStart", Fault.AGENT)
    if done and done.exit_code in (Exit.FENCED, Exit.STORE_UNKNOWN, Exit.HALTED, Exit.START_ERROR):
        return _RESERVED[Exit(done.exit_code)]
    waits = head is not None and head.phase is Phase.WAITING and head.attempt == pod.attempt
    if waits and done is not None and done.exit_code == Exit.COMMITTED:
        return "Waited", Fault.DISRUPTION
    return _disruption(pod, done) or _by_itself(done)


def _disruption(pod: PodSeen, done: Terminated | None) -> tuple[str, Fault] | None:
    deleted = pod.deadline is not None or pod.gone
    own_code = done is not None and done.exit_code not in _BY_SIGNAL | {int(Exit.RELEASED)}
    if pod.disruption and not (own_code and not deleted and pod.disruption in _ANNOUNCED):
        return _DISRUPTIONS.get(pod.disruption, "Disrupted"), Fault.DISRUPTION
    if deleted:
        return "Deleted", Fault.DISRUPTION
    if done is not None and done.reason == "ContainerStatusUnknown":
        return "NodeGone", Fault.DISRUPTION
    if pod.phase == "Failed" and pod.reason in (
        "Evicted",
        "NodeShutdown",
        "Terminated",
        "Preempting",
        "NodeLost",
    ):
        return "TerminatedByKubelet", Fault.DISRUPTION
    if pod.phase == "Failed" and done is None:
        return "RefusedByKubelet", Fault.DISRUPTION
    return None


def _by_itself(done: Terminated | None) -> tuple[str, Fault]:
    if done is None or done.exit_code == Exit.COMMITTED:
        return "ExitedWithoutOutcome", Fault.AGENT
    if done.exit_code == Exit.RELEASED:
        return _RESERVED[Exit.RELEASED]
    if done.reason in ("StartError", "ContainerCannotRun"):
        return "StartError", Fault.START
    if done.exit_code == 128 + 9:
        return "Killed", Fault.AGENT
    return "AgentFailed", Fault.AGENT


def _said(text: str) -> tuple[str, str]:
    """Return reason and message of a termination log: the executor's JSON, or what another program left."""
    try:
        said = json.loads(text)
        reason, message = str(said.get("reason", "")), str(said.get("message", ""))
    except (ValueError, AttributeError):
        return "", text.strip()[:_LONGEST]
    # JSON can spell half of a surrogate pair, and the next executor could not read its environment.
    message = message.encode("utf-8", "backslashreplace").decode()
    return reason if _REASON.fullmatch(reason) else "", message[:_LONGEST]
