"""The rules, in the order of their priority. One pass takes the first answer.

Each rule answers one question and returns None where it does not apply. What the run *is* comes before
where it stands, and both before its pods; a test pins the order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from milepost_operator.core import course, identity, pods
from milepost_operator.core.observation import Observation
from milepost_operator.core.plan import DeletePod, Plan

__all__ = ["RULES", "plan"]

Rule: TypeAlias = Callable[[Observation], Plan | None]

RULES: Final[tuple[Rule, ...]] = (
    identity.being_deleted,
    identity.accepted,
    identity.retention_changed,
    identity.settled,
    identity.invalid_spec,
    identity.store_unusable,
    identity.other_resource,
    identity.adopted,
    course.finished,
    course.cancelled,
    course.rolled_back,
    course.suspended,
    course.disturbed,
    identity.new_run,
    pods.stale_attempts,
    pods.multiple_pods,
    pods.silent_node,
    pods.outdated_pod,
    pods.running,
    course.waiting,
    course.halted,
    pods.could_not_start,
    pods.out_of_memory,
    pods.agent_failed,
    pods.disrupted,
    pods.first_start,
)

KEPT_PODS: Final = 3
"""Ended pods that stay for their logs."""


def plan(seen: Observation) -> Plan:
    """Return what to do about the run as it was seen."""
    for rule in RULES:
        if (decided := rule(seen)) is not None:
            return replace(decided, actions=(*decided.actions, *_tidied(seen)))
    raise AssertionError("first_start answers every observation")


def _tidied(seen: Observation) -> tuple[DeletePod, ...]:
    ended = [pod for pod in seen.pods if pod.has_ended(seen.now) and not pod.gone and pod.deadline is None]
    ended.sort(key=lambda pod: pod.attempt, reverse=True)
    return tuple(
        DeletePod(pod.name, pod.uid, "only the last ended pods are kept") for pod in ended[KEPT_PODS:]
    )
