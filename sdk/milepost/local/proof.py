"""Proof that an executor of an earlier call is gone, so that nothing of it can still be at work.

A runner notes which process it started, in Milepost's folder among the user's data. A later runner looks for
that process. It never takes silence for an end: where the note is of another machine, of another container,
or of a system without /proc, there is no proof. What the executor's code started in a session of its own is
not seen, here as anywhere.

The surprise: a number that is in use again proves something. The kernel gives no process the number of a
group that still has members, so a stranger under it says that the whole group is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Trace", "forget", "note", "proved_gone", "trace_of"]

_KEPT: Final = 10
"""Attempts of a run whose processes are kept: one that never came to claim the run hides those before it."""


@dataclass(frozen=True)
class Trace:
    """A process, told from every other one that this machine ever had.

    `started` is when it was started, in the kernel's ticks since `boot`; `space` its namespace of numbers.
    """

    machine: str
    boot: str
    space: str
    pid: int
    started: str


def trace_of(pid: int) -> Trace | None:
    """Return the trace of a process that is there; None where this system shows none."""
    try:
        return Trace(_machine(), _boot(), _space(), pid, _fields(pid)[_STARTED])
    except OSError:
        return None


def note(folder: Path, run_id: str, attempt: int, writer: str, trace: Trace | None) -> None:
    """Keep which process is the attempt's, beside those of the attempts just before.

    What cannot be kept proves nothing, and is no reason to stop.
    """
    file = _file(folder, run_id)
    kept = {**_kept(file), str(attempt): {"writer": writer, "trace": asdict(trace) if trace else None}}
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        # A note that is cut off would prove nothing of the attempts before.
        other = file.with_suffix(".new")
        other.write_text(json.dumps(dict(list(kept.items())[-_KEPT:])), encoding="utf-8")
        other.replace(file)


def forget(folder: Path, run_id: str) -> None:
    """Drop what is kept of the run."""
    with contextlib.suppress(OSError):
        _file(folder, run_id).unlink(missing_ok=True)


def proved_gone(folder: Path, run_id: str, attempt: int, writer: str) -> bool:
    """Tell whether the attempt's process is known, and known to be gone."""
    try:
        kept = _kept(_file(folder, run_id))[str(attempt)]
        return kept["writer"] == writer and _gone(Trace(**kept["trace"]))
    except (TypeError, KeyError):
        return False


def _kept(file: Path) -> dict[str, Any]:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _gone(trace: Trace) -> bool:
    try:
        if _machine() != trace.machine:
            return False
        return _boot() != trace.boot or (_space() == trace.space and _group_gone(trace))
    except OSError:
        return False


def _group_gone(trace: Trace) -> bool:
    """Tell whether the process is gone, and the group that it led. Raises OSError where nobody can see."""
    try:
        if _fields(trace.pid)[_STARTED] != trace.started:
            return True
    except (FileNotFoundError, ProcessLookupError):
        pass
    try:
        os.killpg(trace.pid, 0)
    except ProcessLookupError:
        return True
    return _all_dead(str(trace.pid))


def _all_dead(group: str) -> bool:
    """Tell whether a group has no members but such as have ended, and that nobody has waited for."""
    if not Path("/proc/1/stat").exists():
        # What belongs to others is hidden here, so a member may be too.
        return False
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = _fields(int(folder.name))
                dead = fields[_STATE] in ("Z", "X") and len(list((folder / "task").iterdir())) == 1
                if fields[_GROUP] == group and not dead:
                    return False
    return True


_STATE, _GROUP, _STARTED = 0, 2, 19


def _fields(pid: int) -> list[str]:
    # The name in parentheses may hold anything; what follows it are plain fields.
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()


def _space() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _machine() -> str:
    # A home directory may be shared by machines, and the id by containers of one image: both have to agree.
    identity = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    if not identity:
        raise OSError("this machine has no id")
    return f"{identity}/{platform.node()}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _file(folder: Path, run_id: str) -> Path:
    return folder / "executors" / run_id
