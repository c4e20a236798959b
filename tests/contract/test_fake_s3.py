"""The fake itself: what the contract cannot reach through our own store."""

from __future__ import annotations

import base64
import http.client
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session

from milepost.testing.fake_s3 import Drop, FakeS3, Fault, Hold, Reply

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def client(fake_s3: FakeS3) -> Iterator[S3Client]:
    made = Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=fake_s3.endpoint,
        aws_access_key_id="anybody",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    yield cast("S3Client", made)
    made.close()


def code_of(error: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response = error.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def send(fake_s3: FakeS3, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(fake_s3.endpoint.removeprefix("http://"), timeout=60)
    try:
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=k/", **headers}
        connection.request(method, path, body, signed)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def chunked(body: bytes, crc32: bytes) -> bytes:
    """Return a body in the form that the SDK sends under TLS."""
    trailer = b"x-amz-checksum-crc32:" + base64.b64encode(crc32)
    return b"%x\r\n%s\r\n0\r\n%s\r\n\r\n" % (len(body), body, trailer)


def test_a_default_client_works_with_its_own_settings(fake_s3: FakeS3, client: S3Client) -> None:
    client.put_object(Bucket="milepost", Key="k", Body=b"body", Metadata={"A": "b"})
    head = client.head_object(Bucket="milepost", Key="k")

    assert (head["ContentLength"], head["Metadata"]) == (4, {"a": "b"})
    assert fake_s3.body("k") == b"body"


def test_equal_bytes_bring_an_etag_back(client: S3Client) -> None:
    etags = [client.put_object(Bucket="milepost", Key="k", Body=body)["ETag"] for body in (b"A", b"B", b"A")]

    assert etags[0] == etags[2] == '"7fc56270e7a70fa81a5935b72eacbe29"'
    assert etags[1] != etags[0]


@pytest.mark.parametrize("right", [True, False])
def test_a_chunked_body_is_checked_against_its_trailer(fake_s3: FakeS3, *, right: bool) -> None:
    sent = b"body" if right else b"another"
    body = chunked(b"body", zlib.crc32(sent).to_bytes(4))
    headers = {"Content-Encoding": "aws-chunked", "x-amz-trailer": "x-amz-checksum-crc32"}

    assert send(fake_s3, "PUT", "/milepost/k", body, headers) == (200 if right else 400)
    assert [each.body for each in fake_s3.objects().values()] == ([b"body"] if right else [])


@pytest.mark.parametrize("name", ["x-amz-checksum-sha256", "x-amz-checksum-crc32", "content-md5"])
def test_a_wrong_digest_is_refused(fake_s3: FakeS3, name: str) -> None:
    assert send(fake_s3, "PUT", "/milepost/k", b"body", {name: "bm90IGl0"}) == 400
    assert fake_s3.objects() == {}


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("PUT", "/milepost/k", {"x-amz-checksum-crc64nvme": "AAAA"}),
        ("PUT", "/milepost/k", {"If-None-Match": '"an etag"'}),
        ("PUT", "/milepost/k", {"x-amz-copy-source": "/milepost/other"}),
        ("POST", "/milepost/k?uploads", {"x-amz-checksum-algorithm": "CRC32"}),
        ("POST", "/milepost/k?uploads", {"x-amz-checksum-type": "FULL_OBJECT"}),
        ("DELETE", "/milepost/k", {"If-Match": '"an etag"'}),
        ("GET", "/milepost/k", {"Range": "bytes=0-1"}),
        ("GET", "/milepost", {}),
        ("POST", "/milepost?delete", {}),
    ],
)
def test_what_it_cannot_do_exactly_it_refuses(
    fake_s3: FakeS3, method: str, path: str, headers: dict[str, str]
) -> None:
    assert send(fake_s3, method, path, b"", headers) == 501


def test_an_unsigned_request_is_forbidden(fake_s3: FakeS3) -> None:
    assert send(fake_s3, "GET", "/milepost/k", b"", {"Authorization": ""}) == 403


def test_buckets_are_made_and_missed(fake_s3: FakeS3, client: S3Client) -> None:
    with pytest.raises(ClientError) as missing:
        client.put_object(Bucket="second", Key="k", Body=b"")
    client.create_bucket(Bucket="second")
    client.put_object(Bucket="second", Key="k", Body=b"")

    assert code_of(missing) == (404, "NoSuchBucket")
    assert list(fake_s3.objects("second")) == ["k"]


def test_a_key_over_a_kibibyte_is_refused(client: S3Client) -> None:
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket="milepost", Key="k" * 1025, Body=b"")

    assert code_of(refused) == (400, "KeyTooLongError")


def test_listings_group_page_and_start_where_asked(client: S3Client) -> None:
    for key in ("a/1", "a/2", "b", "c/1"):
        client.put_object(Bucket="milepost", Key=key, Body=b"")
    first = client.list_objects_v2(Bucket="milepost", Delimiter="/", MaxKeys=2)
    second = client.list_objects_v2(
        Bucket="milepost", Delimiter="/", ContinuationToken=first["NextContinuationToken"]
    )
    after = client.list_objects_v2(Bucket="milepost", StartAfter="a/2")

    assert [each["Prefix"] for each in first["CommonPrefixes"]] == ["a/"]
    assert [each["Key"] for each in first["Contents"]] == ["b"]
    assert [each["Prefix"] for each in second["CommonPrefixes"]] == ["c/"]
    assert [each["Key"] for each in after["Contents"]] == ["b", "c/1"]


def test_a_fault_hits_the_nth_request_that_matches(fake_s3: FakeS3, client: S3Client) -> None:
    fake_s3.fail(Fault(Reply(503, "SlowDown"), method="PUT", key="/head", nth=2))
    client.put_object(Bucket="milepost", Key="run/head", Body=b"1")
    client.put_object(Bucket="milepost", Key="run/other", Body=b"1")
    with pytest.raises(ClientError):
        client.put_object(Bucket="milepost", Key="run/head", Body=b"2")
    client.put_object(Bucket="milepost", Key="run/head", Body=b"3")

    assert [seen.line for seen in fake_s3.journal] == [
        "PUT run/head 200",
        "PUT run/other 200",
        "PUT run/head 503",
        "PUT run/head 200",
    ]


def test_faults_can_be_taken_back(fake_s3: FakeS3, client: S3Client) -> None:
    fake_s3.fail(Fault(Drop(), times=99))
    fake_s3.heal()
    client.put_object(Bucket="milepost", Key="k", Body=b"1")

    assert fake_s3.body("k") == b"1"


def test_a_held_request_is_applied_once_it_is_released(fake_s3: FakeS3, client: S3Client) -> None:
    hold = Hold()
    fake_s3.fail(Fault(hold, method="PUT"))
    hold.release.set()
    client.put_object(Bucket="milepost", Key="k", Body=b"1")

    assert hold.reached.is_set()
    assert fake_s3.body("k") == b"1"
