"""Programs that outlive the tool: started in a control group, known again by more than their number.

A process id alone says nothing after a crash or a reboot, since it may belong to somebody else by then.
What is written down is the id with the moment the process started, in ticks since this very boot.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster import cgroups
from tools.cluster.interface import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The shell forks once, so that the program is nobody's child here: it is no zombie of a test that goes on.
_DETACHED = (
    'procs=$1 log=$2; shift 2; (echo 0 >"$procs" && exec setsid "$@") </dev/null >>"$log" 2>&1 & echo $!'
)
_IN_GROUP = 'echo 0 >"$1" && shift && exec "$@"'
_PROC = Path("/proc")


def run(*argv: str | Path, stdin: str | None = None, within: float = 120.0) -> str:
    """Run a command to its end and return its output. Raises ClusterError with what it complained about."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=within, check=False)
    except FileNotFoundError as error:
        raise ClusterError(f"{words[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{' '.join(words)}: no end within {within:.0f} s") from error
    if done.returncode:
        raise ClusterError(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def in_namespace(namespace: str, argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` in a network namespace.

    `ip netns exec` would mount /sys anew and so hide the control groups.
    """
    return ["nsenter", f"--net=/run/netns/{namespace}", *argv]


def in_group(group: str, argv: Sequence[str]) -> list[str]:
    """Return the command that joins a control group and then becomes `argv`."""
    return ["sh", "-c", _IN_GROUP, "sh", str(cgroups.make(group) / "cgroup.procs"), *argv]


def started_at(pid: int, proc: Path = _PROC) -> int | None:
    """Return when a process started, in ticks since boot; None if there is none or only its zombie."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name stands in brackets and may itself hold brackets and blanks.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(fields[18])


def boot_id(proc: Path = _PROC) -> str:
    """Return what the kernel calls this boot."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Program:
    """A program of the cluster, running or not, and the file that tells which process it is."""

    name: str
    run_folder: Path

    @property
    def log(self) -> Path:
        return self.run_folder / "logs" / f"{self.name}.log"

    @property
    def _record(self) -> Path:
        return self.run_folder / "programs" / self.name

    def start(
        self, argv: Sequence[str], *, namespace: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it detached, in a network namespace, with its output in `log`."""
        for folder in (self.log.parent, self._record.parent):
            folder.mkdir(parents=True, exist_ok=True)
        procs = cgroups.make(f"programs/{self.name}") / "cgroup.procs"
        command = in_namespace(namespace, argv)
        launcher = ["sh", "-c", _DETACHED, "sh", str(procs), str(self.log), *command]
        done = subprocess.run(
            launcher, stdout=subprocess.PIPE, env=environment and dict(environment), text=True, check=True
        )
        pid = int(done.stdout)
        self._record.write_text(f"{pid} {started_at(pid)} {boot_id()}")

    @property
    def pid(self) -> int | None:
        """Its process id; None if that process has ended, whoever has the number now."""
        try:
            pid, start, boot = self._record.read_text().split()
        except (OSError, ValueError):
            return None
        if boot != boot_id() or str(started_at(int(pid))) != start:
            return None
        return int(pid)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal. Raises ClusterError if it does not run."""
        pid = self.pid
        if pid is None:
            raise ClusterError(f"{self.name} does not run; its log is {self.log}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def last_words(self, count: int = 12) -> str:
        """Return the last lines of its log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return f"{self.name} wrote no log"
        return "\n".join([f"The end of {self.log}:", *lines[-count:]])
