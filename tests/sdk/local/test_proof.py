"""Whether the process of an attempt is proved gone: with real processes, and notes of other machines."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import Claimed
from milepost.local import proof
from milepost.local.process import Executor
from milepost.local.runner import Outcome
from tests.support.local_runs import Desk, a_manifest
from tests.support.sessions import wait_until

RUN = "a" * 20


@contextmanager
def a_process(script: str = "import time; time.sleep(60)") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script], process_group=0, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def note(folder: Path, of: int, attempt: int = 2, **changes: Any) -> None:
    """Keep a note of the process, and change what it says of it."""
    proof.note(folder, RUN, attempt, "writer", proof.trace_of(of))
    file = folder / "executors" / RUN
    kept = json.loads(file.read_text())
    kept[str(attempt)]["trace"].update(changes)
    file.write_text(json.dumps(kept))


def gone(folder: Path, *, attempt: int = 2, writer: str = "writer") -> bool:
    return proof.proved_gone(folder, RUN, attempt, writer)


def test_a_process_that_has_ended_is_proved_gone(tmp_path: Path) -> None:
    with a_process() as process:
        note(tmp_path, process.pid)
        while_it_lived = gone(tmp_path)

    assert (while_it_lived, gone(tmp_path)) == (False, True)


def test_a_number_that_is_another_process_now_says_that_the_first_is_gone(tmp_path: Path) -> None:
    with a_process() as stranger:
        note(tmp_path, stranger.pid, started="1")

        assert gone(tmp_path)


def test_a_process_that_nobody_has_waited_for_is_gone_all_the_same(tmp_path: Path) -> None:
    with a_process() as process:
        note(tmp_path, process.pid)
        process.kill()
        wait_until(lambda: " Z " in Path(f"/proc/{process.pid}/stat").read_text())

        assert gone(tmp_path)


@pytest.mark.req("E3")
def test_what_a_process_left_in_its_group_may_still_be_at_work(tmp_path: Path) -> None:
    script = "import subprocess; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True)"
    with a_process(f"{script}; input()") as process:
        note(tmp_path, process.pid)
        assert process.stdout is not None
        child = int(process.stdout.readline())
    left = gone(tmp_path)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: gone(tmp_path))

    assert not left


@pytest.mark.parametrize(
    ("asked", "changes", "expected"),
    [
        pytest.param({"attempt": 3}, {}, False, id="another attempt"),
        pytest.param({"writer": "elsewhere"}, {}, False, id="another writer of the same attempt"),
        pytest.param({}, {"machine": "other/host"}, False, id="another machine"),
        pytest.param({}, {"machine": "other/host", "boot": "b"}, False, id="another machine, booted since"),
        pytest.param({}, {"space": "pid:[1]"}, False, id="another container"),
        pytest.param({}, {"boot": "before"}, True, id="the machine was started anew"),
        pytest.param({}, {"space": "pid:[1]", "boot": "before"}, True, id="a container before that"),
    ],
)
def test_only_this_machine_can_prove_an_end(
    tmp_path: Path, *, asked: dict[str, Any], changes: dict[str, Any], expected: bool
) -> None:
    with a_process() as process:
        note(tmp_path, process.pid, **changes)

    assert gone(tmp_path, **asked) is expected


def test_a_note_that_is_missing_or_cut_off_proves_nothing(tmp_path: Path) -> None:
    missing = gone(tmp_path)
    with a_process() as process:
        note(tmp_path, process.pid)
    file = tmp_path / "executors" / RUN
    file.write_text(file.read_text()[:-5])

    assert (missing, gone(tmp_path)) == (False, False)


def test_where_nothing_is_known_of_a_process_nothing_is_proved(tmp_path: Path) -> None:
    proof.note(tmp_path, RUN, 2, "writer", None)

    assert not gone(tmp_path)


def test_an_attempt_that_never_came_to_claim_the_run_does_not_hide_the_one_before(tmp_path: Path) -> None:
    with a_process() as before, a_process() as after:
        note(tmp_path, before.pid, attempt=2)
        note(tmp_path, after.pid, attempt=3)

    assert gone(tmp_path, attempt=2)


@pytest.mark.parametrize("how", ["waited for", "asked to stop", "left"])
def test_what_an_executor_started_ends_with_it(tmp_path: Path, how: str) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    said: list[str] = []
    with Executor(dict(os.environ), tmp_path, said.append, (sys.executable, "-c", script)) as executor:
        wait_until(lambda: said != [] and " Z " in Path(f"/proc/{executor.pid}/stat").read_text())
        if how == "waited for":
            executor.wait()
        elif how == "asked to stop":
            executor.release(1.0)

    wait_until(lambda: not Path(f"/proc/{said[0]}").exists())


def ends(desk: Desk, outcome: Outcome) -> list[tuple[int, str, bool]]:
    """Return how each attempt before the next claim ended: its number, the cause, whether it is proved."""
    seen = read_head(desk.store, desk.keys(outcome))
    assert isinstance(seen, HeadAt)
    events = [event for record, _ in seen.head.records() for event in record.events]
    previous = [event.previous_end for event in events if isinstance(event, Claimed) and event.previous_end]
    return [(end.attempt, end.cause, end.proved) for end in previous]


@pytest.mark.req("E3")
def test_the_end_of_an_executor_that_was_waited_for_is_proved(desk: Desk) -> None:
    outcome = desk.run(a_manifest(inputs={"world": str(desk.world), "end": "kill-after-record-2"}))

    assert ends(desk, outcome) == [(1, "KilledBySignal", True)]
