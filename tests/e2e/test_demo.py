"""The demo is the first example of all: it must do what it shows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tools.demo import REPORT


@pytest.mark.e2e
@pytest.mark.timeout(400)
@pytest.mark.req("G7", "E6", "K1")
@pytest.mark.usefixtures("deployment")
def test_the_demo_shows_a_run_that_outlives_its_pod() -> None:
    REPORT.unlink(missing_ok=True)

    done = subprocess.run(
        [sys.executable, "-m", "tools.demo", "--keep"],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(REPORT.read_text())
    measured = {name: report.pop(name) for name in ("eviction_to_next_step_s", "first_start_s")}
    assert report == {
        "outcome": "Succeeded",
        "documents": 10,
        "evictions": 1,
        "effects": {"total": 10, "duplicates": 0},
        "recorded_steps_repeated": 0,
    }
    assert all(seconds > 0 for seconds in measured.values())
