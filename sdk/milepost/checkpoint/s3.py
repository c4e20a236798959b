"""A bucket as a store, through botocore: the only file that talks to S3.

It sends each write once and names the answer; it refuses to repeat a write, since a repetition that meets
its own first try is told that somebody else wrote. Reads, listings and deletions are repeated here, and so
are the parts of a large creation, of which only the completion is a write that anybody can see.

The surprise: an `Expired` answer means that the store has dropped its client, and the next call reads the
credentials anew. A call that was refused with keys that have been replaced in the meantime gets it too.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, final
from urllib.parse import parse_qs, unquote, urlsplit

from milepost.checkpoint import s3_multipart
from milepost.checkpoint.s3_answers import FAILURES, answer_to, is_damage, status_of
from milepost.checkpoint.s3_client import Link, S3Config, connect, keys_replaced
from milepost.checkpoint.store import (
    Absent,
    Answer,
    Clash,
    Expired,
    Found,
    Gone,
    Listed,
    Read,
    Refused,
    Stored,
    Unchanged,
    Undecided,
    Unknown,
)
from milepost.errors import StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectRequestTypeDef, ListObjectsV2RequestTypeDef

__all__ = ["S3Config", "S3Store", "open_store", "parse_url"]

T = TypeVar("T")

# Between the four tries of a read. Who waits longer than that wants to know, and has a deadline of its own.
_PAUSES_S = (0.1, 0.4, 1.6)
_LONGEST_WISH_S = 5.0


class _Condition(TypedDict, total=False):
    IfMatch: str
    IfNoneMatch: str


def parse_url(url: str, credentials: Path | None = None) -> S3Config:
    """Read `s3://bucket/prefix?endpoint=http://host:port&region=us-east-1`; the query may be absent.

    Raises StoreRefused (StoreMisconfigured) for anything else.
    """
    refused = StoreRefused(
        "StoreMisconfigured",
        f"{url!r} is no URL of a bucket",
        advice="write it as s3://bucket/prefix?endpoint=https://host&region=name",
    )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise refused from error
    query = parse_qs(parts.query)
    meant = parts.scheme == "s3" and parts.netloc and not parts.fragment
    if not meant or set(query) - {"endpoint", "region"} or any(len(values) > 1 for values in query.values()):
        raise refused
    region = query.get("region", ["us-east-1"])[0]
    prefix = unquote(parts.path).strip("/")
    return S3Config(query.get("endpoint", [""])[0], parts.netloc, prefix, region, credentials)


def open_store(config: S3Config) -> S3Store:
    """Return a store on the bucket; sends nothing yet.

    Raises StoreRefused where the credentials cannot be read or the configuration cannot be meant.
    """
    return S3Store(config)


def _jitter() -> float:
    return int.from_bytes(os.urandom(4)) / 2**32


@final
class S3Store:
    """A `milepost.checkpoint.store.Store` on one prefix of one bucket. Safe to use from several threads."""

    def __init__(
        self,
        config: S3Config,
        *,
        pause: Callable[[float], None] = time.sleep,  # noqa: TID251  the default of an argument
        jitter: Callable[[], float] = _jitter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take `pause(seconds)`, `jitter()` in [0, 1) and a monotonic `clock()` for repeating reads."""
        self._config = config
        self._prefix = f"{config.prefix.strip('/')}/".lstrip("/")
        self._pause = pause
        self._jitter = jitter
        self._clock = clock
        self._lock = threading.Lock()
        self._link: Link | None = connect(config)

    @property
    def uri(self) -> str:
        return f"s3://{self._config.bucket}/{self._prefix}".rstrip("/")

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        request: GetObjectRequestTypeDef = {"Bucket": self._config.bucket, "Key": self._prefix + key}
        if unless_etag:
            request["IfNoneMatch"] = unless_etag

        def read(client: S3Client) -> Read:
            answer = client.get_object(**request)
            # Raises where the body is shorter than announced or its checksum does not fit.
            body = answer["Body"].read()
            return Found(body, answer["ETag"], s3_multipart.verified(body, answer["Metadata"]))

        instead: dict[int, Read] = {HTTPStatus.NOT_FOUND: Absent(), HTTPStatus.NOT_MODIFIED: Unchanged()}
        return self._repeat(key, read, instead)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        """Write the object on condition that there is none of this key; over 16 MiB, in parts.

        An upload that fails is aborted once, where that is safe, and else left to the bucket's own rule for
        incomplete uploads (`AbortIncompleteMultipartUpload`), which it should have.
        """
        if len(body) > s3_multipart.PART:
            answer = self._create_in_parts(key, body, metadata)
        else:
            answer = self._put(key, body, metadata, {"IfNoneMatch": "*"})
        # The condition names no object that could be gone.
        return Unknown("404 NoSuchKey to a creation") if isinstance(answer, Gone) else answer

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        if not etag:
            # Some stores take an empty header for none, and the write would be unconditional.
            raise ValueError("a conditional write needs the ETag that it replaces")
        return self._put(key, body, metadata, {"IfMatch": etag})

    def list(self, prefix: str) -> Iterator[Listed]:
        request: ListObjectsV2RequestTypeDef = {
            "Bucket": self._config.bucket,
            "Prefix": self._prefix + prefix,
        }
        while True:
            page = self._repeat(prefix, lambda client: client.list_objects_v2(**request), {})
            for each in page.get("Contents", []):
                key = each["Key"].removeprefix(self._prefix)
                yield Listed(key, each["Size"], each["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str) -> None:
        def remove(client: S3Client) -> None:
            client.delete_object(Bucket=self._config.bucket, Key=self._prefix + key)

        self._repeat(key, remove, {HTTPStatus.NOT_FOUND: None})

    def put_damaged(self, key: str, body: bytes) -> Answer:
        """Create an object with a checksum that is not its body's: see `probe.TakesDamage`."""
        return self._put(key, body, {}, {"IfNoneMatch": "*"}, checksum_of=b"not " + body)

    def _put(
        self,
        key: str,
        body: bytes,
        metadata: Mapping[str, str],
        condition: _Condition,
        *,
        checksum_of: bytes | None = None,
    ) -> Answer:
        try:
            link = self._linked()
        except StoreRefused as no:
            return Refused(no.reason, no.message, no.advice)
        try:
            answer = link.client.put_object(
                Bucket=self._config.bucket,
                Key=self._prefix + key,
                Body=body,
                Metadata=metadata,
                # Given here, it travels as a header. Left to the SDK, it would be a trailer of a chunked
                # body under TLS, which not every store reads.
                ChecksumSHA256=s3_multipart.checksum(body if checksum_of is None else checksum_of),
                **condition,
            )
        except FAILURES as error:
            if checksum_of is not None and is_damage(error):
                # Sent again it would be damaged again, so here it is a clear no.
                return Refused("ChecksumRefused", str(error), "")
            return self._answer(error, key, link)
        return Stored(answer.get("ETag", ""))

    def _create_in_parts(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        if self._surely_exists(key):
            # The condition does not hold, and the parts need not be sent to hear so.
            return Clash()
        upload = s3_multipart.Upload(self._config.bucket, self._prefix + key, body)
        upload_id = ""
        try:
            upload_id = self._repeat(key, lambda client: upload.begin(client, metadata), {})
            parts = [
                self._repeat(key, partial(upload.send, upload_id=upload_id, number=number), {})
                for number in upload.numbers()
            ]
            link = self._linked()
        except (StoreRefused, StoreUnavailable) as error:
            self._abort(upload, upload_id)
            if isinstance(error, StoreRefused):
                return Refused(error.reason, error.message, error.advice)
            return Unknown(error.cause)
        try:
            return Stored(upload.complete(link.client, upload_id, parts))
        except FAILURES as error:
            answer = self._answer(error, key, link)
        if isinstance(answer, Clash | Undecided | Refused):
            # After any other answer the completion may still be under way in the store, and giving the
            # upload up could then take parts away that the object is made of.
            self._abort(upload, upload_id)
        return answer

    def _surely_exists(self, key: str) -> bool:
        try:
            self._linked().client.head_object(Bucket=self._config.bucket, Key=self._prefix + key)
        except (*FAILURES, StoreRefused):
            # Whatever it is, the upload will be told so in words, which the answer to a HEAD lacks.
            return False
        return True

    def _abort(self, upload: s3_multipart.Upload, upload_id: str) -> None:
        if upload_id:
            # What fails here costs room in the bucket and nothing else.
            with contextlib.suppress(*FAILURES, StoreRefused):
                upload.abort(self._linked().client, upload_id)

    def _repeat(self, key: str, call: Callable[[S3Client], T], instead: Mapping[int, T]) -> T:
        """Make a call that is harmless to repeat, up to four times.

        `instead` says what to return for statuses that are no failure of this call.
        """
        began = self._clock()
        cause, wish = "", 0.0
        for pause in (*_PAUSES_S, 0.0):
            link = self._linked()
            try:
                return call(link.client)
            except FAILURES as error:
                if status_of(error) == HTTPStatus.NOT_MODIFIED and HTTPStatus.NOT_MODIFIED in instead:
                    return instead[HTTPStatus.NOT_MODIFIED]
                answer = self._answer(error, key, link)
                match answer:
                    case Gone() if HTTPStatus.NOT_FOUND in instead:
                        return instead[HTTPStatus.NOT_FOUND]
                    case Refused(reason, message, advice):
                        raise StoreRefused(reason, message, advice=advice) from error
                    case Unknown(cause, wish):
                        pass
                    case Undecided(cause) | Expired(cause):
                        wish = 0.0
                    case Gone() | Clash() | Stored():
                        cause, wish = f"{type(answer).__name__} to a call without a condition", 0.0
            if pause:
                self._pause(max(min(wish, _LONGEST_WISH_S), pause * (0.5 + self._jitter() / 2)))
        raise StoreUnavailable(key, waited=self._clock() - began, cause=cause)

    def _linked(self) -> Link:
        with self._lock:
            if self._link is None:
                self._link = connect(self._config)
            return self._link

    def _answer(self, error: BaseException, key: str, link: Link) -> Answer:
        """Name the answer, and drop the client if its credentials are of no use any more."""
        answer = answer_to(error, f"{self.uri}/{key}")
        if isinstance(answer, Refused) and keys_replaced(self._config, link, answer.reason):
            answer = Expired(f"{answer.message}; the keys have been replaced since")
        if isinstance(answer, Expired):
            with self._lock:
                if self._link is link:
                    self._link = None
        return answer
