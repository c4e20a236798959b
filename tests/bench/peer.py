"""Other systems, each in a virtual environment of its own outside the tree, asked through a process.

An environment's folder is named for the digest of its pinned requirements, so it is made once and never
changed. What cannot be had is a figure too: `figures` turns every reason into `{"unavailable": "<reason>"}`,
and no bench fails because a peer does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.paths import Paths, complete_or_absent, locked
from tools.cluster.progress import say

__all__ = ["ROOT", "Peer", "Unavailable", "figures"]

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).parent / "peers"

_WITHIN_S = 300.0


class Unavailable(Exception):
    """A peer cannot be measured here; the message is what the figures say instead."""


@dataclass(frozen=True)
class Peer:
    """A peer's environment, `requirements` its pinned file, and `module` the script that is asked."""

    requirements: str
    module: str

    def python(self) -> Path:
        """Return the environment's interpreter; the environment is made first where there is none."""
        pinned = REQUIREMENTS / f"{self.requirements}.txt"
        digest = hashlib.sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()[:12]
        folder = Paths.from_environment().cache / "peers"
        target = folder / f"{self.requirements}-{digest}"
        with locked(folder):
            if not target.exists():
                say(f"make the environment of {self.requirements}, once")
                with complete_or_absent(target) as draft:
                    _install(draft, pinned)
        return target / "bin" / "python"

    def versions(self) -> dict[str, str]:
        """Return the pinned version of each distribution that bears the peer's name."""
        lines = (REQUIREMENTS / f"{self.requirements}.txt").read_text().splitlines()
        pins = (line.removesuffix(" \\").split("==") for line in lines if "==" in line)
        return {name: version for name, version in pins if name.startswith(self.requirements)}

    def ask(self, case: str, **settings: Any) -> dict[str, Any]:
        """Return the figures of one case. Raises Unavailable, with the end of what the script said."""
        done = subprocess.run(
            self._command(case, settings),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
        return _figures_of(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def start(self, case: str, *, env: dict[str, str] | None = None, **settings: Any) -> Iterator[Asked]:
        """Start one case and yield it as a process; it is killed if it is still there in the end."""
        process = subprocess.Popen(
            self._command(case, settings),
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Asked(process)
        finally:
            process.kill()
            process.communicate()

    def _command(self, case: str, settings: dict[str, Any]) -> list[str]:
        return [str(self.python()), "-m", self.module, case, json.dumps(settings)]


@dataclass(frozen=True)
class Asked:
    """A case under way, which prints `ready` before it goes on."""

    process: subprocess.Popen[str]

    def wait_until_ready(self) -> None:
        """Return once it has said so. Raises Unavailable where it ends instead."""
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            self.figures()

    def go(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def figures_when_ready(self) -> dict[str, Any]:
        """Wait for it to begin and to end, and return what it printed. Raises Unavailable."""
        self.wait_until_ready()
        return self.figures()

    def figures(self) -> dict[str, Any]:
        """Wait for its end and return what it printed. Raises Unavailable."""
        out, err = self.process.communicate(timeout=_WITHIN_S)
        return _figures_of(self.process.returncode, out, err)


def figures(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what was measured, or why it could not be."""
    try:
        return measure()
    except (Unavailable, subprocess.SubprocessError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        say(f"a peer is left out: {reason}")
        return {"unavailable": reason}


def _figures_of(code: int, out: str, err: str) -> dict[str, Any]:
    lines = out.strip().splitlines()
    if code != 0 or not lines:
        said = (err.strip() or "nothing").splitlines()
        # What comes after the error itself are notes on it.
        errors = [line for line in said if re.match(r"[\w.]+(Error|Exception|Conflict)\b", line)]
        raise Unavailable(f"its process ended with {code} and said: {(errors or said)[-1]}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def _install(folder: Path, pinned: Path) -> None:
    uv = Path(sys.prefix) / "bin" / "uv"
    for command in (
        [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder],
        [
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            folder / "bin" / "python",
            "--require-hashes",
            "-r",
            pinned,
        ],
    ):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"its environment cannot be made: {done.stderr.strip()[-200:]}")
