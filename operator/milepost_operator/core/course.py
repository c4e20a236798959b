"""Rules about where the run stands: ended, cancelled, held, halted, waiting.

What the log says comes first. A pod's exit code can never end a run, and an end in the log can never be
undone by a pod.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from milepost.api.resource import Phase
from milepost.api.summary import GateSummary, NameState
from milepost_operator.core.ended import classify
from milepost_operator.core.identity import deletions, is_behind
from milepost_operator.core.observation import Observation
from milepost_operator.core.plan import AT_ONCE, EndRun, NoteOutcome, Plan, Telling

__all__ = ["cancelled", "disturbed", "finished", "halted", "rolled_back", "suspended", "waiting"]

_CALM_AGAIN: Final = timedelta(seconds=10)
_LOOKED_AT_AGAIN: Final = timedelta(minutes=1)
_INBOX_AGAIN: Final = timedelta(seconds=10)
_SOONEST: Final = timedelta(seconds=1)
_GATES_SHOWN: Final = 3
"""Gates that a message names, so that it stays short for a run that waits for a hundred people."""


def finished(seen: Observation) -> Plan | None:
    """Report the end that the log holds, whatever the pods did or do."""
    if seen.name is not None and seen.name.state is NameState.EXPIRED:
        return _expired(seen)
    if seen.head is None or seen.name is None or not seen.head.phase.terminal:
        return None
    phase = seen.head.phase
    if phase is Phase.DELETING:
        return Plan(
            Phase.HALTED, "CheckpointsDeleted", "the run's checkpoints are being deleted from the store"
        )
    outcome = seen.head.outcome
    reason = outcome.reason if outcome and outcome.reason else phase.value
    message = outcome.message if outcome else ""
    note = (NoteOutcome(phase.value),) if seen.name.outcome != phase.value else ()
    # Who cancels wants it to stop; otherwise the executor is about to exit by itself.
    stop = deletions(seen, "the run has ended") if phase is Phase.CANCELLED else ()
    told = Telling(
        f"Finished/{seen.head.run_id}",
        phase.value,
        message or f"{seen.head.steps_done} steps are recorded",
        "Warning" if phase is Phase.FAILED else "Normal",
    )
    again = _CALM_AGAIN if seen.unended else None
    return Plan(phase, reason, message, (*note, *stop), (told,), look_again_in=again)


def _expired(seen: Observation) -> Plan:
    """Report the end of a run of which only the name is left, or will be in a moment."""
    assert seen.name is not None
    outcome = seen.name.outcome
    phase = Phase(outcome) if outcome in Phase.__members__.values() else Phase.CANCELLED
    message = (
        f"run {seen.name.run_id} ended as {outcome or phase}; its checkpoints were kept for as long as "
        "spec.retentionSeconds said, and its result is gone with them"
    )
    told = Telling(f"Expired/{seen.name.run_id}", "Expired", message)
    return Plan(phase, "Expired", message, deletions(seen, "the run has ended"), (told,))


def cancelled(seen: Observation) -> Plan | None:
    """Cancel whatever has not ended: first the log is closed, then the pod is told."""
    if not seen.run.spec.cancel:
        return None
    if seen.name is None:
        stop = deletions(seen, "the run is cancelled")
        return Plan(Phase.CANCELLED, "Cancelled", "it was cancelled before it began", stop)
    end = EndRun(Phase.CANCELLED, "Cancelled", "spec.cancel was set")
    stop = deletions(seen, "the run is cancelled")
    return Plan(seen.phase, "Cancelling", actions=(end, *stop), look_again_in=AT_ONCE)


def rolled_back(seen: Observation) -> Plan | None:
    """Start nothing on a store that went back to an older state: recorded steps would run again."""
    if not is_behind(seen):
        return None
    assert seen.head is not None
    known, run = seen.run.status.checkpoint, seen.run
    message = (
        f"the store ends with record {seen.head.seq} of epoch {seen.head.epoch}, and record {known.seq} of "
        f"epoch {known.epoch} was there before: it went back to an older state. Restore the newer one; or go "
        "on from the older one, whose later steps run again: milepost store repair --as-it-is --dry-run URL "
        f"{run.namespace}/{run.name}"
    )
    told = Telling(f"RolledBack/{known.epoch}-{known.seq}", "RolledBack", message, "Warning")
    return Plan(
        Phase.HALTED, "RolledBack", message, tell=(told,), look_again_in=_LOOKED_AT_AGAIN, doubted=True
    )


def suspended(seen: Observation) -> Plan | None:
    """Hold the run: a pod may finish its step within its grace period, and none is started."""
    if not seen.run.spec.suspend:
        return None
    message = "spec.suspend is set; the run goes on from its last recorded step once it is cleared"
    if seen.unended:
        message = "the pod is finishing its step; after that the run is held"
    told = Telling(f"Suspended/{seen.run.generation}", "Suspended", message)
    stop = deletions(seen, "the run is suspended")
    deadlines = [pod.deadline - seen.now for pod in seen.unended if pod.deadline]
    again = max(min(deadlines), _CALM_AGAIN) if deadlines else None
    return Plan(Phase.SUSPENDED, "Suspended", message, stop, (told,), look_again_in=again)


def disturbed(seen: Observation) -> Plan | None:
    """Touch nothing while what the cluster says of its nodes cannot be trusted."""
    if not seen.disturbed:
        return None
    return Plan(seen.phase, "ControlPlaneDisturbed", seen.disturbed, look_again_in=_CALM_AGAIN)


def halted(seen: Observation) -> Plan | None:
    """Wait for a person where the run has halted; another image or version lets it go on."""
    if seen.head is None or seen.head.phase is not Phase.HALTED:
        return _halted_unrecorded(seen)
    if seen.answered or _changed_since_halt(seen) or _has_room_again(seen):
        return None
    outcome = seen.head.outcome
    reason = outcome.reason if outcome and outcome.reason else "Halted"
    message = outcome.message if outcome else ""
    told = Telling(f"Halted/{seen.head.epoch}", reason, message or "the run has halted", "Warning")
    again = _INBOX_AGAIN if seen.head.gates else None
    return Plan(Phase.HALTED, reason, message, tell=(told,), look_again_in=again)


def _halted_unrecorded(seen: Observation) -> Plan | None:
    """Hold a run whose executor halted and could not record it, as where it found the history damaged."""
    pod, agent = seen.newest, seen.run.spec.agent
    if pod is None or pod.gone or (pod.image, pod.agent_version) != (agent.image, agent.version):
        return None
    if pod.run_id and seen.name is not None and pod.run_id != seen.name.run_id:
        return None  # that run is another's place now, as after a repair
    end = classify(pod, seen.head)
    if end.cause != "Halted":
        return None
    reason = end.reason or "Halted"
    message = f"{end.message or 'the executor has halted'}; delete pod {pod.name} to try again"
    return Plan(
        Phase.HALTED, reason, message, tell=(Telling(f"Halted/{pod.uid}", reason, message, "Warning"),)
    )


def _changed_since_halt(seen: Observation) -> bool:
    assert seen.head is not None
    agent, attempt = seen.run.spec.agent, seen.head.attempt
    if seen.head.image and agent.image != seen.head.image:
        return True
    # The head does not keep the version that was asked for; the halted attempt's own pod does.
    pod = next((pod for pod in seen.pods if pod.attempt == attempt), None)
    return pod is not None and pod.agent_version != agent.version


def _has_room_again(seen: Observation) -> bool:
    """Tell whether the run halted at a limit that the spec has raised, or taken out, since."""
    head, limits = seen.head, seen.run.spec.limits
    if head is None or head.outcome is None or head.outcome.reason != "LimitReached":
        return False
    used = (
        (head.steps_done, limits.steps),
        (head.tokens, limits.tokens),
        (head.cost_nano_usd / 1e9, limits.cost_usd),
    )
    return all(limit is None or amount < limit for amount, limit in used)


def waiting(seen: Observation) -> Plan | None:
    """Run nothing while the run is at its gates; it goes on once one of them has its answer."""
    if seen.head is None or seen.head.phase is not Phase.WAITING or seen.answered:
        return None
    message = "waits for " + (
        ", ".join(map(_named, seen.head.gates[:_GATES_SHOWN])) or "nothing that it names"
    )
    if more := len(seen.head.gates[_GATES_SHOWN:]):
        message += f" and {more} more"
    told = Telling(f"Waiting/{seen.head.epoch}", "Waiting", f"the run {message}; no pod is kept for that")
    deadlines = [datetime.fromisoformat(gate.until) - seen.now for gate in seen.head.gates if gate.until]
    again = max(min([_INBOX_AGAIN, *deadlines]), _SOONEST)
    return Plan(Phase.WAITING, "Waiting", message, tell=(told,), look_again_in=again)


def _named(gate: GateSummary) -> str:
    what = f"{gate.type.lower()} {gate.name}" + (f"={gate.key}" if gate.key is not None else "")
    return f"{what} until {gate.until}" if gate.until else what
