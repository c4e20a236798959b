"""Refusals as real servers word them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Store, open_store
from milepost.checkpoint.store import Absent, Clash, Gone, Refused, Stored
from milepost.errors import StoreRefused
from tests.support.real_s3 import config_on
from tools.cluster.interface import S3Server

pytestmark = pytest.mark.s3


def signed(server: S3Server, folder: Path, prefix: str, access_key_id: str, secret: str) -> S3Store:
    """Return a store on a prefix with keys of its own."""
    config = config_on(server, folder)("")
    (folder / "access-key-id").write_text(access_key_id)
    (folder / "secret-access-key").write_text(secret)
    return open_store(replace(config, prefix=prefix))


def refusals(store: S3Store) -> list[str]:
    """Return the reasons for which a write and then a read are refused."""
    written = store.put_new("key", b"", {})
    assert isinstance(written, Refused)
    with pytest.raises(StoreRefused) as read:
        store.get("key")
    return [written.reason, read.value.reason]


def test_keys_that_are_not_valid_are_told_from_a_refusal(s3_server: S3Server, tmp_path: Path) -> None:
    admin = s3_server.admin.access_key

    assert refusals(signed(s3_server, tmp_path, "team-a", "nobody", "x")) == ["CredentialsInvalid"] * 2
    assert refusals(signed(s3_server, tmp_path, "team-a", admin, "x")) == ["CredentialsInvalid"] * 2


# The other server knows no keys but the administrator's without a service beside it.
def test_keys_for_one_prefix_are_forbidden_on_another(seaweedfs_server: S3Server, tmp_path: Path) -> None:
    team = seaweedfs_server.scoped["team-a"]
    store = signed(seaweedfs_server, tmp_path, "team-b", team.access_key, team.secret_key)

    assert refusals(store) == ["StoreForbidden"] * 2


def test_keys_for_one_prefix_are_enough_for_a_store_on_it(seaweedfs_server: S3Server, tmp_path: Path) -> None:
    team = seaweedfs_server.scoped["team-a"]
    store = signed(seaweedfs_server, tmp_path, "team-a", team.access_key, team.secret_key)

    assert store.get("runs/none") == Absent()
    assert isinstance(store.put_new("runs/one", b"", {}), Stored)
    assert [each.key for each in store.list("runs/")] == ["runs/one"]


# The other server makes a bucket that an administrator writes into.
def test_a_bucket_that_is_missing_is_named_as_such(versitygw_server: S3Server, tmp_path: Path) -> None:
    config = replace(config_on(versitygw_server, tmp_path)(""), bucket="no-such-bucket")

    assert refusals(open_store(config)) == ["BucketMissing"] * 2


def test_a_missing_object_is_gone_or_a_clash_as_the_server_words_it(
    s3_server: S3Server, tmp_path: Path
) -> None:
    store = open_store(config_on(s3_server, tmp_path)(""))

    # Both codings are in use: AWS answers 404 as well.
    assert isinstance(store.put_if("none", b"", {}, etag='"0"'), Gone | Clash)
    assert store.get("none") == Absent()
