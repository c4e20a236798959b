"""Rules about pods: which one counts, whether it has ended, what follows it.

The one promise that all of them keep: no pod is created while another pod of the run may still be doing
something on a node that reports. `_next_pod` is the only place that creates one, and it holds to that.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from milepost.api.resource import Phase
from milepost_operator.core.counting import agent_failures, pods_at_this_step
from milepost_operator.core.ended import UNCOUNTED, classify, lost, phrase
from milepost_operator.core.identity import deletions
from milepost_operator.core.observation import End, Fault, Observation, PodSeen, Started, Terminated, Waiting
from milepost_operator.core.plan import AT_ONCE, CreatePod, DeletePod, EndRun, Plan, Telling

__all__ = [
    "agent_failed",
    "could_not_start",
    "disrupted",
    "first_start",
    "last_end",
    "multiple_pods",
    "out_of_memory",
    "outdated_pod",
    "progress",
    "running",
    "silent_node",
    "stale_attempts",
]

# A little more than the time for which a head that was read is good enough.
_PROGRESS_AGAIN: Final = timedelta(seconds=10.5)
_PENDING_AGAIN: Final = timedelta(seconds=30)
# Longer than a start takes whose image is there and whose volumes exist.
_START_IS_SLOW: Final = timedelta(seconds=20)
_OLD_POD_AGAIN: Final = timedelta(seconds=5)

_AGENT_DELAY: Final = (timedelta(seconds=1), timedelta(seconds=60))
_START_DELAY: Final = (timedelta(seconds=15), timedelta(seconds=600))

_CANNOT_START: Final = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
        "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
        "CreatePodSandboxError",
    }
)  # fmt: skip


def progress(seen: Observation) -> str:
    """Return "3/10", or "3" where the agent did not say how many steps there are."""
    if seen.head is None:
        return seen.run.status.progress
    done, total = seen.head.steps_done, seen.head.steps_total
    return f"{done}/{total}" if total is not None else str(done)


def stale_attempts(seen: Observation) -> Plan | None:
    """Remove a pod older than the newest: its writes are refused anyway, so it only costs money."""
    stale = tuple(
        DeletePod(pod.name, pod.uid, f"attempt {seen.last_attempt} has taken over")
        for pod in seen.unended
        if pod.deadline is None and (pod.attempt < seen.last_attempt or not pod.owned)
    )
    if not stale:
        return None
    return Plan(
        seen.phase, "Superseded", "a pod of an older attempt is being removed", stale, look_again_in=AT_ONCE
    )


def multiple_pods(seen: Observation) -> Plan | None:
    """Do nothing where two pods say that they are one attempt: choosing would be guessing."""
    same = [pod.name for pod in seen.unended if pod.attempt == seen.last_attempt]
    if len(same) < 2:  # noqa: PLR2004  two is what this rule is about
        return None
    message = f"{' and '.join(sorted(same))} both say that they are attempt {seen.last_attempt}; delete one"
    told = Telling(f"MultiplePods/{seen.last_attempt}", "MultiplePods", message, "Warning")
    return Plan(seen.phase, "MultiplePods", message, tell=(told,), look_again_in=_PENDING_AGAIN)


def silent_node(seen: Observation) -> Plan | None:
    """Go on elsewhere where the pod's node has gone silent: the store keeps the old pod from writing."""
    pod = seen.newest
    if pod is None or pod.has_ended(seen.now) or not seen.silent(pod):
        return None
    end = End(pod.attempt, "NodeSilent", Fault.DISRUPTION, node=pod.node)
    return _next_pod(seen, end, tell=_loss(end))


def outdated_pod(seen: Observation) -> Plan | None:
    """Remove a pod that has not begun and was made for a world that has changed.

    Its image may not exist, and another is asked for now; or no node fits because it avoids a silent one,
    which reports again.
    """
    pod = seen.newest
    if pod is None or pod.has_ended(seen.now) or pod.deadline or isinstance(pod.container, Started):
        return None
    if pod.image and pod.image != seen.run.spec.agent.image:
        reason, why = "ImageChanged", "spec.agent.image has changed"
    elif pod.unschedulable and pod.avoids - seen.silent_nodes:
        reason, why = "NodeReportsAgain", "a node that it avoids reports again"
    else:
        return None
    message = f"a pod that has not begun makes way for another: {why}"
    return Plan(Phase.PENDING, reason, message, deletions(seen, why), look_again_in=AT_ONCE)


