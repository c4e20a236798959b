from __future__ import annotations

import hashlib
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from typing_extensions import override

from milepost.api.names import StoreKeys
from milepost.checkpoint import codec
from milepost.checkpoint.records import Value
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found, Read
from milepost.checkpoint.values import MAX_INLINE, Large, Values, form, read
from milepost.errors import Corrupt, Damaged, Missing, NotStorable, StoreUnavailable
from tests.support.store_doubles import FakeTime, Fault, FaultyStore, Numbers

KEYS = StoreKeys("team-a", "a" * 20)
LARGE = ["x" * MAX_INLINE]
DIGEST = hashlib.sha256(codec.dumps(LARGE)).hexdigest()
STORED = Value(blob=DIGEST, size=MAX_INLINE + 4)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


def patience() -> Patience:
    time = FakeTime()
    return Patience(Numbers(), monotonic=time.monotonic, pause=time.pause)


def values(store: FaultyStore, **options: Any) -> Values:
    return Values(store, KEYS, patience(), **options)


def text_of(size: int) -> str:
    """Return a string whose stored text has exactly `size` bytes."""
    return "x" * (size - 2)


@pytest.mark.req("A6", "F-D11")
@pytest.mark.parametrize(
    ("size", "blobs"),
    [(2, 0), (MAX_INLINE - 1, 0), (MAX_INLINE, 0), (MAX_INLINE + 1, 1), (2**20, 1)],
)
def test_what_is_larger_than_16_kib_becomes_a_blob(store: FaultyStore, size: int, blobs: int) -> None:
    value = values(store).keep(text_of(size))

    assert (value.size, bool(value.blob), len(store.puts)) == (size, bool(blobs), blobs)
    assert values(store).read(value) == text_of(size)


@pytest.mark.req("A6")
def test_a_blob_is_named_by_the_digest_of_its_bytes(store: FaultyStore) -> None:
    assert values(store).keep(LARGE) == STORED
    assert [(put.key, put.body, put.etag) for put in store.puts] == [
        (f"team-a/runs/{'a' * 20}/blobs/{DIGEST}", codec.dumps(LARGE), "")
    ]


def test_a_smaller_bound_moves_smaller_values_into_blobs(store: FaultyStore) -> None:
    value = values(store).keep("", most=0)

    assert value == Value(blob=hashlib.sha256(b'""').hexdigest(), size=2)
    assert values(store).read(value) == ""


@pytest.mark.req("A6")
def test_a_digest_is_written_once(store: FaultyStore) -> None:
    kept = values(store)

    assert [kept.keep(LARGE), kept.keep(LARGE), kept.write(Large(codec.dumps(LARGE), STORED))] == [STORED] * 3
    assert (len(store.puts), store.gets) == (1, [])


@pytest.mark.req("A6")
def test_what_was_read_is_not_written_again(store: FaultyStore) -> None:
    values(store).keep(LARGE)
    later = values(store)
    later.read(STORED)

    later.keep(LARGE)

    assert len(store.puts) == 1


def test_a_blob_that_a_former_pod_left_is_read_and_compared(store: FaultyStore) -> None:
    values(store).keep(LARGE)

    assert values(store).keep(LARGE) == STORED
    assert (len(store.puts), len(store.gets)) == (2, 1)


@pytest.mark.req("A6")
def test_other_bytes_under_the_digest_are_reported(store: FaultyStore) -> None:
    store.put_new(KEYS.blob(DIGEST), b"other", {})

    with pytest.raises(Corrupt, match="holds other bytes"):
        values(store).keep(LARGE)


def test_a_write_that_failed_is_no_blob_that_is_there(store: FaultyStore) -> None:
    kept = values(store)
    store.next_puts(*[Fault.lost_request()] * 100)
    with pytest.raises(StoreUnavailable):
        kept.keep(LARGE)
    store.next_puts()

    assert kept.keep(LARGE) == STORED
    assert isinstance(store.inner.get(KEYS.blob(DIGEST)), Found)


@pytest.mark.req("C1")
def test_a_write_whose_answer_was_lost_stands(store: FaultyStore) -> None:
    store.next_puts(Fault.lost_answer(), Fault.conflict())

    assert values(store).keep(LARGE) == STORED
    assert values(store).read(STORED) == LARGE


@pytest.mark.req("A6")
def test_twenty_steps_that_share_a_blob_fetch_it_once_and_get_copies_of_their_own(
    store: FaultyStore,
) -> None:
    shared = [text_of(5 * 2**20)]
    value = values(store).keep(shared)
    kept = values(store)

    copies = [kept.read(value) for _ in range(20)]

    assert len(store.gets) == 1
    assert len({id(copy) for copy in copies}) == 20
    copies[0].append("changed")
    assert kept.read(value) == shared


def test_threads_that_ask_for_one_blob_at_once_fetch_it_once(store: FaultyStore) -> None:
    values(store).keep(LARGE)
    kept, together = values(store), threading.Barrier(8)

    def ask(_: int) -> Any:
        together.wait(60)
        return kept.read(STORED)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [LARGE] * 8
    assert len(store.gets) == 1


def test_who_keeps_a_value_that_is_on_its_way_waits_for_it(store: FaultyStore) -> None:
    kept, first, second = values(store), threading.Event(), threading.Event()

    def on_its_way() -> None:
        first.set()
        second.wait(0.3)

    store.next_puts(Fault(before=on_its_way), Fault(before=second.set))

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(kept.keep, LARGE)
        assert first.wait(60)
        other = pool.submit(kept.keep, LARGE)
        assert [one.result(60), other.result(60)] == [STORED] * 2
    assert len(store.puts) == 1


