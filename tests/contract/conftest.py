"""Stores under test: each test gets one that is empty."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Config, S3Store
from milepost.testing.fake_s3 import FakeS3
from tools.cluster import seaweedfs
from tools.cluster.interface import S3Server

pytest.register_assert_rewrite("milepost.testing.store_contract")

_prefixes = itertools.count()


@pytest.fixture
def fake_s3() -> Iterator[FakeS3]:
    with FakeS3() as s3:
        yield s3


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with seaweedfs.server() as server:
        yield server


@pytest.fixture
def real_config(s3_server: S3Server, tmp_path: Path) -> Callable[[str], S3Config]:
    """Return configurations of one new prefix on the real server; the argument is the endpoint."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "access-key-id").write_text(s3_server.admin.access_key)
    (folder / "secret-access-key").write_text(s3_server.admin.secret_key)
    prefix = f"contract/{next(_prefixes)}"

    def config(endpoint: str) -> S3Config:
        return S3Config(
            endpoint or s3_server.endpoint,
            s3_server.bucket,
            prefix,
            s3_server.region,
            folder,
            read_timeout=60,
        )

    return config


@pytest.fixture
def pauses() -> list[float]:
    """Return the list into which `fake_store` writes its pauses, in seconds, instead of making them."""
    return []


@pytest.fixture
def fake_store(fake_s3: FakeS3, pauses: list[float]) -> S3Store:
    return S3Store(fake_s3.config("some/prefix"), pause=pauses.append, jitter=lambda: 1.0)
