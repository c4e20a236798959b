"""The tutorial is true: its files are written, its commands are run in its order, and say what it shows.

Only the installation is not repeated here. What a reader does in the second terminal happens while the
command in the first one is running.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.example_runs import SDK
from tests.support.sessions import wait_until

pytestmark = [pytest.mark.timeout(400), pytest.mark.req("S4", "S5", "F1")]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
PATIENCE = 300.0


class Command(NamedTuple):
    """A command as the page has it, and the lines that it shows of what comes."""

    line: str
    shows: tuple[str, ...]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[Command]:
    """Return the page's commands; lines without a prompt are what the command before them shows."""
    found: list[Command] = []
    for line in "".join(blocks("console")).splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ "), ()))
        else:
            found[-1] = found[-1]._replace(shows=(*found[-1].shows, line))
    return found


class Desk:
    """A folder with a shell whose `milepost`, `pytest` and `python` are those of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name, code in {
            "milepost": "from milepost.cli import main; main()",
            "pytest": "import sys, pytest; sys.exit(pytest.main())",
        }.items():
            program = programs / name
            program.write_text(f"#!{sys.executable}\n{code}\n")
            program.chmod(0o755)
        own = {
            key: value for key, value in os.environ.items() if not key.startswith(("MILEPOST_", "PYTEST_"))
        }
        self.environ = {
            **own,
            "PATH": f"{programs}{os.pathsep}{own['PATH']}",
            "PYTHONPATH": str(SDK),
            "XDG_DATA_HOME": str(folder / "data"),
        }

    def write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    def run(self, line: str) -> str:
        """Run a command to its end and return all that it says."""
        settings = self._settings()
        done = subprocess.run(line, **settings, stdout=subprocess.PIPE, timeout=PATIENCE, check=False)
        return str(done.stdout)

    @contextmanager
    def running(self, line: str) -> Iterator[Path]:
        """Run a command beside what the reader does next, and give the file of what it says."""
        said = self.folder.parent / "said"
        with said.open("w") as file:
            process = subprocess.Popen(line, **self._settings(), stdout=file)
        try:
            yield said
            process.wait(PATIENCE)
        finally:
            process.kill()

    def _settings(self) -> dict[str, Any]:
        # Without a terminal nobody is asked at the prompt.
        return {
            "shell": True,
            "cwd": self.folder,
            "env": self.environ,
            "text": True,
            "stdin": subprocess.DEVNULL,
            "stderr": subprocess.STDOUT,
        }


def expect(command: Command, said: str, pid: str = "4711") -> None:
    """Assert that every line that the page shows was said, in its order."""
    rest = said
    for line in command.shows:
        shown = line.replace("4711", pid)
        assert shown in rest, f"{command.line} does not say {shown!r}, but:\n{said}"
        rest = rest.partition(shown)[2]


class Reader:
    """Somebody who does what the page says, in its order."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.todo = commands()

    def now(self, line: str) -> Command:
        command = self.todo.pop(0)
        assert command.line == line, "the page has another command here than its test"
        return command

    def does(self, line: str) -> str:
        """Run the next command, and return what it says once that is what the page shows."""
        command = self.now(line)
        said = self.desk.run(command.line)
        expect(command, said)
        return said


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    reader = Reader(desk)
    first, second, test = blocks("python")
    manifest, rerun = blocks("yaml")
    reader.now("python3 -m venv venv && . venv/bin/activate")
    reader.now("pip install 'CLONE[cli]' pytest")

    desk.write("letters.py", first)
    desk.write("run.yaml", manifest)
    kills_it(reader)

    # Nobody has to be fast enough to kill it any more.
    desk.write("letters.py", with_second_agent(first, second).replace("asyncio.sleep(1)", "asyncio.sleep(0)"))
    desk.write("run.yaml", f"{manifest}{rerun}")
    is_asked(reader)

    # As it stands it tries every place, which takes a minute.
    fewer = test.replace("effects=sent)\n", "effects=sent, max_points=9)\n").replace("points=4", "points=2")
    desk.write("test_letters.py", fewer)
    reader.does("pytest -q")
    reader.does("sed -i.right \"s/{call.key.replace('\\/', '.')}/{os.getpid()}/\" letters.py")
    reader.does("pytest -q")
    reader.does("mv letters.py.right letters.py")

    reader.does("milepost new my-agent")
    assert (desk.folder / "my-agent" / "run.yaml").exists()
    assert reader.todo == []


def kills_it(reader: Reader) -> None:
    run, kill = reader.now("milepost run run.yaml"), reader.now("kill -9 4711")
    with reader.desk.running(run.line) as said:
        wait_until(lambda: run.shows[-1] in said.read_text(), PATIENCE)
        pid = re.findall(r"executor pid (\d+)", said.read_text())[0]
        reader.desk.run(kill.line.replace("4711", pid))
    expect(run, said.read_text(), pid)
    expect(kill, said.read_text())
    assert "recorded" in reader.does("milepost steps letters")
    assert len(reader.does("ls outbox").split()) == 5
    reader.does("milepost run run.yaml")


def is_asked(reader: Reader) -> None:
    run = reader.now("milepost run run.yaml")
    with reader.desk.running(run.line) as said:
        wait_until(lambda: run.shows[-1] in said.read_text(), PATIENCE)
        assert "Dear kim, all is well." in reader.does("milepost gates letters")
        reader.does("milepost approve letters send")
    expect(run, said.read_text())
    assert said.read_text().splitlines()[-1] == "5"
    assert len(reader.desk.run("ls outbox").split()) == 10


def with_second_agent(first: str, second: str) -> str:
    """Return the module with its agent replaced, and imports added, as the page says."""
    kept = first.partition("@agent(")[0]
    assert "`from datetime import timedelta` at its top, and `Denied` among what comes from `milepost`" in (
        PAGE.replace("\n", " ")
    )
    imported = kept.replace("import Call, Run", "import Call, Denied, Run").replace(
        "from pathlib", "from datetime import timedelta\nfrom pathlib"
    )
    return imported + second
