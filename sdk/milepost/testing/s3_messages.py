"""Requests and answers of the fake S3 as values, and the rules that all writes share.

It applies nothing: `milepost.testing.s3_objects` and `s3_uploads` do. Conditions, error codes and checksums
are those of AWS.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

__all__ = [
    "CHECKSUM",
    "DIGESTS",
    "META",
    "Object",
    "Request",
    "Response",
    "bad_checksum",
    "error",
    "metadata_of",
    "not_implemented",
    "refused_condition",
    "same_etag",
    "xml",
]

META = "x-amz-meta-"
CHECKSUM = "x-amz-checksum-"
# They say something about checksums and are none.
_ABOUT_CHECKSUMS = frozenset(f"{CHECKSUM}{name}" for name in ("mode", "type", "algorithm"))
DIGESTS: Mapping[str, Callable[[bytes], bytes]] = {
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
    parts_etag: str = ""

    @property
    def etag(self) -> str:
        """The MD5 of the bytes, or what an upload in parts made of those of its parts."""
        if self.parts_etag:
            return self.parts_etag
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


def error(status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """Return an error answer in S3's words."""
    text = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    return Response(status, {"Content-Type": "application/xml", **(headers or {})}, xml(text))


def metadata_of(request: Request) -> dict[str, str]:
    """Return the user metadata that a request carries."""
    return {
        name.removeprefix(META): value for name, value in request.headers.items() if name.startswith(META)
    }


def refused_condition(request: Request, found: Object | None) -> Response | None:
    """Return why the condition of a write does not hold, None where it does or there is none."""
    if (creates := request.headers.get("if-none-match")) is not None:
        if creates != "*":
            return not_implemented(request)
        return _precondition_failed() if found else None
    if (replaces := request.headers.get("if-match")) is not None:
        if found is None:
            return error(404, "NoSuchKey", "The specified key does not exist.")
        return None if same_etag(replaces, found.etag) else _precondition_failed()
    return None


def bad_checksum(request: Request) -> Response | None:
    """Return a refusal where a digest of the request does not fit its body."""
    for name, value in request.headers.items():
        if name == "content-md5":
            digest = hashlib.md5(request.body, usedforsecurity=False).digest()
        elif name.startswith(CHECKSUM) and name not in _ABOUT_CHECKSUMS:
            known = DIGESTS.get(name.removeprefix(CHECKSUM))
            if known is None:
                return not_implemented(request)
            digest = known(request.body)
        else:
            continue
        if base64.b64encode(digest).decode() != value:
            return error(400, "BadDigest", f"The {name} you specified did not match the calculated checksum.")
    return None


def same_etag(given: str, etag: str) -> bool:
    """Compare two ETags; quotes do not matter to AWS."""
    return given.strip('"') == etag.strip('"')


def _precondition_failed() -> Response:
    return error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")


def not_implemented(request: Request) -> Response:
    """Return the refusal of what the fake cannot do exactly."""
    return error(501, "NotImplemented", f"This fake does not know {request.method} in this form")


def xml(text: str) -> bytes:
    """Return a document as bytes."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
