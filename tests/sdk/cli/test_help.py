"""The help texts, as a file that is read in reviews, and the command without its extra."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from milepost.cli.app import app

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "cli-help.txt"


def help_texts() -> str:
    texts = []
    for command in (
        "",
        "new",
        "run",
        "steps",
        "list",
        "gates",
        "approve",
        "deny",
        "signal",
        "decide",
        "needs",
        "store",
        "store check",
        "store verify",
        "store repair",
        "store gc",
    ):
        shown = CliRunner().invoke(
            app,
            [*command.split(), "--help"],
            prog_name="milepost",
            env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
        )
        assert shown.exit_code == 0, shown.output
        texts.append(
            f"$ milepost {command} --help\n".replace("  ", " ") + re.sub(r" +\n", "\n", shown.output)
        )
    return "\n".join(texts)


def test_the_help_is_the_golden_one() -> None:
    if os.environ.get("MILEPOST_REWRITE_GOLDEN"):
        GOLDEN.write_text(help_texts())

    assert help_texts() == GOLDEN.read_text(), "MILEPOST_REWRITE_GOLDEN=1 rewrites it"


def test_the_version_is_that_of_the_package() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "milepost", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (said.returncode, said.stdout) == (0, f"milepost {version('milepost')}\n")


@pytest.mark.parametrize("module", ["typer", "rich", "yaml", "jsonschema"])
def test_without_the_extra_the_command_says_what_to_install(module: str) -> None:
    # None in sys.modules is what an import finds where a module is not installed.
    script = f"import sys; sys.modules[{module!r}] = None; from milepost.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "run", "x.yaml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"milepost: {module} is not installed; pip install 'milepost[cli]'")


def test_the_sdk_alone_needs_nothing_of_the_extra() -> None:
    script = (
        "import sys\nfor name in ('typer', 'rich', 'yaml', 'jsonschema'): sys.modules[name] = None\n"
        "import milepost, milepost.executor.session, milepost.cli"
    )

    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
