"""What is too large, too deep or meant to exhaust: refused before it costs more than a stated bound."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from milepost.checkpoint.codec import (
    MAX_BYTES,
    MAX_PARTS,
    DecodeError,
    decode,
    digest,
    dumps,
    encode,
    loads,
    store,
)
from milepost.errors import NotStorable

BOUND_SECONDS = 60
PRIME = 2**61 - 1
"""Python's hash of an integer is its remainder by this."""


@dataclass(frozen=True, eq=False)
class ByIdentity:
    a: int


@dataclass(frozen=True)
class OneHash:
    a: int

    @override
    def __hash__(self) -> int:
        return 1


SHARED_TOO_LARGE: dict[str, tuple[Callable[[], Any], str]] = {
    "text": (lambda: ["x" * 10**7] * 1_000, "result[26]"),
    "text beside what is tagged": (lambda: [(), *["x" * 10**7] * 1_000], "result[27]"),
    "text of four bytes a character": (lambda: ["😀" * 10**7] * 1_000, "result[26]"),
    "keys": (lambda: [{"x" * 10**7: 1}] * 1_000, "result[26]"),
    "keys beside what is tagged": (lambda: [{"x" * 10**7: (1,)}] * 1_000, "result[26]"),
    "bytes": (lambda: [b"x" * 10**7] * 1_000, "result[20]"),
    "integers": (lambda: [1 << (4 * 10**7)] * 1_000, "result[26]"),
    "decimals": (lambda: [Decimal("9" * 10**6)] * 1_000, "result[268]"),
    "lone surrogates": (lambda: ["\ud800" * 10**7] * 1_000, "result[6]"),
    "one text": (lambda: {"a": [1, "x" * (MAX_BYTES + 1)]}, "result.a[1]"),
}


@pytest.mark.req("S1", "A6")
@pytest.mark.timeout(BOUND_SECONDS)
@pytest.mark.parametrize(("make", "path"), SHARED_TOO_LARGE.values(), ids=SHARED_TOO_LARGE.keys())
def test_a_value_that_would_be_too_large_is_refused_before_it_is_written(
    make: Callable[[], Any], path: str
) -> None:
    value = make()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(NotStorable) as refused:
        store(value)

    assert refused.value.path == path
    assert f"more than {MAX_BYTES}; keep it elsewhere" in refused.value.why
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 900 * 1024


@pytest.mark.req("S1")
@pytest.mark.parametrize("kind", [list, tuple])
def test_as_many_parts_as_are_written_can_be_read(kind: type) -> None:
    most = kind([0] * (MAX_PARTS - 2))

    data, copy = store(most)

    assert (type(copy), len(copy), loads(dumps(data)) == data) == (kind, MAX_PARTS - 2, True)


