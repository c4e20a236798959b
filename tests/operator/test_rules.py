"""What a pass decides: a test for each rule, and one for their order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from milepost.api.resource import CheckpointStatus, Condition, DeletionPolicy
from milepost.api.summary import NameState, Outcome
from milepost_operator.core.identity import is_adopted
from milepost_operator.core.observation import End, Fault
from milepost_operator.core.plan import (
    AT_ONCE,
    Adopt,
    CreatePod,
    DeletePod,
    EndRun,
    NoteOutcome,
    NoteRetention,
    Plan,
    StartRun,
    Supersede,
    Telling,
)
from milepost_operator.core.rules import RULES, plan
from tests.support.builders import (
    NOON,
    OTHER_UID,
    RUN_ID,
    Phase,
    StoreProblem,
    Waiting,
    a_head,
    a_name,
    a_pod,
    a_run,
    a_spec,
    an_ended_pod,
    an_observation,
)

FIVE_SECONDS = timedelta(seconds=5)


def test_the_order_of_the_rules_is_their_priority() -> None:
    assert [rule.__name__ for rule in RULES] == [
        "being_deleted",
        "accepted",
        "retention_changed",
        "settled",
        "invalid_spec",
        "store_unusable",
        "other_resource",
        "adopted",
        "finished",
        "cancelled",
        "rolled_back",
        "suspended",
        "disturbed",
        "new_run",
        "stale_attempts",
        "multiple_pods",
        "silent_node",
        "outdated_pod",
        "running",
        "waiting",
        "halted",
        "could_not_start",
        "out_of_memory",
        "agent_failed",
        "disrupted",
        "first_start",
    ]


@pytest.mark.req("K6")
def test_a_run_that_is_being_deleted_lets_its_pod_go_and_keeps_its_status() -> None:
    decided = plan(an_observation(a_run(deleted=True), a_pod()))

    stop = DeletePod("docs-xl66r-1", "pod-1", "the run is being deleted")
    assert decided == Plan(Phase.RUNNING, "Deleting", actions=(stop,), untouched=True)


def test_a_resource_that_nobody_has_looked_at_is_shown_as_accepted_first() -> None:
    seen = an_observation(a_run(phase=None), name=None, head=None)

    assert plan(seen) == Plan(Phase.PENDING, "Accepted", look_again_in=AT_ONCE)


def test_a_reported_end_stands_whatever_the_store_says_now() -> None:
    run = a_run(phase=Phase.SUCCEEDED, reason="Succeeded", completed=NOON)
    seen = an_observation(run, store_problem=StoreProblem("BucketMissing", "gone"), name=None, head=None)

    assert plan(seen) == Plan(Phase.SUCCEEDED, "Succeeded")


def test_a_pod_that_lingers_after_the_end_is_removed_once_it_had_time_to_exit() -> None:
    just_now = a_run(phase=Phase.SUCCEEDED, reason="Succeeded", completed=NOON - FIVE_SECONDS)
    long_ago = a_run(phase=Phase.SUCCEEDED, reason="Succeeded", completed=NOON - timedelta(minutes=1))

    assert plan(an_observation(just_now, a_pod())) == Plan(
        Phase.SUCCEEDED, "Succeeded", look_again_in=timedelta(seconds=25)
    )
    assert plan(an_observation(long_ago, a_pod())).actions == (
        DeletePod("docs-xl66r-1", "pod-1", "the run has ended"),
    )


@pytest.mark.req("K6")
@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.SUCCEEDED])
def test_a_name_that_keeps_the_run_otherwise_than_its_resource_says_is_set_right(phase: Phase) -> None:
    seen = an_observation(a_run(phase=phase), name=a_name(retention_s=60))

    assert plan(seen) == Plan(
        phase,
        "RetentionChanged",
        actions=(NoteRetention(DeletionPolicy.RETAIN, 30 * 24 * 3600),),
        look_again_in=AT_ONCE,
        untouched=True,
    )


@pytest.mark.parametrize(
    "more", [{"invalid": "spec.inputs: no"}, {"name": a_name(uid=OTHER_UID, retention_s=60)}]
)
def test_only_a_valid_resource_of_its_own_says_how_long_a_run_is_kept(more: dict[str, Any]) -> None:
    actions = plan(an_observation(a_run(), a_pod(), **{"name": a_name(retention_s=60), **more})).actions

    assert not any(isinstance(each, NoteRetention) for each in actions)


def test_a_change_after_the_end_is_not_taken_for_seen_while_the_store_does_not_answer() -> None:
    run = a_run(phase=Phase.SUCCEEDED, reason="Succeeded", completed=NOON)
    run = run.model_copy(update={"generation": 2})
    seen = an_observation(run, store_problem=StoreProblem("StoreUnavailable", "503"), name=None, head=None)

    assert plan(seen) == Plan(Phase.SUCCEEDED, "Succeeded", retry=True, untouched=True)


def test_an_invalid_spec_halts_and_says_which_field() -> None:
    decided = plan(an_observation(a_run(phase=Phase.PENDING), invalid="spec.inputs: too large"))

    told = Telling("InvalidSpec/1", "InvalidSpec", "spec.inputs: too large", "Warning")
    assert decided == Plan(Phase.HALTED, "InvalidSpec", "spec.inputs: too large", tell=(told,))


def test_a_store_that_cannot_be_used_keeps_the_phase_and_is_tried_again() -> None:
    problem = StoreProblem("BucketMissing", "there is no bucket b; make it")
    decided = plan(an_observation(a_run(), an_ended_pod(), name=None, head=None, store_problem=problem))

    told = Telling("BucketMissing/1", "BucketMissing", problem.message, "Warning")
    assert decided == Plan(Phase.RUNNING, "BucketMissing", problem.message, tell=(told,), retry=True)


def test_a_damaged_record_halts_and_starts_nothing() -> None:
    problem = StoreProblem("Corrupt", "head: not what was written", halts=True)
    decided = plan(an_observation(a_run(), an_ended_pod(), name=None, head=None, store_problem=problem))

    assert (decided.phase, decided.reason, decided.actions) == (Phase.HALTED, "Corrupt", ())


def test_another_spec_under_a_known_name_supersedes_the_run() -> None:
    seen = an_observation(a_run(attempt=0), name=a_name(uid=OTHER_UID, digest="f" * 64))

    assert plan(seen).actions == (Supersede(),)


@pytest.mark.req("K6")
def test_the_same_manifest_begins_anew_where_the_checkpoints_were_to_go_with_its_predecessor() -> None:
    name = a_name(uid=OTHER_UID, deletion_policy=DeletionPolicy.DELETE, cluster="cluster-1")
    seen = an_observation(a_run(attempt=0), name=name, cluster="cluster-1")

    decided = plan(seen)

    assert (decided.actions, decided.message) == (
        (Supersede(),),
        f"the name stood for run {RUN_ID}, whose checkpoints go with its resource",
    )


@pytest.mark.req("S6")
def test_a_lost_clusters_run_is_adopted_whatever_was_to_become_of_its_checkpoints() -> None:
    name = a_name(uid=OTHER_UID, deletion_policy=DeletionPolicy.DELETE, cluster="lost")
    seen = an_observation(a_run(attempt=0), name=name, head=a_head(uid=OTHER_UID), cluster="cluster-1")

    assert plan(seen).actions == (Adopt(),)


@pytest.mark.req("C5", "S6")
def test_a_run_whose_checkpoints_have_expired_is_reported_from_its_name_alone() -> None:
    name = a_name(uid=OTHER_UID, state=NameState.EXPIRED, outcome="Failed")
    seen = an_observation(a_run(phase=Phase.PENDING, attempt=0), name=name, head=None)
    message = (
        f"run {RUN_ID} ended as Failed; its checkpoints were kept for as long as spec.retentionSeconds said, "
        "and its result is gone with them"
    )

    assert plan(seen) == Plan(
        Phase.FAILED, "Expired", message, tell=(Telling(f"Expired/{RUN_ID}", "Expired", message),)
    )
    assert is_adopted(seen)


def test_a_run_is_reported_from_its_name_while_its_checkpoints_are_being_deleted() -> None:
    name = a_name(uid=OTHER_UID, state=NameState.EXPIRED, outcome="Succeeded")
    seen = an_observation(a_run(phase=Phase.PENDING, attempt=0), name=name, head=a_head(Phase.DELETING))

    assert (plan(seen).phase, plan(seen).reason) == (Phase.SUCCEEDED, "Expired")


def test_another_spec_supersedes_a_run_whose_checkpoints_have_expired() -> None:
    name = a_name(uid=OTHER_UID, digest="f" * 64, state=NameState.EXPIRED, outcome="Succeeded")

    assert plan(an_observation(a_run(attempt=0), name=name, head=None)).actions == (Supersede(),)


def test_a_generated_name_is_never_taken_for_an_earlier_run() -> None:
    run = a_run(attempt=0, generate_name="docs-")

    assert plan(an_observation(run, name=a_name(uid=OTHER_UID))).actions == (Supersede(),)


def test_the_same_manifest_applied_again_adopts_the_run() -> None:
    seen = an_observation(a_run(attempt=0), name=a_name(uid=OTHER_UID), head=a_head(uid=OTHER_UID))

    assert plan(seen).actions == (Adopt(),)


def test_an_adoption_that_was_cut_off_before_the_claim_is_finished() -> None:
    assert plan(an_observation(a_run(attempt=0), head=a_head(uid=OTHER_UID))).actions == (Adopt(),)


def test_a_finished_run_of_another_resource_is_only_reported() -> None:
    head = a_head(Phase.SUCCEEDED, uid=OTHER_UID, outcome=Outcome("Succeeded"))
    decided = plan(an_observation(a_run(attempt=0), name=a_name(outcome="Succeeded"), head=head))

    assert (decided.phase, decided.actions) == (Phase.SUCCEEDED, ())


@pytest.mark.req("K5")
def test_the_log_decides_even_where_the_container_was_killed() -> None:
    head = a_head(Phase.SUCCEEDED, steps=10, outcome=Outcome("Succeeded"))
    decided = plan(an_observation(a_run(), an_ended_pod(code=137), head=head))

    told = Telling(f"Finished/{RUN_ID}", "Succeeded", "10 steps are recorded")
    assert decided == Plan(Phase.SUCCEEDED, "Succeeded", "", (NoteOutcome("Succeeded"),), (told,))


def test_a_failure_in_the_log_keeps_its_reason_and_message() -> None:
    head = a_head(Phase.FAILED, outcome=Outcome("StepFailed", "step fetch failed after 3 attempts"))
    decided = plan(an_observation(a_run(), an_ended_pod(code=0), head=head, name=a_name(outcome="Failed")))

    assert (decided.phase, decided.reason, decided.message, decided.actions) == (
        Phase.FAILED,
        "StepFailed",
        "step fetch failed after 3 attempts",
        (),
    )


def test_cancelling_closes_the_log_before_it_stops_the_pod() -> None:
    decided = plan(an_observation(a_run(a_spec(cancel=True)), a_pod()))

    assert decided.actions == (
        EndRun(Phase.CANCELLED, "Cancelled", "spec.cancel was set"),
        DeletePod("docs-xl66r-1", "pod-1", "the run is cancelled"),
    )


def test_cancelling_beats_suspending_and_restarting() -> None:
    decided = plan(an_observation(a_run(a_spec(cancel=True, suspend=True)), an_ended_pod()))

    assert decided.reason == "Cancelling"


def test_a_run_that_is_cancelled_before_it_began_leaves_no_record() -> None:
    run = a_run(a_spec(cancel=True), phase=Phase.PENDING, attempt=0)

    assert plan(an_observation(run, name=None, head=None)) == Plan(
        Phase.CANCELLED, "Cancelled", "it was cancelled before it began"
    )


def test_suspending_lets_the_pod_finish_its_step() -> None:
    decided = plan(an_observation(a_run(a_spec(suspend=True)), a_pod()))

    assert decided.phase is Phase.SUSPENDED
    assert decided.actions == (DeletePod("docs-xl66r-1", "pod-1", "the run is suspended"),)


def test_a_suspended_run_starts_nothing() -> None:
    for pods in ((), (an_ended_pod(),)):
        assert plan(an_observation(a_run(a_spec(suspend=True)), *pods)).actions == ()


def test_a_suspended_run_goes_on_without_a_loss_being_counted() -> None:
    decided = plan(an_observation(a_run(phase=Phase.SUSPENDED), an_ended_pod(deadline=NOON)))

    end = End(1, "Suspended", Fault.DISRUPTION, 80, node="node-1")
    assert decided.actions == (CreatePod(2, end, resumes_after="5/10"),)
    assert decided.tell == ()


def test_a_run_that_is_let_go_on_at_once_remembers_until_its_pod_has_ended_that_it_was_suspended() -> None:
    run = a_run(phase=Phase.SUSPENDED)

    decided = plan(an_observation(run, a_pod(deadline=NOON + timedelta(seconds=40))))

    assert (decided.phase, decided.reason, decided.actions) == (Phase.SUSPENDED, "PodTerminating", ())


def test_nothing_is_touched_while_the_control_plane_is_disturbed() -> None:
    decided = plan(an_observation(a_run(), an_ended_pod(), disturbed="2 of 2 nodes are silent"))

    assert decided == Plan(
        Phase.RUNNING,
        "ControlPlaneDisturbed",
        "2 of 2 nodes are silent",
        look_again_in=timedelta(seconds=10),
    )


def test_a_name_that_stands_for_nothing_begins_a_run() -> None:
    seen = an_observation(a_run(phase=Phase.PENDING, attempt=0), name=None, head=None)

    assert plan(seen).actions == (StartRun(),)


def test_a_pod_of_an_older_attempt_is_removed() -> None:
    decided = plan(an_observation(a_run(attempt=2), a_pod(1), a_pod(2)))

    assert decided.actions == (DeletePod("docs-xl66r-1", "pod-1", "attempt 2 has taken over"),)


def test_two_pods_of_one_attempt_are_left_to_a_person() -> None:
    decided = plan(an_observation(a_run(), a_pod(1), a_pod(1, name="by-hand", uid="x")))

    assert (decided.reason, decided.actions) == ("MultiplePods", ())
    assert decided.message == "by-hand and docs-xl66r-1 both say that they are attempt 1; delete one"


@pytest.mark.req("K1")
def test_a_pod_on_a_silent_node_is_replaced_on_another() -> None:
    decided = plan(an_observation(a_run(), a_pod(), silent_nodes=frozenset({"node-1"})))

    end = End(1, "NodeSilent", Fault.DISRUPTION, node="node-1")
    assert decided.actions == (
        CreatePod(2, end, avoid=frozenset({"node-1"}), in_a_row=0, resumes_after="5/10"),
    )


def test_a_pod_that_never_began_makes_way_for_another_image() -> None:
    stuck = a_pod(container=Waiting("ImagePullBackOff"), phase="Pending", image="registry.example/typo:1")

    assert plan(an_observation(a_run(), stuck)).actions == (
        DeletePod("docs-xl66r-1", "pod-1", "spec.agent.image has changed"),
    )


def test_a_pod_that_is_long_in_starting_says_where_to_look() -> None:
    pod = a_pod(container=None, phase="Pending", created=NOON - timedelta(seconds=21))
    seen = an_observation(a_run(attempt=1), pod)

    decided = plan(seen)

    assert (decided.phase, decided.reason) == (Phase.PENDING, "NotStarting")
    assert f"kubectl describe pod {pod.name}" in decided.message
    assert [told.reason for told in decided.tell] == ["NotStarting"]


def test_a_pod_that_has_just_been_bound_is_starting_and_looked_at_again_in_time() -> None:
    pod = a_pod(container=None, phase="Pending", created=NOON - timedelta(seconds=5))

    decided = plan(an_observation(a_run(attempt=1), pod))

    assert (decided.reason, decided.tell) == ("Starting", ())
    assert decided.look_again_in == timedelta(seconds=15)


def test_a_pod_that_fits_only_where_it_must_not_go_is_made_anew_when_that_node_reports_again() -> None:
    pod = a_pod(
        2, container=None, phase="Pending", node="", unschedulable="0/1", avoids=frozenset({"node-1"})
    )
    still_silent = an_observation(a_run(attempt=2), pod, silent_nodes=frozenset({"node-1"}))
    back = an_observation(a_run(attempt=2), pod)

    assert (plan(still_silent).reason, plan(still_silent).actions) == ("Unschedulable", ())
    assert [type(action) for action in plan(back).actions] == [DeletePod]


def test_a_pod_that_runs_keeps_its_image_until_the_next_one() -> None:
    assert plan(an_observation(a_run(), a_pod(image="registry.example/agent:0"))).actions == ()


def test_a_running_pod_is_shown() -> None:
    told = Telling("Started/1", "Started", "attempt 1 has started on node-1")

    assert plan(an_observation(a_run(), a_pod())) == Plan(
        Phase.RUNNING, "Running", "attempt 1 on node-1", tell=(told,), look_again_in=timedelta(seconds=10.5)
    )


@pytest.mark.req("K2")
def test_a_resumed_pod_tells_where_it_goes_on_and_why() -> None:
    pod = a_pod(2, node="node-2", previous_end=End(1, "Evicted", Fault.DISRUPTION), resumes_after="5/10")

    assert plan(an_observation(a_run(attempt=2), pod)).tell == (
        Telling(
            "Resumed/2",
            "Resumed",
            "attempt 2 on node-2 goes on after 5/10 steps; the previous pod was evicted",
        ),
    )


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"]
)
def test_a_pod_that_cannot_start_says_why_and_is_not_replaced(reason: str) -> None:
    decided = plan(
        an_observation(a_run(), a_pod(container=Waiting(reason, "no such thing"), phase="Pending"))
    )

    assert (decided.phase, decided.reason, decided.message, decided.actions) == (
        Phase.PENDING,
        reason,
        "no such thing",
        (),
    )


def test_a_pod_that_no_node_fits_says_so() -> None:
    pod = a_pod(container=None, phase="Pending", node="", unschedulable="0/2 nodes: insufficient cpu")

    assert plan(an_observation(a_run(), pod)).reason == "Unschedulable"


def test_a_pod_that_is_being_deleted_is_waited_for() -> None:
    decided = plan(an_observation(a_run(), a_pod(deadline=NOON + timedelta(seconds=40))))

    assert decided == Plan(
        Phase.RUNNING,
        "PodTerminating",
        "attempt 1 on node-1 is finishing its step",
        look_again_in=timedelta(seconds=40),
    )


def test_a_run_at_a_gate_runs_nothing() -> None:
    decided = plan(an_observation(a_run(), an_ended_pod(code=0), head=a_head(Phase.WAITING)))

    assert (decided.phase, decided.actions) == (Phase.WAITING, ())


def test_a_halted_run_starts_nothing() -> None:
    head = a_head(Phase.HALTED, outcome=Outcome("EntrypointNotFound", "no module named docs"))
    decided = plan(an_observation(a_run(), an_ended_pod(code=83), head=head))

    assert (decided.phase, decided.reason, decided.message, decided.actions) == (
        Phase.HALTED,
        "EntrypointNotFound",
        "no module named docs",
        (),
    )


def test_an_executor_that_halted_and_could_not_record_it_is_not_followed_by_another() -> None:
    pod = an_ended_pod(code=83, said='{"reason": "Corrupt", "message": "segment 4 is not what was written"}')
    decided = plan(an_observation(a_run(), pod))

    assert (decided.phase, decided.reason, decided.actions) == (Phase.HALTED, "Corrupt", ())
    assert decided.message == "segment 4 is not what was written; delete pod docs-xl66r-1 to try again"


def test_a_halted_run_goes_on_with_another_image() -> None:
    head = a_head(Phase.HALTED, outcome=Outcome("EntrypointNotFound", "no module named docs"))
    decided = plan(an_observation(a_run(a_spec(image="agent:2")), an_ended_pod(code=83), head=head))

    assert [action.attempt for action in decided.actions if isinstance(action, CreatePod)] == [2]


@pytest.mark.parametrize(
    ("limits", "goes_on"),
    [
        ({"steps": 5}, False),
        ({"steps": 6}, True),
        ({}, True),
        ({"steps": 6, "tokens": 100}, False),
        ({"tokens": 101, "costUSD": 0.5}, False),
        ({"tokens": 101, "costUSD": 0.51}, True),
    ],
)
def test_a_run_that_halted_at_a_limit_goes_on_once_there_is_room(
    limits: dict[str, float], *, goes_on: bool
) -> None:
    head = a_head(
        Phase.HALTED,
        outcome=Outcome("LimitReached", "spec.limits.steps is 5 and 5 are used"),
        steps=5,
        tokens=100,
        cost_nano_usd=500_000_000,
    )
    decided = plan(an_observation(a_run(a_spec(limits=limits)), an_ended_pod(code=83), head=head))

    assert [isinstance(action, CreatePod) for action in decided.actions] == [True] * goes_on


def test_a_halted_run_goes_on_with_another_version() -> None:
    head = a_head(Phase.HALTED, outcome=Outcome("VersionMismatch", "the image says 2"))
    decided = plan(an_observation(a_run(a_spec(version="2")), an_ended_pod(code=83), head=head))

    assert [action.attempt for action in decided.actions if isinstance(action, CreatePod)] == [2]


@pytest.mark.req("K1")
def test_an_evicted_pod_is_replaced_at_once() -> None:
    evicted = an_ended_pod(deadline=NOON, disruption="EvictionByEvictionAPI", ago=0)
    decided = plan(an_observation(a_run(), evicted))

    end = End(1, "Evicted", Fault.DISRUPTION, 80, node="node-1")
    told = Telling(
        "Disrupted/1",
        "Disrupted",
        "the pod of attempt 1 on node-1 was evicted; the run goes on in another",
    )
    assert decided == Plan(
        Phase.PENDING,
        "Resuming",
        "attempt 1 was evicted; attempt 2 is starting",
        (CreatePod(2, end, resumes_after="5/10"),),
        (told,),
    )


@pytest.mark.req("K1")
def test_a_pod_that_is_gone_without_a_trace_is_replaced_at_once() -> None:
    decided = plan(an_observation(a_run()))

    end = End(1, "PodGone", Fault.DISRUPTION)
    assert decided.actions == (CreatePod(2, end, resumes_after="5/10"),)


def test_an_agents_own_failure_is_tried_again_after_a_pause() -> None:
    just_now = an_observation(a_run(), an_ended_pod(code=3, ago=0))
    later = an_observation(a_run(), an_ended_pod(code=3, ago=1))

    assert (plan(just_now).actions, plan(just_now).look_again_in) == ((), timedelta(seconds=1))
    assert plan(later).actions == (
        CreatePod(2, End(1, "AgentFailed", Fault.AGENT, 3, node="node-1"), resumes_after="5/10"),
    )


def test_the_pause_doubles_with_each_failure() -> None:
    run = a_run(a_spec(executor_failures=9), attempt=4, failures={"AgentFailed": 3})
    seen = an_observation(run, an_ended_pod(4, code=3, ago=0), head=a_head(attempt=4))

    assert plan(seen).look_again_in == timedelta(seconds=8)


@pytest.mark.req("K1")
def test_the_run_fails_when_its_pods_have_failed_often_enough() -> None:
    run = a_run(attempt=3, failures={"AgentFailed": 1, "Killed": 1})
    pod = an_ended_pod(3, code=3, said='{"reason": "AgentRaised", "message": "no such file", "step": "read"}')
    message = "3 pods failed by the agent's own fault; attempt 3 failed with exit code 3: no such file"

    assert plan(an_observation(run, pod, head=a_head(attempt=3))).actions == (
        EndRun(Phase.FAILED, "ExecutorFailed", message),
    )


def test_what_earlier_resources_of_the_name_lost_counts_too() -> None:
    head = a_head(attempt=7, ends={"AgentFailed": 2, "Evicted": 4})
    decided = plan(an_observation(a_run(attempt=7), an_ended_pod(7, code=3), head=head))

    assert decided.reason == "ExecutorFailed"


@pytest.mark.req("K1", "F-A8")
def test_running_out_of_memory_at_one_step_has_its_own_limit() -> None:
    pod = an_ended_pod(code=137, reason="OOMKilled")
    twice = an_observation(a_run(failures={"AgentFailed": 2}), pod, head=a_head(oom_at_step=1))
    thrice = an_observation(a_run(), pod, head=a_head(oom_at_step=2))

    assert [type(action) for action in plan(twice).actions] == [CreatePod]
    assert [action.reason for action in plan(thrice).actions if isinstance(action, EndRun)] == ["OOMLoop"]


def test_exit_code_0_without_an_outcome_is_a_failure() -> None:
    decided = plan(an_observation(a_run(a_spec(executor_failures=1)), an_ended_pod(code=0)))

    assert decided.reason == "ExecutorFailed"
    assert "exited with code 0 and recorded no outcome" in decided.message


def test_a_pod_that_could_not_start_is_tried_again_later_and_later() -> None:
    said = '{"reason": "StoreForbidden", "message": "403; allow s3:PutObject", "step": ""}'
    first = an_observation(a_run(), an_ended_pod(code=84, said=said, ago=0), head=a_head(attempt=0))
    third = an_observation(
        a_run(attempt=3), an_ended_pod(3, code=84, said=said, ago=0, in_a_row=2), head=a_head(attempt=0)
    )

    assert (plan(first).reason, plan(first).actions) == ("StoreForbidden", ())
    assert plan(first).look_again_in == timedelta(seconds=15)
    assert plan(third).look_again_in == timedelta(seconds=60)


def test_pods_that_never_claim_are_not_replaced_without_a_pause_for_ever() -> None:
    refused = a_pod(3, phase="Failed", container=None, pod_reason="NodeAffinity", in_a_row=3, created=NOON)
    decided = plan(an_observation(a_run(attempt=3), refused, head=a_head(attempt=0)))

    assert (decided.actions, decided.look_again_in) == ((), timedelta(seconds=4))


@pytest.mark.parametrize(
    ("resumed_after", "pause"),
    [("5/10", timedelta(seconds=2)), ("4/10", None)],
    ids=["no-step-recorded", "a-step-recorded"],
)
def test_pods_that_are_lost_at_one_step_again_and_again_are_replaced_after_a_growing_pause(
    resumed_after: str, pause: timedelta | None
) -> None:
    evicted = an_ended_pod(
        3, ago=0, disruption="TerminationByKubelet", in_a_row=2, resumes_after=resumed_after
    )
    decided = plan(an_observation(a_run(attempt=3), evicted, head=a_head(attempt=3)))

    assert (bool(decided.actions), decided.look_again_in) == (pause is None, pause)


def test_the_first_attempt_starts_with_nothing_to_say_of_an_earlier_one() -> None:
    seen = an_observation(a_run(phase=Phase.PENDING, attempt=0), head=a_head(attempt=0, steps=0))

    assert plan(seen) == Plan(Phase.PENDING, "Starting", "attempt 1 is starting", (CreatePod(1),))


def test_an_adopted_run_goes_on_after_the_attempts_of_its_log() -> None:
    seen = an_observation(a_run(phase=Phase.PENDING, attempt=0), head=a_head(attempt=4))

    end = End(4, "Adopted", Fault.DISRUPTION)
    assert plan(seen).actions == (CreatePod(5, end, resumes_after="5/10"),)


def test_the_attempt_follows_the_highest_number_that_anybody_has_heard_of() -> None:
    seen = an_observation(a_run(attempt=2), an_ended_pod(3), head=a_head(attempt=5))

    assert [a.attempt for a in plan(seen).actions if isinstance(a, CreatePod)] == [6]


def test_a_predecessors_pod_has_to_end_before_another_starts() -> None:
    left = a_pod(1, owned=False, deadline=NOON + timedelta(seconds=20))
    seen = an_observation(a_run(phase=Phase.PENDING, attempt=0), left, head=a_head(attempt=2))

    assert (plan(seen).reason, plan(seen).actions) == ("WaitingForPod", ())


def test_a_predecessors_pod_that_nobody_deletes_is_removed() -> None:
    left = a_pod(1, owned=False)
    seen = an_observation(a_run(phase=Phase.PENDING, attempt=0), left)

    assert [type(action) for action in plan(seen).actions] == [DeletePod]


def test_only_the_last_ended_pods_stay_for_their_logs() -> None:
    pods = [an_ended_pod(attempt) for attempt in range(1, 6)]
    decided = plan(an_observation(a_run(attempt=6), *pods, a_pod(6)))

    assert [action.name for action in decided.actions if isinstance(action, DeletePod)] == [
        "docs-xl66r-2",
        "docs-xl66r-1",
    ]


def test_the_spec_of_a_known_run_stands_although_the_resource_says_otherwise() -> None:
    run = a_run(a_spec(inputs={"folder": "other"}))

    assert plan(an_observation(run, a_pod())).actions == ()


def test_an_adopted_condition_survives_the_pass() -> None:
    shown = Condition(
        type="Adopted", status="True", reason="SameSpec", last_transition_time="2026-03-01T11:00:00Z"
    )

    assert plan(an_observation(a_run(conditions=(shown,)), a_pod())).phase is Phase.RUNNING


@pytest.mark.req("I4", "I6")
@pytest.mark.parametrize(("epoch", "seq"), [(3, 49), (2, 50), (2, 80), (3, 21), (1, 1)])
def test_no_pod_is_started_on_a_store_that_went_back(epoch: int, seq: int) -> None:
    known = CheckpointStatus(seq=50, epoch=3, digest="a" * 64)
    seen = an_observation(a_run(checkpoint=known), an_ended_pod(), head=a_head(epoch=epoch, seq=seq))

    decided = plan(seen)

    assert (decided.phase, decided.reason, decided.actions) == (Phase.HALTED, "RolledBack", ())
    assert decided.doubted, "a cached head may be older than the status"
    assert f"record {seq} of epoch {epoch}" in decided.message
    assert "record 50 of epoch 3" in decided.message
    assert "milepost store repair --as-it-is --dry-run URL team/docs" in decided.message


@pytest.mark.req("I6")
@pytest.mark.parametrize(("epoch", "seq"), [(3, 50), (3, 51), (4, 51)])
def test_a_store_that_is_ahead_of_the_status_is_believed(epoch: int, seq: int) -> None:
    known = CheckpointStatus(seq=50, epoch=3, digest="a" * 64)
    seen = an_observation(a_run(checkpoint=known), a_pod(), head=a_head(epoch=epoch, seq=seq))

    assert plan(seen).reason == "Running"


def test_what_the_status_says_of_another_run_is_not_held_against_this_one() -> None:
    known = CheckpointStatus(seq=50, epoch=3, digest="a" * 64)
    run = a_run(checkpoint=known)
    status = run.status.model_copy(update={"run_id": "b" * 20})
    seen = an_observation(run.model_copy(update={"status": status}), a_pod(), head=a_head(seq=2))

    assert plan(seen).reason == "Running"


def test_a_run_whose_store_went_back_can_be_cancelled() -> None:
    known = CheckpointStatus(seq=50, epoch=3, digest="a" * 64)
    seen = an_observation(a_run(a_spec(cancel=True), checkpoint=known), head=a_head(seq=2))

    assert plan(seen).reason == "Cancelling"
