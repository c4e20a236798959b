"""What an executor finds changed around a run, and how the run goes on: by real processes that die."""

from __future__ import annotations

import json
import os

import pytest

from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, GateType
from milepost.checkpoint.records import Claimed, Halted, Remembered, Resumed, StepCompleted, Value, Withdrawn
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.values import read as read_value
from tests.support.at_gates import answer
from tests.support.sessions import Ended, RunOnDisk

ANEW = "RestartWithContext"


def begun(run: RunOnDisk, agent: str = "three", **spec: object) -> RunOnDisk:
    """Return the run after its first process died between two steps."""
    run.begin(f"changing:{agent}", spec=spec, world=str(run.world))
    assert go_on(run).code == -9
    return run


def go_on(run: RunOnDisk, **changes: str) -> Ended:
    return run.go_on(AGENT_WORLD=str(run.world), **changes)


def decide(run: RunOnDisk, what: AnswerType) -> None:
    (gate,) = run.head.head.gates
    assert gate.type == GateType.HALT
    answer = inbox.Answer(gate.id, what, by="ann", at="2026-03-01T00:00:00+00:00")
    assert inbox.give(run.store, run.keys, answer, Patience(os.urandom)) is answer


def last_halt(run: RunOnDisk) -> Halted:
    return run.events(Halted)[-1]


@pytest.mark.req("A7", "D8")
def test_a_claim_names_the_environment_that_its_steps_are_recorded_in(run: RunOnDisk) -> None:
    begun(run)
    (claimed,) = run.events(Claimed)
    assert (claimed.agent_version, dict(claimed.tools), dict(claimed.environment)) == (
        "1",
        {"search": "1", "send": "1"},
        {"model": "small"},
    )
    assert claimed.code_digest
    assert claimed.milepost_version


@pytest.mark.req("D4", "D8")
def test_the_same_environment_simply_goes_on(run: RunOnDisk) -> None:
    begun(run)
    assert go_on(run).code == 0
    assert run.lines("ran") == ["a", "b", "c"]
    assert run.events(Resumed) == []


@pytest.mark.req("D8", "D10", "D11")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"AGENT_VERSION": "2"}, "agent version was '1' and is '2'"),
        ({"AGENT_MODEL": "large"}, "environment model was 'small' and is 'large'"),
        ({"AGENT_TOOLS": "search:1"}, "tool send was '1' and is absent"),
        ({"AGENT_TOOLS": "search:1 send:2"}, "tool send was '1' and is '2'"),
        (
            {"AGENT_TOOLS": "web_search:1 extra:1"},
            "tool search was '1' and is absent; tool send was '1' and is absent",
        ),
    ],
    ids=["version", "model", "vanished", "changed", "renamed and added"],
)
def test_a_change_that_matters_halts_with_both_values_until_it_is_accepted(
    run: RunOnDisk, change: dict[str, str], says: str
) -> None:
    begun(run)
    for _ in range(2):
        halted = go_on(run, **change)
        assert (halted.code, halted.said["reason"]) == (83, "EnvironmentChanged")
        assert last_halt(run).message.endswith(says)
    assert run.lines("ran") == ["a", "b"]

    decide(run, AnswerType.ACCEPT)
    assert go_on(run, **change).code == 0
    assert run.lines("ran") == ["a", "b", "c"]
    (resumed,) = run.events(Resumed)
    assert resumed.strategy == "Exact"


@pytest.mark.req("D8", "D10")
@pytest.mark.parametrize(
    "change",
    [
        {"AGENT_VERSION": "2", "AGENT_RESUMES": "0 1"},
        {"AGENT_TOOLS": "search:1 send:1 extra:1"},
        {"MILEPOST_IMAGE": "agent@sha256:2"},
    ],
    ids=["a version that resumes it", "a tool more", "another image"],
)
def test_a_change_that_does_not_matter_is_noted_and_goes_on(run: RunOnDisk, change: dict[str, str]) -> None:
    begun(run)
    ended = go_on(run, **change)
    assert ended.code == 0
    assert run.events(Halted) == []


@pytest.mark.req("D8")
def test_an_environment_that_is_put_right_needs_no_decision(run: RunOnDisk) -> None:
    begun(run)
    assert go_on(run, AGENT_VERSION="2").code == 83
    assert go_on(run).code == 0
    assert run.head.head.gates == ()


