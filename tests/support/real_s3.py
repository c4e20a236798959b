"""Stores on real S3 servers: each test gets a prefix of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from milepost.checkpoint.s3_client import S3Config
from tools.cluster.interface import S3Server

__all__ = ["config_on"]

_prefixes = itertools.count()


def config_on(server: S3Server, folder: Path) -> Callable[[str], S3Config]:
    """Return configurations of one new prefix of a server; the argument is the endpoint, '' for its own.

    The administrator's keys are written into `folder`, which is made where there is none.
    """
    folder.mkdir(exist_ok=True)
    (folder / "access-key-id").write_text(server.admin.access_key)
    (folder / "secret-access-key").write_text(server.admin.secret_key)
    prefix = f"contract/{next(_prefixes)}"

    def config(endpoint: str) -> S3Config:
        return S3Config(
            endpoint or server.endpoint, server.bucket, prefix, server.region, folder, read_timeout=60
        )

    return config
