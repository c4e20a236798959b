"""Encoded values in the store: small ones inline in their record, large ones as blobs named by their digest.

A blob is written before the record that names it, so no record ever names a blob that is not there. A process
writes each digest once at most, and not at all where it has read it; it is verified against its name whenever
it is fetched. What is kept in memory is the text of a few that were read last: who reads gets data of their
own each time.

A value of more than `codec.MAX_BYTES` bytes is never written: reading it back would be refused.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from milepost.api.names import StoreKeys
from milepost.checkpoint import codec
from milepost.checkpoint.answers import Purpose, Write
from milepost.checkpoint.records import Value
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, Missing, NotStorable

__all__ = ["CACHE_BYTES", "MAX_INLINE", "Large", "Values", "form", "read"]

MAX_INLINE: Final = 16 * 1024
"""Bytes of an encoded value that a record carries itself."""

CACHE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of blobs that a process keeps in memory to read them again. A larger blob is fetched each time."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Large:
    """An encoded value that needs a blob: its text, and the record's form once that text is written."""

    raw: bytes = field(repr=False)
    value: Value


def form(data: codec.JSON, most: int = MAX_INLINE) -> Value | Large:
    """Return the record's form of an encoded value, or what to write first. Encodes once, does no I/O.

    Raises NotStorable where it has more bytes than can be read back.
    """
    raw = codec.dumps(data)
    if len(raw) > codec.MAX_BYTES:
        raise NotStorable("value", f"its {len(raw)} bytes are more than {codec.MAX_BYTES}; keep it elsewhere")
    if len(raw) <= most:
        return Value(inline=data, size=len(raw))
    return Large(raw, Value(blob=hashlib.sha256(raw).hexdigest(), size=len(raw)))


class Values:
    """One run's large values. Calls may come from several threads at once, and block."""

    def __init__(
        self,
        store: Store,
        keys: StoreKeys,
        patience: Patience,
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._store = store
        self._keys = keys
        self._patience = patience
        self._cache = _Cache(cache_bytes)
        self._there: set[str] = set()
        # Whoever asks for a blob that is on its way waits for that one.
        self._turns = tuple(threading.Lock() for _ in range(256))

    def keep(self, data: codec.JSON, most: int = MAX_INLINE) -> Value:
        """Return the record's form of an encoded value, as a blob first where it has over `most` bytes.

        Raises what `write` raises.
        """
        formed = form(data, most)
        return formed if isinstance(formed, Value) else self.write(formed)

    def write(self, large: Large) -> Value:
        """Return the record's form of a large value, once it is durable.

        Raises Corrupt where other bytes stand under its digest, else what `sending.send` raises.
        """
        digest = large.value.blob
        with self._turn(digest):
            if digest not in self._there:
                send(self._store, Write(Purpose.CREATE, self._keys.blob(digest), large.raw), self._patience)
                self._there.add(digest)
        return large.value

    def read(self, value: Value, *, of: str = "") -> codec.JSON:
        """Return the encoded value: a blob's each time a new copy, an inline one as its record holds it.

        `of` says what it is, such as the result of which step, for Missing or Corrupt, which name the blob.
        """
        if not value.blob:
            return value.inline
        key = _key(self._keys, value, of)
        with self._turn(value.blob):
            raw = self._cache.get(value.blob)
            if raw is None:
                raw = _fetch(self._store, key, value, of)
                self._cache.put(value.blob, raw)
                self._there.add(value.blob)
        return _parse(raw, key, of)

    def _turn(self, digest: str) -> threading.Lock:
        return self._turns[int(digest[:2], 16)]


def read(store: Store, keys: StoreKeys, value: Value, *, of: str = "") -> codec.JSON:
    """Do what `Values.read` does, once."""
    if not value.blob:
        return value.inline
    key = _key(keys, value, of)
    return _parse(_fetch(store, key, value, of), key, of)


def _key(keys: StoreKeys, value: Value, of: str) -> str:
    # It becomes part of a key, which must not lead out of the run's own.
    if not _DIGEST.fullmatch(value.blob):
        why = f"a record names a blob {value.blob[:80]!a}, which is no digest"
        raise Corrupt(keys.run, why + _said(of))
    return keys.blob(value.blob)


def _fetch(store: Store, key: str, value: Value, of: str) -> bytes:
    found = store.get(key)
    if not isinstance(found, Found):
        raise Missing(key, f"a record names it, and it is gone{_said(of)}")
    if value.size and len(found.body) != value.size:
        raise Corrupt(key, f"it has {len(found.body)} bytes and its record says {value.size}{_said(of)}")
    if hashlib.sha256(found.body).hexdigest() != value.blob:
        raise Corrupt(key, f"its bytes do not match the digest in its name{_said(of)}")
    return found.body


def _parse(raw: bytes, key: str, of: str) -> Any:
    try:
        return codec.loads(raw)
    except codec.DecodeError as error:
        raise Corrupt(key, f"it matches its digest and is no stored value: {error.why}{_said(of)}") from error


def _said(of: str) -> str:
    what = f"; it holds the {of}" if of else ""
    return f"{what}; records and other blobs are verified by themselves, and can still be trusted"


class _Cache:
    """Bytes by digest; what was read longest ago is dropped where they are too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: str) -> bytes | None:
        with self._lock:
            if digest in self._held:
                self._held.move_to_end(digest)
            return self._held.get(digest)

    def put(self, digest: str, raw: bytes) -> None:
        with self._lock:
            if digest in self._held or len(raw) > self._most:
                return
            self._held[digest] = raw
            self._size += len(raw)
            while self._size > self._most:
                _, dropped = self._held.popitem(last=False)
                self._size -= len(dropped)
