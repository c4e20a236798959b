"""A store in this process's memory, for tests and simulations.

It keeps nothing when the process ends and refuses to be more than a dictionary with conditions. As with
real stores an ETag is the digest of the bytes, so writing A, B, A brings the first ETag back: whoever
relies on ETags alone to tell two writes apart fails here too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from milepost.checkpoint.store import Absent, Answer, Clash, Found, Gone, Listed, Read, Stored, Unchanged

__all__ = ["MemoryStore"]


@dataclass(frozen=True)
class _Object:
    body: bytes
    etag: str
    metadata: Mapping[str, str]
    modified: float


@final
class MemoryStore:
    """A dictionary behind a lock. `clock` gives the dates of objects, in seconds since 1970."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,  # noqa: TID251  the default of an argument
    ) -> None:
        self._clock = clock
        self._objects: dict[str, _Object] = {}
        self._versions = 0
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return "memory:"

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        with self._lock:
            found = self._objects.get(key)
        if found is None:
            return Absent()
        if unless_etag and unless_etag == found.etag:
            return Unchanged()
        return Found(found.body, found.etag, dict(found.metadata))

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        with self._lock:
            return Clash() if key in self._objects else self._write(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        if not etag:
            raise ValueError("a conditional write needs the ETag that it replaces")
        with self._lock:
            found = self._objects.get(key)
            if found is None:
                return Gone()
            return self._write(key, body, metadata) if found.etag == etag else Clash()

    def list(self, prefix: str) -> Iterator[Listed]:
        with self._lock:
            found = [(key, each) for key, each in self._objects.items() if key.startswith(prefix)]
        return iter([Listed(key, len(each.body), each.modified) for key, each in found])

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(key, None)

    def _write(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Stored:
        self._versions += 1
        etag = f'"{self._versions}"'
        lowered = {name.lower(): value for name, value in metadata.items()}
        self._objects[key] = _Object(bytes(body), etag, lowered, self._clock())
        return Stored(etag)
