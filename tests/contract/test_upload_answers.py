"""What servers answer to uploads in parts: the fake says what the real ones say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session

from milepost.checkpoint.s3_multipart import checksum
from milepost.testing.fake_s3 import FakeS3
from milepost.testing.s3_uploads import SMALLEST_PART
from tools.cluster.interface import S3Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

BUCKET, KEY = "milepost", "upload-answers"
FIRST, SECOND = b"a" * SMALLEST_PART, b"the rest"


@pytest.fixture(
    params=[
        "fake",
        pytest.param("seaweedfs", marks=pytest.mark.s3),
        pytest.param("versitygw", marks=pytest.mark.s3),
    ]
)
def client(request: pytest.FixtureRequest) -> Iterator[S3Client]:
    endpoint, keys = "", ("anybody", "secret")
    if request.param == "fake":
        fake: FakeS3 = request.getfixturevalue("fake_s3")
        endpoint = fake.endpoint
    else:
        server: S3Server = request.getfixturevalue(f"{request.param}_server")
        endpoint, keys = server.endpoint, (server.access_key, server.secret_key)
    made = Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    used = cast("S3Client", made)
    used.delete_object(Bucket=BUCKET, Key=KEY)
    yield used
    used.close()


class Upload:
    """An upload with its two parts sent."""

    def __init__(self, client: S3Client, *bodies: bytes) -> None:
        self._client = client
        begun = client.create_multipart_upload(
            Bucket=BUCKET, Key=KEY, ChecksumAlgorithm="SHA256", Metadata={"n": "1"}
        )
        self.id = begun["UploadId"]
        self.parts = [self.send(number, body) for number, body in enumerate(bodies, 1)]

    def send(self, number: int, body: bytes, sum_of: bytes | None = None) -> CompletedPartTypeDef:
        proof = checksum(body if sum_of is None else sum_of)
        sent = self._client.upload_part(
            Bucket=BUCKET, Key=KEY, UploadId=self.id, PartNumber=number, Body=body, ChecksumSHA256=proof
        )
        return {"PartNumber": number, "ETag": sent["ETag"], "ChecksumSHA256": proof}

    def complete(self, *parts: CompletedPartTypeDef, key: str = KEY, **condition: Any) -> str:
        done = self._client.complete_multipart_upload(
            Bucket=BUCKET,
            Key=key,
            UploadId=self.id,
            MultipartUpload={"Parts": list(parts or self.parts)},
            **condition,
        )
        return done["ETag"]


def code_of(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ClientError) as raised:
        call()
    response = raised.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def test_an_upload_becomes_an_object_with_the_etag_of_its_parts(client: S3Client) -> None:
    etag = Upload(client, FIRST, SECOND).complete(IfNoneMatch="*")
    read = client.get_object(Bucket=BUCKET, Key=KEY, ChecksumMode="ENABLED")

    assert etag == read["ETag"] == '"b7cd6aa33250a2357c98cb90dfe6a9c3-2"'
    assert (read["Metadata"], read["Body"].read() == FIRST + SECOND) == ({"n": "1"}, True)
    assert read["ChecksumSHA256"].endswith("-2")


def test_a_completion_obeys_its_condition_and_may_be_tried_again(client: S3Client) -> None:
    upload = Upload(client, FIRST, SECOND)
    client.put_object(Bucket=BUCKET, Key=KEY, Body=b"there")
    refused = [
        code_of(lambda: upload.complete(IfNoneMatch="*")),
        code_of(lambda: upload.complete(IfMatch='"0"')),
    ]
    client.delete_object(Bucket=BUCKET, Key=KEY)
    upload.complete(IfNoneMatch="*")

    assert refused == [(412, "PreconditionFailed")] * 2


def test_a_completion_that_names_no_upload_or_no_part_of_it_is_refused(client: S3Client) -> None:
    upload = Upload(client, FIRST, SECOND)
    first, second = upload.parts

    assert code_of(lambda: upload.complete({**first, "ETag": '"0"'}, second)) == (400, "InvalidPart")
    assert code_of(lambda: upload.complete(first, {**second, "PartNumber": 3})) == (400, "InvalidPart")
    assert code_of(lambda: upload.complete(key="another")) == (404, "NoSuchUpload")
    upload.id = "none"
    assert code_of(upload.complete) == (404, "NoSuchUpload")


def test_parts_are_checked_for_their_size_and_their_checksum(client: S3Client) -> None:
    upload = Upload(client, b"too small", SECOND)

    assert code_of(upload.complete) == (400, "EntityTooSmall")
    assert code_of(lambda: upload.send(1, b"body", sum_of=b"another")) == (400, "BadDigest")


def test_an_upload_that_was_given_up_takes_no_more_parts(client: S3Client) -> None:
    upload = Upload(client)
    client.abort_multipart_upload(Bucket=BUCKET, Key=KEY, UploadId=upload.id)

    assert code_of(lambda: upload.send(1, SECOND)) == (404, "NoSuchUpload")
