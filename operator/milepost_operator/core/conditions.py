"""The status that a pass writes: phase, conditions, counts, progress, as a plain dictionary.

The conditions follow kstatus, which Argo CD and Flux read: Reconciling while the run moves, Stalled where it
ended badly or needs a person, Ready only on success. `lastTransitionTime` changes when `status` does, never
because a pass went by, so that a pass that found nothing new writes nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from milepost.api.names import StoreKeys, pod_name
from milepost.api.resource import MAX_RESULT_BYTES, Condition, Phase
from milepost_operator.core.counting import tally
from milepost_operator.core.identity import is_adopted, is_behind, other_resource, spec_changed
from milepost_operator.core.observation import End, Fault, Observation, Started
from milepost_operator.core.plan import CreatePod, Plan
from milepost_operator.core.pods import last_end, progress

__all__ = ["PROGRESS_FIELDS", "status_of", "timestamp"]

PROGRESS_FIELDS: Final = frozenset({"progress", "checkpoint", "pod"})
"""What changes with every step, or just before something else does, and therefore may be written late."""

_MOVING: Final = frozenset({Phase.PENDING, Phase.RUNNING})
_STALLED: Final = frozenset({Phase.HALTED, Phase.FAILED, Phase.CANCELLED})
# Some reasons come from the log, and so from an image that we do not know.
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,127}")
_LONGEST_MESSAGE: Final = 1024

_HOW_TO_START_ANEW: Final = (
    "this resource goes on with, or reports, the run that was begun under its name; "
    "to start anew, delete it and apply it with another spec.rerun"
)
_RECORDED_STANDS: Final = (
    "the spec asks for other work than the run was begun with; the recorded spec stands. "
    "Apply it under another name, or delete this resource first"
)


def timestamp(at: datetime) -> str:
    """Return the time as the API server writes it, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def status_of(seen: Observation, decided: Plan) -> dict[str, Any]:
    """Return the whole status to write, in the resource's own shape."""
    if other_resource(seen) is not None:
        # What is recorded under the name so far is another run's, and so are that run's pods.
        seen = replace(seen, name=None, head=None, pods=tuple(pod for pod in seen.pods if pod.owned))
    run, before = seen.run, seen.run.status
    created = next((part for part in decided.actions if isinstance(part, CreatePod)), None)
    # What adopts a run begins its own counting after the attempts of those before it.
    attempt = max(before.attempt, *(pod.attempt for pod in seen.pods), created.attempt if created else 0)
    disruptions, failures = tally(seen, created.previous_end if created else _fatal(seen, decided))
    running = any(isinstance(pod.container, Started) for pod in seen.unended)
    terminal = decided.phase.terminal
    return {
        "observedGeneration": run.generation,
        "phase": decided.phase.value,
        "conditions": [_dumped(part) for part in _conditions(seen, decided)],
        "progress": progress(seen),
        "attempt": attempt,
        "runId": seen.name.run_id if seen.name else before.run_id,
        "pod": _pod(seen, created),
        "disruptions": disruptions,
        "failures": failures,
        "startTime": before.start_time or (timestamp(seen.now) if running else None),
        "completionTime": (before.completion_time or timestamp(seen.now)) if terminal else None,
        **_result(seen, decided),
        "checkpoint": _checkpoint(seen),
    }


def _fatal(seen: Observation, decided: Plan) -> End | None:
    """Return the end that failed the run, in the pass that first reports it: no successor will count it."""
    if decided.phase is not Phase.FAILED or decided.reason not in ("ExecutorFailed", "OOMLoop"):
        return None
    if seen.phase is Phase.FAILED:
        return None
    end = last_end(seen)
    return end if end is not None and end.fault in (Fault.AGENT, Fault.MEMORY) else None


def _pod(seen: Observation, created: CreatePod | None) -> dict[str, str]:
    if created is not None:
        return {"name": pod_name(seen.run.name, seen.run.uid, created.attempt), "node": ""}
    if seen.newest is None:
        return seen.run.status.pod.model_dump(by_alias=True)
    return {"name": seen.newest.name, "node": seen.newest.node}


def _result(seen: Observation, decided: Plan) -> dict[str, Any]:
    before = seen.run.status
    outcome = seen.head.outcome if seen.head else None
    if decided.phase is not Phase.SUCCEEDED or outcome is None:
        return {"result": before.result, "resultRef": before.result_ref}
    # Measured as the executor does, who stores what does not fit as a blob.
    compact = json.dumps(outcome.result, ensure_ascii=False, separators=(",", ":"))
    fits = len(compact.encode()) <= MAX_RESULT_BYTES
    return {"result": outcome.result if fits else None, "resultRef": outcome.result_ref}


def _checkpoint(seen: Observation) -> dict[str, Any]:
    if seen.head is None or is_behind(seen):
        return seen.run.status.checkpoint.model_dump(by_alias=True)
    keys = StoreKeys(seen.run.namespace, seen.head.run_id)
    uri = f"{seen.store_uri.rstrip('/')}/{keys.run.rstrip('/')}" if seen.store_uri else ""
    return {"uri": uri, "seq": seen.head.seq, "epoch": seen.head.epoch, "digest": seen.head.digest}


def _conditions(seen: Observation, decided: Plan) -> tuple[Condition, ...]:
    phase, reason, message = decided.phase, decided.reason, decided.message
    wanted: list[tuple[str, bool, str, str]] = [
        ("Ready", phase is Phase.SUCCEEDED, reason, message),
        ("Reconciling", phase in _MOVING, phase.value, ""),
        ("Stalled", phase in _STALLED, phase.value, ""),
    ]
    if seen.store_problem is not None:
        problem = seen.store_problem
        wanted.append(("StoreReady", False, problem.reason, problem.message))
    elif seen.name is not None:
        wanted.append(("StoreReady", True, "Readable", ""))
    if is_adopted(seen):
        wanted.append(("Adopted", True, "SameSpec", _HOW_TO_START_ANEW))
    if spec_changed(seen):
        wanted.append(("SpecChanged", True, "RecordedSpecStands", _RECORDED_STANDS))
    # What has ended waits for no node, and there may be thousands of it to write.
    if seen.disturbed and not phase.terminal:
        wanted.append(("ControlPlaneDisturbed", True, "NodesSilent", seen.disturbed))
    # What only the store's record tells stays as it was shown where the record was not read.
    said = {kind for kind, *_ in wanted}
    kept = {"StoreReady", "SpecChanged"} - said if seen.name is None else set()
    shown = tuple(part for part in seen.run.status.conditions if part.type in kept)
    return (*(_condition(seen, *part) for part in wanted), *shown)


def _condition(seen: Observation, kind: str, holds: bool, reason: str, message: str) -> Condition:  # noqa: FBT001  a row of the table above
    status = "True" if holds else "False"
    before = next((part for part in seen.run.status.conditions if part.type == kind), None)
    since = before.last_transition_time if before and before.status == status else timestamp(seen.now)
    return Condition(
        type=kind,
        status=status,
        reason=reason if _REASON.fullmatch(reason) else "Other",
        message=message[:_LONGEST_MESSAGE],
        last_transition_time=since,
        observed_generation=seen.run.generation,
    )


def _dumped(condition: Condition) -> dict[str, Any]:
    return condition.model_dump(by_alias=True)
