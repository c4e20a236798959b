"""What a bench of stores needs: an S3 server that is warm, a database server if there is one, the peers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench import report
from tests.bench.ours import Bucket
from tests.bench.postgres import postgres_or_reason
from tests.bench.rivals import Rival, rivals
from tools.cluster import seaweedfs
from tools.cluster.progress import say

__all__ = ["Scene", "scene", "warm_bucket"]

_WARM_UP = 64


@dataclass(frozen=True)
class Scene:
    """Where a bench takes place."""

    folder: Path
    bucket: Bucket
    rivals: list[Rival]
    machine: dict[str, Any]


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    """Set it up, and take it down again."""
    machine = report.machine()
    with warm_bucket() as bucket, postgres_or_reason() as database:
        yield Scene(bucket.folder, bucket, rivals(bucket.folder, database, bucket), machine)


@contextlib.contextmanager
def warm_bucket() -> Iterator[Bucket]:
    """Run an S3 server alone."""
    with TemporaryDirectory(prefix="milepost-bench-") as name, seaweedfs.server() as server:
        bucket = Bucket(server, Path(name))
        # The server makes its volumes at the first writes, which takes it a second.
        store = bucket.place("warm-up").store
        for number in range(_WARM_UP):
            store.put_new(str(number), b"x" * 4096, {})
        say("the S3 server is warm")
        yield bucket
