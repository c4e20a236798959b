"""Encoded values in the store: small ones inline in their record, large ones as blobs named by their digest.

A blob is written before the record that names it, so no record ever names a blob that is not there. It is
verified against its name when it is read.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from milepost.api.names import StoreKeys
from milepost.checkpoint import codec
from milepost.checkpoint.answers import Purpose, Write
from milepost.checkpoint.records import Value
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, Missing

__all__ = ["MAX_INLINE", "inline", "keep", "read"]

MAX_INLINE: Final = 16 * 1024
"""Bytes of an encoded value that a record carries itself."""


def inline(data: codec.JSON, most: int = MAX_INLINE) -> Value | None:
    """Return the record's form of an encoded value; None where it needs a blob. Does no I/O."""
    raw = codec.dumps(data)
    return Value(inline=data, size=len(raw)) if len(raw) <= most else None


def keep(
    store: Store, keys: StoreKeys, data: codec.JSON, patience: Patience, most: int = MAX_INLINE
) -> Value:
    """Return the record's form of an encoded value, as a blob first where it has over `most` bytes.

    Blocks. Raises what `milepost.checkpoint.sending.send` raises.
    """
    raw = codec.dumps(data)
    if len(raw) <= most:
        return Value(inline=data, size=len(raw))
    digest = hashlib.sha256(raw).hexdigest()
    send(store, Write(Purpose.CREATE, keys.blob(digest), raw), patience)
    return Value(blob=digest, size=len(raw))


def read(store: Store, keys: StoreKeys, value: Value) -> Any:
    """Return the encoded value. Blocks where it is a blob.

    Raises Missing or Corrupt, naming the blob.
    """
    if not value.blob:
        return value.inline
    key = keys.blob(value.blob)
    found = store.get(key)
    if not isinstance(found, Found):
        raise Missing(key, "a record names it, and it is gone")
    if hashlib.sha256(found.body).hexdigest() != value.blob:
        raise Corrupt(key, "it does not match the digest in its name")
    return codec.loads(found.body)
