"""A real server behind a faulty way: what the S3 store says, and what the server holds."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.store import Absent, Clash, Found, Stored, Undecided, Unknown
from milepost.testing.faults import Action, Delay, Drop, Fault, Flip, Hold, Reply, Truncate
from tests.support.fault_proxy import FaultProxy, Journal, Passed
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


def address_of(proxy: FaultProxy) -> tuple[str, int]:
    host, _, port = proxy.endpoint.removeprefix("http://").partition(":")
    return host, int(port)


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
    assert hold.reached.wait(60)


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


@pytest.mark.parametrize("after", [False, True])
def test_a_reset_is_unknown_and_tells_nothing_of_what_was_stored(
    proxy: FaultProxy, through: S3Store, direct: S3Store, *, after: bool
) -> None:
    proxy.fail(Fault(Drop(after=after, reset=True), method="PUT", key="/head"))
    answer = through.put_new("ns/head", b"body", {})

    assert isinstance(answer, Unknown)
    assert isinstance(direct.get("ns/head"), Found if after else Absent)


def test_a_reset_is_no_orderly_end(proxy: FaultProxy) -> None:
    proxy.fail(Fault(Drop(reset=True)), Fault(Drop(), nth=2))
    ends: list[bytes | type[Exception]] = []
    for _ in range(2):
        with socket.create_connection(address_of(proxy), timeout=60) as client:
            client.sendall(b"GET /b/k HTTP/1.1\r\n\r\n")
            try:
                ends.append(client.recv(100))
            except ConnectionResetError as error:
                ends.append(type(error))

    assert ends == [ConnectionResetError, b""]


@pytest.mark.parametrize("damage", [Flip(at=1, upload=True), Truncate(at=1, upload=True)])
@pytest.mark.req("C1")
def test_a_body_that_is_damaged_on_its_way_there_is_not_stored(
    proxy: FaultProxy, through: S3Store, direct: S3Store, damage: Action
) -> None:
    proxy.fail(Fault(damage, method="PUT", key="/head"))
    answer = through.put_new("ns/head", b"body", {})

    assert isinstance(answer, Unknown)
    assert direct.get("ns/head") == Absent()
    assert isinstance(through.put_new("ns/head", b"body", {}), Stored)


@pytest.mark.parametrize("damage", [Flip(at=1), Truncate(at=1)])
@pytest.mark.req("C1", "F-D6")
def test_a_body_that_is_damaged_on_its_way_back_is_read_again(
    proxy: FaultProxy, through: S3Store, direct: S3Store, damage: Action
) -> None:
    direct.put_new("ns/head", b"body", {})
    proxy.fail(Fault(damage, method="GET", key="/head"))
    found = through.get("ns/head")

    assert isinstance(found, Found)
    assert found.body == b"body"
    assert [method for method, _, _ in statuses(proxy)] == ["GET", "GET"]


def test_damage_with_a_matching_checksum_passes_the_store_and_is_for_digests_to_find(
    proxy: FaultProxy, through: S3Store, direct: S3Store
) -> None:
    direct.put_new("ns/head", b"body", {})
    proxy.fail(Fault(Flip(at=0, mended=True), method="GET", key="/head"))
    found = through.get("ns/head")

    assert isinstance(found, Found)
    assert found.body == b"cody"


@pytest.mark.parametrize("after", [False, True])
def test_a_delay_changes_nothing_but_the_time(proxy: FaultProxy, through: S3Store, *, after: bool) -> None:
    proxy.fail(Fault(Delay(0.2, after=after), method="PUT"))
    began = time.monotonic()
    answer = through.put_new("ns/head", b"body", {})

    assert isinstance(answer, Stored)
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(("after", "found"), [(False, Absent), (True, Found)])
def test_what_is_held_and_lost_reaches_the_server_only_before_it_is_held(
    proxy: FaultProxy, through: S3Store, direct: S3Store, *, after: bool, found: type
) -> None:
    hold = Hold(after=after, lost=True)
    hold.release.set()
    proxy.fail(Fault(hold, method="PUT"))
    answer = through.put_new("ns/head", b"body", {})

    assert isinstance(answer, Unknown)
    assert isinstance(direct.get("ns/head"), found)


def test_the_proxy_answers_a_client_that_waits_for_100_itself() -> None:
    with FaultProxy("http://127.0.0.1:1") as proxy:
        with socket.create_connection(address_of(proxy), timeout=60) as client:
            client.sendall(b"PUT /b/k HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")

            assert client.recv(100).startswith(b"HTTP/1.1 100 ")
            client.sendall(b"body")
            assert client.recv(100) == b""
        assert [(each.method, each.body) for each in proxy.journal] == [("PUT", b"body")]


def test_a_journal_says_what_was_asked_and_answered_as_lines_of_json(
    s3_server: S3Server, real_config: Callable[[str], S3Config], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal")
    with FaultProxy(s3_server.endpoint, journal, door="first") as proxy:
        proxy.fail(Fault(Drop(after=True), nth=2))
        store = open_store(real_config(proxy.endpoint))
        first = store.put_new("ns/head", b"1", {})
        assert isinstance(first, Stored)
        store.put_if("ns/head", b"2", {}, etag=first.etag)

    lines = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    seen = [
        (each["number"], each["door"], each["condition"], each["server"], each["client"]) for each in lines
    ]
    assert seen == [
        (1, "first", {"if-none-match": "*"}, 200, 200),
        (2, "first", {"if-match": first.etag}, 200, 0),
    ]
    assert lines[0]["etag"] == first.etag
    assert lines[1]["sha256"] == hashlib.sha256(b"2").hexdigest()
    assert lines[1]["fault"] == "Drop(after=True, reset=False)"
