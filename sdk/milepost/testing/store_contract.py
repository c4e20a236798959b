"""What every store must do, as tests that anyone can run on an adapter of their own with plain pytest.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Store:
            return MyStore(...)

The fixture gives a store that is empty, such as a fresh prefix. Nothing here asks how long a store takes,
or what its ETags look like: they are opaque, and the same bytes may or may not bring the same one back.

The surprise: replacing a missing object may be answered with Gone or with Clash, for S3 servers differ.
What they must agree on is that nothing is created.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

from milepost.checkpoint.store import (
    Absent,
    Answer,
    Clash,
    Found,
    Gone,
    Store,
    Stored,
    Unchanged,
    Undecided,
)

__all__ = ["StoreContract"]

_RUN = "team-a/runs/abcdefghijklmnopqrst"
_KEY = f"{_RUN}/head"
_ALL_BYTES = bytes(range(256))
_MIB = 1024**2
# Every shape of key that Milepost writes, at its longest.
_KEYS = (
    "_owner",
    f"{'n' * 63}/names/{'a' * 45}",
    f"team-a/inbox/abcdefghijklmnopqrst/{'f' * 64}",
    f"{_RUN}/head",
    f"{_RUN}/segments/4294967295-99999999-99999999-{'0f' * 16}",
    f"{_RUN}/segments/4294967295-99999999-99999999-{'0e' * 16}",
    f"{_RUN}/bases/4294967295-99999999-{'0f' * 16}",
    f"{_RUN}/blobs/{'ab' * 32}",
    "team-a/runs/abcdefghijklmnopqrs2/head",
)
_ODD_KEYS = (
    "UPPER/lower",
    "upper/lower",
    "a+b/c d",
    "a b/c+d",
    "with space/and+plus",
    "per%20cent/equals=and&amp",
    "café/日本",
    "..two.dots./.hidden",
    "long/" + "x" * 200,
    "a:colon,comma;semicolon'quote",
)


class StoreContract:
    """Tests of one store; pytest gives each the fixture `store` of the subclass."""

    contenders: ClassVar[int] = 16
    """How many threads write at once."""
    rounds: ClassVar[int] = 10
    """How often they do so."""
    large: ClassVar[int] = 17 * _MIB
    """Bytes of a body that the store writes in its own way for large ones, such as in parts."""
    many: ClassVar[int] = 1_100
    """Objects that no single page of a listing holds."""

    def test_a_missing_object_is_absent(self, store: Store) -> None:
        assert store.get(_KEY) == Absent()

    def test_an_object_reads_back_as_it_was_written(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"body\n\0", {"seq": "7", "nonce": "0f"}))

        assert store.get(_KEY) == Found(b"body\n\0", etag, {"seq": "7", "nonce": "0f"})

    def test_names_of_metadata_read_back_in_lower_case(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"", {"Seq": "Seven"}))

        assert store.get(_KEY) == Found(b"", etag, {"seq": "Seven"})

    def test_bodies_are_kept_byte_for_byte(self, store: Store) -> None:
        for name, body in {
            "none": b"",
            "one": b"\n",
            "lines": b"\r\n\n\0",
            "a-mib": _ALL_BYTES * 4096,
        }.items():
            etag = _stored(store.put_new(name, body, {}))

            assert store.get(name) == Found(body, etag, {})

    def test_a_large_body_is_kept_byte_for_byte_with_its_metadata(self, store: Store) -> None:
        body = _large(self.large, b"first")
        etag = _stored(store.put_new(_KEY, body, {"Seq": "7"}))

        # Compared apart: a difference of so many bytes takes pytest minutes to show.
        found = store.get(_KEY)
        assert isinstance(found, Found)
        assert (found.etag, dict(found.metadata), len(found.body)) == (etag, {"seq": "7"}, self.large)
        assert hashlib.sha256(found.body).digest() == hashlib.sha256(body).digest()
        assert [(each.key, each.size) for each in store.list("")] == [(_KEY, self.large)]

    def test_a_large_object_is_created_once_and_replaced_on_condition(self, store: Store) -> None:
        first = _stored(store.put_new(_KEY, _large(self.large, b"first"), {}))

        assert store.put_new(_KEY, _large(self.large, b"second"), {}) == Clash()
        assert store.put_new(_KEY, b"small", {}) == Clash()
        assert store.get(_KEY, unless_etag=first) == Unchanged()
        second = _stored(store.put_if(_KEY, b"small", {}, etag=first))
        assert store.put_new(_KEY, _large(self.large, b"third"), {}) == Clash()
        assert store.put_if(_KEY, _large(self.large, b"third"), {}, etag=first) == Clash()
        assert store.get(_KEY) == Found(b"small", second, {})

    def test_creating_an_object_twice_clashes_and_keeps_the_first(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"first", {"n": "1"}))

        assert store.put_new(_KEY, b"second", {"n": "2"}) == Clash()
        assert store.get(_KEY) == Found(b"first", etag, {"n": "1"})

    def test_an_object_is_replaced_on_condition_of_its_etag(self, store: Store) -> None:
        first = _stored(store.put_new(_KEY, b"first", {"n": "1"}))
        second = _stored(store.put_if(_KEY, b"second", {"n": "2"}, etag=first))

        assert second != first
        assert store.get(_KEY) == Found(b"second", second, {"n": "2"})

    def test_metadata_belong_to_one_write_and_are_not_inherited(self, store: Store) -> None:
        first = _stored(store.put_new(_KEY, b"first", {"old": "1", "both": "1"}))
        second = _stored(store.put_if(_KEY, b"second", {"both": "2"}, etag=first))

        assert store.get(_KEY) == Found(b"second", second, {"both": "2"})

    def test_a_stale_etag_clashes_and_changes_nothing(self, store: Store) -> None:
        first = _stored(store.put_new(_KEY, b"first", {}))
        second = _stored(store.put_if(_KEY, b"second", {}, etag=first))

        assert store.put_if(_KEY, b"third", {}, etag=first) == Clash()
        assert store.get(_KEY) == Found(b"second", second, {})

    def test_replacing_a_missing_object_creates_nothing(self, store: Store) -> None:
        etag = _stored(store.put_new("another", b"", {}))

        assert isinstance(store.put_if(_KEY, b"back again", {}, etag=etag), Gone | Clash)
        assert store.get(_KEY) == Absent()

    def test_a_deleted_object_is_not_brought_back_by_its_old_etag(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"alive", {}))
        store.delete(_KEY)

        assert isinstance(store.put_if(_KEY, b"back again", {}, etag=etag), Gone | Clash)
        assert store.get(_KEY) == Absent()

    def test_a_condition_without_an_etag_is_a_mistake_and_writes_nothing(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"first", {}))
        try:
            answer: Answer | None = store.put_if(_KEY, b"second", {}, etag="")
        except ValueError:
            answer = None

        assert answer is None, "put_if took an empty ETag"
        assert store.get(_KEY) == Found(b"first", etag, {})

    def test_each_state_is_replaced_by_its_own_etag_even_if_the_bytes_come_back(self, store: Store) -> None:
        a = _stored(store.put_new(_KEY, b"A", {}))
        b = _stored(store.put_if(_KEY, b"B", {}, etag=a))
        again = _stored(store.put_if(_KEY, b"A", {}, etag=b))

        assert b not in {a, again}
        assert store.put_if(_KEY, b"C", {}, etag=b) == Clash()
        assert store.get(_KEY) == Found(b"A", again, {})
        c = _stored(store.put_if(_KEY, b"C", {}, etag=again))
        assert store.get(_KEY) == Found(b"C", c, {})

    def test_the_etag_of_equal_bytes_goes_on(self, store: Store) -> None:
        first = _stored(store.put_new(_KEY, b"same", {}))
        second = _stored(store.put_if(_KEY, b"same", {}, etag=first))
        third = _stored(store.put_if(_KEY, b"other", {}, etag=second))

        assert store.get(_KEY) == Found(b"other", third, {})

    def test_a_known_object_reads_as_unchanged_until_it_changes(self, store: Store) -> None:
        first = _stored(store.put_new(_KEY, b"first", {}))
        unchanged = store.get(_KEY, unless_etag=first)
        second = _stored(store.put_if(_KEY, b"second", {}, etag=first))

        assert unchanged == Unchanged()
        assert store.get(_KEY, unless_etag=first) == Found(b"second", second, {})

    def test_a_missing_object_is_absent_whatever_is_known_of_it(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"first", {}))
        store.delete(_KEY)

        assert store.get(_KEY, unless_etag=etag) == Absent()

    def test_keys_of_every_shape_that_is_in_use_are_kept_apart(self, store: Store) -> None:
        _assert_kept_apart(store, _KEYS)

    def test_odd_keys_are_kept_apart(self, store: Store) -> None:
        _assert_kept_apart(store, _ODD_KEYS)

    def test_a_key_is_no_folder(self, store: Store) -> None:
        _stored(store.put_new(_KEY, b"", {}))

        assert store.get(_RUN) == Absent()
        assert store.get(f"{_RUN}/hea") == Absent()

    def test_a_listing_shows_what_was_written_before_it(self, store: Store) -> None:
        for number in range(5):
            _stored(store.put_new(f"ns/runs/{number}", b"x" * number, {"k": "v"}))

            listed = {each.key: each.size for each in store.list("ns/")}
            assert listed == {f"ns/runs/{each}": each for each in range(number + 1)}

    def test_a_listing_gives_dates_of_the_store(self, store: Store) -> None:
        _stored(store.put_new(_KEY, b"", {}))

        assert [each.modified > 0 for each in store.list("")] == [True]

    def test_a_listing_holds_to_its_prefix(self, store: Store) -> None:
        for key in ("ns/a", "ns/ab/c", "ns-2/a", "other"):
            _stored(store.put_new(key, b"", {}))

        assert {each.key for each in store.list("")} == {"ns/a", "ns/ab/c", "ns-2/a", "other"}
        assert {each.key for each in store.list("ns")} == {"ns/a", "ns/ab/c", "ns-2/a"}
        assert {each.key for each in store.list("ns/")} == {"ns/a", "ns/ab/c"}
        assert {each.key for each in store.list("ns/a")} == {"ns/a", "ns/ab/c"}
        assert {each.key for each in store.list("ns/ab/")} == {"ns/ab/c"}
        assert list(store.list("ns/b")) == []
        assert list(store.list("nobody/")) == []

    def test_a_listing_tells_a_folder_from_a_key_that_begins_alike(self, store: Store) -> None:
        for key in ("a/b/c", "a/b-c", "a/b.c", "a/bc"):
            _stored(store.put_new(key, b"", {}))

        assert {each.key for each in store.list("a/b")} == {"a/b/c", "a/b-c", "a/b.c", "a/bc"}
        assert [each.key for each in store.list("a/b/")] == ["a/b/c"]
        assert [each.key for each in store.list("a/b-")] == ["a/b-c"]

    def test_a_listing_shows_the_last_write_and_no_deleted_object(self, store: Store) -> None:
        first = _stored(store.put_new(_KEY, b"1", {}))
        _stored(store.put_new(f"{_RUN}/gone", b"1", {}))
        store.delete(f"{_RUN}/gone")
        _stored(store.put_if(_KEY, b"four", {}, etag=first))

        assert [(each.key, each.size) for each in store.list("")] == [(_KEY, 4)]

    def test_a_listing_of_many_objects_holds_each_once(self, store: Store) -> None:
        keys = [f"ns/runs/{number:05}/head" for number in range(self.many)]
        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda key: store.put_new(key, b"x", {}), keys):
                _stored(answer)

        assert sorted(each.key for each in store.list("ns/")) == keys

    def test_deleting_is_final_and_may_be_repeated(self, store: Store) -> None:
        _stored(store.put_new(_KEY, b"first", {}))
        _stored(store.put_new("sibling", b"", {}))
        _stored(store.put_new(f"{_KEY}er", b"", {}))
        store.delete(_KEY)
        store.delete(_KEY)
        store.delete("never/there")

        assert store.get(_KEY) == Absent()
        assert sorted(each.key for each in store.list("")) == ["sibling", f"{_KEY}er"]

    def test_a_deleted_key_can_be_created_again(self, store: Store) -> None:
        _stored(store.put_new(_KEY, b"first", {}))
        store.delete(_KEY)
        etag = _stored(store.put_new(_KEY, b"second", {}))

        assert store.get(_KEY) == Found(b"second", etag, {})

    def test_of_many_creators_exactly_one_wins(self, store: Store) -> None:
        for number in range(self.rounds):
            key = f"race/{number}"
            won = _winners(self.contenders, partial(_create, store, key))

            assert won == [_body(store, key)]

    def test_of_several_creators_of_a_large_object_exactly_one_wins(self, store: Store) -> None:
        won = _winners(
            min(self.contenders, 3), lambda name: store.put_new(_KEY, _large(self.large, name), {})
        )

        assert len(won) == 1
        assert (
            hashlib.sha256(_body(store, _KEY)).digest() == hashlib.sha256(_large(self.large, won[0])).digest()
        )

    def test_a_large_object_that_several_create_is_one_of_theirs_and_whole(self, store: Store) -> None:
        won = _winners(
            min(self.contenders, 3), lambda name: store.put_new(_KEY, _large(self.large, name), {})
        )

        wholes = [hashlib.sha256(_large(self.large, name)).digest() for name in won]
        assert hashlib.sha256(_body(store, _KEY)).digest() in wholes

    def test_of_many_increments_none_is_lost(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"0", {}))
        start = threading.Barrier(self.contenders)

        def increment(_: int) -> int:
            start.wait()
            return sum(_increment(store) for _ in range(self.rounds))

        with ThreadPoolExecutor(self.contenders) as pool:
            applied = sum(pool.map(increment, range(self.contenders)))

        assert store.get(_KEY, unless_etag=etag) != Unchanged()
        assert _body(store, _KEY) == b"%d" % applied

    def test_of_many_replacements_of_one_state_exactly_one_wins(self, store: Store) -> None:
        etag = _stored(store.put_new(_KEY, b"start", {}))
        for number in range(self.rounds):

            def replace(body: bytes, etag: str = etag, number: int = number) -> Answer:
                return store.put_if(_KEY, b"%s of round %d" % (body, number), {}, etag=etag)

            won = _winners(self.contenders, replace)
            found = store.get(_KEY)

            assert isinstance(found, Found)
            assert [b"%s of round %d" % (body, number) for body in won] == [found.body]
            etag = found.etag


def _stored(answer: Answer) -> str:
    assert isinstance(answer, Stored), answer
    return answer.etag


def _create(store: Store, key: str, body: bytes) -> Answer:
    return store.put_new(key, body, {})


def _increment(store: Store) -> bool:
    """Try once to count one up; say whether it was done."""
    found = store.get(_KEY)
    assert isinstance(found, Found)
    answer = store.put_if(_KEY, b"%d" % (int(found.body) + 1), {}, etag=found.etag)
    assert isinstance(answer, Stored | Clash | Undecided), answer
    return isinstance(answer, Stored)


def _large(size: int, name: bytes) -> bytes:
    """Return a body of so many bytes in which no two blocks are alike, another one for each name."""
    block = 1024
    seed = hashlib.sha256(name).digest()
    blocks = (seed + b"%016d" % number + bytes(block - 48) for number in range(size // block + 1))
    return b"".join(blocks)[:size]


def _assert_kept_apart(store: Store, keys: tuple[str, ...]) -> None:
    for key in keys:
        _stored(store.put_new(key, key.encode(), {}))

    assert {key: _body(store, key) for key in keys} == {key: key.encode() for key in keys}
    assert {each.key for each in store.list("")} == set(keys)


def _body(store: Store, key: str) -> bytes:
    found = store.get(key)
    assert isinstance(found, Found), f"{key}: {found}"
    return found.body


def _winners(contenders: int, write: Callable[[bytes], Answer]) -> list[bytes]:
    """Let all write at once, each a body of its own; return the bodies that were stored."""
    start = threading.Barrier(contenders)

    def contend(number: int) -> tuple[bytes, Answer]:
        body = b"writer %d" % number
        start.wait()
        return body, write(body)

    with ThreadPoolExecutor(contenders) as pool:
        answers = list(pool.map(contend, range(contenders)))
    strange = [answer for _, answer in answers if not isinstance(answer, Stored | Clash | Undecided)]
    assert strange == []
    return [body for body, answer in answers if isinstance(answer, Stored)]
