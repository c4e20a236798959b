"""The inbox: the first answer to a gate stands, whoever gives another, and events find their numbers."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, GateType, event_gate_id, gate_id
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found
from milepost.errors import Corrupt, StoreRefused, StoreUnavailable
from tests.support.histories import KEYS, NOON, some_patience
from tests.support.store_doubles import Fault, FaultyStore

GATE = gate_id(GateType.APPROVAL, "@publish", "d" * 64)
YES = Answer(GATE, AnswerType.APPROVE, "ann", NOON.isoformat(), "fine", {"rows": 3}, "d" * 64)
NO = Answer(GATE, AnswerType.DENY, "bob", NOON.isoformat())
PAID = Answer("", AnswerType.EVENT, "shop", NOON.isoformat(), answer=7)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


def given(store: FaultyStore, answer: Answer) -> Answer:
    return inbox.give(store, KEYS, answer, some_patience())


def sent(store: FaultyStore, name: str = "paid", key: str | None = None, event: Answer = PAID) -> int:
    return inbox.send_event(store, KEYS, name, key, event, some_patience())


def test_a_gate_that_nobody_has_answered_has_no_answer(store: FaultyStore) -> None:
    assert inbox.read(store, KEYS, GATE) is None


@pytest.mark.req("F3")
@pytest.mark.parametrize(
    "data",
    [None, 0, False, "", [], {"a": [1, 2.5, None]}, "ä\u2028\U0001f600", "a\ud800b", 2**64, "x" * 100_000],
)
def test_an_answer_reads_as_it_was_given(store: FaultyStore, data: Any) -> None:
    answer = replace(YES, answer=data, reason='no\nway "\\"')

    assert given(store, answer) is answer
    read = inbox.read(store, KEYS, GATE)

    assert read == answer
    assert repr(read) == repr(answer)


@pytest.mark.req("F3")
def test_the_first_answer_stands_and_who_is_second_gets_it(store: FaultyStore) -> None:
    assert given(store, YES) is YES
    assert given(store, NO) == YES
    assert given(store, replace(YES)) == YES
    assert inbox.read(store, KEYS, GATE) == YES


@pytest.mark.req("F3")
def test_of_many_who_answer_at_once_all_learn_of_the_same_one(store: FaultyStore) -> None:
    answers = [replace(YES, by=f"person {number}") for number in range(16)]

    with ThreadPoolExecutor(16) as pool:
        stand = list(pool.map(lambda answer: given(store, answer), answers))

    assert len(set(map(repr, stand))) == 1
    assert [mine is stands for mine, stands in zip(answers, stand, strict=True)].count(True) == 1


@pytest.mark.req("C4", "F3")
@pytest.mark.parametrize(
    "fault", [Fault.lost_answer(), Fault.lost_request(), Fault.conflict(), Fault.busy(), Fault.without_etag()]
)
def test_an_answer_whose_write_had_no_clear_end_is_given_once(store: FaultyStore, fault: Fault) -> None:
    store.next_puts(fault)

    assert given(store, YES) is YES
    assert inbox.read(store, KEYS, GATE) == YES
    assert given(store, NO) == YES


@pytest.mark.req("C4")
def test_one_that_was_second_though_it_was_told_nothing_learns_who_was_first(store: FaultyStore) -> None:
    store.next_puts(Fault(Fault.lost_answer().answer, applied=False, before=lambda: _sneak_in(store)))

    assert given(store, NO) == YES


def _sneak_in(store: FaultyStore) -> None:
    other = FaultyStore(inner=store.inner)
    given(other, YES)


def test_a_store_that_gives_no_answer_or_a_clear_no_is_an_error(store: FaultyStore) -> None:
    store.next_puts(*[Fault.lost_request()] * 100)
    with pytest.raises(StoreUnavailable):
        given(store, YES)
    store.next_puts(Fault.refused())
    with pytest.raises(StoreRefused):
        given(store, YES)
    store.next_gets_fail(1)
    with pytest.raises(StoreUnavailable):
        inbox.read(store, KEYS, GATE)


@pytest.mark.parametrize("data", [math.nan, math.inf, [1, -math.inf]])
def test_what_could_never_be_read_is_not_written(store: FaultyStore, data: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        given(store, replace(YES, answer=data))

    assert store.puts == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"format":1}',
        b'{"format":1,"gate":"GATE","type":"Perhaps","by":"","at":""}',
        b'{"format":1,"gate":"GATE","type":"Approve","by":3,"at":""}',
        b'{"format":1,"gate":"GATE","type":"Approve","by":"","at":"","more":1}',
        b'{"format":1,"gate":"GATE","gate":"GATE","type":"Approve","by":"","at":""}',
        b'{"format":1,"gate":"another","type":"Approve","by":"","at":""}',
        b'{"format":1,"gate":"GATE","type":["Approve"],"by":"","at":""}',
        b'{"format":1,"gate":"GATE","type":"Approve","by":"\xff","at":""}',
        b"[" * 100_000,
    ],
)
def test_an_object_that_is_no_answer_to_the_gate_is_corrupt(store: FaultyStore, body: bytes) -> None:
    key = KEYS.answer(GATE)
    store.put_new(key, body.replace(b"GATE", GATE.encode()), {})

    with pytest.raises(Corrupt) as found:
        inbox.read(store, KEYS, GATE)
    assert found.value.key == key


def test_an_answer_is_one_object_that_is_created_and_never_replaced(store: FaultyStore) -> None:
    given(store, YES)
    given(store, NO)

    assert [(put.key, put.etag) for put in store.puts] == [(KEYS.answer(GATE), "")] * 2
    assert KEYS.answer(GATE) == f"team/inbox/{KEYS.run_id}/{GATE}"


@pytest.mark.req("F2")
def test_events_of_one_name_and_key_are_numbered_in_the_order_in_which_they_are_sent(
    store: FaultyStore,
) -> None:
    events = [replace(PAID, answer=number) for number in range(5)]

    assert [sent(store, event=event) for event in events] == [1, 2, 3, 4, 5]
    assert [sent(store, key="k"), sent(store, name="refunded"), sent(store)] == [1, 1, 6]
    read = [inbox.read(store, KEYS, event_gate_id("paid", None, number)) for number in range(1, 6)]
    assert [each and each.answer for each in read] == [0, 1, 2, 3, 4]


@pytest.mark.req("F2")
def test_events_that_are_sent_at_once_all_come(store: FaultyStore) -> None:
    events = [replace(PAID, answer=number) for number in range(12)]

    with ThreadPoolExecutor(12) as pool:
        numbers = list(pool.map(lambda event: sent(store, event=event), events))

    assert sorted(numbers) == list(range(1, 13))
    read = [inbox.read(store, KEYS, event_gate_id("paid", None, number)) for number in numbers]
    assert [each and each.answer for each in read] == list(range(12))


@pytest.mark.req("C4")
def test_an_event_whose_answer_was_lost_is_there_once(store: FaultyStore) -> None:
    store.next_puts(Fault.lost_answer())

    assert [sent(store), sent(store)] == [1, 2]
    assert len(list(store.list(KEYS.inbox))) == 2


def test_an_event_costs_one_write_however_many_came_before(store: FaultyStore) -> None:
    for _ in range(20):
        sent(store)
    before = len(store.puts)

    sent(store)

    assert len(store.puts) == before + 1


def test_an_event_that_lies_where_the_gate_has_expired_is_not_overwritten(store: FaultyStore) -> None:
    expired = Answer(event_gate_id("paid", None, 1), AnswerType.EXPIRED, "", NOON.isoformat())
    given(store, expired)

    assert sent(store) == 2
    assert inbox.read(store, KEYS, expired.gate) == expired


def test_too_many_events_are_refused(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "_MOST_EVENTS", 3)
    assert [sent(store) for _ in range(3)] == [1, 2, 3]

    with pytest.raises(ValueError, match="there are 3 events 'paid' in the inbox"):
        sent(store)


@pytest.mark.req("F3")
def test_ids_of_gates_tell_type_place_request_execution_name_key_and_number_apart() -> None:
    ids = [
        gate_id(type_, place, digest, execution)
        for type_ in GateType
        for place in ("@a", "@b", "1:@a")
        for digest in ("", "d" * 64, "e" * 64)
        for execution in (0, 1)
    ] + [
        event_gate_id(name, key, number)
        for name in ("a", "b", "1")
        for key in (None, "", "a", "1", "None")
        for number in (1, 2, 11)
    ]

    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {20}
    assert all(each.isalnum() and each == each.lower() for each in ids)


def test_the_body_says_its_format(store: FaultyStore) -> None:
    inbox.give(store, KEYS, YES, Patience(os.urandom))

    found = store.get(KEYS.answer(GATE))
    assert isinstance(found, Found)
    assert found.body.startswith(b'{"format":1,"gate":"')
