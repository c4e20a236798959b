"""The head: the one mutable object of a run, and how the next one is made from it.

A head is a line of JSON that says who holds the run and what its history consists of, followed by the
newest records, up to 32 KiB. Replacing it under If-Match commits everything in it at once. Records that no
longer fit are sealed into immutable segments, which the head names with their digests.

No two heads are ever equal in bytes: each has a nonce of its own. So an ETag, even one that is a digest of
the bytes, stands for exactly one version. Nothing here does I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from milepost.api.names import Entropy, StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.fold import Totals, advance
from milepost.checkpoint.records import (
    FIRST_DIGEST,
    FORMAT,
    OPERATOR,
    Claimed,
    Event,
    Finished,
    Halted,
    Record,
    digest_of,
    line_of,
    parse_line,
)
from milepost.errors import Corrupt, FormatTooNew, ProtocolBreach

__all__ = ["MAX_TAIL", "Commit", "Head", "Segment", "first_head", "next_head", "parse_head", "parse_segment"]

MAX_TAIL: Final = 32 * 1024
"""Bytes of records that a head carries. Uploading them costs less than a second object a step."""


@dataclass(frozen=True)
class Segment:
    """A sealed run of records, as the head names it. `digest` is the SHA-256 of the whole object."""

    epoch: int
    first: int
    last: int
    nonce: str
    size: int
    digest: str


@dataclass(frozen=True)
class Head:
    """One version of a head. `chain` is the digest of record `seq`, `tail` the newest records' lines.

    `reason` and `message` say why the run ended or halted; they are empty while it does neither.
    """

    run_id: str
    key_root: str
    cluster: str
    namespace: str
    name: str
    resource_uid: str
    spec_digest: str
    epoch: int
    attempt: int
    writer: str
    nonce: str
    seq: int
    phase: Phase
    chain: str
    image: str = ""
    reason: str = ""
    message: str = ""
    totals: Totals = field(default_factory=Totals)
    segments: tuple[Segment, ...] = ()
    tail: tuple[bytes, ...] = ()

    def body(self) -> bytes:
        """Return the head as it is stored."""
        rest = b"".join(self.tail)
        header = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
            "totals": {**vars(self.totals), "ends": dict(self.totals.ends)},
            "segments": [vars(segment) for segment in self.segments],
        }
        opening = json.dumps(header, separators=(",", ":"))[:-1].encode()
        return opening + _sealed_by(_digest(opening, rest)) + b"\n" + rest

    def metadata(self) -> dict[str, str]:
        """Return what a look at the object without its body tells."""
        return {
            "seq": str(self.seq),
            "epoch": str(self.epoch),
            "phase": self.phase.value,
            "nonce": self.nonce,
        }

    @property
    def keys(self) -> StoreKeys:
        """The keys of this head's run."""
        return StoreKeys(self.namespace, self.run_id)

    def records(self) -> tuple[tuple[Record, str], ...]:
        """Return the tail's records with the digests of their lines. Raises Corrupt."""
        return tuple((parse_line(line, self.keys.head), digest_of(line)) for line in self.tail)


_PLAIN_FIELDS: Final = (
    "run_id",
    "key_root",
    "cluster",
    "namespace",
    "name",
    "resource_uid",
    "spec_digest",
    "epoch",
    "attempt",
    "writer",
    "nonce",
    "seq",
    "phase",
    "chain",
    "image",
    "reason",
    "message",
)


def _digest(opening: bytes, rest: bytes) -> str:
    return hashlib.sha256(opening + b"\n" + rest).hexdigest()


def _sealed_by(digest: str) -> bytes:
    """Return how a header's line ends: its last field is the digest of everything but itself."""
    return b',"digest":"' + digest.encode() + b'"}'


@dataclass(frozen=True)
class Commit:
    """What one commit writes: a segment first, where the tail was full, then the head that names it."""

    head: Head
    record: Record
    segment: tuple[str, bytes] | None = None


def first_head(
    keys: StoreKeys,
    *,
    name: str,
    resource_uid: str,
    cluster: str,
    spec_digest: str,
    key_root: str,
    events: tuple[Event, ...],
    at: datetime,
    entropy: Entropy,
) -> Commit:
    """Return the head of a run that has not been claimed yet: epoch 0, attempt 0.

    Large inputs do not fit a head; then there is a segment from the start.
    """
    empty = Head(
        run_id=keys.run_id,
        key_root=key_root,
        cluster=cluster,
        namespace=keys.namespace,
        name=name,
        resource_uid=resource_uid,
        spec_digest=spec_digest,
        epoch=0,
        attempt=0,
        writer="",
        nonce="",
        seq=0,
        phase=Phase.PENDING,
        chain=FIRST_DIGEST,
    )
    return next_head(empty, events, at=at, entropy=entropy)


