"""The head: the one mutable object of a run, and how the next one is made from it.

A head is a line of JSON that says who holds the run and what its history consists of, followed by the
newest records, up to 32 KiB. Replacing it under If-Match commits everything in it at once. Records that no
longer fit are sealed into immutable segments, which the head names with their digests, as it does the
newest bases.

No two heads are ever equal in bytes: each has a nonce of its own. So an ETag, even one that is a digest of
the bytes, stands for exactly one version. Nothing here does I/O: a `Draft` says which objects have to be
read before the commit can be made, and the `Commit` which have to be written before its head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from milepost.api.names import Entropy, StoreKeys
from milepost.api.resource import RETENTION_S, DeletionPolicy, Phase
from milepost.checkpoint.base import KEPT, Base, base_key
from milepost.checkpoint.data import changed
from milepost.checkpoint.fold import Totals, advance, gates_after, parse_totals
from milepost.checkpoint.formats import NEWEST, Kind, checked, write_json
from milepost.checkpoint.gates import GateAt, parse_gate
from milepost.checkpoint.records import (
    FIRST_DIGEST,
    OPERATOR,
    Claimed,
    Event,
    Finished,
    Halted,
    Record,
    Remembered,
    digest_of,
    line_of,
    parse_line,
)
from milepost.checkpoint.sealed import Segment, header_of, merging, seal, segment_key
from milepost.errors import Corrupt, ProtocolBreach

__all__ = [
    "MAX_TAIL",
    "Commit",
    "Draft",
    "Head",
    "deleting_head",
    "draft",
    "first_head",
    "next_head",
    "parse_head",
]

MAX_TAIL: Final = 32 * 1024
"""Bytes of records that a head carries. Uploading them costs less than a second object a step."""

MAX_GOAL: Final = 200
"""Characters of the goal that a head repeats, for listings."""


@dataclass(frozen=True)
class Head:
    """One version of a head. `chain` is the digest of record `seq`, `tail` the newest records' lines.

    `reason` and `message` say why the run ended or halted; they are empty while it does neither. `created`
    and `updated` are the times of the first and the last record, as their writers' clocks had them.
    `segments` and `bases` are named oldest first. `deletion_policy` and `retention_s` say what becomes of
    the run's objects once its resource is gone, and for how many seconds after its end they are kept.
    `gates` are open. `memory` is the digest of the blob that holds the agent's memory; empty: it has none.
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
    goal: str = ""
    created: str = ""
    updated: str = ""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    retention_s: int = RETENTION_S
    memory: str = ""
    gates: tuple[GateAt, ...] = ()
    totals: Totals = field(default_factory=Totals)
    segments: tuple[Segment, ...] = ()
    bases: tuple[Base, ...] = ()
    tail: tuple[bytes, ...] = ()

    def body(self) -> bytes:
        """Return the head as it is stored."""
        rest = b"".join(self.tail)
        header = {
            "format": NEWEST[Kind.HEAD],
            **vars(self),
            "gates": [gate._asdict() for gate in self.gates],
            "totals": vars(self.totals),
            "segments": list(map(vars, self.segments)),
            "bases": list(map(vars, self.bases)),
        }
        del header["tail"]
        opening = write_json(header)[:-1]
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

    @property
    def deleting(self) -> bool:
        """Whether the run's objects are being deleted."""
        return self.phase is Phase.DELETING

    def records(self) -> tuple[tuple[Record, str], ...]:
        """Return the tail's records with the digests of their lines. Raises Corrupt."""
        return tuple((parse_line(line, self.keys.head), digest_of(line)) for line in self.tail)


def _digest(opening: bytes, rest: bytes) -> str:
    return hashlib.sha256(opening + b"\n" + rest).hexdigest()


def _sealed_by(digest: str) -> bytes:
    """Return how a header's line ends: its last field is the digest of everything but itself."""
    return b',"digest":"' + digest.encode() + b'"}'


@dataclass(frozen=True)
class Commit:
    """What one commit writes: the objects, each with its key, in order, and then the head that names them."""

    head: Head
    record: Record
    objects: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Draft:
    """A commit of which the record is made, and not yet the objects that its head will name.

    `merging` are the segments whose lines go into the one that is sealed; there are none where nothing is
    sealed, or nothing merged.
    """

    head: Head
    record: Record
    sealed: tuple[bytes, ...]
    merging: tuple[Segment, ...]

    def commit(
        self,
        merged: Sequence[tuple[Segment, Sequence[bytes]]] = (),
        base: tuple[Base, bytes] | None = None,
    ) -> Commit:
        """Return the commit, given the lines of what is merged, and a new base if there is to be one.

        With no lines nothing is merged: the segment that is sealed stands beside the others.
        """
        head, objects = self.head, []
        if self.sealed:
            segment, body = seal(
                head.run_id,
                epoch=head.epoch,
                last=head.seq - len(head.tail),
                nonce=head.nonce,
                lines=self.sealed,
                merged=merged,
            )
            objects.append((segment_key(head.keys, segment), body))
            kept = head.segments[: len(head.segments) - len(merged)]
            head = replace(head, segments=(*kept, segment))
        if base is not None:
            named, body = base
            objects.append((base_key(head.keys, named), body))
            head = replace(head, bases=(*head.bases, named)[-KEPT:])
        return Commit(head, self.record, tuple(objects))


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
    goal: str = "",
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN,
    retention_s: int = RETENTION_S,
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
        goal=goal if len(goal) <= MAX_GOAL else goal[: MAX_GOAL - 1] + "…",
        created=at.isoformat(),
        deletion_policy=deletion_policy,
        retention_s=retention_s,
    )
    return next_head(empty, events, at=at, entropy=entropy)


