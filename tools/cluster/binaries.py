"""Kubernetes, etcd, Helm and an S3 server, built from their Go modules and cached by version.

Nothing is downloaded but Go modules, which Go verifies itself. A first build of Kubernetes takes several
minutes; once Go's own cache is warm it takes seconds. A folder of programs is complete or absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster.interface import ClusterError
from tools.cluster.paths import complete_or_absent
from tools.cluster.progress import say, step

if TYPE_CHECKING:
    from collections.abc import Mapping

KUBERNETES = "1.34.4"
ETCD = "3.6.16"
HELM = "3.22.0"
VERSITYGW = "1.8.0"
OLDEST_GO = (1, 25)

_PAUSE_SOURCE = Path(__file__).with_name("pause.go")
_STAGED = re.compile(r"^\s*(k8s\.io/[a-z0-9-]+) => \./staging", re.MULTILINE)


@dataclass(frozen=True)
class GoModule:
    """A module, the programs to build out of it, and what the linker writes into them."""

    name: str
    module: str
    version: str
    programs: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    # The version under which Kubernetes publishes the parts that its own source tree replaces by folders.
    staged: str | None = None
    # Whether "all" means this one too: the cluster does not start without it.
    of_cluster: bool = True


_COMPONENT_BASE = "k8s.io/component-base/version"
_KUBE_PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kube-proxy", "kubectl"),
)
_MAJOR, _MINOR, _PATCH = KUBERNETES.split(".")

MODULES = (
    GoModule("etcd", "go.etcd.io/etcd/server/v3", ETCD, {"etcd": "go.etcd.io/etcd/server/v3"}),
    GoModule(
        "helm",
        "helm.sh/helm/v3",
        HELM,
        {"helm": "helm.sh/helm/v3/cmd/helm"},
        {
            "helm.sh/helm/v3/internal/version.version": f"v{HELM}",
            # What `helm template` takes the cluster's version to be.
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": _MAJOR,
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": _MINOR,
            "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": _MAJOR,
            "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": _MINOR,
        },
    ),
    GoModule(
        "kubernetes",
        "k8s.io/kubernetes",
        KUBERNETES,
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in _KUBE_PROGRAMS},
        {
            f"{_COMPONENT_BASE}.gitVersion": f"v{KUBERNETES}",
            f"{_COMPONENT_BASE}.gitMajor": _MAJOR,
            f"{_COMPONENT_BASE}.gitMinor": _MINOR,
            "k8s.io/client-go/pkg/version.gitVersion": f"v{KUBERNETES}",
        },
        staged=f"v0.{_MINOR}.{_PATCH}",
    ),
    GoModule(
        "versitygw",
        "github.com/versity/versitygw",
        VERSITYGW,
        {"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
        {"main.Version": f"v{VERSITYGW}"},
        of_cluster=False,
    ),
)


def installed_go() -> str | None:
    """Return the version of Go, such as "go1.26.8"; None where there is none."""
    try:
        done = subprocess.run(
            ["go", "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            env=_environment(),
            cwd="/",
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def go_numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version of Go."""
    found = re.match(r"go(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@dataclass(frozen=True)
class Binaries:
    """The programs in a cache."""

    folder: Path

    @cached_property
    def _go(self) -> str:
        return installed_go() or "go-unknown"

    def path(self, program: str) -> Path:
        """Return where a program is, or will be once it is built."""
        if program == "pause":
            return self._pause_folder / "pause"
        module = next(each for each in MODULES if program in each.programs)
        return self._folder_of(module) / program

    def missing(self, *wanted: str) -> list[str]:
        """Return what is still to be built, of what is wanted or, without names, of the cluster's own.

        Raises ClusterError for a name that stands for nothing here.
        """
        names = wanted or (*(module.name for module in MODULES if module.of_cluster), "pause")
        folders = {module.name: self._folder_of(module) for module in MODULES} | {"pause": self._pause_folder}
        if unknown := sorted(set(names) - set(folders)):
            raise ClusterError(f"there is no program {', '.join(unknown)}; there are {', '.join(folders)}")
        return [name for name, folder in folders.items() if name in names and not folder.is_dir()]

    def build(self, *wanted: str) -> None:
        """Build what is missing of these, or of the cluster. The caller holds the lock on the cache."""
        missing = self.missing(*wanted)
        if not missing:
            return
        slow = "; a first build of Kubernetes takes ten minutes or so" if "kubernetes" in missing else ""
        say(f"to be built once: {', '.join(missing)}{slow}")
        for module in MODULES:
            if module.name in missing:
                with complete_or_absent(self._folder_of(module)) as draft:
                    self._build_module(module, draft)
        if "pause" in missing:
            with complete_or_absent(self._pause_folder) as draft:
                _go_command(
                    "build", "-trimpath", "-ldflags=-s -w", f"-o={draft}/pause", str(_PAUSE_SOURCE), cwd=draft
                )

    def _folder_of(self, module: GoModule) -> Path:
        return self.folder / f"{module.name}-{module.version}-{self._go}"

    @property
    def _pause_folder(self) -> Path:
        digest = hashlib.sha256(_PAUSE_SOURCE.read_bytes()).hexdigest()[:12]
        return self.folder / f"pause-{digest}-{self._go}"

    def _build_module(self, module: GoModule, draft: Path) -> None:
        source = draft / "source"
        source.mkdir()
        language = "{}.{}".format(*go_numbers(self._go))
        with step(f"fetching the Go modules of {module.name} {module.version}"):
            original = _original_go_mod(module) if module.staged else ""
            (source / "go.mod").write_text(go_mod(module, language, original))
            _go_command("mod", "tidy", cwd=source)
        variables = " ".join(f"-X {name}={value}" for name, value in module.variables.items())
        for name, package in module.programs.items():
            with step(f"building {name} {module.version}"):
                _go_command(
                    "build",
                    "-trimpath",
                    f"-ldflags=-s -w {variables}",
                    f"-o={draft / name}",
                    package,
                    cwd=source,
                )


def go_mod(module: GoModule, language: str, original: str = "") -> str:
    """Return a go.mod from which the module's programs can be built.

    `original` is the module's own go.mod, where parts that it replaces by folders are published apart.
    """
    lines = [
        "module milepost.test/build",
        f"go {language}",
        f"require {module.module} v{module.version}",
        *(f"replace {name} => {name} {module.staged}" for name in _STAGED.findall(original)),
        *(f"tool {package}" for package in module.programs.values()),
    ]
    return "\n".join(lines) + "\n"


def _original_go_mod(module: GoModule) -> str:
    # Outside any module, so that no go.mod is read before there is a right one.
    downloaded = _go_command("mod", "download", "-json", f"{module.module}@v{module.version}", cwd=Path("/"))
    return Path(json.loads(downloaded)["GoMod"]).read_text()


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"}


def _go_command(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        ["go", *arguments], cwd=cwd, capture_output=True, text=True, check=False, env=_environment()
    )
    if done.returncode:
        raise ClusterError(f"go {arguments[0]} failed in {cwd}:\n{done.stderr.strip()[-3000:]}")
    return done.stdout
