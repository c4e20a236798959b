"""buildah with a store of its own in the cache, so that no image of the user is seen or replaced."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster.interface import ClusterError
from tools.cluster.processes import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
# How this machine reaches package registries is its own affair: it is passed on, and written into no file.
_PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Buildah:
    """The program and where it keeps images."""

    cache: Path

    @property
    def command(self) -> list[str]:
        return [
            "buildah",
            "--root",
            str(self.cache / "containers"),
            "--runroot",
            str(self.cache / "containers-run"),
        ]

    def has(self, reference: str) -> bool:
        """Say whether there is an image of that name."""
        try:
            run(*self.command, "inspect", "--type", "image", "--format", "{{.FromImageID}}", reference)
        except ClusterError:
            return False
        return True

    def commit_folder(self, folder: Path, reference: str) -> None:
        """Make an image whose only layer is the folder's content."""
        with self._container() as container:
            run(*self.command, "add", "--quiet", container, folder, "/", within=600)
            run(*self.command, "config", "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
            run(*self.command, "commit", "--quiet", container, reference, within=600)

    def build(
        self,
        dockerfile: Path,
        context: Path,
        reference: str,
        *,
        target: str | None,
        arguments: Mapping[str, str],
    ) -> None:
        """Build a Dockerfile. Raises ClusterError with the end of what it said."""
        words = [*self.command, "bud", "--quiet", "--layers", "--network=host", f"--file={dockerfile}"]
        words += [f"--tag={reference}", *([f"--target={target}"] if target else [])]
        given = {**_registry_settings(), **arguments}
        words += [f"--build-arg={name}={value}" for name, value in given.items()]
        pip = self.cache / "pip"
        pip.mkdir(parents=True, exist_ok=True)
        words += [f"--volume={pip}:/root/.cache/pip:rw"]
        if _AUTHORITIES.exists():
            words += [f"--volume={_AUTHORITIES}:{_AUTHORITIES}:ro"]
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            [*words, str(context)], capture_output=True, text=True, check=False, env=environment, timeout=1800
        )
        if done.returncode:
            said = f"{done.stdout}\n{done.stderr}".strip()
            raise ClusterError(f"building {dockerfile} failed:\n{said[-4000:]}")

    def export(self, reference: str, archive: Path) -> None:
        """Write an image as a docker-archive."""
        run(*self.command, "push", "--quiet", reference, f"docker-archive:{archive}:{reference}", within=600)

    def remove(self, reference: str) -> None:
        """Remove an image's name, and what only it held; a name that is not there is no error."""
        with contextlib.suppress(ClusterError):
            run(*self.command, "rmi", reference)

    @contextlib.contextmanager
    def _container(self) -> Iterator[str]:
        container = run(*self.command, "from", "scratch").strip()
        try:
            yield container
        finally:
            run(*self.command, "rm", container)


def _registry_settings() -> dict[str, str]:
    found = {name: os.environ[name] for name in (*_PASSED_ON, *_PROXIES) if name in os.environ}
    return {**found, "PIP_CERT": str(_AUTHORITIES)} if _AUTHORITIES.exists() else found
