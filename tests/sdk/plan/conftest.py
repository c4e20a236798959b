"""A run on a store in memory."""

from __future__ import annotations

import pytest

from tests.support.sessions import RunInMemory


@pytest.fixture
def run() -> RunInMemory:
    return RunInMemory()
