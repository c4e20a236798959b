"""What one pass saw of a run: the resource, its pods, the head of its log, the nodes, the time.

Everything a rule may look at is here, so that a rule can be tested with two literals. Nothing here reads
anything; `reading` makes these from raw objects, and the shell gathers them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from milepost.api.resource import AgentRun, Phase
from milepost.api.summary import HeadSummary, NameRecord

__all__ = [
    "CONTAINER",
    "Container",
    "End",
    "Fault",
    "Observation",
    "PodSeen",
    "Started",
    "StoreProblem",
    "Terminated",
    "Waiting",
]

CONTAINER: Final = "executor"
"""Name of the one container in the pod that counts; a user's admission controller may inject others."""

# Beyond the grace period that a deletion time already includes: a kubelet needs seconds to report.
DELETION_MARGIN: Final = timedelta(seconds=30)


class Fault(StrEnum):
    """Whose doing the end of a pod was, which decides what it costs the run."""

    DISRUPTION = "disruption"
    AGENT = "agent"
    MEMORY = "memory"
    START = "start"


@dataclass(frozen=True)
class End:
    """How an attempt ended. `cause` is stable and CamelCase; `reason` is the executor's own, or empty."""

    attempt: int
    cause: str
    fault: Fault
    exit_code: int | None = None
    message: str = ""
    reason: str = ""
    node: str = ""


@dataclass(frozen=True)
class Waiting:
    """The container has not started, and why."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Started:
    """The container runs."""


@dataclass(frozen=True)
class Terminated:
    """The container has ended. `message` is what it wrote to its termination log."""

    exit_code: int
    reason: str = ""
    message: str = ""
    at: datetime | None = None


Container: TypeAlias = Waiting | Started | Terminated


@dataclass(frozen=True)
class PodSeen:
    """One executor pod of the run.

    `owned` is false for a pod that another resource of the same name left behind while working on this same
    run. `gone` means that the object is no longer there and this is how it was last seen. `deadline` is the
    deletion time, which includes the grace period. `disruption` is the reason of a true DisruptionTarget.
    `avoids` names the nodes that were silent when it was made. `image` is what was asked for, whatever an
    admission controller has made of it. `in_a_row` counts the pods just before it that recorded no step, and
    `resumes_after` is the progress at which it was made, `run_id` the run that it was made for.
    """

    name: str
    uid: str
    attempt: int
    phase: str = "Pending"
    node: str = ""
    owned: bool = True
    gone: bool = False
    container: Container | None = None
    reason: str = ""
    message: str = ""
    deadline: datetime | None = None
    disruption: str = ""
    unschedulable: str = ""
    created: datetime | None = None
    avoids: frozenset[str] = frozenset()
    image: str = ""
    agent_version: str = ""
    run_id: str = ""
    previous_end: End | None = None
    in_a_row: int = 0
    resumes_after: str = ""

    def has_ended(self, now: datetime) -> bool:
        """Whether this pod can be taken to do nothing any more."""
        return (
            self.gone
            or self.phase in ("Succeeded", "Failed")
            or isinstance(self.container, Terminated)
            or (self.deadline is not None and now >= self.deadline + DELETION_MARGIN)
        )


@dataclass(frozen=True)
class StoreProblem:
    """Why the run's record could not be read. `halts`: trying again will not help, a person has to look."""

    reason: str
    message: str
    halts: bool = False


@dataclass(frozen=True)
class Observation:
    """One run as a pass saw it.

    `invalid` says what is wrong with the manifest; `disturbed` says why the cluster's own state cannot be
    trusted at the moment. `digest` is the spec's digest, empty for an invalid one. `cluster` is this
    cluster's id, as names and heads have it. `answered` says that the inbox holds an answer to a gate that
    is open.
    """

    run: AgentRun
    now: datetime
    digest: str = ""
    invalid: str = ""
    name: NameRecord | None = None
    head: HeadSummary | None = None
    pods: tuple[PodSeen, ...] = ()
    store_problem: StoreProblem | None = None
    store_uri: str = ""
    silent_nodes: frozenset[str] = field(default_factory=frozenset)
    disturbed: str = ""
    cluster: str = ""
    answered: bool = False

    @property
    def unended(self) -> tuple[PodSeen, ...]:
        """The pods that may still be doing something."""
        return tuple(pod for pod in self.pods if not pod.has_ended(self.now))

    @property
    def last_attempt(self) -> int:
        """The highest attempt that anybody has heard of; 0 if there was none."""
        in_head = self.head.attempt if self.head else 0
        return max((in_head, self.run.status.attempt, *(pod.attempt for pod in self.pods)))

    @property
    def newest(self) -> PodSeen | None:
        """The pod of the last attempt, if it was seen; of several, one that may still be at work."""
        last = [pod for pod in self.pods if pod.attempt == self.last_attempt]
        return min(last, key=lambda pod: (pod.has_ended(self.now), pod.gone), default=None)

    @property
    def phase(self) -> Phase:
        """The phase that the status shows so far."""
        return self.run.status.phase or Phase.PENDING

    def silent(self, pod: PodSeen) -> bool:
        """Whether the pod's node has stopped reporting, so that the pod's own state is no longer known."""
        return pod.node in self.silent_nodes
