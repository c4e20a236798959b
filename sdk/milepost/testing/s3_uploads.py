"""Uploads in parts, as S3 answers them: the multipart half of `milepost.testing.s3_objects`.

An upload is kept apart from the objects until it is completed; then the object appears at once, on the
conditions of any other write. It refuses parts copied from objects, and listing what is under way: tests ask
`FakeS3.uploads` for that.

The surprise is as AWS documents it: a completion that is refused leaves the upload as it was, and one that
was applied is forgotten, so that the same request again meets NoSuchUpload.
"""

from __future__ import annotations

import base64
import hashlib
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from milepost.testing.s3_messages import (
    CHECKSUM,
    Object,
    Request,
    Response,
    bad_checksum,
    error,
    metadata_of,
    not_implemented,
    refused_condition,
    xml,
)

__all__ = ["SMALLEST_PART", "Uploads"]

SMALLEST_PART = 5 * 1024**2
"""Bytes that all parts but the last have at least."""

_PARTS = range(1, 10_001)


@dataclass(frozen=True)
class _Part:
    body: bytes
    etag: str
    checksum: str


@dataclass
class _Upload:
    key: str
    metadata: Mapping[str, str]
    algorithm: str
    parts: dict[int, _Part] = field(default_factory=dict)


@dataclass(frozen=True)
class _Named:
    """A part as a completion names it."""

    number: int
    etag: str
    checksum: str


class Uploads:
    """The uploads under way in one bucket."""

    def __init__(self) -> None:
        self._begun = 0
        self._open: dict[str, _Upload] = {}

    @property
    def keys(self) -> list[str]:
        """The key of each upload under way."""
        return [each.key for each in self._open.values()]

    def answer(self, request: Request, objects: dict[str, Object], now: float) -> Response:
        """Apply a request about an upload; a completion puts its object into `objects`. Return the answer."""
        if request.method == "POST" and set(request.query) == {"uploads"}:
            return self._begin(request)
        upload = self._open.get(request.query.get("uploadId", ""))
        if upload is None or upload.key != request.key:
            return error(404, "NoSuchUpload", "The specified upload does not exist")
        match request.method, sorted(set(request.query) - {"uploadId", "x-id"}):
            case "PUT", ["partNumber"] if "x-amz-copy-source" not in request.headers:
                return _take(upload, request)
            case "POST", []:
                return self._complete(upload, request, objects, now)
            case "DELETE", []:
                del self._open[request.query["uploadId"]]
                return Response(204)
            case _:
                return not_implemented(request)

    def _begin(self, request: Request) -> Response:
        algorithm = request.headers.get(f"{CHECKSUM}algorithm", "").lower()
        if (
            algorithm not in {"", "sha256"}
            or request.headers.get(f"{CHECKSUM}type", "COMPOSITE") != "COMPOSITE"
        ):
            return not_implemented(request)
        self._begun += 1
        upload_id = f"upload-{self._begun}"
        self._open[upload_id] = _Upload(request.key, metadata_of(request), algorithm)
        names = f"<Bucket>{escape(request.bucket)}</Bucket><Key>{escape(request.key)}</Key>"
        return _answer("InitiateMultipartUploadResult", f"{names}<UploadId>{upload_id}</UploadId>")

    def _complete(
        self, upload: _Upload, request: Request, objects: dict[str, Object], now: float
    ) -> Response:
        named = _named(request.body)
        if refusal := _refused_list(upload, named) or refused_condition(request, objects.get(request.key)):
            return refusal
        parts = [upload.parts[each.number] for each in named]
        digests = b"".join(bytes.fromhex(part.etag.strip('"')) for part in parts)
        etag = f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"'
        checksums = {f"{CHECKSUM}sha256": _composite(parts)} if upload.algorithm else {}
        body = b"".join(part.body for part in parts)
        objects[request.key] = Object(body, upload.metadata, checksums, now, etag)
        del self._open[request.query["uploadId"]]
        return _answer("CompleteMultipartUploadResult", f"<ETag>{escape(etag)}</ETag>")


def _take(upload: _Upload, request: Request) -> Response:
    number = int(request.query["partNumber"])
    if number not in _PARTS:
        return error(400, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
    if refusal := bad_checksum(request):
        return refusal
    checksum = request.headers.get(f"{CHECKSUM}sha256", "")
    if upload.algorithm and not checksum:
        return error(
            400, "InvalidRequest", f"The upload was created using {upload.algorithm}; so must a part be"
        )
    etag = f'"{hashlib.md5(request.body, usedforsecurity=False).hexdigest()}"'
    upload.parts[number] = _Part(request.body, etag, checksum)
    return Response(200, {"ETag": etag, **({f"{CHECKSUM}sha256": checksum} if checksum else {})})


def _named(body: bytes) -> list[_Named]:
    root = ET.fromstring(body)  # noqa: S314  the test's own client wrote it
    space = root.tag.rpartition("}")[0] + "}" if root.tag.startswith("{") else ""

    def text(part: ET.Element, name: str) -> str:
        return part.findtext(f"{space}{name}") or ""

    return [
        _Named(int(text(part, "PartNumber")), text(part, "ETag"), text(part, "ChecksumSHA256"))
        for part in root.iter(f"{space}Part")
    ]


def _refused_list(upload: _Upload, named: list[_Named]) -> Response | None:
    numbers = [each.number for each in named]
    if not numbers:
        return error(400, "MalformedXML", "You must specify at least one part")
    if numbers != sorted(set(numbers)):
        return error(400, "InvalidPartOrder", "The list of parts was not in ascending order")
    for each in named:
        part = upload.parts.get(each.number)
        if part is None or part.etag.strip('"') != each.etag.strip('"') or part.checksum != each.checksum:
            return error(400, "InvalidPart", f"Part {each.number} was not uploaded, or is another one")
    if any(len(upload.parts[number].body) < SMALLEST_PART for number in numbers[:-1]):
        return error(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
    return None


def _composite(parts: list[_Part]) -> str:
    digests = b"".join(base64.b64decode(part.checksum) for part in parts)
    return f"{base64.b64encode(hashlib.sha256(digests).digest()).decode()}-{len(parts)}"


def _answer(name: str, text: str) -> Response:
    return Response(200, {"Content-Type": "application/xml"}, xml(f"<{name}>{text}</{name}>"))
