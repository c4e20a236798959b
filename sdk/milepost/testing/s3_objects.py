"""What S3 answers to a request, without a network: the semantics behind `milepost.testing.fake_s3`.

Conditions, error codes, checksums and listings are those of AWS. Whatever it cannot do exactly (multipart,
versions, ranges, conditional deletion) it refuses with 501, so that nobody comes to rely on a guess.

The surprise is faithful to AWS: a write on condition of an ETag is answered with 404 where there is no such
object, and an ETag is the MD5 of the bytes, so the same bytes bring the same ETag back.
"""

from __future__ import annotations

import base64
import datetime as dt
import email.utils
import hashlib
import threading
import urllib.parse
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

__all__ = ["Buckets", "Object", "Request", "Response", "error"]

_LONGEST_KEY = 1024
_META = "x-amz-meta-"
_CHECKSUM = "x-amz-checksum-"
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
_DIGESTS: Mapping[str, Callable[[bytes], bytes]] = {
    "sha256": lambda body: hashlib.sha256(body).digest(),
    "sha1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
    "crc32": lambda body: zlib.crc32(body).to_bytes(4),
}


@dataclass(frozen=True)
class Request:
    """One request. Header names are lower case; `body` is decoded and `headers` include its trailers."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Response:
    """One answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Object:
    """One stored object; `modified` is in seconds since 1970."""

    body: bytes
    metadata: Mapping[str, str]
    checksums: Mapping[str, str]
    modified: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


def error(status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """Return an error answer in S3's words."""
    text = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    return Response(status, {"Content-Type": "application/xml", **(headers or {})}, _xml(text))


class Buckets:
    """Buckets in memory. Each request is answered at one instant, so conditions hold under concurrency."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float], page: int) -> None:
        """Make the named buckets; `page` is the most that one page of a listing holds."""
        self._objects: dict[str, dict[str, Object]] = {name: {} for name in names}
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

    def drop(self, bucket: str) -> None:
        """Remove a bucket and all that it holds."""
        with self._lock:
            self._objects.pop(bucket, None)

    def _without_bucket(self, request: Request) -> Response:
        if request.method == "PUT" and not request.key:
            self._objects[request.bucket] = {}
            return Response(200)
        return error(404, "NoSuchBucket", "The specified bucket does not exist")

    def _on_bucket(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(200)
        if request.method == "PUT":
            return error(409, "BucketAlreadyOwnedByYou", "You already own it")
        listing = request.method == "GET" and request.query.get("list-type") == "2"
        if not listing or set(request.query) - _LIST_QUERY - _PLAIN_QUERY:
            return _not_implemented(request)
        return _listing(request, self._objects[request.bucket], self._page)

    def _on_object(self, request: Request) -> Response:
        if set(request.query) - _PLAIN_QUERY:
            return _not_implemented(request)
        if len(request.key.encode()) > _LONGEST_KEY:
            return error(400, "KeyTooLongError", "Your key is too long")
        objects = self._objects[request.bucket]
        found = objects.get(request.key)
        if request.method in {"GET", "HEAD"}:
            return _read(request, found)
        if request.method == "DELETE" and "if-match" not in request.headers:
            objects.pop(request.key, None)
            return Response(204)
        if request.method != "PUT" or "x-amz-copy-source" in request.headers:
            return _not_implemented(request)
        if refusal := _refused_write(request, found):
            return refusal
        stored = self._stored(request)
        objects[request.key] = stored
        return Response(200, {"ETag": stored.etag, **stored.checksums})

    def _stored(self, request: Request) -> Object:
        metadata = {
            name.removeprefix(_META): value
            for name, value in request.headers.items()
            if name.startswith(_META)
        }
        checksums = {f"{_CHECKSUM}{name}": request.headers.get(f"{_CHECKSUM}{name}", "") for name in _DIGESTS}
        given = {name: value for name, value in checksums.items() if value}
        return Object(request.body, metadata, given, self._clock())


def _read(request: Request, found: Object | None) -> Response:
    if "range" in request.headers or "if-match" in request.headers:
        return _not_implemented(request)
    if found is None:
        return error(404, "NoSuchKey", "The specified key does not exist.")
    if _same_etag(request.headers.get("if-none-match", ""), found.etag):
        return Response(304, {"ETag": found.etag})
    headers = {
        "ETag": found.etag,
        "Content-Type": "binary/octet-stream",
        "Last-Modified": email.utils.formatdate(found.modified, usegmt=True),
        **{f"{_META}{name}": value for name, value in found.metadata.items()},
    }
    if request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
        headers |= found.checksums
    return Response(200, headers, found.body)


def _refused_write(request: Request, found: Object | None) -> Response | None:
    """Return why a write is not applied, None where nothing speaks against it."""
    if refusal := _bad_checksum(request):
        return refusal
    if (creates := request.headers.get("if-none-match")) is not None:
        if creates != "*":
            return _not_implemented(request)
        return _precondition_failed() if found else None
    if (replaces := request.headers.get("if-match")) is not None:
        if found is None:
            return error(404, "NoSuchKey", "The specified key does not exist.")
        return None if _same_etag(replaces, found.etag) else _precondition_failed()
    return None


def _bad_checksum(request: Request) -> Response | None:
    for name, value in request.headers.items():
        if name == "content-md5":
            digest = hashlib.md5(request.body, usedforsecurity=False).digest()
        elif name.startswith(_CHECKSUM) and name not in {f"{_CHECKSUM}mode", f"{_CHECKSUM}type"}:
            known = _DIGESTS.get(name.removeprefix(_CHECKSUM))
            if known is None:
                return _not_implemented(request)
            digest = known(request.body)
        else:
            continue
        if base64.b64encode(digest).decode() != value:
            return error(400, "BadDigest", f"The {name} you specified did not match the calculated checksum.")
    return None


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
    return Response(200, {"Content-Type": "application/xml"}, _xml(body))


def _row(name: str, found: Object | None) -> str:
    if found is None:
        return f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
    when = dt.datetime.fromtimestamp(found.modified, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    about = (
        f"<LastModified>{when}</LastModified><ETag>{escape(found.etag)}</ETag><Size>{len(found.body)}</Size>"
    )
    return f"<Contents><Key>{name}</Key>{about}</Contents>"


def _same_etag(given: str, etag: str) -> bool:
    return given.strip('"') == etag.strip('"')


def _precondition_failed() -> Response:
    return error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")


def _not_implemented(request: Request) -> Response:
    return error(501, "NotImplemented", f"This fake does not know {request.method} in this form")


def _xml(text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
