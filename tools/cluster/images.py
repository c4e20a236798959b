"""Builds the project's images and agents' images, once for each content of what goes into them.

`executor()`, `operator()` and `agent()` are the usual calls; `build()` takes any Dockerfile. An image is
known by the digest of its inputs: the Dockerfile, the files that it copies, its arguments and the images
that those name. So an unchanged tree builds nothing, and a tag tells contents apart.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster import base_images, preflight
from tools.cluster.archives import image_digest
from tools.cluster.buildah import Buildah
from tools.cluster.interface import ClusterError
from tools.cluster.paths import Paths, complete_or_absent, locked
from tools.cluster.progress import step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROJECT = Path(__file__).resolve().parents[2]
EXECUTOR = "localhost/milepost-executor"
OPERATOR = "localhost/milepost-operator"

# To be raised when an image is built in another way from the same inputs.
_RECIPE = 1
_KEPT_OF_A_NAME = 3
_KEY_LENGTH = 24
_COPY = re.compile(r"^\s*(?:COPY|ADD)\s+(.*)$", re.IGNORECASE)
_LEFT_OUT = {"__pycache__", ".git", ".venv"}


@dataclass(frozen=True)
class Image:
    """A built image: its full name, the digest that a pod's status shows, and its docker-archive."""

    reference: str
    digest: str
    archive: Path


def executor() -> Image:
    """Return the image that agents' images build on."""
    return _of_the_project("executor", EXECUTOR)


def operator() -> Image:
    """Return the operator's image."""
    return _of_the_project("operator", OPERATOR)


def agent(folder: Path, name: str) -> Image:
    """Return an agent's image: its folder holds a Dockerfile with `ARG BASE` and `FROM ${BASE}`."""
    return build(folder / "Dockerfile", name, context=folder, build_args={"BASE": executor().reference})


def build(
    dockerfile: Path,
    tag: str,
    *,
    target: str | None = None,
    context: Path | None = None,
    build_args: Mapping[str, str] | None = None,
) -> Image:
    """Build a Dockerfile unless an image of the very same inputs exists.

    `tag` is a name that begins with `localhost/`. Without a tag of its own it gets one from the inputs, so
    that another content has another name. `context` is the Dockerfile's folder if it is not given.
    Raises ClusterError, with the end of the build's output, where it fails.
    """
    paths, folder, arguments = Paths.from_environment(), context or dockerfile.parent, dict(build_args or {})
    inner = {value: found.digest for value in arguments.values() if (found := _built(paths, value))}
    key = input_key(dockerfile, folder, target, arguments, inner)
    reference = tag if ":" in tag else f"{tag}:{key[:12]}"
    record = paths.images / f"{_file_name(tag)}-{key[:_KEY_LENGTH]}" / "image.json"
    if found := _read(record, reference):
        return found
    preflight.install(preflight.IMAGE_PROGRAMS)
    with locked(paths.images):
        if found := _read(record, reference):
            return found
        with step(f"building the image {reference}"), complete_or_absent(record.parent) as draft:
            buildah = Buildah(paths.cache)
            buildah.build(dockerfile, folder, reference, target=target, arguments=arguments)
            buildah.export(reference, draft / "image.tar")
            built = Image(reference, image_digest(draft / "image.tar"), record.parent / "image.tar")
            (draft / "image.json").write_text(json.dumps(asdict(built), default=str))
        _drop_old(paths.images, _file_name(tag), buildah)
    return built


def input_key(
    dockerfile: Path,
    context: Path,
    target: str | None,
    build_args: Mapping[str, str],
    inner: Mapping[str, str],
) -> str:
    """Return the digest of everything that an image is made of.

    `inner` gives the digests of those of its arguments that are images themselves.
    """
    text = dockerfile.read_text()
    head = [_RECIPE, text, target, sorted(build_args.items()), sorted(inner.items())]
    digest = hashlib.sha256(json.dumps(head).encode())
    for path in _files(context, copied(text)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        executable = path.stat().st_mode & 0o111 != 0
        digest.update(json.dumps([str(path.relative_to(context)), content, executable]).encode())
    return digest.hexdigest()


def copied(dockerfile: str) -> list[str]:
    """Return what a Dockerfile copies out of its context, as it names it.

    Raises ClusterError for the JSON form and for patterns, which would have to be read as buildah does.
    """
    sources: list[str] = []
    for line in dockerfile.replace("\\\n", " ").splitlines():
        if not (found := _COPY.match(line)):
            continue
        words = found[1].split()
        options = [word for word in words if word.startswith("--")]
        if any(option.startswith("--from") for option in options):
            continue
        if words[len(options)].startswith("[") or any(character in found[1] for character in "*?"):
            raise ClusterError(f"{line.strip()}: only plain names of files and folders are understood here")
        sources += words[len(options) : -1]
    return sources


def _of_the_project(target: str, name: str) -> Image:
    return build(PROJECT / "Dockerfile", name, target=target, build_args=_bases())


def _bases() -> dict[str, str]:
    paths = Paths.from_environment()
    buildah = Buildah(paths.cache)
    chosen = {"BASE": base_images.RUN_BASE, "BUILD_BASE": base_images.BUILD_BASE}
    made = paths.images / "bases.json"
    if made.exists() and json.loads(made.read_text()) == base_images.recipe():
        return {name: base.reference for name, base in chosen.items()}
    preflight.install(preflight.IMAGE_PROGRAMS)
    with locked(paths.images):
        for base in chosen.values():
            base_images.ensure(base, buildah, paths.cache)
        made.write_text(json.dumps(base_images.recipe()))
    return {name: base.reference for name, base in chosen.items()}


def _built(paths: Paths, reference: str) -> Image | None:
    """Return the image of this name that was built last."""
    name = _file_name(reference.partition(":")[0])
    newest = sorted(
        paths.images.glob(f"{name}*/image.json"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    return next((image for path in newest if (image := _read(path, reference))), None)


def _read(record: Path, reference: str) -> Image | None:
    try:
        fields = json.loads(record.read_text())
    except FileNotFoundError:
        return None
    image = Image(fields["reference"], fields["digest"], Path(fields["archive"]))
    return image if image.reference == reference else None


def _drop_old(folder: Path, name: str, buildah: Buildah) -> None:
    """Keep the newest few of a name: each edit of the tree makes a new image."""
    records = sorted(
        folder.glob(f"{name}-{'[0-9a-f]' * _KEY_LENGTH}/image.json"),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    newest = {json.loads(path.read_text())["reference"] for path in records[:_KEPT_OF_A_NAME]}
    for path in records[_KEPT_OF_A_NAME:]:
        reference = json.loads(path.read_text())["reference"]
        shutil.rmtree(path.parent)
        if reference not in newest:
            buildah.remove(reference)


def _files(context: Path, sources: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for source in sources:
        top = context / source
        if not top.exists():
            raise ClusterError(f"{top} is to be copied into an image and does not exist")
        found += [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    wanted = (path for path in found if path.suffix != ".pyc")
    return sorted({path for path in wanted if not _LEFT_OUT.intersection(path.relative_to(context).parts)})


def _file_name(tag: str) -> str:
    return re.sub(r"[^a-z0-9.-]", "-", tag.removeprefix("localhost/"))
