"""A faulty store: what goes wrong is what the test says, and an agent comes to the same all the same."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from milepost import Run, agent
from milepost.checkpoint.store import Absent, Answer, Clash, Found, Refused, Stored, Undecided, Unknown
from milepost.errors import StoreRefused, StoreUnavailable
from milepost.testing import Delay, Drop, Fault, FaultyStore, Hold, Reply, simulate
from milepost.testing.faults import Action, Flip, Truncate

pytestmark = pytest.mark.req("S5")


def put(store: FaultyStore) -> Answer:
    return store.put_new("a", b"body", {})


@pytest.mark.parametrize(
    ("action", "told", "applied"),
    [
        (Drop(), Unknown("the connection was closed before an answer came"), False),
        (Drop(after=True), Unknown("the connection was closed before an answer came"), True),
        (Reply(503, "SlowDown"), Unknown("503 SlowDown: as the test asked"), False),
        (
            Reply(503, "SlowDown", headers={"Retry-After": "7"}),
            Unknown("503 SlowDown: as the test asked", 7.0),
            False,
        ),
        (Reply(500, "InternalError", after=True), Unknown("500 InternalError: as the test asked"), True),
        (Reply(409, "Conflict"), Undecided("409 Conflict: as the test asked"), False),
        (Reply(412, "PreconditionFailed"), Clash(), False),
        (Flip(upload=True), Unknown("the body was damaged on its way"), False),
        (Truncate(at=1, upload=True), Unknown("the body was damaged on its way"), False),
    ],
)
def test_a_write_goes_wrong_as_it_would_on_the_wire(action: Action, told: Answer, *, applied: bool) -> None:
    store = FaultyStore(Fault(action, method="PUT"))

    assert put(store) == told
    assert isinstance(store.store.get("a"), Found if applied else Absent)
    assert isinstance(put(store), Clash if applied else Stored)


def test_a_write_may_be_refused() -> None:
    answer = put(FaultyStore(Fault(Reply(403, "AccessDenied"), method="PUT")))

    assert isinstance(answer, Refused)
    assert answer.reason == "StoreForbidden"


@pytest.mark.parametrize("action", [Drop(), Reply(503, "SlowDown"), Truncate(at=1), Flip()])
def test_a_read_that_goes_wrong_finds_the_store_unavailable(action: Action) -> None:
    store = FaultyStore(Fault(action, method="GET"))
    put(store)

    with pytest.raises(StoreUnavailable):
        store.get("a")
    assert isinstance(store.get("a"), Found)


def test_reads_and_deletions_may_be_refused_too() -> None:
    store = FaultyStore(Fault(Reply(403, "AccessDenied"), times=2))

    with pytest.raises(StoreRefused, match="403 AccessDenied"):
        store.list("")
    with pytest.raises(StoreRefused, match="403 AccessDenied"):
        store.delete("a")


def test_a_read_may_be_damaged_without_anybody_noticing() -> None:
    store = FaultyStore(Fault(Flip(at=0, mended=True), method="GET"))
    put(store)

    found = store.get("a")
    assert isinstance(found, Found)
    assert found.body == b"cody"


def test_a_request_may_be_late() -> None:
    store = FaultyStore(Fault(Delay(0.01)), Fault(Delay(0.01, after=True), nth=2))

    assert isinstance(put(store), Stored)
    assert isinstance(put(store), Clash)
    assert store.requests == [("PUT", "a"), ("PUT", "a")]


@pytest.mark.parametrize("after", [False, True])
def test_a_request_may_be_held_and_lost(*, after: bool) -> None:
    hold = Hold(after=after, lost=True)
    store = FaultyStore(Fault(hold))
    told: list[Answer] = []
    sender = threading.Thread(target=lambda: told.append(put(store)))

    sender.start()
    assert hold.reached.wait(60)
    assert isinstance(store.store.get("a"), Found if after else Absent)
    store.faults.clear()
    sender.join()
    assert told == [Unknown("the connection was closed before an answer came")]


def double(number: int) -> int:
    return 2 * number


@agent(version="1")
async def doubling(run: Run) -> int:
    """Double three times."""
    number = 1
    for _ in range(3):
        number = await run.step("double", double, number)
    return number


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Drop(after=True), method="PUT", key="/head", nth=3),
        Fault(Drop(), method="PUT", key="/head", nth=3, times=2),
        Fault(Reply(503, "SlowDown"), key="/head", nth=2, times=2),
    ],
)
def test_an_agent_comes_to_the_same_on_a_store_that_fails_for_a_while(fault: Fault) -> None:
    sound: Any = simulate(doubling)

    ran = simulate(doubling, store=FaultyStore(fault))

    assert (ran.result, ran.steps, ran.records) == (8, sound.steps, sound.records)


def test_an_agent_does_not_go_on_where_the_store_says_no() -> None:
    store = FaultyStore(Fault(Reply(403, "AccessDenied"), method="PUT", key="/head", nth=4, times=99))

    with pytest.raises(AssertionError, match="exit code 84, StoreForbidden"):
        simulate(doubling, store=store)
