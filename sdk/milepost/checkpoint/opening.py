"""Choose the adapter that a store's address names. Only entry points use this."""

from __future__ import annotations

from pathlib import Path

from milepost.checkpoint.store import Store
from milepost.errors import StoreRefused

__all__ = ["open_store"]


def open_store(url: str, credentials: Path | None = None) -> Store:
    """Return the store at `s3://bucket/prefix?endpoint=...&region=...` or `file:/folder`.

    `credentials` is a folder of files, read again when they are refused; None: what the environment offers.
    Raises StoreRefused where the address names no store that Milepost knows.
    """
    if url.startswith("file:"):
        from milepost.checkpoint.file import FileStore  # noqa: PLC0415  (a pod needs one adapter)

        return FileStore(Path(url.removeprefix("file:")))
    if url.startswith("s3://"):
        from milepost.checkpoint.s3 import open_store as open_s3  # noqa: PLC0415  (a pod needs one adapter)
        from milepost.checkpoint.s3 import parse_url  # noqa: PLC0415  (a pod needs one adapter)

        return open_s3(parse_url(url, credentials))
    raise StoreRefused(
        "StoreMisconfigured", f"{url!r} names no store", advice="use s3://bucket/prefix or file:/folder"
    )
