"""Helm as the cluster tool builds it, and the chart rendered with it. No cluster runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tools.cluster import local_cluster

CHART: Final = Path(__file__).resolve().parents[2] / "charts" / "milepost"

Helm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Run helm with the given arguments, far from the user's own settings; see its output and exit code."""
    cluster = local_cluster()
    cluster.build("helm")
    home = tmp_path_factory.mktemp("helm")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [cluster.helm, *arguments], capture_output=True, text=True, check=False, env=environment
        )

    return run


@pytest.fixture(scope="session")
def template(helm: Helm) -> Helm:
    """Render the chart as the release `milepost` in `milepost-system`, with helm's further arguments."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return helm(
            "template", "milepost", CHART, "--namespace=milepost-system", "--kube-version=1.34.0", *arguments
        )

    return run
