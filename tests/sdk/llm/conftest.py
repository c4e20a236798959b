"""A run on a store in memory, and the tools that its model may call."""

from __future__ import annotations

import pytest

from tests.support.adding_tools import Adding
from tests.support.sessions import RunInMemory


@pytest.fixture
def run() -> RunInMemory:
    return RunInMemory()


@pytest.fixture
def adding() -> Adding:
    return Adding()
