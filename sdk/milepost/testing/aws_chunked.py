"""Read the body of an S3 request in each form that clients send: plain, chunked, and `aws-chunked`.

The last one is a chunked body inside the body, with the checksum as a trailer; the SDK chooses it under
TLS. Signatures of chunks are read over, not checked.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Protocol

__all__ = ["read_body"]


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def readline(self) -> bytes: ...


def read_body(headers: Mapping[str, str], stream: _Stream) -> tuple[bytes, dict[str, str]]:
    """Return the decoded body and its trailers, whose names are lower case."""
    trailers: dict[str, str] = {}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body, trailers = _chunks(stream)
    else:
        body = stream.read(int(headers.get("content-length", "0")))
    if "aws-chunked" in headers.get("content-encoding", ""):
        body, trailers = _chunks(io.BytesIO(body))
    return body, trailers


def _chunks(stream: _Stream) -> tuple[bytes, dict[str, str]]:
    body = bytearray()
    while size := int(stream.readline().partition(b";")[0].strip() or b"0", 16):
        body += stream.read(size)
        stream.readline()
    trailers: dict[str, str] = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        trailers[name.strip().lower()] = value.strip()
    return bytes(body), trailers
