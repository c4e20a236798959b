"""The requests of an upload in parts, and the digest that proves its result whole.

It says what each request holds and sends none by itself: `milepost.checkpoint.s3` decides which of them may
be repeated, what their answers mean, and when an upload is given up.

The surprise: S3's own checksum of such an object is one of the parts' checksums, which no reader can verify
without knowing the parts. So the object carries the SHA-256 of its whole body in its metadata, under a name
that callers of the store never see.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import FlexibleChecksumError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

__all__ = ["PART", "Upload", "checksum", "verified"]

PART: Final = 16 * 1024**2
"""Bytes of a part, the last one excepted; a body of more than that is uploaded in parts.

S3 takes parts of 5 MiB to 5 GiB and at most 10,000 of them, so that 156 GiB fit.
"""

_DIGEST: Final = "milepost-sha256"


@dataclass(frozen=True)
class Upload:
    """An upload of `body` to one key. Whatever is sent costs the memory of one part besides the body."""

    bucket: str
    key: str
    body: bytes

    def begin(self, client: S3Client, metadata: Mapping[str, str]) -> str:
        """Begin an upload and return its id. Begun again, it is another upload."""
        answer = client.create_multipart_upload(
            Bucket=self.bucket,
            Key=self.key,
            Metadata={**metadata, _DIGEST: hashlib.sha256(self.body).hexdigest()},
            ChecksumAlgorithm="SHA256",
        )
        return answer["UploadId"]

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the parts."""
        yield from range(1, -(-len(self.body) // PART) + 1)

    def send(self, client: S3Client, upload_id: str, number: int) -> CompletedPartTypeDef:
        """Send one part. Sent again, it replaces itself."""
        piece = self.body[(number - 1) * PART : number * PART]
        proof = checksum(piece)
        answer = client.upload_part(
            Bucket=self.bucket,
            Key=self.key,
            UploadId=upload_id,
            PartNumber=number,
            Body=piece,
            ChecksumSHA256=proof,
        )
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": proof}

    def complete(self, client: S3Client, upload_id: str, parts: list[CompletedPartTypeDef]) -> str:
        """Make the object of its parts, on condition that there is none of this key; return its ETag."""
        answer = client.complete_multipart_upload(
            Bucket=self.bucket,
            Key=self.key,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
            IfNoneMatch="*",
        )
        return answer.get("ETag", "")

    def abort(self, client: S3Client, upload_id: str) -> None:
        """Give the upload up, and with it the parts that the bucket keeps for it."""
        client.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=upload_id)


def verified(body: bytes, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata as the caller gave it, once the body is what was uploaded.

    Names come back in lower case. Raises an error of the SDK where the body is another one.
    """
    given = {name.lower(): value for name, value in metadata.items()}
    digest = given.pop(_DIGEST, "")
    if digest and (found := hashlib.sha256(body).hexdigest()) != digest:
        raise FlexibleChecksumError(error_msg=f"the body has the SHA-256 {found}, and {digest} was uploaded")
    return given


def checksum(body: bytes) -> str:
    """Return the SHA-256 of a body as S3 writes it: in base64."""
    return base64.b64encode(hashlib.sha256(body).digest()).decode()
