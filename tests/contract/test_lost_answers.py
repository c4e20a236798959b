"""Answers that are lost on the way from the real server, with a real executor as their client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.records import Claimed
from milepost.checkpoint.s3 import S3Config, S3Store
from milepost.testing.faults import Drop, Fault, Reply
from tests.support.fault_proxy import FaultProxy
from tests.support.sessions import RunOnDisk, records_of
from tools.cluster.interface import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.req("C4", "F-D1")]

# An executor's PUTs of the head: its claim, one for each of five steps, the end.
CLAIM, THIRD_STEP, END = 1, 4, 7


@pytest.mark.parametrize("nth", [CLAIM, THIRD_STEP, END], ids=["claim", "step", "end"])
@pytest.mark.parametrize(
    "action",
    [Drop(after=True), Drop(after=False), Reply(500, "InternalError", after=True), Reply(503, "SlowDown")],
    ids=["answer dropped", "request dropped", "500 after it was applied", "503 and nothing applied"],
)
def test_a_run_goes_on_after_a_lost_answer_and_loses_no_epoch(
    s3_server: S3Server,
    real_config: Callable[[str], S3Config],
    tmp_path: Path,
    action: Drop | Reply,
    nth: int,
) -> None:
    with FaultProxy(s3_server.endpoint) as proxy:
        run = RunOnDisk(tmp_path)
        run.store = S3Store(real_config(""))
        run.begin("stepping:five", world=str(run.world))
        proxy.fail(Fault(action, method="PUT", key="/head", nth=nth))

        ended = run.go_on(
            MILEPOST_STORE=real_config(proxy.endpoint).url,
            MILEPOST_CREDENTIALS=str(tmp_path / "credentials"),
            MILEPOST_STORE_DEADLINE_SECONDS="60",
        )

        assert ended.code == 0, ended.text
        puts = [passed for passed in proxy.journal if passed.method == "PUT" and "/head" in passed.path]
        assert len(puts) == END + 1, "the fault fired, and cost one more request"
    at = read_head(run.store, run.keys)
    assert isinstance(at, HeadAt)
    assert (at.head.epoch, at.head.phase) == (1, Phase.SUCCEEDED)
    events = [event for record in records_of(run.store, run.keys) for event in record.events]
    assert [type(event) for event in events].count(Claimed) == 1
    assert list(load(run.store, at.head).completed) == [f"step-{n}" for n in range(1, 6)]
    assert (run.world / "ran").read_text().split() == ["1", "2", "3", "4", "5"]