@pytest.mark.req("S1")
def test_parts_are_counted_as_they_are_written() -> None:
    # A tuple of one item takes an object, two pairs and a list.
    with pytest.raises(NotStorable, match=f"^result cannot be stored: it has more than {MAX_PARTS} parts;"):
        store([(1,)] * (MAX_PARTS // 3))


TOO_MANY: dict[str, Callable[[], bytes]] = {
    "empty lists": lambda: b"[" + b"[]," * 16_000_000 + b"[]]",
    "empty objects": lambda: b"[" + b"{}," * 16_000_000 + b"{}]",
    "numbers": lambda: b"[" + b"1," * 24_000_000 + b"1]",
    "keys": lambda: b"{" + b",".join(b'"%d":0' % n for n in range(4_000_000)) + b"}",
    "one key": lambda: b"{" + b'"":0,' * 10_000_000 + b'"":0}',
    "lists that are not closed": lambda: b"[" * 50_000_000,
}


@pytest.mark.req("F-E8")
@pytest.mark.timeout(BOUND_SECONDS)
@pytest.mark.parametrize("make", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_fifty_megabytes_of_parts_are_refused_unread(make: Callable[[], bytes]) -> None:
    raw = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(DecodeError, match=f"more than {MAX_PARTS} parts"):
        loads(raw)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_commas_in_text_are_no_parts() -> None:
    value = [",[{" * MAX_PARTS, "a"]

    assert loads(dumps(store(value)[0])) == value


NUMBERS: dict[str, tuple[Callable[[], bytes], Any]] = {
    "digits": (lambda: b"9" * 10**7, DecodeError),
    "digits and a point": (lambda: b"9" * 10**7 + b".5", DecodeError),
    "digits behind a point": (lambda: b"0." + b"1" * 10**7, 1 / 9),
    "exponent": (lambda: b"1e" + b"9" * 10**7, DecodeError),
    "negative exponent": (lambda: b"1e-" + b"9" * 10**7, 0.0),
    "minus": (lambda: b"-" + b"9" * 10**7, DecodeError),
}


@pytest.mark.req("F-E8")
@pytest.mark.timeout(BOUND_SECONDS)
@pytest.mark.parametrize(("make", "wanted"), NUMBERS.values(), ids=NUMBERS.keys())
def test_a_number_of_ten_million_digits_is_read_or_refused_at_once(
    make: Callable[[], bytes], wanted: Any
) -> None:
    raw = make()
    if wanted is DecodeError:
        with pytest.raises(DecodeError):
            loads(raw)
    else:
        assert loads(raw) == wanted


def hashing_alike(count: int) -> list[Any]:
    return [{"$mp": "int", "v": hex(PRIME * n)} for n in range(9_000, 9_000 + count)]


@pytest.mark.req("F-E8")
@pytest.mark.timeout(BOUND_SECONDS)
@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
def test_integers_made_to_hash_alike_are_refused(tag: str) -> None:
    alike = hashing_alike(50_000)
    data = {"$mp": tag, "v": [[key, 0] for key in alike] if tag == "dict" else alike}

    with pytest.raises(DecodeError, match="50000 of its elements or keys have one hash"):
        decode(data)


@pytest.mark.timeout(BOUND_SECONDS)
def test_elements_that_hash_alike_are_stored_while_they_are_few() -> None:
    value = {OneHash(n) for n in range(300)}

    assert store(value, set[OneHash])[1] == value


@pytest.mark.req("S1")
@pytest.mark.timeout(BOUND_SECONDS)
def test_elements_that_do_not_hash_by_value_are_stored_while_they_are_few() -> None:
    value = {ByIdentity(n) for n in range(100)}

    assert {it.a for it in store(value, set[ByIdentity])[1]} == set(range(100))
    with pytest.raises(NotStorable, match="too many to compare each with each"):
        store({ByIdentity(n) for n in range(5_000)}, set[ByIdentity])


def doubled(levels: int) -> frozenset[Any]:
    value: frozenset[Any] = frozenset()
    for _ in range(levels):
        value = frozenset({(value, 1), (value, 2)})
    return value


@pytest.mark.req("S1")
@pytest.mark.timeout(BOUND_SECONDS)
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: {doubled(60): 1}, "result[((<frozenset>, 1), (<frozenset>, 2))]"),
        (lambda: {10**5_000: object()}, "result[<int of 16610 bits>]"),
        (lambda: {(-(10**5_000),): [object()]}, "result[(<int of 16610 bits>)][0]"),
        (lambda: {"a": {10**5_000, ("x", object)}}, "result.a{("),
        (lambda: {b"x" * 10**6: object()}, "result[b'xxx"),
        (lambda: {"x" * 10**6: object()}, 'result["xxx'),
        (lambda: {"\x1b[31m\n": object()}, 'result["\\u001b[31m\\n"]'),
    ],
    ids=["frozensets", "integer", "integer in a tuple", "set", "bytes", "long key", "control characters"],
)
def test_a_path_is_short_and_shown_in_bounded_time(make: Callable[[], Any], path: str) -> None:
    with pytest.raises(NotStorable) as refused:
        store(make())

    assert refused.value.path.startswith(path)
    assert len(refused.value.path) < 400
    assert refused.value.path.isprintable()


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.req("F-E8")
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: loads(b"[" * 200 + b"]" * 200), DecodeError),
        (lambda: decode(nested(150)), DecodeError),
        (lambda: encode(nested(150)), NotStorable),
        (lambda: digest(nested(150)), NotStorable),
        (lambda: store(nested(150)), NotStorable),
    ],
    ids=["loads", "decode", "encode", "digest", "store"],
)
def test_a_full_call_stack_is_said_to_be_full(call: Callable[[], Any], error: type[Exception]) -> None:
    def from_deep(calls: int) -> None:
        if calls:
            from_deep(calls - 1)
        else:
            call()

    with pytest.raises(error, match="the call stack has no room left"):
        from_deep(sys.getrecursionlimit() - 160)