def running(seen: Observation) -> Plan | None:
    """Show what a pod that has not ended does or waits for."""
    pod = seen.newest
    if pod is None or pod.has_ended(seen.now):
        return None
    where = f"attempt {pod.attempt}" + (f" on {pod.node}" if pod.node else "")
    if pod.deadline is not None:
        again = max(pod.deadline - seen.now, _OLD_POD_AGAIN)
        phase = Phase.RUNNING if isinstance(pod.container, Started) else Phase.PENDING
        if seen.phase is Phase.SUSPENDED:
            # Until the pod has ended, this is all that tells why it was deleted.
            phase = Phase.SUSPENDED
        return Plan(phase, "PodTerminating", f"{where} is finishing its step", look_again_in=again)
    if isinstance(pod.container, Started):
        return Plan(Phase.RUNNING, "Running", where, tell=_began(pod), look_again_in=_PROGRESS_AGAIN)
    if isinstance(pod.container, Waiting) and pod.container.reason in _CANNOT_START:
        reason, message = pod.container.reason, pod.container.message or f"{where} cannot start"
        told = Telling(f"{reason}/{pod.attempt}", reason, message, "Warning")
        return Plan(Phase.PENDING, reason, message, tell=(told,), look_again_in=_PENDING_AGAIN)
    if pod.unschedulable:
        told = Telling(f"Unschedulable/{pod.attempt}", "Unschedulable", pod.unschedulable, "Warning")
        return Plan(
            Phase.PENDING, "Unschedulable", pod.unschedulable, tell=(told,), look_again_in=_PENDING_AGAIN
        )
    return _slow_start(seen, pod, where)


def _slow_start(seen: Observation, pod: PodSeen, where: str) -> Plan:
    """Show a pod that is being prepared, and where that takes long, where to look for the cause.

    Its node tells only in the pod's events that a Secret is missing, the store's among them.
    """
    age = seen.now - pod.created if pod.created else timedelta(0)
    if not pod.node or age < _START_IS_SLOW:
        reason, message = _starting(pod.attempt, pod.previous_end)
        again = max(_START_IS_SLOW - age, AT_ONCE) if pod.node else _PENDING_AGAIN
        return Plan(Phase.PENDING, reason, message, look_again_in=again)
    message = (
        f"{where} has not begun: its image is still being pulled, or a Secret or ConfigMap that it needs is "
        f"missing in namespace {seen.run.namespace}; kubectl describe pod {pod.name} says which"
    )
    told = Telling(f"NotStarting/{pod.attempt}", "NotStarting", message, "Warning")
    return Plan(Phase.PENDING, "NotStarting", message, tell=(told,), look_again_in=_PENDING_AGAIN)


def _starting(attempt: int, previous: End | None) -> tuple[str, str]:
    """Return reason and message of an attempt that has a pod and has not begun."""
    if previous is None:
        return "Starting", f"attempt {attempt} is starting"
    return "Resuming", f"attempt {previous.attempt} {phrase(previous)}; attempt {attempt} is starting"


def _began(pod: PodSeen) -> tuple[Telling, ...]:
    if pod.attempt == 1:
        return (Telling("Started/1", "Started", f"attempt 1 has started on {pod.node}"),)
    after = f" after {pod.resumes_after} steps" if pod.resumes_after else ""
    why = f"; the previous pod {phrase(pod.previous_end)}" if pod.previous_end else ""
    message = f"attempt {pod.attempt} on {pod.node} goes on{after}{why}"
    return (Telling(f"Resumed/{pod.attempt}", "Resumed", message),)


def last_end(seen: Observation) -> End | None:
    """Return how the last attempt ended; None if there was none."""
    if seen.last_attempt == 0:
        return None
    pod = seen.newest
    end = classify(pod, seen.head) if pod else lost(seen.last_attempt)
    if seen.run.status.attempt == 0 and pod is None:
        return End(end.attempt, "Adopted", Fault.DISRUPTION)
    if seen.run.status.phase is Phase.SUSPENDED and end.fault is Fault.DISRUPTION:
        return End(end.attempt, "Suspended", Fault.DISRUPTION, end.exit_code, node=end.node)
    return end


def could_not_start(seen: Observation) -> Plan | None:
    """Try again, later and later, where the executor said that it cannot begin."""
    end = last_end(seen)
    if end is None or end.fault is not Fault.START:
        return None
    reason = end.reason or end.cause
    told = Telling(f"{reason}/{end.attempt}", reason, f"attempt {end.attempt} {phrase(end)}", "Warning")
    wait = _wait(seen, _START_DELAY, _in_a_row(seen) - 1)
    return _next_pod(seen, end, wait=wait, reason=reason, tell=(told,))