@pytest.mark.req("D8")
def test_a_first_process_that_finds_no_agent_says_nothing_of_the_environment(run: RunOnDisk) -> None:
    run.begin("changing:three", world=str(run.world))
    assert (
        go_on(run, PYTHONPATH="/nowhere-at-all:" + run.environment()["PYTHONPATH"].partition(":")[2]).code
        == 83
    )
    assert go_on(run).code == -9
    assert go_on(run).code == 0


@pytest.mark.req("D5", "D8")
def test_another_environment_may_have_everything_checked_again(run: RunOnDisk) -> None:
    begun(run)
    (run.world / "no-b").touch()
    assert go_on(run, AGENT_VERSION="2").code == 83
    decide(run, AnswerType.REVALIDATE)
    assert go_on(run, AGENT_VERSION="2").code == 0
    assert run.lines("ran") == ["a", "b", "b", "c"]
    assert [each.step for each in run.events(Withdrawn)] == ["b"]


@pytest.mark.req("D6", "D8")
def test_another_environment_may_begin_anew_with_facts(run: RunOnDisk) -> None:
    begun(run)
    assert go_on(run, AGENT_VERSION="2").code == 83
    decide(run, AnswerType.RESTART_WITH_CONTEXT)
    assert go_on(run, AGENT_VERSION="2").code == 0
    # Of the same name and inputs: adopted, and not executed.
    assert run.lines("ran") == ["a", "b", "c"]
    assert [step.adopted for step in run.events(StepCompleted)] == ["", "", "a", "b", ""]
    assert read_value(run.store, run.keys, _result(run)) == ["a", "b", "fact a a", "fact b b", "c"]


def _result(run: RunOnDisk) -> Value:
    outcome = run.state.outcome
    assert outcome is not None
    assert outcome.kind == "finished"
    assert outcome.result is not None
    return outcome.result


@pytest.mark.req("D6")
def test_a_new_beginning_that_was_ordered_is_made_though_the_cause_is_another_one_each_time(
    run: RunOnDisk,
) -> None:
    begun(run, "moving")
    assert go_on(run).code == 83
    assert "is " in last_halt(run).message
    decide(run, AnswerType.RESTART_WITH_CONTEXT)
    assert go_on(run).code == 0
    assert run.lines("ran") == ["a0", "a2", "b"]


def test_a_record_that_was_accepted_stands_though_the_inputs_are_others_each_time(run: RunOnDisk) -> None:
    begun(run, "moving")
    assert go_on(run).code == 83
    decide(run, AnswerType.ACCEPT)
    assert go_on(run).code == 0
    assert run.lines("ran") == ["a0", "b"]


@pytest.mark.req("D6")
def test_a_new_beginning_that_was_ordered_is_made_though_its_cause_is_gone(run: RunOnDisk) -> None:
    begun(run, "wavering")
    assert go_on(run).said["reason"] == "Diverged"
    decide(run, AnswerType.RESTART_WITH_CONTEXT)
    assert go_on(run).code == 0
    assert run.state.executions == 1
    assert run.lines("ran") == ["a", "b", "c"]


@pytest.mark.req("D5")
def test_a_manifest_can_ask_for_checks_at_every_resume(run: RunOnDisk) -> None:
    begun(run, resume={"strategy": "Revalidate"})
    (run.world / "no-a").touch()
    assert go_on(run).code == 0
    assert run.lines("ran") == ["a", "b", "a", "b", "c"]


@pytest.mark.req("D6", "F1")
def test_a_run_that_always_begins_anew_goes_on_past_the_gate_that_it_came_to(run: RunOnDisk) -> None:
    run.begin("changing:asking", spec={"resume": {"strategy": "RestartWithContext"}}, world=str(run.world))
    quick = {"MILEPOST_LINGER_SECONDS": "0.1"}
    assert go_on(run, **quick).said["reason"] == "Waiting"
    answer(run)
    assert go_on(run, **quick).said["reason"] == "Completed"
    assert (run.lines("ran"), run.events(Resumed)) == (["a", "b for ann"], [])


@pytest.mark.req("D6", "E3")
@pytest.mark.parametrize(
    ("resume", "change"), [({"strategy": ANEW}, {}), ({"onEnvironmentChange": ANEW}, {"AGENT_VERSION": "2"})]
)
def test_no_run_begins_anew_while_nobody_knows_whether_a_call_had_its_effect(
    run: RunOnDisk, resume: dict[str, str], change: dict[str, str]
) -> None:
    begun(run, "launching", resume=resume)
    for _ in range(2):
        ended = go_on(run, **change)
        assert (ended.code, ended.said["reason"]) == (83, "OutcomeUnknown")
    assert run.events(Resumed) == []


