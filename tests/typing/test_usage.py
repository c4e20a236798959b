"""What authors write passes a strict type checker, and what would fail at run time does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
USAGE = Path(__file__).parent / "usage.py"


def check(text: str, folder: Path) -> str:
    copy = folder / "usage.py"
    copy.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={ROOT / '.mypy_cache'}", str(copy)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_what_authors_write_is_accepted_and_every_mistake_is_refused(tmp_path: Path) -> None:
    assert check(USAGE.read_text(), tmp_path) == "Success: no issues found in 1 source file\n"


def test_a_mistake_that_is_mended_is_noticed(tmp_path: Path) -> None:
    mistake = 'await run.step("wrong-type", scan, 3)'
    mended = USAGE.read_text().replace(mistake, mistake.replace("3", '"a"'))

    assert 'Unused "type: ignore" comment' in check(mended, tmp_path)