def next_head(
    head: Head, events: tuple[Event, ...], *, at: datetime, entropy: Entropy, resource_uid: str = ""
) -> Commit:
    """Return the commit of a draft that merges nothing and writes no base. Raises as `draft` does."""
    return draft(head, events, at=at, entropy=entropy, resource_uid=resource_uid).commit()


def draft(
    head: Head, events: tuple[Event, ...], *, at: datetime, entropy: Entropy, resource_uid: str = ""
) -> Draft:
    """Return the next head with one more record, of these events, sealing the tail where it is full.

    An event `claimed` makes its writer and attempt the head's, in a new epoch. Raises ProtocolBreach if the
    run has ended: nothing may follow its end.
    """
    epoch, attempt, writer, image = head.epoch, head.attempt, head.writer, head.image
    totals, phase, reason, message = head.totals, head.phase, head.reason, head.message
    gates: Mapping[str, GateAt] = {gate.id: gate for gate in head.gates}
    memory = head.memory
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
            case Remembered(memory=value):
                memory = value.blob
            case _:
                pass
        totals, phase = advance(totals, phase, event)
        gates = gates_after(gates, event, head.seq + 1)
    record = Record(
        seq=head.seq + 1, epoch=epoch, worker=writer, prev=head.chain, at=at.isoformat(), events=events
    )
    line = line_of(record)
    sealed, tail = _make_room(head.tail, line)
    after = changed(
        head,
        epoch=epoch,
        attempt=attempt,
        writer=writer,
        image=image,
        reason=reason,
        message=message,
        nonce=entropy(9).hex(),
        seq=record.seq,
        phase=phase,
        chain=digest_of(line),
        updated=record.at,
        totals=totals,
        memory=memory,
        gates=tuple(gates.values()),
        tail=tail,
        resource_uid=resource_uid or head.resource_uid,
    )
    taken = merging(head.segments, sum(map(len, sealed))) if sealed else ()
    return Draft(after, record, sealed, taken)


def _make_room(tail: tuple[bytes, ...], line: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Split into the lines to seal and the lines to keep; a line too long for any tail is sealed at once."""
    if sum(map(len, tail)) + len(line) <= MAX_TAIL:
        return (), (*tail, line)
    if len(line) > MAX_TAIL:
        return (*tail, line), ()
    return tail, (line,)


def deleting_head(head: Head, *, at: datetime, entropy: Entropy) -> Head:
    """Return the head by which a run's deletion begins: of a new epoch, so that every writer is refused.

    It adds no record, and is the one head that may follow the end of a run. Raises ProtocolBreach where it
    is being deleted already.
    """
    if head.deleting:
        raise ProtocolBreach(f"run {head.run_id} is being deleted already")
    return replace(
        head,
        epoch=head.epoch + 1,
        writer=OPERATOR,
        nonce=entropy(9).hex(),
        phase=Phase.DELETING,
        updated=at.isoformat(),
    )


def parse_head(body: bytes, keys: StoreKeys) -> Head:
    """Return the head stored in these bytes.

    Raises Corrupt where they are not what was written, FormatTooNew where a newer Milepost wrote them.
    """
    line, _, rest = body.partition(b"\n")
    header = header_of(line, Kind.HEAD, keys.head)
    digest = header.pop("digest", None)
    ending = _sealed_by(str(digest))
    if not line.endswith(ending) or digest != _digest(line.removesuffix(ending), rest):
        raise Corrupt(keys.head, "its content does not match the digest in it")
    try:
        header["totals"] = parse_totals(header["totals"])
        header["gates"] = tuple(parse_gate(gate) for gate in header["gates"])
        header["segments"] = tuple(checked(Segment, segment) for segment in header["segments"])
        header["bases"] = tuple(checked(Base, base) for base in header["bases"])
        header["phase"] = Phase(header["phase"])
        header["deletion_policy"] = DeletionPolicy(header["deletion_policy"])
        header["tail"] = tuple(rest.splitlines(keepends=True))
        head = checked(Head, header)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(keys.head, f"the header has a wrong shape: {error}") from error
    if head.run_id != keys.run_id or head.namespace != keys.namespace:
        raise Corrupt(keys.head, f"it belongs to run {head.namespace}/{head.run_id}")
    return head
