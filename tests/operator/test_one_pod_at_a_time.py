"""The promise over all worlds: no pod is created beside one that may still be at work."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.api.resource import AgentRun
from milepost.api.summary import HeadSummary, Outcome
from milepost_operator.core.observation import Observation, PodSeen
from milepost_operator.core.plan import CreatePod
from milepost_operator.core.rules import plan
from tests.support.builders import (
    NOON,
    OTHER_UID,
    UID,
    Phase,
    Started,
    StoreProblem,
    Terminated,
    Waiting,
    a_head,
    a_name,
    a_pod,
    a_run,
    a_spec,
)

NODES = ("", "node-1", "node-2", "node-3")

containers = st.one_of(
    st.none(),
    st.just(Started()),
    st.builds(Waiting, st.sampled_from(["", "ContainerCreating", "ImagePullBackOff"])),
    st.builds(
        Terminated,
        st.sampled_from([0, 1, 80, 81, 82, 83, 84, 137]),
        st.sampled_from(["Completed", "Error", "OOMKilled"]),
        st.just(""),
        st.sampled_from([None, NOON, NOON - timedelta(hours=1)]),
    ),
)


@st.composite
def pods(draw: st.DrawFn) -> PodSeen:
    attempt = draw(st.integers(1, 4))
    return replace(
        a_pod(attempt, uid=str(draw(st.integers(0, 1000)))),
        container=draw(containers),
        phase=draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])),
        node=draw(st.sampled_from(NODES)),
        owned=draw(st.booleans()),
        gone=draw(st.booleans()),
        deadline=draw(st.sampled_from([None, NOON + timedelta(seconds=30), NOON - timedelta(minutes=5)])),
        disruption=draw(st.sampled_from(["", "EvictionByEvictionAPI", "TerminationByKubelet"])),
        image=draw(st.sampled_from(["registry.example/agent:1", "other"])),
    )


@st.composite
def runs(draw: st.DrawFn) -> AgentRun:
    spec = a_spec(
        suspend=draw(st.booleans()), cancel=draw(st.booleans()), executor_failures=draw(st.integers(0, 9))
    )
    phase = draw(st.sampled_from([None, *Phase]))
    return a_run(spec, phase=phase, attempt=draw(st.integers(0, 4)), deleted=draw(st.booleans()))


@st.composite
def heads(draw: st.DrawFn) -> HeadSummary:
    return a_head(
        draw(st.sampled_from(list(Phase))),
        attempt=draw(st.integers(0, 5)),
        uid=draw(st.sampled_from([UID, OTHER_UID])),
        outcome=draw(st.sampled_from([None, Outcome("Reason", "message")])),
        oom_at_step=draw(st.integers(0, 3)),
    )


observations = st.builds(
    Observation,
    run=runs(),
    now=st.just(NOON),
    digest=st.just(a_name().spec_digest),
    invalid=st.sampled_from(["", "spec.inputs: wrong"]),
    name=st.sampled_from([None, a_name(), a_name(uid=OTHER_UID), a_name(digest="0" * 64)]),
    head=st.one_of(st.none(), heads()),
    pods=st.lists(pods(), max_size=4, unique_by=lambda pod: pod.uid).map(tuple),
    store_problem=st.sampled_from([None, None, StoreProblem("BucketMissing", "")]),
    silent_nodes=st.frozensets(st.sampled_from(NODES[1:])),
    disturbed=st.sampled_from(["", "", "half of the nodes are silent"]),
)


@pytest.mark.req("C3", "K5")
@settings(max_examples=500, deadline=None)
@given(observations)
def test_no_plan_creates_a_pod_beside_one_that_may_be_at_work(seen: Observation) -> None:
    creates = [action for action in plan(seen).actions if isinstance(action, CreatePod)]

    at_work = [pod for pod in seen.pods if not pod.has_ended(NOON) and pod.node not in seen.silent_nodes]
    assert len(creates) <= (0 if at_work else 1)
    for create in creates:
        assert create.attempt > max((pod.attempt for pod in seen.pods), default=0)
        assert seen.silent_nodes == create.avoid
        assert seen.name is not None
        assert not seen.run.spec.suspend
        assert not seen.run.spec.cancel


@settings(max_examples=200, deadline=None)
@given(observations)
def test_an_end_that_was_reported_is_never_taken_back(seen: Observation) -> None:
    before = seen.run.status.phase
    decided = plan(seen)

    if before is not None and before.terminal:
        assert decided.phase is before
