"""The queue, with a clock that only moves when told to."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from milepost_operator.shell.queue import Again, KeyedQueue, work
from tests.support.store_doubles import FakeTime

DONE = Again()


def a_queue() -> tuple[KeyedQueue[str], FakeTime]:
    time = FakeTime()
    return KeyedQueue(time.monotonic), time


def taken(queue: KeyedQueue[str]) -> list[str]:
    keys = []
    while (key := queue.take()) is not None:
        keys.append(key)
    return keys


def test_a_key_that_is_put_many_times_is_handled_once() -> None:
    queue, _ = a_queue()
    for key in ("a", "b", "a", "a"):
        queue.put(key)

    assert taken(queue) == ["a", "b"]


def test_a_key_that_is_put_while_it_is_handled_is_handled_again_afterwards() -> None:
    queue, _ = a_queue()
    queue.put("a")
    assert queue.take() == "a"
    queue.put("a")
    assert queue.take() is None

    queue.done("a", DONE)
    assert queue.take() == "a"


def test_a_key_comes_back_when_it_asked_to() -> None:
    queue, time = a_queue()
    queue.put("a")
    taken(queue)
    queue.done("a", Again(timedelta(seconds=10)))

    time.pause(9.9)
    assert queue.take() is None
    time.pause(0.1)
    assert queue.take() == "a"


def test_the_earliest_of_several_wishes_counts_and_only_once() -> None:
    queue, time = a_queue()
    for delay in (30, 10, 20):
        queue.put_after("a", delay)

    time.pause(60)
    assert taken(queue) == ["a"]


def test_an_event_makes_a_key_due_before_its_time_and_takes_its_place() -> None:
    queue, time = a_queue()
    queue.put_after("a", 10)
    queue.put("a")
    assert taken(queue) == ["a"]
    queue.done("a", DONE)

    time.pause(60)
    assert queue.take() is None


def test_failures_in_a_row_are_tried_again_later_and_later_up_to_a_minute() -> None:
    queue, time = a_queue()
    queue.put("a")
    assert queue.take() == "a"
    waits = []
    for _ in range(10):
        queue.done("a", Again(retry=True))
        start = time.monotonic()
        while queue.take() is None:
            time.pause(0.25)
        waits.append(time.monotonic() - start)

    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_success_forgets_the_failures() -> None:
    queue, time = a_queue()
    for again in (Again(retry=True), DONE, Again(retry=True)):
        queue.put("a")
        assert taken(queue) == ["a"]
        queue.done("a", again)

    time.pause(0.5)
    assert queue.take() == "a"


async def test_a_worker_waits_until_something_is_due() -> None:
    queue, time = a_queue()
    queue.put_after("a", 0)
    await asyncio.wait_for(queue.arrived(), 60)
    assert queue.take() == "a"

    waiting = asyncio.ensure_future(queue.arrived())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.put("b")
    await asyncio.wait_for(waiting, 60)
    assert time.monotonic() == 0


async def test_one_key_is_never_handled_twice_at_once_and_others_go_on() -> None:
    queue, _ = a_queue()
    open_door = asyncio.Event()
    entered = asyncio.Event()
    inside: set[str] = set()
    seen: list[str] = []
    three_seen = asyncio.Event()
    all_seen = asyncio.Event()

    async def handle(key: str) -> Again:
        assert key not in inside
        inside.add(key)
        seen.append(key)
        entered.set()
        if len(seen) == 3:
            three_seen.set()
        if key == "slow":
            await open_door.wait()
        inside.discard(key)
        if seen.count("slow") == 2:
            all_seen.set()
        return DONE

    workers = asyncio.create_task(work(queue, handle, 3))
    queue.put("slow")
    await asyncio.wait_for(entered.wait(), 60)
    for key in ("slow", "b", "c"):
        queue.put(key)
    await asyncio.wait_for(three_seen.wait(), 60)
    assert sorted(seen) == ["b", "c", "slow"]
    open_door.set()
    await asyncio.wait_for(all_seen.wait(), 60)
    workers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await workers


async def test_a_handler_that_raises_ends_the_workers_so_that_the_process_ends() -> None:
    queue, _ = a_queue()
    queue.put("a")

    async def handle(key: str) -> Again:
        raise LookupError(key)

    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(work(queue, handle, 2), 60)
