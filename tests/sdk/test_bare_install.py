"""What `pip install .` brings into a virtual environment of its own: the SDK, and nothing of anybody else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

AGENT = """
from milepost import Call, Run, agent, tool
from milepost.testing import Ledger


@tool(effect="keyed")
async def send(call: Call, to: str) -> str:
    Ledger.from_environment().apply(call.key, to)
    return call.key


@agent(version="1", tools=[send])
async def letters(run: Run, readers: list[str]) -> int:
    for reader in readers:
        await run.step("send", send, reader, key=reader)
    return len(readers)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with nothing but a bare install."""
    folder = tmp_path_factory.mktemp("bare")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, ROOT], check=True, timeout=300)
    return python


def ask(python: Path, code: str, folder: Path) -> str:
    done = subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_nothing_of_the_operators_the_command_lines_or_pydantic_ais_comes_along(
    python: Path, tmp_path: Path
) -> None:
    code = (
        "import json, importlib.metadata as m; print(json.dumps([d.name.lower() for d in m.distributions()]))"
    )
    installed = set(json.loads(ask(python, code, tmp_path)))
    assert "milepost" in installed
    others = {
        "kopf",
        "aiohttp",
        "typer",
        "rich",
        "pydantic-ai-slim",
        "genai-prices",
        "kubernetes",
        "jsonschema",
    }
    assert installed & others == set()


@pytest.mark.timeout(600)
@pytest.mark.req("S4", "S5")
def test_an_agent_runs_and_is_crashed_everywhere_with_nothing_else(python: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(AGENT)
    code = (
        "from milepost.testing import crash_everywhere\n"
        "report = crash_everywhere('letters:letters', {'readers': ['ann', 'bob']}, max_points=4)\n"
        "print(report.undisturbed.result)\n"
    )
    assert ask(python, code, tmp_path).splitlines()[-1] == "2"


@pytest.mark.timeout(600)
def test_a_command_that_needs_more_says_what_to_install(python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [python.with_name("milepost"), "run", "run.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "pip install 'milepost[cli]'" in done.stderr
