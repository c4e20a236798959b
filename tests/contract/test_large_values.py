"""Values of all sizes on every store there is: what is written comes back, and damage is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from milepost.api.names import StoreKeys
from milepost.checkpoint import codec
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Value
from milepost.checkpoint.s3 import open_store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found, Store, Stored
from milepost.checkpoint.values import MAX_INLINE, Values
from milepost.errors import Corrupt, Missing
from tests.support.real_s3 import config_on
from tests.support.store_doubles import Numbers
from tools.cluster.interface import S3Server

KEYS = StoreKeys("team-a", "b" * 20)
MIB = 2**20


REAL = [pytest.param(name, marks=pytest.mark.s3) for name in ("seaweedfs", "versitygw")]


@pytest.fixture(params=["memory", "file", *REAL])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return MemoryStore()
        case "file":
            return FileStore(str(tmp_path / "store"))
        case name:
            server: S3Server = request.getfixturevalue(f"{name}_server")
            return open_store(config_on(server, tmp_path / "credentials")(""))


def values(store: Store) -> Values:
    return Values(store, KEYS, Patience(Numbers()))


def text_of(size: int) -> str:
    """Return a string whose stored text has exactly `size` bytes, and is not all alike."""
    block = "".join(hashlib.sha256(b"%d" % number).hexdigest() for number in range(1_000))
    return (block * (size // len(block) + 1))[: size - 2]


@pytest.mark.req("A6", "C4")
@pytest.mark.parametrize("size", [2, MAX_INLINE - 1, MAX_INLINE, MAX_INLINE + 1, MIB, 20 * MIB])
def test_a_value_of_each_size_comes_back(store: Store, size: int) -> None:
    value = values(store).keep(text_of(size))

    assert (value.size, bool(value.blob)) == (size, size > MAX_INLINE)
    assert values(store).read(value) == text_of(size)
    assert [each.size for each in store.list(f"{KEYS.run}blobs/")] == [size] * bool(value.blob)


@pytest.mark.req("A6")
@pytest.mark.parametrize("size", [MAX_INLINE + 1, 20 * MIB])
def test_a_value_that_is_there_already_is_compared_and_stands(store: Store, size: int) -> None:
    assert values(store).keep(text_of(size)) == values(store).keep(text_of(size))


@pytest.mark.req("A6", "C4")
@pytest.mark.parametrize("size", [MAX_INLINE + 1, 20 * MIB])
def test_other_bytes_under_a_digest_are_found_by_who_writes_and_who_reads(store: Store, size: int) -> None:
    raw = codec.dumps(text_of(size))
    value = Value(blob=hashlib.sha256(raw).hexdigest(), size=size)
    written = store.put_new(KEYS.blob(value.blob), raw[:-2] + b'~"', {})

    assert isinstance(written, Stored)
    with pytest.raises(Corrupt, match="holds other bytes"):
        values(store).keep(text_of(size))
    with pytest.raises(Corrupt, match="do not match the digest"):
        values(store).read(value)


@pytest.mark.req("A6", "C4")
def test_a_blob_of_no_bytes_is_damage_and_none_at_all_is_missing(store: Store) -> None:
    large = values(store).keep(text_of(MIB))
    key = KEYS.blob(large.blob)
    store.delete(key)

    with pytest.raises(Missing, match=large.blob):
        values(store).read(large)
    store.put_new(key, b"", {})
    assert isinstance(store.get(key), Found)
    with pytest.raises(Corrupt, match="it has 0 bytes"):
        values(store).read(large)
