"""`milepost run` on a run that waits, as its user has it: processes, signals, and stores of both kinds."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import Claimed, PreviousEnd
from milepost.checkpoint.store import Store
from milepost.cli import stores
from milepost.testing.fake_s3 import FakeS3
from tests.support.local_runs import AGENTS, SDK
from tests.support.sessions import wait_until

PATIENCE = 60.0


@dataclass(frozen=True)
class User:
    """A user with a folder, a store, and the command line in processes."""

    folder: Path
    store: str
    environ: dict[str, str]

    def settings(self, *words: str) -> dict[str, Any]:
        given = [sys.executable, "-c", "from milepost.cli import main; main()", *words, "--store", self.store]
        environ = {"PYTHONPATH": str(SDK), "XDG_DATA_HOME": str(self.folder / "data"), **self.environ}
        return {"args": given, "cwd": AGENTS, "env": {**os.environ, **environ}, "text": True}

    def milepost(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(**self.settings(*words), capture_output=True, timeout=PATIENCE, check=False)

    def manifest(self, agent: str, **inputs: Any) -> str:
        file = self.folder / "run.yaml"
        spec = {"agent": {"image": "none", "entrypoint": f"gated:{agent}"}, "inputs": inputs}
        run = {"apiVersion": "milepost.dev/v1alpha1", "kind": "AgentRun", "metadata": {"name": agent}}
        file.write_text(json.dumps({**run, "spec": spec}))
        return str(file)

    @contextmanager
    def running(self, manifest: str) -> Iterator[subprocess.Popen[str]]:
        """A runner in the background, from when on its run waits."""
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            process = subprocess.Popen(
                **self.settings("run", manifest), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        signal.signal(signal.SIGINT, before)
        try:
            wait_until(lambda: "waits " in self.errors())
            yield process
        finally:
            process.kill()
            process.wait()

    def errors(self) -> str:
        return (self.folder / "err").read_text()

    def result(self) -> Any:
        return json.loads((self.folder / "out").read_text())


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path, f"file:{tmp_path}/store", {})


@pytest.fixture
def on_s3(tmp_path: Path) -> Iterator[User]:
    with FakeS3() as s3:
        store = f"s3://{s3.bucket}/p?endpoint={s3.endpoint}&region=us-east-1"
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": ""}
        yield User(tmp_path, store, keys)


@pytest.mark.req("S4", "F1", "F4")
def test_on_a_bucket_a_run_waits_is_answered_and_goes_on(on_s3: User) -> None:
    with on_s3.running(on_s3.manifest("publish")) as process:
        asked = on_s3.milepost("gates", "publish", "--json")
        given = on_s3.milepost("approve", "publish", "publish", "--reason", "fine")
        code = process.wait(PATIENCE)

    assert [gate["name"] for gate in json.loads(asked.stdout)] == ["publish"]
    assert (given.returncode, code) == (0, 0)
    assert on_s3.result().endswith(" said: fine")


@pytest.mark.req("F1")
def test_no_executor_is_alive_while_a_run_waits(user: User) -> None:
    with user.running(user.manifest("publish")):
        (pid,) = re.findall(r"executor pid (\d+)", user.errors())

        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.req("F1")
def test_a_sleep_ends_by_itself(user: User) -> None:
    with user.running(user.manifest("nap", seconds=2.0)) as process:
        code = process.wait(PATIENCE)

    assert (code, user.result()) == (0, "awake")


def test_ctrl_c_leaves_a_waiting_run_and_says_how_to_go_on(user: User) -> None:
    manifest = user.manifest("publish")
    with user.running(manifest) as process:
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)

    options = f"--store {user.store}"
    assert code == 130
    assert user.errors().splitlines()[-5:] == [
        f"interrupted; 1 step is recorded, and `milepost run {manifest} {options}` goes on from there",
        "waits for approval publish",
        f"  milepost gates publish {options}    shows what is asked",
        f"  milepost approve publish publish {options}",
        f"  milepost deny publish publish {options}",
    ]


def test_the_commands_that_are_told_can_be_pasted(user: User) -> None:
    with user.running(user.manifest("publish")) as process:
        (told,) = re.findall(r"^  milepost (deny .*)$", user.errors(), re.MULTILINE)
        words = told.partition(" --store ")[0].split()
        assert user.milepost(*words).returncode == 0
        process.wait(PATIENCE)

    assert user.result().startswith("no, says ")


def test_a_second_runner_of_a_waiting_run_is_refused(user: User) -> None:
    manifest = user.manifest("publish")
    with user.running(manifest):
        second = user.milepost("run", manifest)

    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr.startswith("Busy: another `milepost run` works on default/publish in ")


@pytest.mark.req("E4")
def test_a_runner_that_is_killed_while_its_run_waits_loses_nothing(user: User) -> None:
    manifest = user.manifest("publish")
    with user.running(manifest) as process:
        process.kill()
        process.wait()
    user.milepost("approve", "publish", "publish", "--reason", "fine")

    again = user.milepost("run", manifest)

    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout).endswith(" said: fine")
    assert previous_ends(stores.opened(user.store).store) == [
        PreviousEnd(attempt=1, cause="Waiting", fault="disruption", proved=True)
    ]


def previous_ends(store: Store) -> list[PreviousEnd]:
    known = stores.find(stores.opened(store.uri), "default", "publish")
    seen = read_head(store, known.head.keys)
    assert isinstance(seen, HeadAt)
    events = [event for record, _ in seen.head.records() for event in record.events]
    return [event.previous_end for event in events if isinstance(event, Claimed) and event.previous_end]


def test_what_is_told_of_a_halt_can_be_pasted_too(user: User) -> None:
    manifest = user.manifest("pay")

    halted = user.milepost("run", manifest)
    (told,) = re.findall(r"^  milepost (decide pay not-done) ", halted.stderr, re.MULTILINE)
    decided = user.milepost(*told.split())

    assert halted.returncode == 1
    assert "Halted, 0 steps recorded (OutcomeUnknown: " in halted.stderr
    assert decided.returncode == 0, decided.stderr
