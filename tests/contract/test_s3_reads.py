"""Reads of the S3 store repeat themselves, and credentials are read anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.store import Absent, Expired, Found, Refused, Stored
from milepost.errors import StoreRefused, StoreUnavailable
from milepost.testing.fake_s3 import Action, Drop, FakeS3, Fault, Flip, Reply, Truncate

CHECK_KEYS = "put valid keys into the store's Secret, or into the environment of `milepost`"

ALL_TRIES = 4


def statuses(fake_s3: FakeS3, method: str = "GET") -> list[int]:
    return [seen.status for seen in fake_s3.journal if seen.request.method == method]


def a_head(store: S3Store) -> Found:
    answer = store.put_new("ns/head", b"body", {"n": "1"})
    assert isinstance(answer, Stored)
    return Found(b"body", answer.etag, {"n": "1"})


@pytest.mark.parametrize(
    "action",
    [
        Drop(),
        Drop(after=True),
        Reply(500, "InternalError"),
        Reply(503, "SlowDown"),
        Reply(429, "TooManyRequests"),
        Reply(409, "OperationAborted"),
        Reply(404, ""),
        Truncate(at=2),
        Flip(at=0),
    ],
)
@pytest.mark.req("C1")
def test_a_read_without_a_good_answer_is_repeated(
    fake_s3: FakeS3, fake_store: S3Store, action: Action
) -> None:
    head = a_head(fake_store)
    fake_s3.fail(Fault(action, method="GET", times=2))

    assert fake_store.get("ns/head") == head
    assert len(statuses(fake_s3)) == 3


def test_reads_pause_longer_each_time(fake_s3: FakeS3, fake_store: S3Store, pauses: list[float]) -> None:
    fake_s3.fail(Fault(Reply(500, "InternalError"), times=ALL_TRIES))
    with pytest.raises(StoreUnavailable):
        fake_store.get("ns/head")

    assert pauses == [0.1, 0.4, 1.6]


def test_a_read_waits_as_long_as_a_busy_store_wishes_within_reason(
    fake_s3: FakeS3, fake_store: S3Store, pauses: list[float]
) -> None:
    fake_s3.fail(Fault(Reply(503, "SlowDown", headers={"Retry-After": "3"})))
    fake_s3.fail(Fault(Reply(503, "SlowDown", headers={"Retry-After": "3600"}), nth=2))
    fake_store.get("ns/head")

    assert pauses == [3.0, 5.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get("ns/head"),
        lambda store: list(store.list("ns/")),
        lambda store: store.delete("ns/head"),
    ],
)
def test_a_call_that_never_gets_a_good_answer_says_what_it_last_heard(
    fake_s3: FakeS3, fake_store: S3Store, call: Callable[[S3Store], object]
) -> None:
    fake_s3.fail(Fault(Reply(500, "InternalError"), times=99))
    with pytest.raises(StoreUnavailable, match="last: 500 InternalError: as the test asked"):
        call(fake_store)

    assert len(fake_s3.journal) == ALL_TRIES


def test_a_server_that_cannot_be_reached_is_unavailable(
    fake_s3: FakeS3, pauses: list[float], nobodys_port: int
) -> None:
    endpoint = f"http://127.0.0.1:{nobodys_port}"
    store = S3Store(S3Config(endpoint, "b", credentials=fake_s3.credentials), pause=pauses.append)
    with pytest.raises(StoreUnavailable, match="EndpointConnectionError"):
        store.get("ns/head")

    assert len(pauses) == ALL_TRIES - 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(403, "AccessDenied"), "StoreForbidden"),
        (Reply(403, "InvalidAccessKeyId"), "CredentialsInvalid"),
        (Reply(404, "NoSuchBucket"), "BucketMissing"),
        (Reply(400, "InvalidRequest"), "StoreMisconfigured"),
    ],
)
def test_a_clear_no_to_a_read_is_raised_at_once(
    fake_s3: FakeS3, fake_store: S3Store, reply: Reply, reason: str
) -> None:
    fake_s3.fail(Fault(reply))
    with pytest.raises(StoreRefused) as refused:
        fake_store.get("ns/head")

    assert refused.value.reason == reason
    assert statuses(fake_s3) == [reply.status]


def test_a_refused_read_mentions_that_a_missing_key_may_be_the_cause(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    fake_s3.fail(Fault(Reply(403, "AccessDenied")))
    with pytest.raises(StoreRefused, match="AWS answers 403 for a key that does not exist"):
        fake_store.get("ns/head")


def test_each_page_of_a_listing_is_repeated_by_itself(pauses: list[float]) -> None:
    with FakeS3(page=2) as s3:
        store = S3Store(s3.config("p"), pause=pauses.append)
        keys = [f"ns/{number}" for number in range(5)]
        for key in keys:
            store.put_new(key, b"", {})
        s3.fail(Fault(Drop(), method="GET", nth=2))
        s3.fail(Fault(Truncate(at=40), method="GET", nth=4))

        assert [each.key for each in store.list("ns/")] == keys
        assert len(statuses(s3)) == 5


def test_a_deletion_is_repeated(fake_s3: FakeS3, fake_store: S3Store) -> None:
    a_head(fake_store)
    fake_s3.fail(Fault(Drop(after=True), method="DELETE"))
    fake_store.delete("ns/head")

    assert fake_s3.objects() == {}
    assert statuses(fake_s3, "DELETE") == [0, 204]


def signers(fake_s3: FakeS3) -> list[str]:
    credentials = [
        each.request.headers["authorization"].partition("Credential=")[2] for each in fake_s3.journal
    ]
    return [each.partition("/")[0] for each in credentials]


def test_a_write_with_expired_keys_is_sent_once_and_the_next_call_reads_new_ones(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    fake_s3.reject("fake-key", Reply(400, "ExpiredToken"))
    first = fake_store.put_new("ns/head", b"", {})
    fake_s3.sign_with("second-key")
    second = fake_store.put_new("ns/head", b"", {})

    assert first == Expired("400 ExpiredToken: as the test asked")
    assert isinstance(second, Stored)
    assert signers(fake_s3) == ["fake-key", "second-key"]


def test_a_write_refused_with_keys_that_were_replaced_is_worth_another_try(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    fake_s3.sign_with("second-key")
    fake_s3.reject("fake-key", Reply(403, "InvalidAccessKeyId"))
    first = fake_store.put_new("ns/head", b"", {})
    second = fake_store.put_new("ns/head", b"", {})

    assert isinstance(first, Expired)
    assert first.cause.endswith("the keys have been replaced since")
    assert isinstance(second, Stored)
    assert signers(fake_s3) == ["fake-key", "second-key"]


def test_a_write_refused_with_the_keys_that_are_still_there_stays_refused(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    fake_s3.reject("fake-key", Reply(403, "InvalidAccessKeyId"))
    answers = [fake_store.put_new("ns/head", b"", {}) for _ in range(2)]

    assert [each.reason for each in answers if isinstance(each, Refused)] == ["CredentialsInvalid"] * 2


@pytest.mark.parametrize("reply", [Reply(400, "ExpiredToken"), Reply(403, "InvalidAccessKeyId")])
def test_a_read_goes_on_with_new_keys_by_itself(fake_s3: FakeS3, fake_store: S3Store, reply: Reply) -> None:
    fake_s3.sign_with("second-key")
    fake_s3.reject("fake-key", reply)

    assert fake_store.get("ns/head") == Absent()
    assert signers(fake_s3) == ["fake-key", "second-key"]


def test_reads_with_keys_that_stay_expired_are_unavailable(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.reject("fake-key", Reply(400, "ExpiredToken"))
    with pytest.raises(StoreUnavailable, match="last: 400 ExpiredToken"):
        fake_store.get("ns/head")


def test_a_session_token_is_sent(fake_s3: FakeS3) -> None:
    (fake_s3.credentials / "session-token").write_text("token-1\n")
    open_store(fake_s3.config()).get("ns/head")

    assert [seen.request.headers["x-amz-security-token"] for seen in fake_s3.journal] == ["token-1"]


def test_keys_that_cannot_be_read_are_refused_on_opening(fake_s3: FakeS3, tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match=r"cannot be read.*needs the keys access-key-id") as refused:
        open_store(S3Config(fake_s3.endpoint, "b", credentials=tmp_path))

    assert refused.value.reason == "CredentialsInvalid"


def test_keys_that_vanish_while_running_are_refused(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.reject("fake-key", Reply(400, "ExpiredToken"))
    fake_store.put_new("ns/head", b"", {})
    (fake_s3.credentials / "access-key-id").unlink()
    answer = fake_store.put_new("ns/head", b"", {})

    assert isinstance(answer, Refused)
    assert answer.reason == "CredentialsInvalid"


def test_without_a_folder_the_keys_come_from_where_the_sdk_finds_them(
    fake_s3: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    open_store(S3Config(fake_s3.endpoint, "milepost")).get("ns/head")

    assert signers(fake_s3) == ["from-environment"]


def test_without_any_keys_writes_are_refused_and_nothing_is_sent(
    fake_s3: FakeS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    answer = open_store(S3Config(fake_s3.endpoint, "milepost")).put_new("ns/head", b"", {})

    assert isinstance(answer, Refused)
    assert (answer.reason, answer.advice) == ("CredentialsInvalid", CHECK_KEYS)
    assert fake_s3.journal == []


def test_importing_the_store_loads_neither_boto3_nor_a_client() -> None:
    code = (
        "import sys, milepost.checkpoint.s3; print('boto3' in sys.modules, 'botocore.data.s3' in sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert seen.stdout.split() == ["False", "False"]
