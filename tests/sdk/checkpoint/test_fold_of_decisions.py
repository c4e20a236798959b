"""The fold of what people and resumes decide: gates, withdrawals, new beginnings, intents, memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.api.resource import Phase
from milepost.checkpoint.base import make_base, parse_base
from milepost.checkpoint.fold import Place, State
from milepost.checkpoint.gates import AnswerType, Decided, Gate, GateOpened, GateType, Waiting
from milepost.checkpoint.head import Head, parse_head
from milepost.checkpoint.records import (
    OPERATOR,
    Degraded,
    Event,
    GroupClosed,
    Halted,
    Intended,
    Remembered,
    Resumed,
    StepSkipped,
    Usage,
    Value,
    Withdrawn,
)
from milepost.errors import Corrupt
from tests.support.histories import KEYS, NOON, a_call, a_claim, a_failure, a_new_head, a_place, a_step, after
from tests.support.store_doubles import Numbers

NAMES = st.sampled_from("abc")


def a_gate(name: str = "publish", type_: GateType = GateType.APPROVAL, *, number: int = 1) -> Gate:
    return Gate(
        id=f"{type_}-{name}-{number}", type=type_, place=f"@{name}", name=name, since=NOON.isoformat()
    )


def decided(gate: Gate) -> Decided:
    return Decided(gate=gate.id, place=gate.place, type=AnswerType.APPROVE, at=NOON.isoformat())


def an_intent(step: str, call: int = 1, *, effect: str = "verified") -> Intended:
    return Intended(
        step=step,
        call=call,
        tool="send",
        effect=effect,
        key=f"{'a' * 20}/{step}",
        arguments="0" * 64,
        attempt=1,
        started_at=NOON.isoformat(),
    )


EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(a_step, NAMES),
    st.builds(a_failure, NAMES, final=st.booleans()),
    st.builds(a_call, NAMES),
    st.builds(an_intent, NAMES, st.integers(1, 2)),
    st.builds(lambda name, number: GateOpened(gate=a_gate(name, number=number)), NAMES, st.integers(1, 2)),
    st.builds(lambda name, number: decided(a_gate(name, number=number)), NAMES, st.integers(1, 2)),
    st.builds(lambda name: Halted(reason="R", message="m", gate=a_gate(name, GateType.HALT)), NAMES),
    st.builds(lambda step, anew: Withdrawn(step=step, reason="r", anew=anew), NAMES, st.booleans()),
    st.builds(
        lambda strategy: Resumed(strategy=strategy, environment={"agent version": "2"}),
        st.sampled_from(["Exact", "Revalidate", "RestartWithContext"]),
    ),
    st.builds(
        lambda number, writer: a_claim(number, writer=writer, agent_version="1", code_digest=f"c{number}"),
        st.integers(1, 5),
        st.sampled_from(["pod-1", OPERATOR]),
    ),
    st.builds(lambda name: Remembered(memory=Value(blob=name * 64, size=1)), NAMES),
    st.builds(lambda name: Degraded(group=name, missing=("x",), have=1, need=2), NAMES),
    st.builds(lambda name: GroupClosed(group=name, steps=1), NAMES),
    st.builds(lambda name: StepSkipped(step=a_place(name), reason="no"), NAMES),
    st.builds(lambda names: Waiting(gates=tuple(f"Approval-{name}-1" for name in names)), st.sets(NAMES)),
)


def folded(*events: Event) -> tuple[Head, State]:
    """Return head and state after these events; those that no run would record there are left out."""
    entropy = Numbers()
    head, state = a_new_head(entropy=entropy), State()
    state.apply_all(head.records(), "k")
    for event in events:
        done = state.completed
        if isinstance(event, Withdrawn) and event.step not in done:
            continue
        if event.kind == "step_completed" and event.step.id in done:
            continue
        commit = after(head, event, entropy=entropy)
        head = commit.head
        state.apply(commit.record, head.chain, "k")
    return head, state


def test_a_gate_that_is_passed_closes_what_else_is_open_at_its_place() -> None:
    other = GateOpened(gate=a_gate(number=2))
    elsewhere = GateOpened(gate=a_gate("pay"))

    head, _ = folded(GateOpened(gate=a_gate()), elsewhere, other, decided(a_gate()))

    assert [gate.id for gate in head.gates] == [elsewhere.gate.id]


@pytest.mark.req("I12")
@settings(max_examples=400, deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_head_base_and_state_say_the_same(events: list[Event]) -> None:
    head, state = folded(*events)

    assert head.gates == tuple(state.gates.values())
    assert (head.totals, head.phase) == (state.totals, state.phase)
    assert parse_head(head.body(), KEYS) == head
    named, body = make_base(state, KEYS, "n")
    assert parse_base(body, named, KEYS) == state


def test_a_run_that_waits_has_only_those_gates_open_at_which_it_does() -> None:
    first, second = a_gate("pay"), a_gate("publish")
    opened = [GateOpened(gate=first), GateOpened(gate=second)]

    head, _ = folded(*opened, Waiting(gates=(second.id,)))
    assert [gate.id for gate in head.gates] == [second.id]

    head, _ = folded(*opened, Waiting())
    assert [gate.id for gate in head.gates] == [first.id, second.id]


def test_the_newest_executor_knows_in_which_phase_it_found_the_run() -> None:
    _, state = folded(a_claim(1), Waiting(), a_claim(1, writer=OPERATOR), a_claim(2))
    assert (state.found, state.phase) == (Phase.WAITING, Phase.RUNNING)


def test_a_gate_is_open_until_it_is_decided_or_another_opens_at_its_place() -> None:
    first, second = a_gate(number=1), a_gate(number=2)
    _, state = folded(GateOpened(gate=first), GateOpened(gate=second))
    assert list(state.gates) == [second.id]

    _, state = folded(GateOpened(gate=first), decided(first))
    assert (dict(state.gates), state.decisions) == ({}, {first.id: 3})


def test_a_halt_is_open_until_another_executor_looks_and_the_operator_is_none() -> None:
    halt = Halted(reason="R", message="m", gate=a_gate("x", GateType.HALT))
    waits = GateOpened(gate=a_gate("y"))
    _, state = folded(a_claim(1), waits, halt, a_claim(1, writer=OPERATOR))
    assert [gate.name for gate in state.gates.values()] == ["y", "x"]
    _, state = folded(a_claim(1), waits, halt, a_claim(2))
    assert [gate.name for gate in state.gates.values()] == ["y"]


def test_an_intent_is_open_until_its_call_is_answered() -> None:
    _, state = folded(an_intent("a"), a_call("a"))
    assert state.intents == {}
    _, state = folded(an_intent("a"), a_call("a").model_copy(update={"unconfirmed": True}))
    assert list(state.intents["a"]) == [1]
    _, state = folded(a_call("a"), an_intent("a"))
    assert list(state.intents["a"]) == [1]


def test_what_cannot_be_repeated_is_known_by_its_key_whatever_becomes_of_its_step() -> None:
    call = a_call("a").model_copy(update={"effect": "irreversible"})
    _, state = folded(call, a_step("a"), Withdrawn(step="a", reason="r", anew=True))
    assert state.once == {call.key: 2}


def test_a_withdrawn_step_is_open_again_with_keys_of_its_own_if_what_it_did_does_not_stand() -> None:
    _, state = folded(a_step("a"), a_step("b"), Withdrawn(step="a", reason="r", anew=True))
    assert list(state.completed) == ["b"]
    assert (state.withdrawn, state.generations, state.totals.steps_done) == ({"a": 4}, {"a": 1}, 1)
    _, state = folded(a_step("a"), Withdrawn(step="a", reason="r"), a_step("a"))
    assert (state.completed["a"].seq, state.generations) == (4, {})


def test_what_was_never_completed_cannot_be_withdrawn() -> None:
    head = a_new_head(entropy=Numbers())
    commit = after(head, Withdrawn(step="a", reason="r"), entropy=Numbers())
    state = State()
    state.apply_all(head.records(), "k")
    with pytest.raises(Corrupt, match="was not recorded as completed"):
        state.apply(commit.record, commit.head.chain, "k")


def test_a_new_beginning_makes_facts_of_what_was_completed() -> None:
    gate = a_gate()
    _, state = folded(
        a_claim(1, agent_version="1", code_digest="old"),
        a_step("a"),
        a_failure("b", final=True),
        GateOpened(gate=gate),
        decided(gate),
        Remembered(memory=Value(blob="d" * 64, size=1)),
        a_claim(2, agent_version="2", code_digest="new"),
        Resumed(strategy="RestartWithContext", environment={"agent version": "2"}),
    )
    assert (state.completed, state.failed, state.decisions) == ({}, {}, {})
    assert state.facts == {"a": Place(3, state.facts["a"].result_digest)}
    assert (state.executions, state.generations, state.memory_at_restart) == (1, {"a": 1}, 7)
    assert (state.began_with, state.codes, state.totals.steps_done) == ("2", {"new"}, 0)


def test_results_are_checked_again_until_their_branch_has_gone_on() -> None:
    deep = a_step("x").model_copy(
        update={"step": a_place("x").model_copy(update={"id": "1:0/2:1/x", "branch": "1:0/2:1"})}
    )
    _, state = folded(a_step("a"), Resumed(strategy="Revalidate"), deep)
    assert (state.revalidate, state.revalidated) == (3, {"1:0/2:1", "1:0", ""})


def test_what_models_used_counts_in_tries_that_failed_too() -> None:
    used = Usage(input_tokens=5, output_tokens=2, cost_nano_usd=30, models=("m",))
    failed = a_failure("a").model_copy(update={"usage": used})
    _, state = folded(failed, a_step("a").model_copy(update={"usage": used + used}))
    assert (state.totals.tokens, state.totals.cost_nano_usd) == (21, 90)
    assert (used + used).models == ("m",)


def test_the_environment_that_resumes_are_compared_with_is_the_first_that_found_the_agent() -> None:
    _, state = folded(a_claim(1), a_claim(2, agent_version="1"), a_claim(3, agent_version="2"))
    assert state.environment is not None
    assert state.environment["agent version"] == "1"