@pytest.mark.req("D8")
def test_a_manifest_can_decide_beforehand(run: RunOnDisk) -> None:
    begun(run, resume={"onEnvironmentChange": "Accept"})
    assert go_on(run, AGENT_VERSION="2").code == 0
    (resumed,) = run.events(Resumed)
    assert (resumed.strategy, resumed.gate) == ("Exact", "")


@pytest.mark.req("D13")
@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"tools": ["search", "web_*"]}, "tool send is not allowed: the rule tools was none and is"),
        ({"approval": ["send"]}, "tool send does not require approval: the rule approval was none and is"),
        ({"images": ["agent@*"]}, "image other@sha256:2 is not allowed: the rule images was none and is"),
    ],
)
def test_what_todays_policy_forbids_halts_and_names_the_rule(
    run: RunOnDisk, policy: dict[str, object], says: str
) -> None:
    begun(run)
    halted = go_on(run, MILEPOST_POLICY=json.dumps(policy), MILEPOST_IMAGE="other@sha256:2")
    assert (halted.code, halted.said["reason"]) == (83, "PolicyChanged")
    assert last_halt(run).message.startswith(says)
    allowed = json.dumps({"tools": ["search", "send"], "images": ["agent@*"]})
    assert go_on(run, MILEPOST_POLICY=allowed, MILEPOST_IMAGE="agent@sha256:2").code == 0


@pytest.mark.req("D13")
@pytest.mark.parametrize("policy", [{"tools": ["search"]}, {"approval": ["shout"]}])
def test_a_tool_that_is_not_declared_is_held_to_the_policy_where_it_is_called(
    run: RunOnDisk, policy: dict[str, object]
) -> None:
    begun(run, "undeclared")
    halted = go_on(run, MILEPOST_POLICY=json.dumps(policy))
    assert (halted.code, halted.said["reason"], run.lines("ran")) == (83, "PolicyChanged", ["a"])
    assert last_halt(run).message.startswith("tool shout ")
    assert go_on(run, MILEPOST_POLICY=json.dumps({"tools": ["shout"]})).code == 0


@pytest.mark.req("D13")
def test_a_rule_that_was_there_from_the_beginning_is_named_once(run: RunOnDisk) -> None:
    run.begin("changing:undeclared", world=str(run.world))
    policy = json.dumps({"tools": ["search"]})
    assert go_on(run, MILEPOST_POLICY=policy).code == -9
    assert go_on(run, MILEPOST_POLICY=policy).said["reason"] == "PolicyChanged"
    assert last_halt(run).message == "tool shout is not allowed: the rule tools is ['search']"


@pytest.mark.req("D13", "G5")
def test_a_limit_counts_over_all_processes_and_a_higher_one_goes_on(run: RunOnDisk) -> None:
    begun(run)
    halted = go_on(run, MILEPOST_LIMITS=json.dumps({"steps": 2}))
    assert (halted.code, halted.said["reason"]) == (83, "LimitReached")
    assert go_on(run, MILEPOST_LIMITS=json.dumps({"steps": 3})).code == 0


@pytest.mark.req("B1")
@pytest.mark.parametrize(("granularity", "ran"), [("Phase", ["a", "b"] * 2), ("Step", ["a", "b"])])
def test_what_a_lost_process_repeats_of_a_phase_is_what_the_granularity_says(
    run: RunOnDisk, granularity: str, ran: list[str]
) -> None:
    begun(run, "phases", checkpoint={"granularity": granularity})
    assert go_on(run).code == 0
    assert run.lines("ran") == [*ran, "after"]


@pytest.mark.req("A4")
def test_memory_has_an_object_of_its_own_that_the_head_names(run: RunOnDisk) -> None:
    begun(run, "remembering")
    head = run.head.head
    copies = run.events(Remembered)
    assert head.memory == copies[-1].memory.blob
    assert read_value(run.store, run.keys, copies[-1].memory) == {"a": "a"}
    assert go_on(run).code == 0
    at_the_end = read_value(run.store, run.keys, run.events(Remembered)[-1].memory)
    assert at_the_end == {"a": "a", "b": "b", "c": "c"}
