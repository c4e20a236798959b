"""The base images of a machine that can pull none: Debian with Python, made by debootstrap.

`milepost-base` is what images run on; `milepost-build-base` can also make virtual environments. Packages
come from the machine's own package source, found by asking apt, or from $MILEPOST_DEBIAN_MIRROR.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster.interface import ClusterError
from tools.cluster.processes import run
from tools.cluster.progress import step

if TYPE_CHECKING:
    from tools.cluster.buildah import Buildah

SUITE = "bookworm"
RUN_PACKAGES = ("python3", "ca-certificates")
BUILD_PACKAGES = (*RUN_PACKAGES, "python3-venv")

# What neither Python nor a program in an image ever reads.
_USELESS = (
    *("var/cache/apt", "var/lib/apt/lists", "var/log", "var/cache/debconf", "var/cache/ldconfig"),
    *("usr/share/doc", "usr/share/info", "usr/share/man", "usr/share/locale", "usr/share/lintian"),
    *("usr/share/i18n", "usr/lib/x86_64-linux-gnu/gconv", "usr/share/perl5", "usr/lib/python3.11/lib2to3"),
    *("usr/lib/python3.11/pydoc_data", "usr/lib/python3.11/idlelib"),
)


@dataclass(frozen=True)
class BaseImage:
    """A base image by its name and the Debian packages in it."""

    name: str
    packages: tuple[str, ...]

    @property
    def reference(self) -> str:
        return f"localhost/{self.name}:{SUITE}"


RUN_BASE = BaseImage("milepost-base", RUN_PACKAGES)
BUILD_BASE = BaseImage("milepost-build-base", BUILD_PACKAGES)


def ensure(base: BaseImage, buildah: Buildah, cache: Path) -> str:
    """Return the reference of a base image, which is made first if it is missing."""
    if not buildah.has(base.reference):
        with step(f"making the base image {base.reference}"):
            _make(base, buildah, cache)
    return base.reference


def recipe() -> dict[str, list[str]]:
    """Return what the bases are made of, to tell whether those in the cache are still right."""
    return {
        "suite": [SUITE],
        "left out": list(_USELESS),
        **{base.name: list(base.packages) for base in (RUN_BASE, BUILD_BASE)},
    }


def mirror() -> str:
    """Return the address from which this machine gets Debian packages. Raises ClusterError if it has none."""
    if chosen := os.environ.get("MILEPOST_DEBIAN_MIRROR"):
        return chosen
    listed = run(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"
    )
    for line in listed.splitlines():
        address, *found = line.split()
        if found == [SUITE, "main"]:
            return address
    raise ClusterError(
        f"apt knows no source of Debian {SUITE}; set MILEPOST_DEBIAN_MIRROR to one that debootstrap can read"
    )


def _make(base: BaseImage, buildah: Buildah, cache: Path) -> None:
    root, packages = cache / f".{base.name}.root", cache / "debian-packages"
    shutil.rmtree(root, ignore_errors=True)
    packages.mkdir(parents=True, exist_ok=True)
    try:
        run(
            *("debootstrap", "--variant=minbase", f"--include={','.join(base.packages)}"),
            *(f"--cache-dir={packages}", SUITE, root, mirror()),
            within=900,
        )
        for path in _USELESS:
            shutil.rmtree(root / path, ignore_errors=True)
        # Programs expect the folders to be there, though not what was in them.
        for path in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial", "var/log"):
            (root / path).mkdir(parents=True, exist_ok=True)
        # The machine's own settings, which debootstrap copies.
        for path in ("etc/apt/sources.list", "etc/resolv.conf", "etc/hostname"):
            (root / path).unlink(missing_ok=True)
        buildah.commit_folder(root, base.reference)
    finally:
        shutil.rmtree(root, ignore_errors=True)
