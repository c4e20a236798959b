"""Rules about which run a resource stands for, and whether it can be worked on at all.

The store's record of the name decides, never the resource's own status: a resource that is applied again
meets the run that it began before. Only a missing record is a reason to begin one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from milepost.api.resource import Condition, DeletionPolicy, Phase
from milepost.api.summary import NameState
from milepost_operator.core.observation import Observation
from milepost_operator.core.plan import (
    AT_ONCE,
    Adopt,
    DeletePod,
    NoteRetention,
    Plan,
    StartRun,
    Supersede,
    Telling,
)
from milepost_operator.core.reading import parse_time

__all__ = [
    "accepted",
    "adopted",
    "being_deleted",
    "deletions",
    "invalid_spec",
    "is_adopted",
    "is_behind",
    "new_run",
    "other_resource",
    "ready",
    "retention_changed",
    "settled",
    "spec_changed",
    "store_unusable",
]

# An executor that recorded the end needs seconds to exit; a pod that is still there after that is stuck.
_TIME_TO_EXIT: Final = timedelta(seconds=30)
_DAMAGE_LOOKED_AT_AGAIN: Final = timedelta(minutes=10)


def ready(seen: Observation) -> Condition | None:
    """Return the Ready condition that the status shows so far."""
    return next((part for part in seen.run.status.conditions if part.type == "Ready"), None)


def deletions(seen: Observation, why: str) -> tuple[DeletePod, ...]:
    """Return the deletion of every pod that has not ended and is not being deleted yet."""
    return tuple(DeletePod(pod.name, pod.uid, why) for pod in seen.unended if pod.deadline is None)


def is_adopted(seen: Observation) -> bool:
    """Whether another resource began the run that this one goes on with or reports."""
    if any(part.type == "Adopted" and part.status == "True" for part in seen.run.status.conditions):
        return True
    if seen.name is None or other_resource(seen) is not None:
        return False
    if seen.name.state is NameState.EXPIRED or seen.head is None:
        return seen.name.state is NameState.EXPIRED and seen.run.uid != seen.name.resource_uid
    return seen.run.uid not in (seen.name.resource_uid, seen.head.resource_uid) or (
        seen.name.resource_uid == seen.run.uid != seen.head.resource_uid
    )


def spec_changed(seen: Observation) -> bool:
    """Whether this same resource now asks for other work than the run was begun with."""
    return (
        seen.name is not None
        and bool(seen.digest)
        and seen.name.resource_uid == seen.run.uid
        and seen.name.spec_digest != seen.digest
    )


def is_behind(seen: Observation) -> bool:
    """Whether the store's record of the run is older than what the status has seen of the same run.

    Epoch and sequence only grow. A status that is behind, as after a restored cluster, is a sign of nothing.
    """
    known, status = seen.run.status.checkpoint, seen.run.status
    if seen.head is None or status.run_id != seen.head.run_id:
        return False
    return seen.head.epoch < known.epoch or seen.head.seq < known.seq


def being_deleted(seen: Observation) -> Plan | None:
    """Let the pods go of a resource that only somebody's finalizer still holds."""
    if seen.run.deletion_timestamp is None:
        return None
    stop = deletions(seen, "the run is being deleted")
    return Plan(seen.phase, "Deleting", actions=stop, untouched=True)


def accepted(seen: Observation) -> Plan | None:
    """Show, before anything slow, that the resource is seen: without a status it passes for healthy."""
    if seen.run.status.observed_generation or seen.run.status.phase:
        return None
    return Plan(Phase.PENDING, "Accepted", look_again_in=AT_ONCE)


def retention_changed(seen: Observation) -> Plan | None:
    """Let the name say what becomes of its run, as this resource says now, also after the run's end.

    It is the name that the sweep believes: once the resource is gone, nothing else is left to ask.
    """
    spec, name = seen.run.spec, seen.name
    if seen.invalid or name is None or name.resource_uid != seen.run.uid:
        return None
    if (name.deletion_policy, name.retention_s) == (spec.deletion_policy, spec.retention_seconds):
        return None
    note = NoteRetention(spec.deletion_policy, spec.retention_seconds)
    return Plan(seen.phase, "RetentionChanged", actions=(note,), look_again_in=AT_ONCE, untouched=True)