def out_of_memory(seen: Observation) -> Plan | None:
    """Count pods that ran out of memory at one step apart: it will not fit the next time either."""
    end = last_end(seen)
    if end is None or end.fault is not Fault.MEMORY:
        return None
    times, limit = pods_at_this_step(seen), max(seen.run.spec.retry.out_of_memory, 1)
    if times >= limit:
        message = f"{times} pods ran out of memory at one step; raise spec.pod.resources.limits.memory"
        return Plan(
            seen.phase, "OOMLoop", message, (EndRun(Phase.FAILED, "OOMLoop", message),), look_again_in=AT_ONCE
        )
    return _after_failure(seen, end, times)


def agent_failed(seen: Observation) -> Plan | None:
    """Count the agent's own failures, in all, and fail the run at the limit."""
    end = last_end(seen)
    if end is None or end.fault is not Fault.AGENT:
        return None
    times, limit = agent_failures(seen, end), max(seen.run.spec.retry.executor_failures, 1)
    if times >= limit:
        pods = "pod" if times == 1 else "pods"
        message = f"{times} {pods} failed by the agent's own fault; attempt {end.attempt} {phrase(end)}"
        return Plan(
            seen.phase,
            "ExecutorFailed",
            message,
            (EndRun(Phase.FAILED, "ExecutorFailed", message),),
            look_again_in=AT_ONCE,
        )
    return _after_failure(seen, end, times)


def _after_failure(seen: Observation, end: End, times: int) -> Plan:
    said = f"attempt {end.attempt} {phrase(end)}"
    told = Telling(f"PodFailed/{end.attempt}", "PodFailed", said, "Warning")
    return _next_pod(seen, end, wait=_wait(seen, _AGENT_DELAY, times - 1), reason=end.cause, tell=(told,))


def disrupted(seen: Observation) -> Plan | None:
    """Go on at once where the pod was lost through no fault of the agent."""
    end = last_end(seen)
    if end is None:
        return None
    # A kubelet or a store that refuses every pod must not be met with hundreds of them a minute, nor must one
    # be that evicts each pod at the same step, for filling its disk.
    row = _in_a_row(seen)
    wait = _wait(seen, _AGENT_DELAY, row - 2) if row > 1 and end.cause != "Waited" else AT_ONCE
    return _next_pod(seen, end, wait=wait, tell=_loss(end))


def _loss(end: End) -> tuple[Telling, ...]:
    if end.cause in UNCOUNTED:
        return ()
    on = f" on {end.node}" if end.node else ""
    message = f"the pod of attempt {end.attempt}{on} {phrase(end)}; the run goes on in another"
    return (Telling(f"Disrupted/{end.attempt}", "Disrupted", message),)


def first_start(seen: Observation) -> Plan | None:
    """Start the first attempt."""
    return _next_pod(seen, None)


def _in_a_row(seen: Observation) -> int:
    """Return how many pods, back from the last, ended without claiming the run or recording a step."""
    pod = seen.newest
    claimed = seen.head is not None and seen.head.attempt >= seen.last_attempt
    if claimed and (pod is None or pod.resumes_after != progress(seen)):
        return 0
    return (pod.in_a_row if pod else 0) + 1


def _wait(seen: Observation, delays: tuple[timedelta, timedelta], earlier: int) -> timedelta:
    """Return what is left of the pause after the last pod's end, doubling with each earlier failure."""
    first, longest = delays
    pause = min(first * 2 ** min(max(earlier, 0), 12), longest)
    pod = seen.newest
    if pod is None:
        return AT_ONCE
    # A pod that its kubelet refused has no container that ended; it ended when it was made.
    ended = pod.container.at if isinstance(pod.container, Terminated) else pod.created
    return min(max(ended + pause - seen.now, AT_ONCE), pause) if ended else AT_ONCE


def _next_pod(
    seen: Observation,
    end: End | None,
    *,
    wait: timedelta = AT_ONCE,
    reason: str = "",
    tell: tuple[Telling, ...] = (),
) -> Plan:
    """Create the next attempt's pod, unless another pod may still be at work or the pause is not over."""
    attempt = seen.last_attempt + 1
    said = f"attempt {end.attempt} {phrase(end)}; " if end else ""
    alive = [pod for pod in seen.unended if not seen.silent(pod)]
    if alive:
        message = f"{said}attempt {attempt} starts once {alive[0].name} has ended"
        return Plan(Phase.PENDING, "WaitingForPod", message, tell=tell, look_again_in=_OLD_POD_AGAIN)
    if wait > AT_ONCE:
        return Plan(
            Phase.PENDING,
            reason or "Resuming",
            f"{said}attempt {attempt} follows after a pause",
            tell=tell,
            look_again_in=wait,
        )
    create = CreatePod(
        attempt,
        previous_end=end,
        avoid=seen.silent_nodes,
        in_a_row=_in_a_row(seen) if end else 0,
        resumes_after=progress(seen) if end else "",
    )
    return Plan(Phase.PENDING, *_starting(attempt, end), (create,), tell)
