"""What all tests share: reports that can be sent between processes, patience with examples, a real server."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tools.cluster import seaweedfs
from tools.cluster.interface import S3Server

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def seaweedfs_server() -> Iterator[S3Server]:
    """One for all tests that keep to keys of their own: it takes seconds to start."""
    with seaweedfs.server() as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what no other process can be sent: tests of text that is no Unicode log halves of characters."""
    report = yield
    report.sections = [(_sendable(name), _sendable(text)) for name, text in report.sections]
    if (
        report.longrepr is not None
        and not isinstance(report.longrepr, tuple)
        and not _is_sendable(report.longreprtext)
    ):
        report.longrepr = _sendable(report.longreprtext)
    return report


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _is_sendable(text: str) -> bool:
    return _sendable(text) == text
