"""Whatever lies in a bucket is read or refused, in bounded time, with errors that callers know."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.api.summary import NameRecord
from milepost.checkpoint import inbox
from milepost.checkpoint.base import make_base, parse_base
from milepost.checkpoint.fold import State
from milepost.checkpoint.formats import Kind
from milepost.checkpoint.head import Head, parse_head
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.owner import KEY as OWNER_KEY
from milepost.checkpoint.owner import claim_prefix
from milepost.checkpoint.records import line_of, parse_line
from milepost.checkpoint.runs import Runs
from milepost.checkpoint.sealed import lines_of, seal
from milepost.checkpoint.store import Found
from milepost.checkpoint.survey import survey
from milepost.errors import Corrupt, FormatTooNew, Missing, StoreOwnedElsewhere
from tests.support import format_samples as samples
from tests.support.histories import KEYS, NOON, a_claim, a_new_head, a_step, after, begin, some_patience
from tests.support.store_doubles import Numbers

pytestmark = pytest.mark.req("I14", "D10")

REFUSED: Final = (Corrupt, FormatTooNew, Missing)
BOUND: Final = 5.0
"""Seconds of this process's own; what is read here takes a tenth of it."""


def a_head() -> Head:
    entropy = Numbers()
    head = a_new_head(entropy=entropy)
    for event in (a_claim(1), a_step("one"), a_step("big", "x" * 40_000), a_step("two")):
        head = after(head, event, entropy=entropy).head
    return replace(head, bases=(make_base(a_state(), KEYS, "n")[0],))


def a_state() -> State:
    state = State()
    state.apply_all(a_new_head(entropy=Numbers()).records(), "k")
    return state


def a_segment() -> bytes:
    lines = tuple(line for line in a_new_head(entropy=Numbers()).tail)
    return seal(KEYS.run_id, epoch=0, last=1, nonce="n", lines=lines)[1]


def a_name() -> bytes:
    store = MemoryStore()
    record = NameRecord("triage", KEYS.run_id, "uid-1", "spec-1")
    Runs(store, lambda: NOON, Numbers())._write_name("team", record, etag="")
    found = store.get("team/names/triage")
    assert isinstance(found, Found)
    return found.body


def read_segment(body: bytes) -> object:
    named, _ = seal(KEYS.run_id, epoch=0, last=1, nonce="n", lines=(b"x\n",))
    named = replace(named, digest=hashlib.sha256(body).hexdigest(), size=len(body))
    return [parse_line(line, "k") for line in lines_of(body, named, KEYS)]


def read_base(body: bytes) -> object:
    named, _ = make_base(a_state(), KEYS, "n")
    return parse_base(body, replace(named, digest=hashlib.sha256(body).hexdigest()), KEYS)


def read_name(body: bytes) -> object:
    store = MemoryStore()
    store.put_new("team/names/triage", body, {})
    return Runs(store, lambda: NOON, Numbers()).read_name("team", "triage")


def read_owner(body: bytes) -> object:
    store = MemoryStore()
    store.put_new(OWNER_KEY, body, {})
    try:
        return claim_prefix(store, "cluster-1", patience=some_patience())
    except StoreOwnedElsewhere as error:
        return error


def read_answer(body: bytes) -> object:
    store = MemoryStore()
    gate = json.loads(samples.an_answer())["gate"]
    store.put_new(KEYS.answer(gate), body, {})
    return inbox.read(store, KEYS, gate)


def read_head(body: bytes) -> object:
    head = parse_head(body, KEYS)
    head.records()
    assert parse_head(head.body(), KEYS) == head, "what is read can be written again"
    return head


def with_digest(opening: bytes, rest: bytes) -> bytes:
    """Return a head whose digest is right, whatever it says."""
    digest = hashlib.sha256(opening + b"\n" + rest).hexdigest()
    return opening + b',"digest":"' + digest.encode() + b'"}' + b"\n" + rest


READERS: Final[Mapping[Kind, Callable[[bytes], object]]] = {
    Kind.HEAD: read_head,
    Kind.RECORD: lambda body: parse_line(body, "k"),
    Kind.SEGMENT: read_segment,
    Kind.BASE: read_base,
    Kind.NAME: read_name,
    Kind.OWNER: read_owner,
    Kind.ANSWER: read_answer,
}
VALID: Final[Mapping[Kind, bytes]] = {
    Kind.HEAD: a_head().body(),
    Kind.RECORD: line_of(samples.record(3)),
    Kind.SEGMENT: a_segment(),
    Kind.BASE: make_base(a_state(), KEYS, "n")[1],
    Kind.NAME: a_name(),
    Kind.OWNER: b'{"format":1,"layout":1,"cluster":"cluster-1","recovered_from":[]}',
    Kind.ANSWER: samples.an_answer(),
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "0" * 64, "Running", "\ud800", "../x", "team", "a" * 20]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def read_or_refused(kind: Kind, body: bytes) -> None:
    began = time.process_time()
    with contextlib.suppress(*REFUSED):
        READERS[kind](body)
    assert time.process_time() - began < BOUND


@pytest.mark.parametrize("kind", Kind)
def test_what_is_valid_is_read(kind: Kind) -> None:
    READERS[kind](VALID[kind])


