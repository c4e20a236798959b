from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from milepost.checkpoint.file import FileStore
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.s3 import S3Store, open_store
from milepost.checkpoint.store import Store
from milepost.testing.fake_s3 import FakeS3
from milepost.testing.store_contract import StoreContract
from tests.support.real_s3 import config_on
from tools.cluster.interface import S3Server


@pytest.mark.req("C2")
class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


@pytest.mark.req("C1", "C2")
class TestFile(StoreContract):
    # A folder has no pages, and each write is synced.
    many: ClassVar[int] = 100

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FileStore(tmp_path / "store")


@pytest.mark.req("C1", "C2")
class TestFakeS3(StoreContract):
    @pytest.fixture
    def store(self, fake_s3: FakeS3) -> Store:
        return open_store(fake_s3.config("some/prefix"))


@pytest.mark.req("C1", "C2")
@pytest.mark.s3
class TestSeaweedFS(StoreContract):
    # The server makes waiters poll for its lock on a key, which takes seconds with many of them.
    contenders: ClassVar[int] = 3
    rounds: ClassVar[int] = 5

    @override
    @pytest.mark.xfail(
        strict=False,
        reason="on a starved machine it was seen to complete two conditional uploads in parts of one key; "
        "what Milepost uploads in parts has a digest or a nonce in its key: nobody else writes other bytes, "
        "and that what stands is whole is a test of its own",
    )
    def test_of_several_creators_of_a_large_object_exactly_one_wins(self, store: Store) -> None:
        super().test_of_several_creators_of_a_large_object_exactly_one_wins(store)

    @pytest.fixture
    def store(self, seaweedfs_server: S3Server, tmp_path: Path) -> Store:
        return open_store(config_on(seaweedfs_server, tmp_path / "credentials")(""))


@pytest.mark.req("C1", "C2")
@pytest.mark.s3
class TestVersitygw(StoreContract):
    @pytest.fixture
    def store(self, versitygw_server: S3Server, tmp_path: Path) -> Store:
        return open_store(config_on(versitygw_server, tmp_path / "credentials")(""))


def test_stores_on_different_prefixes_of_a_bucket_do_not_see_each_other(fake_s3: FakeS3) -> None:
    one, other = S3Store(fake_s3.config("team-a")), S3Store(fake_s3.config("team-ab"))
    one.put_new("key", b"of one", {})
    other.put_new("key", b"of the other", {})

    assert [each.key for each in one.list("")] == ["key"]
    assert {key: each.body for key, each in fake_s3.objects().items()} == {
        "team-a/key": b"of one",
        "team-ab/key": b"of the other",
    }


def test_a_store_at_the_top_of_its_bucket_has_no_slash_before_its_keys(fake_s3: FakeS3) -> None:
    S3Store(fake_s3.config("")).put_new("key", b"", {})

    assert list(fake_s3.objects()) == ["key"]


def test_a_listing_of_many_pages_is_complete() -> None:
    with FakeS3(page=3) as s3:
        store = open_store(s3.config("p"))
        keys = {f"ns/{number:02}" for number in range(10)}
        for key in keys:
            store.put_new(key, b"", {})

        assert {each.key for each in store.list("ns/")} == keys
