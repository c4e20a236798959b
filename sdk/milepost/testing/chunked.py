"""Put chunked bodies together again: HTTP's own, and S3's `aws-chunked` inside a body.

The SDK chooses the latter under TLS, with the checksum as a trailer. Signatures of chunks are read over,
not checked.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["read_chunks"]


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def readline(self) -> bytes: ...


def read_chunks(stream: _Stream) -> tuple[bytes, dict[str, str]]:
    """Return the whole body and its trailers, whose names are lower case."""
    body = bytearray()
    while size := int(stream.readline().partition(b";")[0].strip() or b"0", 16):
        body += stream.read(size)
        stream.readline()
    trailers: dict[str, str] = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        trailers[name.strip().lower()] = value.strip()
    return bytes(body), trailers
