"""The command `milepost run` as its user has it: a process, its signals, its output and its exit code."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.owner import KEY, claim_prefix
from milepost.checkpoint.sending import Patience
from tests.support.local_runs import AGENTS, SDK, Desk
from tests.support.sessions import wait_until

PATIENCE = 60.0

MAIN = (sys.executable, "-c", "from milepost.cli import main; main()")


def write_manifest(desk: Desk, agent: str, **inputs: Any) -> Path:
    file = desk.root / "run.yaml"
    spec = {
        "agent": {"image": "none", "entrypoint": f"counting_agent:{agent}"},
        "inputs": {"world": str(desk.world), **inputs},
    }
    metadata = {"name": agent}
    # JSON is YAML.
    file.write_text(
        json.dumps(
            {"apiVersion": "milepost.dev/v1alpha1", "kind": "AgentRun", "metadata": metadata, "spec": spec}
        )
    )
    return file


def settings(desk: Desk, *arguments: str | Path) -> dict[str, Any]:
    return {
        "args": [*MAIN, arguments[0], "--store", desk.store.uri, *map(str, arguments[1:])],
        "cwd": AGENTS,
        "env": {**os.environ, "PYTHONPATH": str(SDK), "XDG_DATA_HOME": str(desk.root / "data")},
        "text": True,
    }


def milepost(desk: Desk, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(**settings(desk, *arguments), capture_output=True, timeout=PATIENCE, check=False)


@contextmanager
def heeding(*numbers: signal.Signals) -> Iterator[None]:
    """Let processes that are started now heed these signals, also where these tests run in the background."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def started(desk: Desk, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    with (desk.root / "out").open("w") as out, (desk.root / "err").open("w") as err:
        with heeding(signal.SIGINT, signal.SIGHUP):
            # A group of its own, as a shell makes it: Ctrl-C reaches every process of it.
            process = subprocess.Popen(**settings(desk, *arguments), stdout=out, stderr=err, process_group=0)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def errors(desk: Desk) -> str:
    return (desk.root / "err").read_text()


def last_pid(desk: Desk) -> int:
    return int(wait_until(lambda: re.findall(r"executor pid (\d+)", errors(desk)))[-1])


def gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for is still listed, as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.req("S4")
def test_the_result_is_all_of_standard_output_and_the_steps_are_told_as_they_come(desk: Desk) -> None:
    done = milepost(desk, "run", write_manifest(desk, "count", until=2, end="kill-after-record-2"))

    assert (done.returncode, json.loads(done.stdout)) == (0, {"step-1": 2, "step-2": 4})
    shown = re.sub(r"pid \d+", "pid N", re.sub(r"run [a-z2-7]{20}", "run ID", done.stderr))
    assert shown.splitlines() == [
        f"run ID begins as default/count in {desk.store.uri}",
        "attempt 1 starts",
        "executor pid N; kill it to see it resume",
        "  1/2  step-1",
        "  2/2  step-2",
        "attempt 2 goes on after 2 recorded steps; attempt 1 was killed (SIGKILL)",
        "executor pid N; kill it to see it resume",
        "run ID: Succeeded, 2 steps recorded (Completed)",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_lets_the_step_in_flight_end_and_goes_on_when_called_again(
    desk: Desk, number: signal.Signals
) -> None:
    manifest = write_manifest(desk, "wait")
    with started(desk, "run", manifest) as process:
        wait_until((desk.world / "holding").exists)
        os.killpg(process.pid, number)
        wait_until(lambda: "stopping" in errors(desk))
        (desk.world / "let-go").touch()
        code = process.wait(PATIENCE)

    pid = last_pid(desk)
    assert gone(pid)
    again = milepost(desk, "run", manifest)
    assert code == 130
    command = f"milepost run {manifest} --store {desk.store.uri}"
    assert f"interrupted; 2 steps are recorded, and `{command}` goes on from there" in errors(desk)
    assert (again.returncode, json.loads(again.stdout)) == (0, "let go")
    assert len(desk.calls()) == 2


def test_a_second_interrupt_kills_what_does_not_end(desk: Desk) -> None:
    with started(desk, "run", write_manifest(desk, "wait")) as process:
        wait_until((desk.world / "holding").exists)
        pid = last_pid(desk)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping" in errors(desk))
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)

    assert code == 130
    assert gone(pid)


@pytest.mark.req("E4")
def test_an_executor_ends_with_a_runner_that_is_killed_and_the_run_goes_on_when_called_again(
    desk: Desk,
) -> None:
    manifest = write_manifest(desk, "wait")
    with started(desk, "run", manifest) as process:
        wait_until((desk.world / "holding").exists)
        pid = last_pid(desk)
        process.kill()
        wait_until(lambda: gone(pid))

    (desk.world / "let-go").touch()
    again = milepost(desk, "run", manifest)
    assert (again.returncode, json.loads(again.stdout)) == (0, "let go")
    assert "attempt 2 goes on after 1 recorded step; attempt 1 was interrupted" in again.stderr
    assert len(desk.calls()) == 2
    (run,) = (desk.root / "store" / "default" / "runs").iterdir()
    head = read_head(desk.store, desk.keys_of(run.name))
    assert isinstance(head, HeadAt)
    # Its process was seen to be gone.
    assert load(desk.store, head.head).proved_ends == {1}


def test_an_executor_that_the_user_kills_is_started_again(desk: Desk) -> None:
    with started(desk, "run", write_manifest(desk, "wait")) as process:
        wait_until((desk.world / "holding").exists)
        os.kill(last_pid(desk), signal.SIGKILL)
        wait_until(lambda: "attempt 2 goes on after 1 recorded step" in errors(desk))
        (desk.world / "let-go").touch()
        code = process.wait(PATIENCE)

    assert code == 0
    assert len(desk.calls()) == 2


