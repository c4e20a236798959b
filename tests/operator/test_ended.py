"""How ends of pods are told apart, as a table."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from milepost.api.summary import HeadSummary
from milepost_operator.core.ended import AGENT_CAUSES, classify, phrase
from milepost_operator.core.observation import DELETION_MARGIN, End, Fault, PodSeen
from tests.support.builders import NOON, Phase, Waiting, a_head, a_pod, an_ended_pod

EVICTION = "EvictionByEvictionAPI"
UNCLAIMED = a_head(attempt=0)
HALTED = a_head(Phase.HALTED)


@pytest.mark.req("K1")
@pytest.mark.parametrize(
    ("pod", "head", "cause", "fault"),
    [
        (an_ended_pod(code=80, deadline=NOON, disruption=EVICTION), a_head(), "Evicted", "disruption"),
        (an_ended_pod(code=137, deadline=NOON, disruption=EVICTION), a_head(), "Evicted", "disruption"),
        (an_ended_pod(code=0, deadline=NOON, disruption=EVICTION), a_head(), "Evicted", "disruption"),
        (an_ended_pod(code=1, deadline=NOON, disruption=EVICTION), a_head(), "Evicted", "disruption"),
        (an_ended_pod(code=1, disruption=EVICTION), a_head(), "AgentFailed", "agent"),
        (
            an_ended_pod(deadline=NOON, disruption="PreemptionByScheduler"),
            a_head(),
            "Preempted",
            "disruption",
        ),
        (
            an_ended_pod(deadline=NOON, disruption="DeletionByTaintManager"),
            a_head(),
            "NodeTainted",
            "disruption",
        ),
        (
            a_pod(phase="Failed", container=None, disruption="DeletionByPodGC", deadline=NOON),
            a_head(),
            "NodeGone",
            "disruption",
        ),
        (
            an_ended_pod(code=0, disruption="TerminationByKubelet", reason="Completed"),
            a_head(),
            "TerminatedByKubelet",
            "disruption",
        ),
        (an_ended_pod(code=137, pod_reason="Evicted"), a_head(), "TerminatedByKubelet", "disruption"),
        (an_ended_pod(code=137, reason="ContainerStatusUnknown"), a_head(), "NodeGone", "disruption"),
        (
            a_pod(phase="Failed", container=None, pod_reason="UnexpectedAdmissionError"),
            UNCLAIMED,
            "RefusedByKubelet",
            "disruption",
        ),
        (
            a_pod(phase="Failed", container=None, pod_reason="Preempting"),
            a_head(),
            "TerminatedByKubelet",
            "disruption",
        ),
        (an_ended_pod(code=80, deadline=NOON), a_head(), "Deleted", "disruption"),
        (an_ended_pod(code=143, deadline=NOON), a_head(), "Deleted", "disruption"),
        (a_pod(gone=True), a_head(), "Deleted", "disruption"),
        (a_pod(gone=True, container=Waiting("ContainerCreating")), UNCLAIMED, "Deleted", "disruption"),
        (a_pod(deadline=NOON - timedelta(hours=1)), a_head(), "Deleted", "disruption"),
        (an_ended_pod(code=80), a_head(), "Released", "disruption"),
        (an_ended_pod(code=81), a_head(), "Fenced", "disruption"),
        (an_ended_pod(code=82), a_head(), "StoreUnknown", "disruption"),
        (an_ended_pod(code=83), HALTED, "Halted", "disruption"),
        (an_ended_pod(code=83), a_head(), "Halted", "disruption"),
        (an_ended_pod(code=84), UNCLAIMED, "StartError", "start"),
        (an_ended_pod(code=128, reason="StartError"), UNCLAIMED, "StartError", "start"),
        (an_ended_pod(code=137, reason="OOMKilled"), a_head(), "OOMKilled", "memory"),
        (an_ended_pod(code=137, reason="OOMKilled", deadline=NOON), a_head(), "OOMKilled", "memory"),
        (an_ended_pod(code=137, reason="OOMKilled"), UNCLAIMED, "OutOfMemoryAtStart", "agent"),
        (an_ended_pod(code=0), a_head(), "ExitedWithoutOutcome", "agent"),
        (an_ended_pod(code=0), a_head(Phase.WAITING), "Waited", "disruption"),
        (an_ended_pod(code=1), a_head(Phase.WAITING), "AgentFailed", "agent"),
        (a_pod(phase="Succeeded", container=None), a_head(), "ExitedWithoutOutcome", "agent"),
        (an_ended_pod(code=137), a_head(), "Killed", "agent"),
        (an_ended_pod(code=3), a_head(), "AgentFailed", "agent"),
    ],
)
def test_the_end_of_a_pod_is_told_from_what_is_left(
    pod: PodSeen, head: HeadSummary, cause: str, fault: str
) -> None:
    end = classify(pod, head)

    assert (end.cause, end.fault) == (cause, Fault(fault))
    assert (end.fault is Fault.AGENT) == (end.cause in AGENT_CAUSES)
    assert pod.has_ended(NOON)


@pytest.mark.parametrize(
    ("pod", "ended"),
    [
        (a_pod(), False),
        (a_pod(container=None, phase="Pending"), False),
        (a_pod(container=None, phase="Unknown"), False),
        (a_pod(deadline=NOON + timedelta(seconds=60)), False),
        (a_pod(deadline=NOON), False),
        (a_pod(deadline=NOON - DELETION_MARGIN), True),
        (a_pod(gone=True), True),
        (a_pod(phase="Failed", container=None), True),
        (an_ended_pod(phase="Running"), True),
    ],
)
def test_a_pod_has_ended_only_when_it_can_do_nothing_more(pod: PodSeen, *, ended: bool) -> None:
    assert pod.has_ended(NOON) is ended


def test_what_the_executor_said_becomes_reason_and_message() -> None:
    said = json.dumps({"reason": "AgentRaised", "message": "no such file", "step": "read"})
    end = classify(an_ended_pod(code=3, said=said), a_head())

    assert end == End(1, "AgentFailed", Fault.AGENT, 3, "no such file", "AgentRaised", "node-1")
    assert phrase(end) == "failed with exit code 3: no such file"


def test_what_is_no_unicode_text_is_shown_and_passed_on_in_a_form_that_is() -> None:
    end = classify(an_ended_pod(code=3, said=r'{"message": "no file \udc80.md"}'), a_head())

    assert end.message == r"no file \udc80.md"


@pytest.mark.parametrize(
    "said", ["Traceback ...", '"text"', "[1]", '{"reason": "not a reason!", "message": "x"}']
)
def test_a_termination_log_of_another_program_gives_no_reason(said: str) -> None:
    end = classify(an_ended_pod(code=3, said=said), a_head())

    assert end.reason == ""
    assert end.message
