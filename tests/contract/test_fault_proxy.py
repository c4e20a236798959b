"""A real server behind a faulty way: what the S3 store says, and what the server holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.store import Absent, Clash, Found, Stored, Undecided, Unknown
from milepost.testing.faults import Action, Drop, Fault, Flip, Hold, Reply
from tests.support.fault_proxy import FaultProxy, Passed
from tools.cluster.interface import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.req("C4")]


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as running:
        yield running


@pytest.fixture
def direct(real_config: Callable[[str], S3Config]) -> S3Store:
    return open_store(real_config(""))


@pytest.fixture
def through(proxy: FaultProxy, real_config: Callable[[str], S3Config]) -> S3Store:
    return open_store(real_config(proxy.endpoint))


def statuses(proxy: FaultProxy) -> list[tuple[str, int, int]]:
    return [(each.method, each.server, each.client) for each in proxy.journal]


def test_without_faults_all_calls_pass(proxy: FaultProxy, through: S3Store) -> None:
    etag = through.put_new("ns/head", b"body", {"n": "1"})

    assert isinstance(etag, Stored)
    assert through.get("ns/head") == Found(b"body", etag.etag, {"n": "1"})
    assert through.put_new("ns/head", b"other", {}) == Clash()
    assert [each.key for each in through.list("ns/")] == ["ns/head"]
    through.delete("ns/head")
    assert through.get("ns/head") == Absent()
    assert len(proxy.journal) == 6


@pytest.mark.parametrize(
    "action",
    [
        Drop(after=True),
        Reply(500, "InternalError", after=True),
        Reply(503, "SlowDown", after=True),
    ],
)
def test_a_creation_whose_answer_is_lost_is_unknown_and_stored(
    proxy: FaultProxy, through: S3Store, direct: S3Store, action: Action
) -> None:
    proxy.fail(Fault(action, method="PUT", key="/head"))
    answer = through.put_new("ns/head", b"body", {})
    found = direct.get("ns/head")

    assert isinstance(answer, Unknown)
    assert isinstance(found, Found)
    assert found.body == b"body"
    assert [(method, server) for method, server, _ in statuses(proxy)] == [("PUT", 200)]


@pytest.mark.parametrize("action", [Drop(), Reply(500, "InternalError"), Reply(503, "SlowDown")])
def test_a_creation_that_never_arrives_is_unknown_and_not_stored(
    proxy: FaultProxy, through: S3Store, direct: S3Store, action: Action
) -> None:
    proxy.fail(Fault(action, method="PUT", key="/head"))
    answer = through.put_new("ns/head", b"body", {})

    assert isinstance(answer, Unknown)
    assert direct.get("ns/head") == Absent()
    assert [(method, server) for method, server, _ in statuses(proxy)] == [("PUT", 0)]


def test_a_conflict_is_undecided_and_not_stored(proxy: FaultProxy, through: S3Store, direct: S3Store) -> None:
    proxy.fail(Fault(Reply(409, "ConditionalRequestConflict"), method="PUT"))
    answer = through.put_new("ns/head", b"body", {})

    assert isinstance(answer, Undecided)
    assert direct.get("ns/head") == Absent()


def test_a_replacement_whose_answer_is_lost_meets_its_own_first_try(
    proxy: FaultProxy, through: S3Store, direct: S3Store
) -> None:
    first = direct.put_new("ns/head", b"1", {})
    assert isinstance(first, Stored)
    proxy.fail(Fault(Drop(after=True), method="PUT", key="/head"))
    answers = [through.put_if("ns/head", b"2", {}, etag=first.etag) for _ in range(2)]
    found = direct.get("ns/head")

    assert isinstance(answers[0], Unknown)
    assert answers[1] == Clash()
    assert isinstance(found, Found)
    assert found.body == b"2"


@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_hangs_is_unknown(
    proxy: FaultProxy, real_config: Callable[[str], S3Config], *, after: bool
) -> None:
    hold = Hold(after=after)
    proxy.fail(Fault(hold, method="PUT", key="/head"))
    hasty = open_store(replace(real_config(proxy.endpoint), read_timeout=0.5))
    answer = hasty.put_new("ns/head", b"body", {})

    assert isinstance(answer, Unknown)
    assert answer.cause.startswith("ReadTimeoutError")
    assert hold.reached.is_set()


def test_a_server_that_is_gone_closes_the_connection(real_config: Callable[[str], S3Config]) -> None:
    with FaultProxy("http://127.0.0.1:1") as proxy:
        answer = open_store(real_config(proxy.endpoint)).put_new("head", b"", {})

        assert isinstance(answer, Unknown)
        assert [(each.server, each.client) for each in proxy.journal] == [(0, 0)]


def test_a_request_of_the_journal_has_its_path(
    proxy: FaultProxy, s3_server: S3Server, through: S3Store
) -> None:
    through.get("ns/head")
    path = f"/{s3_server.bucket}/{through.uri.partition(s3_server.bucket)[2].strip('/')}/ns/head"

    assert proxy.journal == [Passed("GET", path, 404, 404)]


def test_a_fault_that_changes_bodies_is_a_mistake(proxy: FaultProxy) -> None:
    with pytest.raises(TypeError, match="leaves bodies alone"):
        proxy.fail(Fault(Flip()))
