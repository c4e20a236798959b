"""Ends whatever a cluster of ours runs on this machine, after a stop, a crash or a reboot alike.

It relies on no list that a crash could have left incomplete: processes are those of our control groups,
mounts are those in our folders, and namespaces and links have fixed names. So each part works on
anything from a full cluster down to nothing at all, and a second call does no harm.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.cluster import cgroups, network
from tools.cluster.mounts import unmount_below
from tools.cluster.paths import STATE

# The kubelet links each log here and nowhere else; two nodes share the folder.
_LOG_LINKS = Path("/var/log/containers")


def end(run_folder: Path) -> None:
    """End all processes, mounts, namespaces and control groups; logs stay for a look."""
    cgroups.kill()
    folders = {run_folder, STATE, *_recorded()}
    unmount_below(*folders)
    network.tear_down()
    cgroups.remove()


def clear(run_folder: Path) -> None:
    """End everything and remove every file of a run, that of another cache included."""
    end(run_folder)
    folders = {run_folder, *_recorded()}
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)
    for path in STATE.iterdir() if STATE.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path)
    (STATE / "run-folder").unlink(missing_ok=True)
    for link in _LOG_LINKS.glob("*.log"):
        if link.is_symlink() and any(link.readlink().is_relative_to(folder) for folder in folders):
            link.unlink()


def record(run_folder: Path) -> None:
    """Note which cache the cluster on this machine belongs to."""
    STATE.mkdir(parents=True, exist_ok=True)
    (STATE / "run-folder").write_text(str(run_folder))


def _recorded() -> set[Path]:
    try:
        return {Path((STATE / "run-folder").read_text())}
    except OSError:
        return set()
