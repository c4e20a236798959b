"""The example of a plan: one branch fails, the rest goes on with less, and says so; killed or not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from milepost.checkpoint.records import Degraded, Finished, StepSkipped
from milepost.testing import crash_everywhere
from tests.support.example_runs import EXAMPLES, Example
from tests.support.sessions import wait_until

pytestmark = pytest.mark.timeout(240)

EXAMPLE = EXAMPLES / "05-plan"
LEFT_OUT = {
    "total": {"lanterns": 365, "tents": 550, "stoves": 380},
    "failed": {"read-south": "south.csv, line 3: 'eleven' is no amount"},
    "skipped": {"best-south": "it needs read-south: read-south failed"},
    "gaps": {"total": ["read-south"], "write": ["best-south"]},
}
REPORT = """\
From 3 regions
lanterns: 365
stoves: 380
tents: 550
east likes stoves
north likes tents
west likes lanterns
"""


def an_example(root: Path, **inputs: Any) -> Example:
    return Example("05-plan", root, {"shelf": str(root / "world"), **inputs})


def events(example: Example, kind: type[Any]) -> list[Any]:
    found = (event for record in example.records() for event in record.events)
    return [event for event in found if isinstance(event, kind)]


def reports(example: Example) -> dict[str, str]:
    return {str(file): file.read_text() for file in example.world.rglob("*.txt")}


@pytest.mark.req("G2", "D12")
def test_killed_while_it_reads_it_goes_on_and_reports_on_what_there_is(tmp_path: Path) -> None:
    example = an_example(tmp_path, pause=2.0)

    with example.running() as process:
        pid = wait_until(lambda: executor_of(example.said()))
        wait_until(lambda: "read-east=report" in example.said())
        os.kill(pid, signal.SIGKILL)
        assert process.wait(100) == 0, example.said()

    result = example.result()
    published = result.pop("published")
    assert result == LEFT_OUT
    assert reports(example) == {str(example.world / published): REPORT}
    assert events(example, Finished)[0].reason == "CompletedWithErrors"
    assert [event.group for event in events(example, Degraded)] == ["total", "write"]
    assert [event.step.name for event in events(example, StepSkipped)] == ["best-south"]
    by_attempt = example.completed_by_attempt()
    assert set(by_attempt) == {1, 2}
    assert "read-east=report" in by_attempt[1]
    assert by_attempt[1] & by_attempt[2] == set()
    totals = example.head().totals
    assert (totals.steps_done, totals.steps_failed, totals.steps_skipped, totals.gaps) == (10, 1, 1, 2)


def executor_of(said: str) -> int:
    """Return the executor's process id, as `milepost run` has said it; 0 while it has not."""
    _, _, rest = said.partition("executor pid ")
    return int(rest.partition(";")[0] or 0)


@pytest.mark.req("D1")
def test_it_comes_to_the_same_wherever_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))

    report = crash_everywhere(
        "report_agent.agent:weekly",
        {"folder": str(EXAMPLE / "sales"), "shelf": "$MILEPOST_TEST_FOLDER"},
        effects=lambda folder: sorted(file.read_text() for file in folder.glob("**/*.txt")),
        max_points=6,
    )

    assert report.undisturbed.effects == [REPORT]
    assert len(report.crashes) == 6


@pytest.mark.req("D12")
def test_with_too_little_there_is_no_report_and_the_reasons_say_why(tmp_path: Path) -> None:
    sales = tmp_path / "sales"
    sales.mkdir()
    for region in ("north", "south", "east"):
        text = (EXAMPLE / "sales" / f"{region}.csv").read_text()
        (sales / f"{region}.csv").write_text(text if region == "north" else text.replace("1", "I"))

    example = an_example(tmp_path, folder=str(sales))
    done = example.run()

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["published"], result["total"], result["gaps"]) == (None, None, {})
    assert result["skipped"] == {
        "best-east": "it needs read-east: read-east failed",
        "best-south": "it needs read-south: read-south failed",
        "total": "it needs at least 2 of read-east, read-north, read-south, and has 1: "
        "read-east, read-south failed",
        "write": "it needs total: read-east, read-south failed",
        "publish": "it needs write: read-east, read-south failed",
    }
    assert reports(example) == {}