def settled(seen: Observation) -> Plan | None:
    """Keep an end that was reported as it is, and remove a pod that lingers."""
    status = seen.run.status
    if status.phase is None or not status.phase.terminal:
        return None
    shown = ready(seen)
    reason, message = (shown.reason, shown.message) if shown else (status.phase.value, "")
    if seen.store_problem is not None and seen.run.generation != status.observed_generation:
        # Not to be taken for seen before its retention has been compared with what the name says.
        return Plan(status.phase, reason, message, retry=True, untouched=True)
    done = _since(seen)
    if seen.unended and done < _TIME_TO_EXIT and status.phase is not Phase.CANCELLED:
        return Plan(status.phase, reason, message, look_again_in=_TIME_TO_EXIT - done)
    return Plan(status.phase, reason, message, actions=deletions(seen, "the run has ended"))


def _since(seen: Observation) -> timedelta:
    ended = parse_time(seen.run.status.completion_time)
    return max(seen.now - ended, timedelta(0)) if ended else _TIME_TO_EXIT


def invalid_spec(seen: Observation) -> Plan | None:
    """Start no pod while a field that the API server let through cannot be used."""
    if not seen.invalid:
        return None
    told = Telling(f"InvalidSpec/{seen.run.generation}", "InvalidSpec", seen.invalid, "Warning")
    return Plan(Phase.HALTED, "InvalidSpec", seen.invalid, tell=(told,))


def store_unusable(seen: Observation) -> Plan | None:
    """Keep phase and pod as they are, and begin nothing, while the record cannot be read."""
    problem = seen.store_problem
    if problem is None:
        return None
    told = Telling(f"{problem.reason}/{seen.last_attempt}", problem.reason, problem.message, "Warning")
    if problem.halts:
        return Plan(
            Phase.HALTED,
            problem.reason,
            problem.message,
            tell=(told,),
            look_again_in=_DAMAGE_LOOKED_AT_AGAIN,
        )
    return Plan(seen.phase, problem.reason, problem.message, tell=(told,), retry=True)


def other_resource(seen: Observation) -> Plan | None:
    """End and replace the run that the name stands for, where this manifest asks for another.

    So it does where the checkpoints were to go with a resource of this cluster that was here before.
    """
    if seen.name is None or seen.name.resource_uid == seen.run.uid:
        return None
    to_go = seen.name.deletion_policy is DeletionPolicy.DELETE and seen.name.cluster == seen.cluster
    if not seen.run.generate_name and seen.name.spec_digest == seen.digest and not to_go:
        return None
    why = "whose checkpoints go with its resource" if to_go else "whose spec is another one"
    message = f"the name stood for run {seen.name.run_id}, {why}"
    return Plan(Phase.PENDING, "Superseding", message, (Supersede(),), look_again_in=AT_ONCE)


def adopted(seen: Observation) -> Plan | None:
    """Go on with the run of a manifest that was applied again, or report its end: nothing runs twice."""
    if seen.name is None or seen.head is None or seen.name.state is NameState.EXPIRED:
        return None
    unclaimed = not seen.head.phase.terminal and seen.head.resource_uid != seen.run.uid
    if seen.name.resource_uid == seen.run.uid and not unclaimed:
        return None
    message = f"goes on with run {seen.name.run_id}, begun under the same name with the same spec"
    told = Telling(f"Adopted/{seen.name.run_id}", "Adopted", message)
    return Plan(Phase.PENDING, "Adopting", message, (Adopt(),), (told,), look_again_in=AT_ONCE)


def new_run(seen: Observation) -> Plan | None:
    """Begin a run where none is recorded under this name."""
    if seen.name is not None:
        return None
    return Plan(Phase.PENDING, "Accepted", actions=(StartRun(),), look_again_in=AT_ONCE)
