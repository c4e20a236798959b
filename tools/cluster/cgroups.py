"""Control groups: where every process of the cluster is kept, and by which it is found again.

Each program that the tool starts is put into a group below `milepost` before it does anything, and what
it starts stays there. So "everything that the cluster runs" needs no list of process ids, survives a
crash of the tool and can never mean somebody else's process.

Both versions of control groups are served. Under version 1 a program is in one hierarchy only (`pids`)
for being found; the kubelet needs a root of its own in every controller, with its cpuset filled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tools.cluster.interface import ClusterError

MOUNT = Path("/sys/fs/cgroup")
NAME = "milepost"
_CONTROLLERS = ("cpuset", "cpu", "memory", "pids")
# The hierarchies of version 1 that a kubelet or runc makes groups in, where the machine has them.
_HIERARCHIES = (
    *("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "net_cls", "net_prio"),
    *("perf_event", "pids", "systemd"),
)


def unified(mount: Path = MOUNT) -> bool:
    """Say whether the machine has version 2: one hierarchy for all controllers."""
    return (mount / "cgroup.controllers").exists()


def missing_controllers(mount: Path = MOUNT) -> list[str]:
    """Return the controllers that a node needs and the machine does not offer."""
    if not unified(mount):
        return [name for name in _CONTROLLERS if not (mount / name).is_dir()]
    offered = (mount / "cgroup.controllers").read_text().split()
    return [name for name in _CONTROLLERS if name not in offered]


def group(name: str, mount: Path = MOUNT) -> Path:
    """Return the folder in which processes of the group are listed, such as `programs/etcd`."""
    top = mount / NAME if unified(mount) else mount / "pids" / NAME
    return top / name


def make(name: str) -> Path:
    """Make a group for programs and return its folder."""
    folder = group(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_node_root(name: str, mount: Path = MOUNT) -> str:
    """Make the group below which a kubelet keeps its pods; return it as the kubelet's `cgroupRoot`."""
    if unified(mount):
        folder = mount
        for part in (NAME, name):
            enable = " ".join(f"+{controller}" for controller in _CONTROLLERS)
            (folder / "cgroup.subtree_control").write_text(enable)
            folder /= part
            folder.mkdir(exist_ok=True)
        return f"/{NAME}/{name}"
    for hierarchy in _HIERARCHIES:
        if (mount / hierarchy).is_dir():
            (mount / hierarchy / NAME / name).mkdir(parents=True, exist_ok=True)
    parent = mount / "cpuset"
    for part in (NAME, name):
        for setting in ("cpuset.cpus", "cpuset.mems"):
            (parent / part / setting).write_text((parent / setting).read_text())
        parent /= part
    return f"/{NAME}/{name}"


def pids(name: str = "") -> list[int]:
    """Return the processes of a group and all groups in it; of the whole cluster without a name."""
    found: list[int] = []
    for procs in sorted(group(name).glob("**/cgroup.procs")):
        with contextlib.suppress(OSError):  # a group may vanish while it is read
            found += map(int, procs.read_text().split())
    return found


def kill(name: str = "", within: float = 20.0) -> None:
    """End every process of a group with SIGKILL and wait until none is left, `within` seconds."""
    end = time.monotonic() + within
    while left := [pid for pid in pids(name) if pid != os.getpid()]:
        if time.monotonic() > end:
            raise ClusterError(f"processes {left} of {group(name)} do not end, even on SIGKILL")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove(name: str = "", mount: Path = MOUNT) -> None:
    """Remove an empty group, and all groups in it, from every hierarchy."""
    # Beside version 1 there may be an empty hierarchy of version 2, which runc uses all the same.
    tops = [mount] if unified(mount) else [mount / hierarchy for hierarchy in (*_HIERARCHIES, "unified")]
    for top in tops:
        folder = top / NAME / name
        for below, _, _ in os.walk(folder, topdown=False):
            _remove_folder(Path(below))


def _remove_folder(folder: Path) -> None:
    # The kernel lets go of a group a moment after its last process has ended.
    for _ in range(100):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return
