"""Which nodes are called silent, and when nobody is."""

from __future__ import annotations

from milepost_operator.shell.nodes import Nodes, Silence, renewals
from tests.support.store_doubles import FakeTime


def watched(time: FakeTime, nodes: Nodes, seconds: int, beating: set[str], *still: str) -> None:
    for _ in range(seconds // 5):
        time.pause(5)
        nodes.read({node: f"{time.monotonic()}" for node in beating} | dict.fromkeys(still, "once"))


def test_a_node_is_silent_once_its_lease_has_not_changed_for_half_a_minute() -> None:
    time = FakeTime()
    nodes = Nodes(time.monotonic)
    watched(time, nodes, 35, {"node-1"}, "node-2")
    assert nodes.silence() == Silence()

    watched(time, nodes, 5, {"node-1"}, "node-2")
    assert nodes.silence() == Silence(frozenset({"node-2"}))


def test_a_node_that_reports_again_is_not_silent() -> None:
    time = FakeTime()
    nodes = Nodes(time.monotonic)
    watched(time, nodes, 60, {"node-1"}, "node-2")
    watched(time, nodes, 5, {"node-1", "node-2"})

    assert nodes.silence() == Silence()


def test_a_node_that_is_gone_is_not_silent() -> None:
    time = FakeTime()
    nodes = Nodes(time.monotonic)
    watched(time, nodes, 60, {"node-1"}, "node-2")
    watched(time, nodes, 5, {"node-1"})

    assert nodes.silence() == Silence()


def test_more_than_half_of_the_nodes_together_are_the_control_planes_trouble() -> None:
    time = FakeTime()
    nodes = Nodes(time.monotonic)
    watched(time, nodes, 60, {"node-1"}, "node-2", "node-3")

    assert nodes.silence() == Silence(
        disturbed="2 of 3 nodes have stopped reporting at once; pods are left as they are"
    )


def test_own_reads_that_fail_call_nobody_silent() -> None:
    time = FakeTime()
    nodes = Nodes(time.monotonic)
    watched(time, nodes, 60, {"node-1"}, "node-2")
    time.pause(20)

    assert nodes.silence() == Silence(disturbed="the nodes' Leases cannot be read; pods are left as they are")


def test_after_a_gap_in_our_own_reads_everybody_gets_half_a_minute_again() -> None:
    time = FakeTime()
    nodes = Nodes(time.monotonic)
    watched(time, nodes, 60, {"node-1", "node-2"}, "node-3")
    time.pause(60)
    watched(time, nodes, 30, {"node-1", "node-2"}, "node-3")
    assert nodes.silence() == Silence()

    watched(time, nodes, 10, {"node-1", "node-2"}, "node-3")
    assert nodes.silence() == Silence(frozenset({"node-3"}))


def test_without_the_right_to_read_leases_nobody_is_ever_silent() -> None:
    time = FakeTime()
    nodes = Nodes(time.monotonic)
    nodes.forbidden()
    time.pause(3600)

    assert nodes.silence() == Silence()


def test_renewals_are_read_by_node() -> None:
    leases = [{"metadata": {"name": "node-1"}, "spec": {"renewTime": "t"}}, {"metadata": {"name": "node-2"}}]

    assert renewals(leases) == {"node-1": "t", "node-2": "None"}
