"""What all tests share: reports that can be sent between processes, patience, and what is slow to begin."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator

import botocore.session
import pytest
from botocore.loaders import Loader, create_loader
from hypothesis import HealthCheck, settings

from tools.cluster import seaweedfs
from tools.cluster.interface import S3Server

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_finish() -> None:
    """Spare the collector what stays to the end: thousands of tests, and all that they import."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_loader() -> Iterator[None]:
    """Let botocore read what it knows of S3 once, and not for each of the many clients: 80 ms become 13."""
    loader = create_loader()

    def the_one(_: str | None = None) -> Loader:
        return loader

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", the_one)
        yield


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
