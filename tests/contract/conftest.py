"""Stores under test: each test gets one that is empty."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milepost.checkpoint.s3 import S3Config, S3Store
from milepost.testing.fake_s3 import FakeS3
from tests.support.real_s3 import config_on
from tools.cluster import versitygw
from tools.cluster.interface import S3Server

pytest.register_assert_rewrite("milepost.testing.store_contract")


@pytest.fixture
def fake_s3() -> Iterator[FakeS3]:
    with FakeS3() as s3:
        yield s3


@pytest.fixture(scope="session")
def versitygw_server() -> Iterator[S3Server]:
    if lack := versitygw.lacking():
        pytest.skip(lack)
    with versitygw.server() as server:
        yield server


@pytest.fixture(params=["seaweedfs", "versitygw"])
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """One after the other, each real server."""
    server: S3Server = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
def real_config(s3_server: S3Server, tmp_path: Path) -> Callable[[str], S3Config]:
    """Return configurations of one new prefix on each real server; the argument is the endpoint."""
    return config_on(s3_server, tmp_path / "credentials")


@pytest.fixture
def nobodys_port() -> Iterator[int]:
    """A port at which nobody listens, and that no other server is given meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def pauses() -> list[float]:
    """Return the list into which `fake_store` writes its pauses, in seconds, instead of making them."""
    return []


@pytest.fixture
def fake_store(fake_s3: FakeS3, pauses: list[float]) -> S3Store:
    return S3Store(fake_s3.config("some/prefix"), pause=pauses.append, jitter=lambda: 1.0)
