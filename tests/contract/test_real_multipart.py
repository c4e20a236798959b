"""Large creations on real servers whose answers are lost on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import pytest

from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.s3 import S3Config, open_store
from milepost.checkpoint.s3_multipart import PART
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Found
from milepost.testing.faults import Action, Drop, Fault, Flip, Reply, Truncate
from tests.support.fault_proxy import FaultProxy
from tests.support.store_doubles import Numbers
from tools.cluster.interface import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.req("C1", "C4")]

LARGE = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(PART // 32)) + b"the last part"


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as running:
        yield running


def completions(proxy: FaultProxy) -> list[int]:
    """Return what the server answered to each completion; 0 for one that never reached it."""
    return [each.server for each in proxy.journal if each.method == "POST" and "uploadId" in each.path]


@pytest.mark.parametrize(
    ("action", "method", "where", "answers"),
    [
        (Drop(after=True), "POST", "uploadId=", [200]),
        (Reply(500, "InternalError", after=True), "POST", "uploadId=", [200]),
        (Drop(), "POST", "uploadId=", [0, 200]),
        (Reply(409, "ConditionalRequestConflict"), "POST", "uploadId=", [0, 200]),
        (Drop(after=True), "PUT", "partNumber=2", [200]),
        (Drop(after=True), "POST", "uploads", [200]),
    ],
)
def test_a_large_object_is_stored_once_whatever_answer_is_lost(
    proxy: FaultProxy,
    real_config: Callable[[str], S3Config],
    action: Action,
    method: str,
    where: str,
    answers: list[int],
) -> None:
    proxy.fail(Fault(action, method=method, key=where))
    store = open_store(real_config(proxy.endpoint))
    done = send(store, Write(Purpose.CREATE, "ns/blob", LARGE, {"n": "1"}), Patience(Numbers()))
    found = open_store(real_config("")).get("ns/blob")

    assert isinstance(found, Found)
    assert (done, dict(found.metadata)) == (Done(found.etag), {"n": "1"})
    assert hashlib.sha256(found.body).digest() == hashlib.sha256(LARGE).digest()
    assert completions(proxy) == answers


@pytest.mark.parametrize("action", [Flip(at=PART + 3), Truncate(at=PART + 3)])
def test_a_large_body_that_is_damaged_on_its_way_is_read_again(
    proxy: FaultProxy, real_config: Callable[[str], S3Config], action: Action
) -> None:
    store = open_store(real_config(proxy.endpoint))
    store.put_new("ns/blob", LARGE, {})
    proxy.fail(Fault(action, method="GET", key="/blob"))
    found = store.get("ns/blob")

    assert isinstance(found, Found)
    assert hashlib.sha256(found.body).digest() == hashlib.sha256(LARGE).digest()
    assert [each.method for each in proxy.journal].count("GET") == 2
