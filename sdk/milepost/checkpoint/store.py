"""The calls that a store must offer, and every answer that a conditional write can get.

A store sends one request a call and says exactly what came back: it never retries a write, because a retry
that meets its own first try would be told that somebody else wrote. What an answer means for a run is
decided in `milepost.checkpoint.answers`; this module decides nothing.

There is no unconditional write. Calls block; whoever runs an event loop calls them in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

__all__ = [
    "Absent",
    "Answer",
    "Clash",
    "Expired",
    "Found",
    "Gone",
    "Listed",
    "Read",
    "Refused",
    "Store",
    "Stored",
    "Unchanged",
    "Undecided",
    "Unknown",
]


@dataclass(frozen=True)
class Stored:
    """The write was applied. `etag` is opaque; it is empty where the store gave none in its answer."""

    etag: str


@dataclass(frozen=True)
class Clash:
    """412: the condition did not hold. Somebody wrote; it may have been an earlier try of this write."""


@dataclass(frozen=True)
class Gone:
    """404 on a condition that names an ETag: the object does not exist."""


@dataclass(frozen=True)
class Undecided:
    """409: another operation was under way; nothing was decided."""

    cause: str


@dataclass(frozen=True)
class Unknown:
    """408, 429, 5xx, RequestTimeout, a reset or a time-out: the write may have been applied, or may yet be.

    `retry_after` is the store's own wish in seconds, 0 where it has none.
    """

    cause: str
    retry_after: float = 0.0


@dataclass(frozen=True)
class Expired:
    """The credentials have run out; the store reads them again for its next call."""

    cause: str


@dataclass(frozen=True)
class Refused:
    """A clear no that trying again will not change.

    `reason` is stable and CamelCase, as in `milepost.errors.StoreRefused`.
    """

    reason: str
    message: str
    advice: str


Answer: TypeAlias = Stored | Clash | Gone | Undecided | Unknown | Expired | Refused


@dataclass(frozen=True)
class Found:
    """An object as it stood when it was read. `metadata` keys are lower case."""

    body: bytes
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Absent:
    """No such object."""


@dataclass(frozen=True)
class Unchanged:
    """The object still has the ETag that the caller knows."""


Read: TypeAlias = Found | Absent | Unchanged


@dataclass(frozen=True)
class Listed:
    """One object of a listing. `modified` is the store's own date, in seconds since 1970."""

    key: str
    size: int
    modified: float


class Store(Protocol):
    """A bucket, or what stands for one. Keys are relative to the store's prefix and never start with a slash.

    Reads and listings raise StoreUnavailable after the store's own bounded retries, and StoreRefused where
    the answer is a clear no: repeating a read is harmless, so a store does it itself.
    """

    @property
    def uri(self) -> str:
        """Where this is, for people: `s3://bucket/prefix`, `file:/folder`, `memory:`."""
        ...

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        """Return the whole object; Unchanged only if `unless_etag` is given and still stands."""
        ...

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        """Write the object on condition that there is none of this key.

        Bodies may be large. A store may send them in parts, and shows the whole object or none.
        """
        ...

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        """Write the object on condition that its ETag is still `etag`."""
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """List all objects whose key starts with `prefix`, in no promised order."""
        ...

    def delete(self, key: str) -> None:
        """Delete the object; it is no error if there is none.

        Only for what is proved useless, never after an unclear answer to a write.
        """
        ...
