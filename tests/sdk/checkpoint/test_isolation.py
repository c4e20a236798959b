from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.checkpoint.isolation import check_isolation
from milepost.checkpoint.owner import KEY, claim_prefix
from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Stored
from milepost.errors import StoreNotIsolated, StoreRefused, StoreUnavailable
from milepost.testing.fake_s3 import FakeS3, Fault, Reply
from tests.support.bent_stores import Closed
from tools.cluster.interface import Identity, S3Server

ALL = ["read _owner", "read team-sibling/", "list team-sibling/", "write below team-sibling/"]


def owned(store: Closed) -> Closed:
    store.inner.put_new(KEY, b"{}", {})
    return store


@pytest.mark.req("S3")
def test_keys_that_open_only_their_own_namespace_pass_and_nothing_is_written() -> None:
    store = owned(Closed(own="team/"))

    check_isolation(store, "team")

    assert [each.key for each in store.inner.list("")] == [KEY]


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    ("own", "guarded", "opened"),
    [
        ("", {"read", "list", "write"}, ALL),
        ("team", {"read", "list", "write"}, ALL[1:]),
        ("team/", {"list", "write"}, ALL[:2]),
        ("team/", {"read", "write"}, ALL[2:3]),
        ("team/", {"read", "list"}, ALL[3:]),
    ],
    ids=["everything", "a careless pattern", "reading", "listing", "writing"],
)
def test_what_is_open_is_named(own: str, guarded: set[str], opened: list[str]) -> None:
    store = owned(Closed(own=own, guarded=frozenset(guarded)))

    with pytest.raises(StoreNotIsolated) as refused:
        check_isolation(store, "team")

    assert refused.value.opened == tuple(opened)
    assert [each.key for each in store.inner.list("")] == [KEY]


@pytest.mark.req("S3")
def test_the_message_says_what_to_do() -> None:
    with pytest.raises(StoreNotIsolated) as refused:
        check_isolation(owned(Closed()), "team")

    assert str(refused.value) == (
        "memory:: the keys that pods of namespace team have can also read _owner, read team-sibling/, "
        "list team-sibling/, write below team-sibling/; give the namespace keys that open nothing but team/ "
        "below the store's prefix; or, where all namespaces may read and change each other's runs, set "
        "isolation: none for the store"
    )


def test_keys_that_are_no_good_at_all_are_no_isolation() -> None:
    with pytest.raises(StoreRefused) as refused:
        check_isolation(Closed(own="team/", reason="CredentialsInvalid"), "team")

    assert refused.value.reason == "CredentialsInvalid"


def test_a_store_that_does_not_answer_proves_nothing() -> None:
    with FakeS3() as s3:
        s3.fail(Fault(Reply(403, "AccessDenied"), method="GET", times=99))
        s3.fail(Fault(Reply(503, "SlowDown"), method="PUT"))

        with pytest.raises(StoreUnavailable, match="503 SlowDown"):
            check_isolation(S3Store(s3.config()), "team")


@pytest.fixture
def server(seaweedfs_server: S3Server) -> S3Server:
    return seaweedfs_server


@pytest.fixture
def opened(server: S3Server, tmp_path: Path) -> Callable[[Identity, str], S3Store]:
    """Return stores of the real server, opened as somebody, below a prefix."""
    folders = itertools.count()

    def store(identity: Identity, prefix: str) -> S3Store:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        (folder / "access-key-id").write_text(identity.access_key)
        (folder / "secret-access-key").write_text(identity.secret_key)
        return open_store(S3Config(server.endpoint, server.bucket, prefix, server.region, folder))

    return store


@pytest.mark.s3
@pytest.mark.req("S3")
@pytest.mark.parametrize("prefix", ["", "milepost"])
def test_on_a_real_server_the_keys_of_one_namespace_pass_and_the_administrators_do_not(
    server: S3Server, opened: Callable[[Identity, str], S3Store], prefix: str
) -> None:
    claim_prefix(opened(server.admin, prefix), "cluster", patience=Patience(os.urandom))
    team = opened(server.identity("team-a"), prefix)

    check_isolation(team, "team-a")
    with pytest.raises(StoreNotIsolated) as refused:
        check_isolation(opened(server.admin, prefix), "team-a")

    assert refused.value.opened == tuple(each.replace("team-", "team-a-") for each in ALL)
    assert isinstance(team.put_new(f"team-a/runs/{os.urandom(4).hex()}", b"", {}), Stored)
