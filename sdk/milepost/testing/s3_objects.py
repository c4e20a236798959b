"""What S3 answers to a request, without a network: the semantics behind `milepost.testing.fake_s3`.

Conditions, error codes, checksums and listings are those of AWS. Whatever it cannot do exactly (versions,
ranges, conditional deletion) it refuses with 501, so that nobody comes to rely on a guess.

The surprise is faithful to AWS: a write on condition of an ETag is answered with 404 where there is no such
object, and an ETag is the MD5 of the bytes, so the same bytes bring the same ETag back.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

from milepost.testing.s3_messages import (
    CHECKSUM,
    DIGESTS,
    META,
    Object,
    Request,
    Response,
    bad_checksum,
    error,
    metadata_of,
    not_implemented,
    refused_condition,
    same_etag,
    xml,
)
from milepost.testing.s3_uploads import Uploads

__all__ = ["Buckets"]

_LONGEST_KEY = 1024
# Query parameters that change nothing, or that listings understand.
_PLAIN_QUERY = frozenset({"x-id"})
_LIST_QUERY = frozenset(
    {
        "list-type",
        "prefix",
        "delimiter",
        "max-keys",
        "continuation-token",
        "start-after",
        "encoding-type",
        "fetch-owner",
    }
)


class Buckets:
    """Buckets in memory. Each request is answered at one instant, so conditions hold under concurrency."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float], page: int) -> None:
        """Make the named buckets; `page` is the most that one page of a listing holds."""
        self._objects: dict[str, dict[str, Object]] = {name: {} for name in names}
        self._uploads = {name: Uploads() for name in names}
        self._clock = clock
        self._page = page
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Response:
        """Apply a request and return its answer."""
        with self._lock:
            if request.bucket not in self._objects:
                return self._without_bucket(request)
            return self._on_object(request) if request.key else self._on_bucket(request)

    def objects(self, bucket: str) -> dict[str, Object]:
        """Return what a bucket holds now."""
        with self._lock:
            return dict(self._objects[bucket])

    def uploads(self, bucket: str) -> list[str]:
        """Return the keys of the uploads in parts that are under way in a bucket."""
        with self._lock:
            return self._uploads[bucket].keys

    def drop(self, bucket: str) -> None:
        """Remove a bucket and all that it holds."""
        with self._lock:
            self._objects.pop(bucket, None)

    def _without_bucket(self, request: Request) -> Response:
        if request.method == "PUT" and not request.key:
            self._objects[request.bucket], self._uploads[request.bucket] = {}, Uploads()
            return Response(200)
        return error(404, "NoSuchBucket", "The specified bucket does not exist")

    def _on_bucket(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(200)
        if request.method == "PUT":
            return error(409, "BucketAlreadyOwnedByYou", "You already own it")
        listing = request.method == "GET" and request.query.get("list-type") == "2"
        if not listing or set(request.query) - _LIST_QUERY - _PLAIN_QUERY:
            return not_implemented(request)
        return _listing(request, self._objects[request.bucket], self._page)

    def _on_object(self, request: Request) -> Response:
        if len(request.key.encode()) > _LONGEST_KEY:
            return error(400, "KeyTooLongError", "Your key is too long")
        objects = self._objects[request.bucket]
        if {"uploads", "uploadId"} & set(request.query):
            return self._uploads[request.bucket].answer(request, objects, self._clock())
        if set(request.query) - _PLAIN_QUERY:
            return not_implemented(request)
        found = objects.get(request.key)
        if request.method in {"GET", "HEAD"}:
            return _read(request, found)
        if request.method == "DELETE" and "if-match" not in request.headers:
            objects.pop(request.key, None)
            return Response(204)
        if request.method != "PUT" or "x-amz-copy-source" in request.headers:
            return not_implemented(request)
        if refusal := bad_checksum(request) or refused_condition(request, found):
            return refusal
        stored = self._stored(request)
        objects[request.key] = stored
        return Response(200, {"ETag": stored.etag, **stored.checksums})

    def _stored(self, request: Request) -> Object:
        checksums = {f"{CHECKSUM}{name}": request.headers.get(f"{CHECKSUM}{name}", "") for name in DIGESTS}
        given = {name: value for name, value in checksums.items() if value}
        return Object(request.body, metadata_of(request), given, self._clock())


def _read(request: Request, found: Object | None) -> Response:
    if "range" in request.headers or "if-match" in request.headers:
        return not_implemented(request)
    if found is None:
        return error(404, "NoSuchKey", "The specified key does not exist.")
    if same_etag(request.headers.get("if-none-match", ""), found.etag):
        return Response(304, {"ETag": found.etag})
    headers = {
        "ETag": found.etag,
        "Content-Type": "binary/octet-stream",
        "Last-Modified": email.utils.formatdate(found.modified, usegmt=True),
        **{f"{META}{name}": value for name, value in found.metadata.items()},
    }
    if request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
        headers |= found.checksums
    return Response(200, headers, found.body)


def _listing(request: Request, objects: Mapping[str, Object], page: int) -> Response:
    query = request.query
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token", "") or query.get("start-after", "")
    limit = min(int(query.get("max-keys", page)), page)
    # Common prefixes count and page like keys, and sort among them.
    rows: dict[str, Object | None] = {}
    for key in sorted(objects):
        rest = key.removeprefix(prefix)
        if key.startswith(prefix):
            group = (
                prefix + rest.partition(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
            )
            rows.setdefault(group or key, None if group else objects[key])
    left = [name for name in rows if name > after]
    shown = left[:limit]
    more = len(left) > len(shown)
    encode = urllib.parse.quote if query.get("encoding-type") == "url" else escape
    text = "".join(_row(encode(name), rows[name]) for name in shown)
    token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
    encoding = "<EncodingType>url</EncodingType>" if query.get("encoding-type") else ""
    head = f"<Prefix>{encode(prefix)}</Prefix><KeyCount>{len(shown)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
    truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
    body = f"<ListBucketResult>{head}{encoding}{truncated}{token}{text}</ListBucketResult>"
    return Response(200, {"Content-Type": "application/xml"}, xml(body))


def _row(name: str, found: Object | None) -> str:
    if found is None:
        return f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
    when = dt.datetime.fromtimestamp(found.modified, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    about = (
        f"<LastModified>{when}</LastModified><ETag>{escape(found.etag)}</ETag><Size>{len(found.body)}</Size>"
    )
    return f"<Contents><Key>{name}</Key>{about}</Contents>"
