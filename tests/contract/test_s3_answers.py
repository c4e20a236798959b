"""Every row of the table of answers to a write, as the S3 store names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Config, S3Store, open_store, parse_url
from milepost.checkpoint.store import (
    Answer,
    Clash,
    Expired,
    Found,
    Gone,
    Refused,
    Stored,
    Undecided,
    Unknown,
)
from milepost.errors import StoreRefused, StoreUnavailable
from milepost.testing.fake_s3 import Drop, FakeS3, Fault, Hold, Reply

CHECK_KEYS = "put valid keys into the store's Secret, or into the environment of `milepost`"

FORBIDDEN = (
    "allow these keys to get and put objects below the prefix, and to list the bucket: without that"
    " AWS answers 403 for a key that does not exist"
)
CONFIGURATION = "check the store's endpoint, bucket and region"


def create(store: S3Store) -> Answer:
    return store.put_new("ns/head", b"new", {})


def replace(store: S3Store) -> Answer:
    return store.put_if("ns/head", b"new", {}, etag='"known"')


def answer_to_both(fake_s3: FakeS3, store: S3Store, reply: Reply) -> Answer:
    """Return what a creation and a replacement alike are told when the server replies so."""
    fake_s3.fail(Fault(reply, method="PUT", times=2))
    first, second = create(store), replace(store)

    assert first == second
    assert [(seen.status, seen.request.method) for seen in fake_s3.journal] == [(reply.status, "PUT")] * 2
    return first


def test_a_write_that_is_applied_gives_the_etag_of_the_answer(fake_s3: FakeS3, fake_store: S3Store) -> None:
    answer = create(fake_store)

    assert answer == Stored(fake_s3.objects()["some/prefix/ns/head"].etag)


def test_a_condition_that_fails_is_a_clash(fake_store: S3Store) -> None:
    create(fake_store)

    assert [create(fake_store), replace(fake_store)] == [Clash(), Clash()]


def test_replacing_a_missing_object_says_that_it_is_gone(fake_store: S3Store) -> None:
    assert replace(fake_store) == Gone()


def test_a_creation_is_never_told_that_its_object_is_gone(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.fail(Fault(Reply(404, "NoSuchKey")))

    assert create(fake_store) == Unknown("404 NoSuchKey to a creation")


def test_a_404_without_words_of_s3_is_unknown(fake_s3: FakeS3, fake_store: S3Store) -> None:
    assert answer_to_both(fake_s3, fake_store, Reply(404, "")) == Unknown("404 404: Not Found")


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_is_undecided(fake_s3: FakeS3, fake_store: S3Store, code: str) -> None:
    answer = answer_to_both(fake_s3, fake_store, Reply(409, code))

    assert answer == Undecided(f"409 {code}: as the test asked")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "RequestTimeout"),
        (400, "BadDigest"),
        (400, "IncompleteBody"),
        (408, "RequestTimeout"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (502, "BadGateway"),
        (503, "SlowDown"),
        (504, "GatewayTimeout"),
        (599, "NeverHeardOf"),
    ],
)
@pytest.mark.req("C4")
def test_an_answer_that_decides_nothing_is_unknown(
    fake_s3: FakeS3, fake_store: S3Store, status: int, code: str
) -> None:
    answer = answer_to_both(fake_s3, fake_store, Reply(status, code))

    assert answer == Unknown(f"{status} {code}: as the test asked")


def test_the_wish_of_a_busy_store_is_passed_on(fake_s3: FakeS3, fake_store: S3Store) -> None:
    answer = answer_to_both(fake_s3, fake_store, Reply(503, "SlowDown", headers={"Retry-After": "7"}))

    assert answer == Unknown("503 SlowDown: as the test asked", retry_after=7.0)


def test_a_wish_that_is_a_date_is_left_to_our_own_back_off(fake_s3: FakeS3, fake_store: S3Store) -> None:
    date = {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}
    answer = answer_to_both(fake_s3, fake_store, Reply(503, "SlowDown", headers=date))

    assert answer == Unknown("503 SlowDown: as the test asked", retry_after=0.0)


def test_a_clock_that_is_off_is_unknown_and_says_so(fake_s3: FakeS3, fake_store: S3Store) -> None:
    answer = answer_to_both(fake_s3, fake_store, Reply(403, "RequestTimeTooSkewed"))

    assert answer == Unknown(
        "403 RequestTimeTooSkewed: as the test asked; the clock of this machine is too far from the store's"
    )


@pytest.mark.parametrize("code", ["ExpiredToken", "TokenRefreshRequired", "RequestExpired"])
def test_credentials_that_ran_out_are_told_apart(fake_s3: FakeS3, fake_store: S3Store, code: str) -> None:
    answer = answer_to_both(fake_s3, fake_store, Reply(400, code))

    assert answer == Expired(f"400 {code}: as the test asked")


@pytest.mark.parametrize(
    ("status", "code", "reason", "advice"),
    [
        (403, "InvalidAccessKeyId", "CredentialsInvalid", CHECK_KEYS),
        (403, "SignatureDoesNotMatch", "CredentialsInvalid", CHECK_KEYS),
        (404, "XAdminUserNotFound", "CredentialsInvalid", CHECK_KEYS),
        (403, "AccessDenied", "StoreForbidden", FORBIDDEN),
        (
            404,
            "NoSuchBucket",
            "BucketMissing",
            "create the bucket, or correct its name in the store's settings",
        ),
        (400, "InvalidArgument", "StoreMisconfigured", CONFIGURATION),
        (405, "MethodNotAllowed", "StoreMisconfigured", CONFIGURATION),
    ],
)
def test_a_clear_no_is_refused_with_advice(
    fake_s3: FakeS3, fake_store: S3Store, status: int, code: str, reason: str, advice: str
) -> None:
    answer = answer_to_both(fake_s3, fake_store, Reply(status, code))

    assert answer == Refused(
        reason,
        f"s3://milepost/some/prefix/ns/head: the store answered {status} {code}: as the test asked",
        advice,
    )


def test_a_bucket_that_is_missing_is_refused(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.drop_bucket()
    answers = [create(fake_store), replace(fake_store)]

    assert [answer.reason for answer in answers if isinstance(answer, Refused)] == ["BucketMissing"] * 2


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.req("C4")
def test_a_connection_that_closes_leaves_the_write_unknown(
    fake_s3: FakeS3, fake_store: S3Store, *, after: bool
) -> None:
    fake_s3.fail(Fault(Drop(after=after), method="PUT", key="/head"))
    answer = create(fake_store)

    assert isinstance(answer, Unknown)
    assert answer.cause.startswith("ConnectionClosedError")
    assert list(fake_s3.objects()) == (["some/prefix/ns/head"] if after else [])
    assert [seen.line for seen in fake_s3.journal] == ["PUT some/prefix/ns/head 0"]


@pytest.mark.req("C4")
def test_an_error_after_the_write_leaves_it_unknown(fake_s3: FakeS3, fake_store: S3Store) -> None:
    fake_s3.fail(Fault(Reply(500, "InternalError", after=True), method="PUT"))

    assert create(fake_store) == Unknown("500 InternalError: as the test asked")
    assert fake_s3.body("some/prefix/ns/head") == b"new"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.req("C4")
def test_an_answer_that_does_not_come_in_time_leaves_the_write_unknown(
    fake_s3: FakeS3, *, after: bool
) -> None:
    hold = Hold(after=after)
    fake_s3.fail(Fault(hold, method="PUT"))
    store = open_store(fake_s3.config(read_timeout=0.2))
    answer = create(store)

    assert isinstance(answer, Unknown)
    assert answer.cause.startswith("ReadTimeoutError")
    assert hold.reached.wait(60)
    hold.release.set()


@pytest.mark.req("C4")
def test_a_server_that_cannot_be_reached_leaves_the_write_unknown(fake_s3: FakeS3, nobodys_port: int) -> None:
    endpoint = f"http://127.0.0.1:{nobodys_port}"
    store = open_store(S3Config(endpoint, "b", credentials=fake_s3.credentials))
    answer = create(store)

    assert isinstance(answer, Unknown)
    assert answer.cause.startswith("EndpointConnectionError")


def test_a_name_that_no_bucket_can_have_is_refused(fake_s3: FakeS3) -> None:
    store = open_store(S3Config(fake_s3.endpoint, "not a bucket", credentials=fake_s3.credentials))
    answer = create(store)

    assert isinstance(answer, Refused)
    assert (answer.reason, answer.advice) == ("StoreMisconfigured", CONFIGURATION)
    assert fake_s3.journal == []


def test_an_endpoint_that_is_no_url_is_refused_on_opening(fake_s3: FakeS3) -> None:
    with pytest.raises(StoreRefused) as refused:
        open_store(S3Config("nowhere", "b", credentials=fake_s3.credentials))

    assert refused.value.reason == "StoreMisconfigured"


@pytest.mark.parametrize("status", [301, 307])
def test_a_bucket_elsewhere_is_refused(fake_s3: FakeS3, fake_store: S3Store, status: int) -> None:
    fake_s3.fail(Fault(Reply(status, "PermanentRedirect"), times=9))
    answer = create(fake_store)

    assert isinstance(answer, Refused)
    assert (answer.reason, answer.advice) == ("StoreMisconfigured", CONFIGURATION)


@pytest.mark.req("C1")
def test_each_write_is_sent_once_with_its_condition_and_a_digest_and_no_waiting(
    fake_s3: FakeS3, fake_store: S3Store
) -> None:
    create(fake_store)
    replace(fake_store)
    headers = [seen.request.headers for seen in fake_s3.journal]

    assert [(each.get("if-none-match"), each.get("if-match")) for each in headers] == [
        ("*", None),
        (None, '"known"'),
    ]
    assert all("x-amz-checksum-sha256" in each and "expect" not in each for each in headers)


@pytest.mark.req("C1")
def test_a_body_that_changed_on_its_way_is_not_stored(fake_s3: FakeS3, fake_store: S3Store) -> None:
    # What a digest is for: the store compares it with what it received.
    link = fake_store._link
    assert link is not None
    link.client.meta.events.register("before-send.s3", lambda request, **_: setattr(request, "body", b"wen"))
    answer = create(fake_store)

    assert isinstance(answer, Unknown)
    assert answer.cause.startswith("400 BadDigest")
    assert fake_s3.objects() == {}


@pytest.mark.parametrize(
    ("url", "config"),
    [
        ("s3://b", S3Config("", "b")),
        ("s3://b/p/q", S3Config("", "b", "p/q")),
        ("s3://b/team%20%231%3Fx/%25", S3Config("", "b", "team #1?x/%")),
        (
            "s3://b/p?endpoint=http://127.0.0.1:8333&region=eu-west-1",
            S3Config("http://127.0.0.1:8333", "b", "p", "eu-west-1", Path("/keys")),
        ),
    ],
)
def test_a_url_names_a_configuration_and_back(url: str, config: S3Config) -> None:
    assert parse_url(url, config.credentials) == config
    assert parse_url(config.url, config.credentials) == config


@pytest.mark.parametrize(
    "url", ["", "b/p", "http://b/p", "s3://", "s3:///p", "s3://b?bucket=c", "s3://[b", "s3://b/p#1"]
)
def test_a_url_that_names_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="is no URL of a bucket"):
        parse_url(url)


def test_metadata_that_no_header_can_carry_is_refused(fake_s3: FakeS3, fake_store: S3Store) -> None:
    answer = fake_store.put_new("ns/head", b"", {"who": "Zoë"})

    assert isinstance(answer, Refused)
    assert answer.reason == "StoreMisconfigured"
    assert fake_s3.journal == []


def test_what_a_store_wrote_it_reads_back(fake_store: S3Store) -> None:
    answer = create(fake_store)

    assert isinstance(answer, Stored)
    assert fake_store.get("ns/head") == Found(b"new", answer.etag, {})


def test_a_listing_without_an_answer_is_told_without_a_key() -> None:
    error = StoreUnavailable("", waited=1.0, cause="refused")

    assert str(error) == "no clear answer from the store within 1 s; last: refused"
