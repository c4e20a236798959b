"""The answer table: what each answer to a conditional write means, and what to do next.

A `Write` is one (ETag, nonce) with exactly one body. It is sent, and sent again in the same bytes, until
its outcome is known. `after_put` and `after_look` are the whole table; the row for everything that is not
listed is *unknown: look before doing anything else*. Sending is done in `milepost.checkpoint.sending`.

The case worth a second look is a refusal that is our own echo: the store applied the write, the answer was
lost, and the next try fails its condition. It is recognised by comparing bytes, never by guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.head import Head, parse_head
from milepost.checkpoint.store import (
    Absent,
    Answer,
    Clash,
    Expired,
    Found,
    Gone,
    Read,
    Refused,
    Stored,
    Unchanged,
    Undecided,
    Unknown,
)
from milepost.errors import Corrupt, Fenced, ProtocolBreach, RunDeleted, StoreRefused

__all__ = ["Done", "Look", "Lost", "Next", "Purpose", "SendAgain", "Write", "after_look", "after_put"]


class Purpose(Enum):
    """What a write is for. It decides what somebody else's object in its place means."""

    COMMIT = "commit"
    CLAIM = "claim"
    CREATE = "create"
    NAME = "name"
    ANSWER = "answer"


@dataclass(frozen=True)
class Write:
    """One conditional write. An empty `etag` means: only if there is no such object."""

    purpose: Purpose
    key: str
    body: bytes
    metadata: Mapping[str, str] = field(default_factory=dict)
    etag: str = ""
    head: Head | None = None


@dataclass(frozen=True)
class Done:
    """The write stands, under this ETag."""

    etag: str


@dataclass(frozen=True)
class SendAgain:
    """Send the same bytes again, after a back-off or the store's own wish in seconds."""

    cause: str
    retry_after: float = 0.0


@dataclass(frozen=True)
class Look:
    """Read the object before doing anything else."""


@dataclass(frozen=True)
class Lost:
    """Somebody else's object stands. The run may go on: read again and decide anew."""

    found: Found


Next: TypeAlias = Done | SendAgain | Look | Lost


def after_put(write: Write, answer: Answer) -> Next:
    """Return what to do after an answer to the write itself.

    Raises RunDeleted where a head that was there is gone, StoreRefused where the store will not do it.
    """
    match answer:
        case Stored(etag="") | Clash():
            return Look()
        case Stored(etag=etag):
            return Done(etag)
        case Gone() if write.etag:
            raise _gone(write)
        case Gone() | Undecided():
            return Look()
        case Unknown(cause=cause, retry_after=retry_after):
            return SendAgain(cause, retry_after)
        case Expired(cause=cause):
            return SendAgain(cause)
        case Refused(reason=reason, message=message, advice=advice):
            raise StoreRefused(reason, message, advice=advice)


def after_look(write: Write, read: Read) -> Next:
    """Return what to do once the object has been read.

    Raises Fenced, RunDeleted, ProtocolBreach or Corrupt where this writer must stop.
    """
    match read:
        case Found(body=body, etag=etag) if body == write.body:
            return Done(etag)
        case Found(etag=etag) if write.etag and etag == write.etag:
            return SendAgain("nothing was decided")
        case Absent() if not write.etag:
            return SendAgain("nothing was written")
        case Absent():
            raise _gone(write)
        case Unchanged():
            raise ProtocolBreach(f"{write.key}: a look without a condition was answered with 'unchanged'")
        case Found() as found:
            return _somebody_elses(write, found)


def _somebody_elses(write: Write, found: Found) -> Next:
    match write.purpose:
        case Purpose.CREATE:
            raise Corrupt(write.key, "an object that is written once holds other bytes")
        case Purpose.NAME | Purpose.CLAIM | Purpose.ANSWER:
            return Lost(found)
        case Purpose.COMMIT:
            raise _taken_over(write, found)


def _taken_over(write: Write, found: Found) -> Exception:
    ours = write.head
    assert ours is not None, "a commit writes a head"
    theirs = parse_head(found.body, StoreKeys(ours.namespace, ours.run_id))
    if theirs.phase is Phase.DELETING:
        return RunDeleted(ours.run_id)
    if theirs.epoch > ours.epoch:
        return Fenced(ours.run_id, held_epoch=ours.epoch, seen_epoch=theirs.epoch)
    if theirs.epoch == ours.epoch and (theirs.writer != ours.writer or theirs.seq >= ours.seq):
        return ProtocolBreach(
            f"run {ours.run_id}: {theirs.writer} wrote record {theirs.seq} in epoch {theirs.epoch}, "
            f"which belongs to {ours.writer}"
        )
    return Corrupt(
        write.key,
        f"it went back to record {theirs.seq} of epoch {theirs.epoch}; record {ours.seq - 1} of epoch "
        f"{ours.epoch} had been acknowledged",
    )


def _gone(write: Write) -> Exception:
    return RunDeleted(write.head.run_id if write.head else write.key)