@pytest.mark.req("C3")
def test_an_executor_whose_runner_was_killed_is_fenced_by_the_next_one(desk: Desk) -> None:
    manifest = write_manifest(desk, "wait")
    with started(desk, "run", manifest) as process:
        wait_until((desk.world / "holding").exists)
        orphan = last_pid(desk)
        process.kill()
    (desk.world / "holding").unlink()

    with started(desk, "run", manifest) as process:
        wait_until((desk.world / "holding").exists)
        (desk.world / "let-go").touch()
        code = process.wait(PATIENCE)
    wait_until(lambda: gone(orphan))

    assert code == 0
    assert "attempt 2 goes on after 1 recorded step; attempt 1 was interrupted" in errors(desk)
    assert [applied for _, applied in desk.calls()] == [True, True]


def test_a_second_runner_on_the_same_run_is_refused(desk: Desk) -> None:
    manifest = write_manifest(desk, "wait")
    with started(desk, "run", manifest) as process:
        wait_until((desk.world / "holding").exists)
        second = milepost(desk, "run", manifest)
        (desk.world / "let-go").touch()
        first = process.wait(PATIENCE)

    assert (first, second.returncode, second.stdout) == (0, 1, "")
    assert second.stderr == (
        f"Busy: another `milepost run` works on default/wait in {desk.store.uri}; wait for it, or end it\n"
    )


def test_what_the_agent_prints_is_passed_on(desk: Desk) -> None:
    (desk.world / "let-go").touch()

    done = milepost(desk, "run", write_manifest(desk, "wait"))

    assert "said on standard output" in done.stderr.splitlines()
    assert json.loads(done.stdout) == "let go"


def test_a_try_that_failed_is_told_in_one_line(desk: Desk) -> None:
    done = milepost(desk, "run", write_manifest(desk, "stumble"))

    told = [line for line in done.stderr.splitlines() if "stumble" in line and "begins" not in line]
    code, _, line = told[0].rpartition(" (counting_agent.py, line ")
    assert (code, line[-16:]) == (
        "  stumble failed, try 1 of 2: builtins.OSError: not yet",
        ", in second_try)",
    )
    assert told[1:] == ["  1  stumble"]


def test_a_run_that_halts_says_why_and_exits_1(desk: Desk) -> None:
    done = milepost(desk, "run", write_manifest(desk, "absent"))

    assert (done.returncode, done.stdout) == (1, "")
    assert "Halted, 0 steps recorded (EntrypointNotFound: " in done.stderr


def test_a_run_that_fails_says_why_and_exits_1(desk: Desk) -> None:
    done = milepost(desk, "run", write_manifest(desk, "count", until=-1, end="fail"))

    assert done.returncode == 1
    assert "Failed, 0 steps recorded (AgentRaised: builtins.ValueError: asked to fail)" in done.stderr
    assert done.stderr.endswith(
        "it has failed for good; another value of spec.rerun in the manifest begins it anew\n"
    )


def test_an_owner_that_cannot_be_read_is_no_matter_of_a_repair(desk: Desk) -> None:
    desk.store.put_new(KEY, b"", {})

    done = milepost(desk, "run", write_manifest(desk, "count"))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Corrupt: _owner: it does not say whose prefix this is: ")
    assert done.stderr.endswith(
        "; delete it if nobody else can be at work in here: who comes next becomes the owner\n"
    )


def test_a_bad_manifest_exits_2_and_names_file_field_and_line(desk: Desk) -> None:
    file = desk.root / "run.yaml"
    file.write_text(
        "apiVersion: milepost.dev/v1alpha1\nkind: AgentRun\nmetadata: {name: a}\nspec:\n  agnt: {}\n"
    )

    done = milepost(desk, "run", file)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"milepost: {file}: spec.agnt (line 5): is no field here; is it agent?\n"


def test_a_store_that_is_none_exits_2_and_says_what_would_be_one(desk: Desk) -> None:
    done = milepost(desk, "run", write_manifest(desk, "count"), "--store", "folder")

    assert done.returncode == 2
    assert "--store: 'folder' must be file:PATH, or s3://BUCKET/PREFIX" in done.stderr


@pytest.mark.req("S7")
def test_a_store_of_another_owner_is_taken_over_only_when_that_is_said(desk: Desk) -> None:
    claim_prefix(desk.store, "cluster-a", patience=Patience(os.urandom))
    manifest = write_manifest(desk, "count", until=1)

    refused = milepost(desk, "run", manifest)
    taken = milepost(desk, "run", manifest, "--recover-from", "cluster-a")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("StoreOwnedElsewhere: ")
    assert "or give `milepost run` --recover-from cluster-a" in refused.stderr
    assert taken.returncode == 0, taken.stderr


def test_what_the_agent_raised_is_shown_as_python_shows_it(desk: Desk) -> None:
    done = milepost(desk, "run", write_manifest(desk, "count", end="fail"))

    assert done.returncode == 1
    assert "\nTraceback (most recent call last):\n  File " in done.stderr
    assert '"event": "agent-failed"' not in done.stderr


def test_a_damaged_run_says_where_to_go_on(desk: Desk) -> None:
    manifest = write_manifest(desk, "count", until=1)
    assert milepost(desk, "run", manifest).returncode == 0
    (head,) = (desk.root / "store").glob("default/runs/*/head")
    head.write_bytes(head.read_bytes()[:-20])

    done = milepost(desk, "run", manifest)

    assert done.returncode == 1
    what, where_to_go_on = done.stderr.splitlines()
    assert (
        what == f"Corrupt: default/runs/{head.parent.name}/head: its content does not match the digest in it"
    )
    assert where_to_go_on.startswith("`milepost store verify` says what can be trusted, and ")
