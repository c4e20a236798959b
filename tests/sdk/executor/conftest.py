"""A run on a store in a folder, with executors in child processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.testing.fake_s3 import FakeS3
from tests.support.sessions import RunOnDisk


@pytest.fixture
def run(tmp_path: Path) -> RunOnDisk:
    return RunOnDisk(tmp_path)


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as server:
        yield server
