"""Refusals as the real server words them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.store import Absent, Refused, Stored
from milepost.errors import StoreRefused
from tools.cluster.interface import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def signed(real_config: Callable[[str], S3Config], tmp_path: Path) -> Callable[[str, str, str], S3Store]:
    """Return stores on a prefix, with an access key id and a secret."""

    def store(prefix: str, access_key_id: str, secret_access_key: str) -> S3Store:
        (tmp_path / "access-key-id").write_text(access_key_id)
        (tmp_path / "secret-access-key").write_text(secret_access_key)
        return open_store(replace(real_config(""), prefix=prefix, credentials=tmp_path))

    return store


def refusals(store: S3Store) -> list[str]:
    """Return the reasons for which a write and then a read are refused."""
    written = store.put_new("key", b"", {})
    assert isinstance(written, Refused)
    with pytest.raises(StoreRefused) as read:
        store.get("key")
    return [written.reason, read.value.reason]


def test_an_unknown_key_is_told_from_a_forbidden_one(
    s3_server: S3Server, signed: Callable[[str, str, str], S3Store]
) -> None:
    admin, team = s3_server.admin, s3_server.scoped["team-a"]

    assert refusals(signed("team-a", "nobody", "x")) == ["CredentialsInvalid"] * 2
    assert refusals(signed("team-a", admin.access_key, "x")) == ["CredentialsInvalid"] * 2
    assert refusals(signed("team-b", team.access_key, team.secret_key)) == ["StoreForbidden"] * 2


def test_keys_for_one_prefix_are_enough_for_a_store_on_it(
    s3_server: S3Server, signed: Callable[[str, str, str], S3Store]
) -> None:
    team = s3_server.scoped["team-a"]
    store = signed("team-a", team.access_key, team.secret_key)

    assert store.get("runs/none") == Absent()
    assert isinstance(store.put_new("runs/one", b"", {}), Stored)
    assert [each.key for each in store.list("runs/")] == ["runs/one"]
