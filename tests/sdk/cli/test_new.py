"""`milepost new`: the project that it writes runs, passes its own test, and is clean."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from milepost.cli.app import app
from milepost.local.manifest import load_manifest
from tests.support.local_runs import SDK

BIN = Path(sys.executable).parent


def new(folder: Path) -> Result:
    return CliRunner().invoke(app, ["new", str(folder)])


def within(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project, as somebody does who has installed Milepost and these tools."""
    data = {"XDG_DATA_HOME": str(project.parent / "data"), "OUTBOX": str(project.parent / "outbox")}
    return subprocess.run(
        words,
        cwd=project,
        env={**os.environ, **data, "PYTHONPATH": str(SDK), "MYPYPATH": str(SDK)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    written = new(tmp_path / "mail-digest")
    assert written.exit_code == 0, written.output
    return tmp_path / "mail-digest"


def test_it_writes_a_project_and_says_what_to_do_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "mail-digest"

    written = new(folder)

    assert written.stderr == (
        f"{folder} holds an agent; in there `milepost run run.yaml` runs it, and `pytest` tests it\n"
    )
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == [
        ".gitignore",
        "Dockerfile",
        "README.md",
        "mail_digest/__init__.py",
        "mail_digest/agent.py",
        "pyproject.toml",
        "run.yaml",
        "tests/test_agent.py",
    ]
    assert not [file for file in folder.rglob("*") if file.is_file() and "{{" in file.read_text()]


def test_the_manifest_is_named_after_the_folder(project: Path) -> None:
    manifest = load_manifest(project / "run.yaml")

    assert (manifest.name, manifest.spec.agent.entrypoint) == ("mail-digest", "mail_digest.agent:main")


@pytest.mark.req("S4")
def test_the_project_runs(project: Path) -> None:
    done = within(project, sys.executable, "-c", "from milepost.cli import main; main()", "run", "run.yaml")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"summary": "It has rained.", "readers": 2}


@pytest.mark.req("S5")
def test_the_projects_own_test_passes(project: Path) -> None:
    done = within(project, sys.executable, "-m", "pytest", "-q")

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.req("S5")
def test_the_projects_own_test_finds_state_that_a_recorded_step_left_behind(project: Path) -> None:
    agent = project / "mail_digest" / "agent.py"
    code = agent.read_text()
    forgetful = (
        code.replace("    summary = await run.step", "    global SAID\n    await run.step")
        .replace("deliver, reader, summary, key", "deliver, reader, SAID, key")
        .replace('{"summary": summary,', '{"summary": SAID,')
        .replace(
            '    return text.partition(".")[0].strip() + "."',
            '    global SAID\n    SAID = text.partition(".")[0].strip() + "."\n    return SAID',
        )
        .replace("async def summarise", 'SAID = ""\n\n\nasync def summarise')
    )
    agent.write_text(forgetful)

    done = within(project, sys.executable, "-m", "pytest", "-q")

    assert done.returncode == 1, done.stdout
    assert "usual causes: something kept in a variable by a step that is recorded" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["ruff", "check", "--isolated", "."],
        ["ruff", "format", "--isolated", "--check", "."],
        ["mypy", "--strict", "mail_digest", "tests"],
    ],
    ids=["ruff check", "ruff format", "mypy"],
)
def test_the_project_is_clean(project: Path, words: list[str]) -> None:
    done = within(project, str(BIN / words[0]), *words[1:])

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("My", "'My' must be of a-z and 0-9"),
        ("3d", "'3d' must be of a-z and 0-9"),
        ("a--b", "'a--b' must be of a-z and 0-9"),
        ("a" * 46, "of at most 45 characters"),
        ("json", "'json' is a name of Python's own"),
        ("class", "'class' is a name of Python's own"),
        ("milepost", "'milepost' is a name of Python's own, or of a package that is needed here"),
        ("tests", "'tests' is a name of Python's own, or of a package that is needed here"),
    ],
)
def test_a_name_that_can_be_no_package_is_refused(tmp_path: Path, name: str, why: str) -> None:
    refused = new(tmp_path / name)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("milepost: DIR: ")
    assert why in refused.stderr
    assert not (tmp_path / name).exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes").write_text("mine")

    refused = new(folder)

    assert refused.exit_code == 2
    assert refused.stderr == (
        f"milepost: DIR: {folder} is there and is not an empty folder; nothing was written\n"
    )
    assert [file.name for file in folder.iterdir()] == ["notes"]


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()

    assert new(tmp_path / "mine").exit_code == 0


def test_a_folder_that_cannot_be_made_is_said_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    refused = new(tmp_path / "file" / "mine")

    assert (refused.exit_code, refused.stderr) == (
        2,
        f"milepost: DIR: {tmp_path}/file/mine cannot be written: Not a directory\n",
    )