@pytest.mark.req("A6")
def test_what_was_read_longest_ago_is_fetched_again(store: FaultyStore) -> None:
    one, two, three = (values(store).keep(letter * MAX_INLINE) for letter in "abc")
    kept = values(store, cache_bytes=2 * (MAX_INLINE + 2))

    for value in (one, two, one, three, one, two):
        kept.read(value)

    assert store.gets == [KEYS.blob(each.blob) for each in (one, two, three, two)]


def test_a_blob_larger_than_the_cache_is_fetched_each_time_and_drops_no_other(store: FaultyStore) -> None:
    small, large = values(store).keep(LARGE), values(store).keep(LARGE * 3)
    kept = values(store, cache_bytes=2 * MAX_INLINE)

    for value in (small, large, large, small):
        kept.read(value)

    assert store.gets == [KEYS.blob(each.blob) for each in (small, large, large)]


class Endless(FaultyStore):
    """Makes up each blob when it is asked for, so that it holds nothing itself."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        assert not unless_etag
        return Found(codec.dumps(text_of(self.sizes[key])), '"etag"')


@pytest.mark.req("A6", "S8")
def test_ten_thousand_blobs_do_not_stay_in_memory() -> None:
    store = Endless()
    stored = []
    for size in range(MAX_INLINE + 1, MAX_INLINE + 10_001):
        large = form(text_of(size))
        assert isinstance(large, Large)
        store.sizes[KEYS.blob(large.value.blob)] = size
        stored.append(large.value)
    kept = values(store, cache_bytes=2**20)

    tracemalloc.start()
    try:
        for value in stored:
            kept.read(value)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 2**20 + 2**20


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "flipped bit": (lambda body: body[:-3] + b"y" + body[-2:], "do not match the digest"),
    "cut short": (lambda body: body[:-1], f"it has {MAX_INLINE + 3} bytes and its record says"),
    "emptied": (lambda _: b"", "it has 0 bytes and its record says"),
    "longer": (lambda body: body + b" ", f"it has {MAX_INLINE + 5} bytes and its record says"),
}


@pytest.mark.req("A6", "C4")
@pytest.mark.parametrize(("damage", "why"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_blob_is_named_with_what_it_holds(
    store: FaultyStore, damage: Callable[[bytes], bytes], why: str
) -> None:
    store.put_new(KEYS.blob(DIGEST), damage(codec.dumps(LARGE)), {})

    ways: list[Callable[[], Any]] = [
        lambda: values(store).read(STORED, of="result of step fetch#3"),
        lambda: read(store, KEYS, STORED, of="result of step fetch#3"),
    ]
    for call in ways:
        with pytest.raises(Corrupt) as found:
            call()
        assert found.value.key == KEYS.blob(DIGEST)
        assert why in found.value.what
        assert "; it holds the result of step fetch#3; records and other blobs" in found.value.what
        assert "can still be trusted" in found.value.what


@pytest.mark.req("A6", "C4")
def test_a_blob_that_is_gone_is_named(store: FaultyStore) -> None:
    with pytest.raises(Missing, match=f"{DIGEST}: a record names it, and it is gone; it holds the result"):
        values(store).read(STORED, of="result of step fetch#3")


def test_damage_is_not_remembered(store: FaultyStore) -> None:
    kept = values(store)
    with pytest.raises(Missing):
        kept.read(STORED)
    kept.keep(LARGE)

    assert (kept.read(STORED), len(store.puts)) == (LARGE, 1)


@pytest.mark.req("F-E9")
@pytest.mark.parametrize("name", ["../../names/x", "/etc/passwd", "A" * 64, "x", DIGEST + "\n", DIGEST[:-1]])
def test_a_blob_of_a_name_that_is_no_digest_is_never_asked_for(store: FaultyStore, name: str) -> None:
    with pytest.raises(Damaged, match="which is no digest"):
        values(store).read(Value(blob=name))
    with pytest.raises(Damaged, match="which is no digest"):
        read(store, KEYS, Value(blob=name))

    assert store.gets == []


@pytest.mark.req("F-E8")
@pytest.mark.parametrize("body", [b"", b"{", b'{"a":1,"a":2}', b"[" * 100_000, b"NaN"])
def test_a_blob_that_matches_its_name_and_is_no_value_is_corrupt(store: FaultyStore, body: bytes) -> None:
    value = Value(blob=hashlib.sha256(body).hexdigest())
    store.put_new(KEYS.blob(value.blob), body, {})

    with pytest.raises(Corrupt, match="it matches its digest and is no stored value"):
        values(store).read(value)


@pytest.mark.req("F-D11")
def test_more_than_can_be_read_back_is_never_written(store: FaultyStore) -> None:
    with pytest.raises(NotStorable, match=f"are more than {codec.MAX_BYTES}"):
        values(store).keep("x" * codec.MAX_BYTES)

    assert store.puts == []


def test_a_value_is_read_without_an_object_that_remembers(store: FaultyStore) -> None:
    value = values(store).keep(LARGE)

    assert (value, read(store, KEYS, value), read(store, KEYS, Value(inline=[1]))) == (STORED, LARGE, [1])
