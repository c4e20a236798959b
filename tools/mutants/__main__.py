"""Run the guards' tests without each guard in turn: `python -m tools.mutants [PART OF A NAME]`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.mutants.guard import Guard, without
from tools.mutants.guards import GUARDS

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0

NOTICED, FAILED_TESTS = "noticed", 1


def copy_of(tree: Path, folder: Path) -> Path:
    """Copy the files that are, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    copy = folder / "tree"
    for name in filter(None, listed.stdout.split("\0")):
        if (tree / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, copy / name)
    return copy


def verdict_on(guard: Guard, tree: Path) -> str:
    """Return what the tests say without the guard."""
    path = tree / guard.file
    whole = path.read_text()
    try:
        path.write_text(without(guard, tree))
        ended = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not e2e",
                *guard.tests.split(),
            ],
            cwd=tree,
            # Before the installed package, which is the tree that was copied.
            env=os.environ | {"PYTHONPATH": f"{tree / 'sdk'}:{tree / 'operator'}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )  # fmt: skip
    except ValueError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"no test failed within {PATIENCE:.0f} s"
    finally:
        path.write_text(whole)
    if ended.returncode == FAILED_TESTS:
        return NOTICED
    said = (ended.stdout + ended.stderr).strip().splitlines()
    return "no test failed" if ended.returncode == 0 else "the tests did not run: " + " ".join(said[-3:])


def main(part: str) -> int:
    """Return 0 if every guard that is asked for was missed by a test."""
    chosen = [guard for guard in GUARDS if part in guard.name]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="milepost-mutants-") as folder:
        tree = copy_of(ROOT, Path(folder))
        for number, guard in enumerate(chosen, start=1):
            began = time.monotonic()
            said = verdict_on(guard, tree)
            bad += said != NOTICED
            took = f"{time.monotonic() - began:.0f} s"
            print(f"{number:3}/{len(chosen)}  {guard.name}: {said} ({took})", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} guards are missed by a test when they are taken out")
    return bool(bad) or not chosen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
