"""What is mounted below a folder, and how to get rid of it before the folder is removed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster.interface import ClusterError
from tools.cluster.processes import run

if TYPE_CHECKING:
    from collections.abc import Iterable

_OCTAL = re.compile(r"\\([0-7]{3})")


def below(folders: Iterable[Path], mountinfo: str) -> list[Path]:
    """Return the mount points in or at the folders, the deepest first. `mountinfo` is that file's text."""
    tops = list(folders)
    found = [
        Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), line.split()[4]))
        for line in mountinfo.splitlines()
    ]
    return [point for point in reversed(found) if any(point.is_relative_to(top) for top in tops)]


def unmount_below(*folders: Path) -> None:
    """Unmount everything in the folders, in use or not. Raises ClusterError if something stays."""
    mountinfo = Path("/proc/self/mountinfo")
    for _ in range(5):
        points = below(folders, mountinfo.read_text())
        if not points:
            return
        run("umount", "--lazy", *points)
    raise ClusterError(f"still mounted: {', '.join(map(str, below(folders, mountinfo.read_text())))}")