@pytest.mark.req("S1")
def test_a_dict_that_a_thread_fills_meanwhile_is_stored_or_refused() -> None:
    value: dict[Any, Any] = {"a": ()}
    stop = threading.Event()

    def fill() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            value[number % 5_000] = ()
            value.pop((number * 7) % 5_000, None)

    filler = threading.Thread(target=fill)
    filler.start()
    try:
        for _ in range(20):
            with suppress(NotStorable):
                store(value)
    finally:
        stop.set()
        filler.join()


@pytest.mark.req("F-E8")
def test_a_million_levels_end_no_process() -> None:
    code = """
        import sys
        sys.setrecursionlimit(10**6)
        from milepost.checkpoint.codec import DecodeError, loads
        for raw in (b"[" * 10**6, b'{"a":' * 10**6, b"[" * 10**6 + b"]" * 10**6, b"[{" * 10**5):
            try:
                loads(raw)
            except DecodeError:
                print("refused")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n" * 4, "")


JSON_BYTES = b'{}[]",:\\u0123456789eE+-.dDaNItrulfs \n\x00\xff\xed\xa0\x80$mpv'
openings = st.sampled_from([b"[", b'{"a":', b'{"$mp":"tuple","v":['])
hostile_bytes = (
    st.binary(max_size=200)
    | st.lists(st.sampled_from(JSON_BYTES), max_size=200).map(bytes)
    | st.builds(lambda opening, times: opening * times, openings, st.integers(0, 3_000))
)


def read(raw: bytes) -> str:
    """Return the message of the documented error, or nothing where the bytes are data."""
    try:
        data = loads(raw)
        assert dumps(loads(dumps(data))) == dumps(data)
        decode(data)
    except DecodeError as refused:
        return str(refused)
    return ""


@pytest.mark.req("F-E8")
@given(hostile_bytes)
def test_whatever_bytes_are_read_give_data_or_the_documented_error(raw: bytes) -> None:
    assert len(read(raw)) < 1_000


@pytest.mark.req("F-E8")
@given(st.binary(min_size=1, max_size=8), st.integers(0, 300), st.integers(1, 8))
def test_a_stored_text_with_bytes_changed_gives_data_or_the_documented_error(
    put: bytes, at: int, instead_of: int
) -> None:
    value = {"a": [(1, 2.5, None), {1: "x"}, {1, 2}], "b": [b"xyz", "\ud800", 2**70, Decimal("1.10")]}
    raw = dumps(store(value)[0])

    assert len(read(raw[:at] + put + raw[at + instead_of :])) < 1_000


def test_a_coroutine_that_was_not_awaited_is_refused_with_advice() -> None:
    async def work() -> int:
        raise NotImplementedError

    value = work()
    try:
        with pytest.raises(NotStorable, match=r"^result\[0\] .*; await it$"):
            store([value])
    finally:
        value.close()
    assert asyncio.iscoroutine(value)