def next_head(
    head: Head, events: tuple[Event, ...], *, at: datetime, entropy: Entropy, resource_uid: str = ""
) -> Commit:
    """Return the head that adds one record of these events, sealing the tail where it is full.

    An event `claimed` makes its writer and attempt the head's, in a new epoch. Raises ProtocolBreach if the
    run has ended: nothing may follow its end.
    """
    epoch, attempt, writer, image = head.epoch, head.attempt, head.writer, head.image
    totals, phase, reason, message = head.totals, head.phase, head.reason, head.message
    for event in events:
        if phase.terminal:
            raise ProtocolBreach(f"run {head.run_id} has ended as {phase}; {event.kind} cannot follow")
        match event:
            case Claimed(writer=by):
                epoch, attempt, writer = epoch + 1, event.attempt, by
                image = event.image or image
                reason, message = (reason, message) if by == OPERATOR else ("", "")
            case Halted() | Finished():
                reason, message = event.reason, event.message
            case _:
                pass
        totals, phase = advance(totals, phase, event)
    nonce = entropy(9).hex()
    record = Record(
        seq=head.seq + 1, epoch=epoch, worker=writer, prev=head.chain, at=at.isoformat(), events=events
    )
    line = line_of(record)
    sealed, tail = _make_room(head.tail, line)
    after = replace(
        head,
        epoch=epoch,
        attempt=attempt,
        writer=writer,
        image=image,
        reason=reason,
        message=message,
        nonce=nonce,
        seq=record.seq,
        phase=phase,
        chain=digest_of(line),
        totals=totals,
        tail=tail,
        resource_uid=resource_uid or head.resource_uid,
    )
    if not sealed:
        return Commit(after, record)
    segment, body = _seal(head.run_id, epoch, record.seq - len(tail), sealed, nonce)
    key = head.keys.segment(segment.epoch, segment.first, segment.last, segment.nonce)
    return Commit(replace(after, segments=(*head.segments, segment)), record, (key, body))


def _make_room(tail: tuple[bytes, ...], line: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Split into the lines to seal and the lines to keep; a line too long for any tail is sealed at once."""
    if sum(map(len, tail)) + len(line) <= MAX_TAIL:
        return (), (*tail, line)
    if len(line) > MAX_TAIL:
        return (*tail, line), ()
    return tail, (line,)


def _seal(run_id: str, epoch: int, last: int, lines: tuple[bytes, ...], nonce: str) -> tuple[Segment, bytes]:
    first = last - len(lines) + 1
    header = {
        "format": FORMAT,
        "run_id": run_id,
        "epoch": epoch,
        "first": first,
        "last": last,
        "nonce": nonce,
    }
    body = json.dumps(header, separators=(",", ":")).encode() + b"\n" + b"".join(lines)
    return Segment(epoch, first, last, nonce, len(body), hashlib.sha256(body).hexdigest()), body


def parse_head(body: bytes, keys: StoreKeys) -> Head:
    """Return the head stored in these bytes.

    Raises Corrupt where they are not what was written, FormatTooNew where a newer Milepost wrote them.
    """
    line, _, rest = body.partition(b"\n")
    header = _header(line, keys.head)
    digest = header.pop("digest", None)
    ending = _sealed_by(str(digest))
    if not line.endswith(ending) or digest != _digest(line.removesuffix(ending), rest):
        raise Corrupt(keys.head, "its content does not match the digest in it")
    try:
        totals = Totals(**header.pop("totals"))
        segments = tuple(Segment(**segment) for segment in header.pop("segments"))
        phase = Phase(header.pop("phase"))
        tail = tuple(rest.splitlines(keepends=True))
        head = Head(**header, phase=phase, totals=totals, segments=segments, tail=tail)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(keys.head, f"the header has a wrong shape: {error}") from error
    if head.run_id != keys.run_id or head.namespace != keys.namespace:
        raise Corrupt(keys.head, f"it belongs to run {head.namespace}/{head.run_id}")
    return head


def parse_segment(body: bytes, named: Segment, head: Head) -> tuple[tuple[Record, str], ...]:
    """Return a segment's records with their lines' digests. Raises Corrupt if it is not the one named."""
    key = head.keys.segment(named.epoch, named.first, named.last, named.nonce)
    if hashlib.sha256(body).hexdigest() != named.digest:
        raise Corrupt(key, "it does not match the digest in the head")
    line, _, rest = body.partition(b"\n")
    header = _header(line, key)
    if header.get("run_id") != head.run_id:
        raise Corrupt(key, f"it belongs to run {header.get('run_id')}")
    return tuple((parse_line(part, key), digest_of(part)) for part in rest.splitlines(keepends=True))


def _header(line: bytes, key: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Corrupt(key, f"the header is not JSON: {error}") from error
    if not isinstance(header, Mapping) or not isinstance(header.get("format"), int):
        raise Corrupt(key, "the header does not say its format")
    found = header["format"]
    if found > FORMAT:
        raise FormatTooNew(key, found=found, known=FORMAT)
    return {name: value for name, value in header.items() if name != "format"}
