"""Sealed records: segments, as the head names them, and which of them are merged when the next one is made.

A segment holds a run of records that no longer fit the head. Segments are merged four to one, level by
level, so that a head names the whole history in at most three names a level. Merging happens in the very
write that seals: where three segments of a level stand already, the new one is written with their records
in front, and takes their place. Nothing here does I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from milepost.api.names import StoreKeys
from milepost.checkpoint.formats import NEWEST, Kind, read_json, upgrade, write_json
from milepost.errors import Corrupt

__all__ = ["FANOUT", "MAX_SEGMENT", "Segment", "header_of", "lines_of", "merging", "seal", "segment_key"]

FANOUT: Final = 4
"""Segments of one level that become one of the next. More would be fewer, larger rewrites, and more names."""

MAX_SEGMENT: Final = 64 * 1024 * 1024
"""Bytes beyond which segments are not merged further: a merge has them all in memory."""


@dataclass(frozen=True)
class Segment:
    """A segment as the head names it. `digest` is the SHA-256 of the whole object, `size` its bytes."""

    epoch: int
    first: int
    last: int
    nonce: str
    size: int
    digest: str
    level: int = 0


def segment_key(keys: StoreKeys, named: Segment) -> str:
    """Return the key of a run's segment."""
    return keys.segment(named.epoch, named.first, named.last, named.nonce)


def merging(segments: Sequence[Segment], size: int) -> tuple[Segment, ...]:
    """Return the newest segments that a new one of `size` bytes takes in, oldest first; none is usual."""
    level, rest = 0, list(segments)
    taken: list[Segment] = []
    while True:
        side_by_side = 0
        while side_by_side < len(rest) and rest[-1 - side_by_side].level == level:
            side_by_side += 1
        newest = rest[len(rest) - side_by_side :]
        size += sum(segment.size for segment in newest)
        if side_by_side < FANOUT - 1 or size > MAX_SEGMENT:
            return tuple(taken)
        taken = newest + taken
        rest = rest[: len(rest) - side_by_side]
        level += 1


def seal(
    run_id: str,
    *,
    epoch: int,
    last: int,
    nonce: str,
    lines: Sequence[bytes],
    merged: Sequence[tuple[Segment, Sequence[bytes]]] = (),
) -> tuple[Segment, bytes]:
    """Return the segment of these lines, up to record `last`, behind the lines of those it takes in."""
    every = [line for _, older in merged for line in older]
    every += lines
    first = last - len(every) + 1
    header = {
        "format": NEWEST[Kind.SEGMENT],
        "run_id": run_id,
        "epoch": epoch,
        "first": first,
        "last": last,
        "nonce": nonce,
    }
    body = write_json(header) + b"\n" + b"".join(every)
    level = 1 + max(segment.level for segment, _ in merged) if merged else 0
    digest = hashlib.sha256(body).hexdigest()
    return Segment(epoch, first, last, nonce, len(body), digest, level), body


def lines_of(body: bytes, named: Segment, keys: StoreKeys) -> tuple[bytes, ...]:
    """Return the lines of the segment's records. Raises Corrupt if it is not the one named."""
    key = segment_key(keys, named)
    if hashlib.sha256(body).hexdigest() != named.digest:
        raise Corrupt(key, "it does not match the digest in the head")
    line, _, rest = body.partition(b"\n")
    header = header_of(line, Kind.SEGMENT, key)
    wanted = {"run_id": keys.run_id, **asdict(named)}
    if any(header[name] != wanted.get(name) for name in header):
        raise Corrupt(key, f"it says of itself that it is {header}")
    lines = tuple(rest.splitlines(keepends=True))
    if len(lines) != named.last - named.first + 1:
        raise Corrupt(key, f"it holds {len(lines)} records, not {named.first} to {named.last}")
    return lines


def header_of(line: bytes, kind: Kind, key: str) -> dict[str, Any]:
    """Return the fields of an object's first line. Raises Corrupt, FormatTooNew."""
    try:
        header = read_json(line)
    except ValueError as error:
        raise Corrupt(key, f"the {kind} is not JSON: {error}") from error
    return upgrade(kind, header, key)
