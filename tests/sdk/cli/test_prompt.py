"""Approvals at the prompt of `milepost run`: a real terminal, a real executor, and a person who types."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.gated_runs import command
from tests.support.local_runs import AGENTS, SDK, Desk
from tests.support.sessions import wait_until

PATIENCE = 60.0
MAIN = (sys.executable, "-c", "from milepost.cli import main; main()")
CHOICE = "[a]pprove, [d]eny, [f]ull request, [l]ater? "


class Terminal:
    """A terminal with `milepost run` in its foreground. What it shows is kept without its colours."""

    def __init__(self, desk: Desk, manifest: Path) -> None:
        self._raw = b""
        self._read = 0
        self.result = desk.root / "result"
        pid, self._fd = pty.fork()
        if pid == 0:
            out = os.open(self.result, os.O_WRONLY | os.O_CREAT)
            os.dup2(out, 1)
            os.chdir(AGENTS)
            # Where these tests run in the background it is ignored, and would be here.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            environ = {**os.environ, "PYTHONPATH": str(SDK), "XDG_DATA_HOME": str(desk.root / "data")}
            words = [*MAIN, "run", str(manifest), "--store", desk.store.uri]
            # A shell between would be in the foreground in its place.
            os.execve(words[0], words, {**environ, "TERM": "xterm", "COLUMNS": "200"})  # noqa: S606  (as above)
        self._pid = pid

    @property
    def shown(self) -> str:
        """What was shown so far. A character or a colour of which only a part has come is not yet there."""
        plain = re.sub(rb"\x1b\[[0-9;?]*([A-Za-z]|$)|\x1b$|\r", b"", self._raw)
        return plain.decode(errors="ignore")

    def sees(self, text: str) -> None:
        """Wait until this is shown, after what was seen before."""
        while text not in self.shown[self._read :]:
            assert select.select([self._fd], [], [], PATIENCE)[0], f"{text!r} is not shown: {self.shown}"
            try:
                self._raw += os.read(self._fd, 65536)
            except OSError:
                raise AssertionError(f"{text!r} is not shown, and it ended: {self.shown}") from None
        self._read = self.shown.index(text, self._read) + len(text)

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        try:
            while os.read(self._fd, 65536):
                pass
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def close(self) -> None:
        os.close(self._fd)


def write_manifest(desk: Desk, agent: str, **inputs: Any) -> Path:
    file = desk.root / "run.yaml"
    spec = {"agent": {"image": "none", "entrypoint": f"gated:{agent}"}, "inputs": inputs}
    run = {"apiVersion": "milepost.dev/v1alpha1", "kind": "AgentRun", "metadata": {"name": agent}}
    file.write_text(json.dumps({**run, "spec": spec}))
    return file


@contextmanager
def running(desk: Desk, agent: str, **inputs: Any) -> Iterator[Terminal]:
    terminal = Terminal(desk, write_manifest(desk, agent, **inputs))
    try:
        yield terminal
    finally:
        # The end of its terminal ends it.
        terminal.close()


def result(terminal: Terminal) -> Any:
    return json.loads(terminal.result.read_text())


@pytest.mark.req("S4", "F4")
def test_an_approval_is_shown_whole_asked_and_given_at_the_prompt(desk: Desk) -> None:
    with running(desk, "publish", text="a\u202eb") as terminal:
        terminal.sees("approval publish")
        terminal.sees('  {\n    "body": "A\\u202eB",\n    "to": "everybody"\n  }\n')
        terminal.sees(CHOICE)
        terminal.types("x\n")
        terminal.sees("'x' is none of a, d, f, l")
        terminal.sees(CHOICE)
        terminal.types("a\n")
        terminal.sees("reason (may be empty): ")
        terminal.types("looks fine\n")
        code = terminal.ends()

    assert code == 0
    assert result(terminal).endswith(" said: looks fine")


def test_a_denial_at_the_prompt_reaches_the_agent(desk: Desk) -> None:
    with running(desk, "publish") as terminal:
        terminal.sees(CHOICE)
        terminal.types("deny\n")
        terminal.sees("reason (may be empty): ")
        terminal.types("\n")
        terminal.ends()

    assert result(terminal).startswith("no, says ")


def test_an_answer_that_does_not_fit_is_asked_again(desk: Desk) -> None:
    with running(desk, "book") as terminal:
        terminal.sees("the answer, as JSON Schema:")
        terminal.sees(CHOICE)
        terminal.types("a\n")
        terminal.sees("answer: ")
        terminal.types('{"room": "b"}\n')
        terminal.sees("'seats' is a required property")
        terminal.sees("answer: ")
        terminal.types('{"room": "b", "seats": 4}\n')
        terminal.sees("reason (may be empty): ")
        terminal.types("\n")
        terminal.ends()

    assert result(terminal) == "b for 4"


def test_a_long_request_is_cut_and_shown_in_full_when_asked(desk: Desk) -> None:
    with running(desk, "long") as terminal:
        terminal.sees('"line 37"')
        terminal.sees("... 63 more lines; f shows all of them")
        terminal.sees(CHOICE)
        terminal.types("f\n")
        terminal.sees('"line 99"')
        terminal.sees(CHOICE)
        terminal.types("a\n")
        terminal.sees("reason")
        terminal.types("\n")
        terminal.ends()

    assert result(terminal) == "read"


@pytest.mark.req("F-E1")
def test_an_answer_from_elsewhere_ends_the_question(desk: Desk) -> None:
    with running(desk, "publish") as terminal:
        terminal.sees(CHOICE)
        assert command(desk, "deny", "publish", "publish", "--reason", "too late").exit_code == 0
        terminal.sees("publish is denied by ")
        code = terminal.ends()

    assert code == 0
    assert result(terminal).endswith(": too late")


def test_what_was_typed_before_the_question_is_no_answer_to_it(desk: Desk) -> None:
    with running(desk, "publish") as terminal:
        terminal.types("a\n\n")
        terminal.sees(CHOICE)
        terminal.types("d\n")
        terminal.sees("reason")
        terminal.types("\n")
        terminal.ends()

    assert result(terminal).startswith("no, says ")


def test_ctrl_c_at_the_prompt_leaves_the_run_waiting_and_says_how_to_go_on(desk: Desk) -> None:
    with running(desk, "publish") as terminal:
        terminal.sees(CHOICE)
        terminal.types("\x03")
        terminal.sees("interrupted; 1 step is recorded, and `milepost run ")
        terminal.sees("milepost approve publish publish")
        code = terminal.ends()

    command(desk, "approve", "publish", "publish")
    with running(desk, "publish") as again:
        assert again.ends() == 0

    assert code == 130
    assert result(again).startswith("sent, as ")


def test_later_leaves_the_gate_open_for_others(desk: Desk) -> None:
    with running(desk, "publish") as terminal:
        terminal.sees(CHOICE)
        terminal.types("l\n")
        terminal.sees("milepost approve publish publish")
        command(desk, "approve", "publish", "publish", "--reason", "ok")
        code = terminal.ends()

    assert code == 0
    assert result(terminal).endswith(" said: ok")


def test_how_far_the_run_is_stays_on_the_terminal(desk: Desk) -> None:
    with running(desk, "order") as terminal:
        terminal.sees("0 steps · ")
        terminal.sees("waits for event paid=7")
        command(desk, "signal", "order", "paid", "--key", "7", "--data", "1")
        command(desk, "signal", "order", "paid", "--key", "7", "--data", "2")
        code = terminal.ends()

    assert code == 0
    assert result(terminal) == [1, 2]


def test_without_a_terminal_nothing_is_asked(desk: Desk) -> None:
    file = write_manifest(desk, "publish")
    settings: dict[str, Any] = {
        "args": [*MAIN, "run", str(file), "--store", desk.store.uri],
        "cwd": AGENTS,
        "env": {**os.environ, "PYTHONPATH": str(SDK), "XDG_DATA_HOME": str(desk.root / "data")},
    }
    with (desk.root / "err").open("w+") as errors:
        process = subprocess.Popen(
            **settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        try:
            wait_until(lambda: "waits for approval publish\n" in (desk.root / "err").read_text())
            command(desk, "approve", "publish", "publish")
            out, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        told = errors.read()

    assert process.returncode == 0
    assert json.loads(out).startswith("sent, as ")
    assert CHOICE not in told
