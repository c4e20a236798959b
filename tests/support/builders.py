"""Runs, pods and heads for tests: every builder defaults to the dull case."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from milepost.api.digest import spec_digest
from milepost.api.names import pod_name
from milepost.api.resource import (
    AgentRun,
    AgentSpec,
    CheckpointStatus,
    Condition,
    LimitsSpec,
    Phase,
    PodSpec,
    RetrySpec,
    RunSpec,
    RunStatus,
)
from milepost.api.summary import HeadSummary, NameRecord
from milepost_operator.core.observation import (
    Container,
    Observation,
    PodSeen,
    Started,
    StoreProblem,
    Terminated,
    Waiting,
)

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
UID = "11111111-1111-1111-1111-111111111111"
OTHER_UID = "22222222-2222-2222-2222-222222222222"
RUN_ID = "aaaaaaaaaaaaaaaaaaaa"
_STARTED = Started()
IMAGE = "registry.example/agent:1"

__all__ = [
    "IMAGE",
    "NOON",
    "OTHER_UID",
    "RUN_ID",
    "UID",
    "Phase",
    "Started",
    "StoreProblem",
    "Terminated",
    "Waiting",
    "a_head",
    "a_name",
    "a_pod",
    "a_run",
    "a_spec",
    "an_ended_pod",
    "an_observation",
]


def a_spec(
    *,
    image: str = IMAGE,
    version: str = "",
    inputs: dict[str, Any] | None = None,
    suspend: bool = False,
    cancel: bool = False,
    executor_failures: int = 3,
    out_of_memory: int = 3,
    pod: PodSpec | None = None,
    limits: dict[str, float] | None = None,
) -> RunSpec:
    return RunSpec(
        agent=AgentSpec(image=image, entrypoint="documents.agent:index", version=version),
        inputs=inputs or {},
        suspend=suspend,
        cancel=cancel,
        retry=RetrySpec(executor_failures=executor_failures, out_of_memory=out_of_memory),
        pod=pod or PodSpec(),
        limits=LimitsSpec.model_validate(limits or {}),
    )


def a_run(
    spec: RunSpec | None = None,
    *,
    phase: Phase | None = Phase.RUNNING,
    attempt: int = 1,
    uid: str = UID,
    generation: int = 1,
    generate_name: str = "",
    deleted: bool = False,
    reason: str = "Running",
    completed: datetime | None = None,
    disruptions: dict[str, int] | None = None,
    failures: dict[str, int] | None = None,
    conditions: tuple[Condition, ...] = (),
    checkpoint: CheckpointStatus | None = None,
) -> AgentRun:
    """Return a run that has been accepted; `phase=None` for one that nobody has looked at yet."""
    ready = Condition(
        type="Ready",
        status="True" if phase is Phase.SUCCEEDED else "False",
        reason=reason,
        last_transition_time="2026-03-01T11:00:00Z",
    )
    status = RunStatus()
    if phase is not None:
        status = RunStatus(
            observed_generation=generation,
            phase=phase,
            attempt=attempt,
            run_id=RUN_ID,
            conditions=(ready, *conditions),
            checkpoint=checkpoint or CheckpointStatus(),
            disruptions=disruptions or {},
            failures=failures or {},
            completion_time=completed.strftime("%Y-%m-%dT%H:%M:%SZ") if completed else None,
        )
    return AgentRun(
        name="docs",
        namespace="team",
        uid=uid,
        generation=generation,
        generate_name=generate_name,
        deletion_timestamp="2026-03-01T11:59:00Z" if deleted else None,
        spec=spec or a_spec(),
        status=status,
    )


def a_pod(
    attempt: int = 1,
    *,
    container: Container | None = _STARTED,
    phase: str = "Running",
    node: str = "node-1",
    uid: str = "",
    name: str = "",
    owned: bool = True,
    **more: Any,
) -> PodSeen:
    """Return a pod that runs."""
    return PodSeen(
        name=name or pod_name("docs", UID, attempt),
        uid=uid or f"pod-{attempt}",
        attempt=attempt,
        phase=phase,
        node=node,
        container=container,
        owned=owned,
        image=more.pop("image", IMAGE),
        reason=more.pop("pod_reason", ""),
        created=more.pop("created", NOON - timedelta(minutes=10)),
        **more,
    )


def an_ended_pod(
    attempt: int = 1,
    code: int = 80,
    *,
    reason: str = "Error",
    said: str = "",
    ago: float = 3600,
    **more: Any,
) -> PodSeen:
    """Return a pod whose container ended with this code, `ago` seconds before NOON."""
    ended = Terminated(code, reason, said, NOON - timedelta(seconds=ago))
    phase = more.pop("phase", "Succeeded" if code == 0 else "Failed")
    return a_pod(attempt, container=ended, phase=phase, **more)


def a_name(
    *,
    run_id: str = RUN_ID,
    uid: str = UID,
    digest: str = "",
    outcome: str = "",
    spec: RunSpec | None = None,
    **more: Any,
) -> NameRecord:
    return NameRecord("docs", run_id, uid, digest or spec_digest(spec or a_spec()), outcome, **more)


def a_head(
    phase: Phase = Phase.RUNNING,
    *,
    attempt: int = 1,
    steps: int = 5,
    total: int | None = 10,
    uid: str = UID,
    **more: Any,
) -> HeadSummary:
    return HeadSummary(
        run_id=RUN_ID,
        resource_uid=uid,
        spec_digest=spec_digest(a_spec()),
        phase=phase,
        epoch=more.pop("epoch", attempt),
        attempt=attempt,
        seq=more.pop("seq", steps + attempt),
        writer=more.pop("writer", f"pod-{attempt}"),
        digest=more.pop("digest", "0" * 64),
        image=more.pop("image", IMAGE),
        steps_done=steps,
        steps_total=total,
        **more,
    )


def an_observation(run: AgentRun | None = None, *pods: PodSeen, **more: Any) -> Observation:
    """Return a run in the middle of its work, whose record is known; None for name or head is none."""
    run = run or a_run()
    return Observation(
        run=run,
        now=more.pop("now", NOON),
        digest=more.pop("digest", spec_digest(run.spec)),
        name=more.pop("name", a_name()),
        head=more.pop("head", a_head()),
        pods=pods,
        **more,
    )
