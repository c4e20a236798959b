"""Image archives in the format of `docker save`: what one holds, and one made by hand for the pause image."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_digest(archive: Path) -> str:
    """Return the digest of the image in an archive: the one that a pod's status shows as its image's id."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile("manifest.json")
        assert member is not None
        (image,) = json.load(member)
        config = tar.extractfile(image["Config"])
        assert config is not None
        return f"sha256:{hashlib.sha256(config.read()).hexdigest()}"


def write_single_program(archive: Path, reference: str, program: Path) -> None:
    """Write an archive whose image holds one static program and runs it as an ordinary user."""
    layer = _tar({program.name: (program.read_bytes(), 0o755)})
    config: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    text = json.dumps(config).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    files = {name: text, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    archive.write_bytes(_tar({path: (content, 0o644) for path, content in files.items()}))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (content, mode) in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
