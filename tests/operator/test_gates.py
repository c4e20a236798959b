"""Runs that wait at gates, or for a decision: no pod, until the inbox has an answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, Decided, Gate, GateOpened, GateType, Waiting
from milepost.checkpoint.history import HeadAt, summarize
from milepost.checkpoint.records import Halted
from milepost.checkpoint.runs import HeadSeen, Runs
from milepost_operator.shell.stores import _look_into_inbox
from tests.operator.conftest import Executor, World
from tests.support.builders import NOON
from tests.support.histories import a_claim, after, begin, some_patience
from tests.support.store_doubles import FaultyStore, Numbers


def a_gate(type_: GateType = GateType.APPROVAL, *, name: str = "publish", until: str = "") -> Gate:
    return Gate(id=f"g-{name}", type=type_, place=f"@{name}", name=name, since=NOON.isoformat(), until=until)


async def waiting(world: World, *gates: Gate) -> Executor:
    """Bring the run to where its first pod has come to these gates and ended."""
    world.apply()
    await world.settle()
    world.kubelet.run(world.pod(1))
    executor = Executor(world, 1)
    executor.step("draft")
    for gate in gates:
        executor.record(GateOpened(gate=gate))
    executor.record(Waiting())
    world.kubelet.exit(world.pod(1), 0)
    await world.settle()
    return executor


def answer(world: World, gate: Gate, type_: AnswerType = AnswerType.APPROVE) -> inbox.Answer:
    given = inbox.Answer(gate.id, type_, by="ann", at=NOON.isoformat())
    return inbox.give(world.store, keys(world), given, some_patience())


def keys(world: World) -> StoreKeys:
    return StoreKeys("team", world.run_id)


@pytest.mark.req("F1")
async def test_a_run_at_a_gate_keeps_no_pod_and_says_what_it_waits_for(world: World) -> None:
    await waiting(world, a_gate(), a_gate(GateType.EVENT, name="paid", until="2026-06-01T00:00:00+00:00"))
    for _ in range(3):
        await world.after(60)

    assert (world.status["phase"], world.reason, len(world.pods)) == ("Waiting", "Waiting", 1)
    message = world.status["conditions"][0]["message"]
    assert message == "waits for approval publish, event paid until 2026-06-01T00:00:00+00:00"
    assert world.status["failures"] == {}


@pytest.mark.req("F2")
async def test_an_answer_in_the_inbox_starts_the_next_pod(world: World) -> None:
    gate = a_gate()
    await waiting(world, gate)
    answer(world, gate)
    await world.after(15)

    assert [name[-1] for name in world.pods] == ["1", "2"]
    world.kubelet.run(world.pod(2))
    second = Executor(world, 2)
    second.record(
        Decided(gate=gate.id, place=gate.place, type=AnswerType.APPROVE, by="ann", at=NOON.isoformat())
    )
    await world.after(15)
    assert world.status["phase"] == "Running"
    # To wait is no loss, whoever's fault.
    assert (world.status["disruptions"], world.status["failures"]) == ({}, {})


@pytest.mark.req("F2")
@pytest.mark.parametrize(
    ("type_", "told"),
    [(GateType.SLEEP, AnswerType.DUE), (GateType.APPROVAL, AnswerType.EXPIRED)],
)
async def test_the_clock_passes_a_gate_whose_time_is_over(
    world: World, type_: GateType, told: AnswerType
) -> None:
    gate = a_gate(type_, until=(NOON + timedelta(seconds=100)).isoformat())
    await waiting(world, gate)
    await world.after(60)
    assert len(world.pods) == 1

    await world.after(60)
    assert len(world.pods) == 2
    given = inbox.read(world.store, keys(world), gate.id)
    assert given is not None
    assert (given.type, given.by) == (told, "operator")


async def test_an_answer_that_was_given_in_time_stands_whatever_the_clock_says_later(world: World) -> None:
    gate = a_gate(until=(NOON + timedelta(seconds=100)).isoformat())
    await waiting(world, gate)
    answer(world, gate)
    world.pass_time(3600)
    await world.after(15)
    given = inbox.read(world.store, keys(world), gate.id)
    assert given is not None
    assert given.type is AnswerType.APPROVE


@pytest.mark.req("D8")
async def test_a_halt_that_was_decided_goes_on(world: World) -> None:
    gate = Gate(
        id="g-halt",
        type=GateType.HALT,
        place="!environment",
        name="EnvironmentChanged",
        since=NOON.isoformat(),
        options=(AnswerType.ACCEPT,),
    )
    world.apply()
    await world.settle()
    world.kubelet.run(world.pod(1))
    Executor(world, 1).record(Halted(reason="EnvironmentChanged", message="it is another one", gate=gate))
    world.kubelet.exit(world.pod(1), 83)
    await world.after(60)
    assert (world.status["phase"], world.reason, len(world.pods)) == (Phase.HALTED, "EnvironmentChanged", 1)

    answer(world, gate, AnswerType.ACCEPT)
    await world.after(15)
    assert len(world.pods) == 2


async def test_an_approval_does_not_make_a_halted_run_go_on(world: World) -> None:
    approval = a_gate()
    halt = Gate(id="g-halt", type=GateType.HALT, place="step", name="Diverged", since=NOON.isoformat())
    world.apply()
    await world.settle()
    world.kubelet.run(world.pod(1))
    executor = Executor(world, 1)
    executor.record(GateOpened(gate=approval))
    executor.record(Halted(reason="Diverged", message="step b", gate=halt))
    world.kubelet.exit(world.pod(1), 83)
    answer(world, approval)
    await world.after(60)
    assert (world.status["phase"], len(world.pods)) == ("Halted", 1)


@pytest.mark.req("S8")
def test_looking_for_answers_asks_for_no_gate_by_itself() -> None:
    store = FaultyStore()
    opened = [GateOpened(gate=a_gate(name=f"g{number}")) for number in range(20)]
    head = after(
        begin(store, entropy=Numbers()).head, a_claim(1), *opened, Waiting(), entropy=Numbers(9)
    ).head
    runs = Runs(store, lambda: NOON, Numbers())
    seen = HeadSeen(summarize(head, store.uri), HeadAt(head, "etag"))
    store.gets.clear()

    assert not _look_into_inbox(runs, seen, NOON)
    inbox.give(
        store, head.keys, inbox.Answer("g-g7", AnswerType.APPROVE, "ann", NOON.isoformat()), some_patience()
    )
    assert _look_into_inbox(runs, seen, NOON)
    assert store.gets == []