@pytest.mark.parametrize("kind", Kind)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(kind: Kind, data: st.DataObject) -> None:
    read_or_refused(kind, data.draw(st.binary(max_size=200)))


@pytest.mark.parametrize("kind", Kind)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_bytes_that_were_damaged_are_read_or_refused(kind: Kind, data: st.DataObject) -> None:
    body = bytearray(VALID[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "double", "put"]))
        if how == "flip":
            body[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "cut":
            del body[at : at + data.draw(st.integers(1, 40))]
        elif how == "double":
            body[at:at] = body[at : at + data.draw(st.integers(1, 40))]
        else:
            body[at : at + 1] = data.draw(
                st.sampled_from([b'"', b"{", b"]", b"NaN", b"1e999", b"\n", b"\xff"])
            )
        if not body:
            break
    read_or_refused(kind, bytes(body))


@pytest.mark.parametrize("kind", Kind)
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_fields_of_any_type_are_read_or_refused(kind: Kind, data: st.DataObject) -> None:
    line, _, rest = VALID[kind].partition(b"\n")
    fields: dict[str, Any] = json.loads(line)
    fields.pop("digest", None)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(fields)))
        target, key = fields, name
        if isinstance(fields[name], dict) and fields[name] and data.draw(st.booleans()):
            target, key = fields[name], data.draw(st.sampled_from(sorted(fields[name])))
        elif (
            isinstance(fields[name], list)
            and fields[name]
            and isinstance(fields[name][0], dict)
            and fields[name][0]
        ):
            target, key = fields[name][0], data.draw(st.sampled_from(sorted(fields[name][0])))
        if data.draw(st.booleans()):
            target[key] = data.draw(json_values)
        else:
            del target[key]
        if not fields:
            break
    opening = json.dumps(fields).encode()
    body = with_digest(opening[:-1], rest) if kind is Kind.HEAD else opening + (b"\n" + rest if rest else b"")
    read_or_refused(kind, body)


DEEP: Final = 10**6
HOSTILE: Final[Mapping[str, bytes]] = {
    "lists without end": b'{"format":1,"x":' + b"[" * DEEP,
    "lists that do end": b'{"format":1,"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "objects without end": b'{"format":1,"x":' + b'{"a":' * DEEP,
    "a number of a million digits": b'{"format":1,"seq":' + b"9" * DEEP + b"}",
    "a number beyond all floats": b'{"format":1,"seq":1e999}',
    "a fraction of a million digits": b'{"format":1,"seq":0.' + b"1" * DEEP + b"}",
    "keys without number": b'{"format":1,'
    + b",".join(b'"%d":0' % number for number in range(DEEP // 5))
    + b"}",
    "a key twice": b'{"format":1,"format":2}',
    "one key without number": b'{"format":1' + b',"a":0' * (DEEP // 5) + b"}",
    "NaN": b'{"format":NaN}',
    "Infinity": b'{"format":1,"seq":-Infinity}',
    "half a surrogate pair": b'{"format":1,"run_id":"\\ud800"}',
    "no UTF-8": b'{"format":1,"run_id":"\xff\xfe"}',
    "UTF-16": '{"format":1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"format":1}',
    "nothing": b"",
    "a line feed": b"\n",
    "a text": b'"format"',
    "null": b"null",
    "a negative format": b'{"format":-1}',
    "format true": b'{"format":true}',
    "a fraction of a format": b'{"format":1.0}',
    "a format beyond all": b'{"format":' + b"9" * 400 + b"}",
}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_made_to_harm_is_refused_at_once(kind: Kind, name: str) -> None:
    began = time.process_time()

    for body in (HOSTILE[name], HOSTILE[name] + b"\n"):
        with pytest.raises(REFUSED):
            READERS[kind](body)

    assert time.process_time() - began < BOUND


@pytest.mark.parametrize("name", HOSTILE)
def test_a_record_that_is_made_to_harm_is_found_by_a_survey_at_once(name: str) -> None:
    store = MemoryStore()
    begun = begin(store, entropy=Numbers())
    opening = begun.head.body().partition(b"\n")[0].rpartition(b',"digest"')[0]
    store.delete(KEYS.head)
    store.put_new(KEYS.head, with_digest(opening, HOSTILE[name].replace(b"\n", b"") + b"\n"), {})
    store.put_new(KEYS.segment(1, 1, 1, "n"), HOSTILE[name], {})
    store.put_new(KEYS.base(1, 1, "n"), HOSTILE[name], {})
    began = time.process_time()

    seen = survey(store, KEYS)

    assert time.process_time() - began < BOUND
    assert seen.problems
    assert seen.trusted == 0


@pytest.mark.parametrize("field", ["seq", "epoch", "attempt", "nonce", "phase", "chain", "segments"])
def test_a_head_that_lacks_a_field_is_corrupt(field: str) -> None:
    line, _, rest = VALID[Kind.HEAD].partition(b"\n")
    fields = {name: value for name, value in json.loads(line).items() if name not in (field, "digest")}

    with pytest.raises(Corrupt):
        parse_head(with_digest(json.dumps(fields)[:-1].encode(), rest), KEYS)
