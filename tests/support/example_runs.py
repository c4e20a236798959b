"""Run an example as its reader does: the command `milepost` in the example's folder, with real executors.

The folder itself is used, since it is what is shipped; the manifest is the example's own, with some inputs
changed, and stands outside. Store, user's data and the world are in a folder of the test's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

import milepost
from milepost.api.names import StoreKeys
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head, read_records
from milepost.checkpoint.records import Claimed, Record, StepCompleted
from milepost.checkpoint.runs import Runs

__all__ = ["EXAMPLES", "MAIN", "SDK", "Example"]

EXAMPLES = Path(__file__).parents[2] / "examples"
SDK = Path(milepost.__file__).parent.parent
MAIN = (sys.executable, "-c", "from milepost.cli import main; main()")
PATIENCE = 100.0


@dataclass
class Example:
    """One example in a world of its own. `inputs` and `spec` change what its manifest says."""

    name: str
    root: Path
    inputs: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    manifest_name: str = "run.yaml"

    @property
    def folder(self) -> Path:
        return EXAMPLES / self.name

    @property
    def store(self) -> FileStore:
        return FileStore(self.root / "store")

    @property
    def world(self) -> Path:
        return self.root / "world"

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = yaml.safe_load((self.folder / self.manifest_name).read_text())
        manifest["spec"] |= self.spec
        manifest["spec"]["inputs"] = {**manifest["spec"].get("inputs", {}), **self.inputs}
        return manifest

    def milepost(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `milepost` to its end."""
        return subprocess.run(
            [*MAIN, *arguments, "--store", self.store.uri],
            **self._settings(),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run `milepost run` to its end, with nobody at the prompt."""
        return self.milepost("run", str(self._written()))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Start `milepost run` with nobody at the prompt; `said` has its words. It is killed in the end."""
        command = [*MAIN, "run", str(self._written()), "--store", self.store.uri]
        with (self.root / "out").open("w") as out, (self.root / "err").open("a") as err:
            process = subprocess.Popen(
                command, **self._settings(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def said(self) -> str:
        """Return what the runs that were started have said so far."""
        return (self.root / "err").read_text()

    def result(self) -> Any:
        """Return what the last run that was started has printed as its result."""
        return json.loads((self.root / "out").read_text())

    def head(self) -> Head:
        """Return the head of the run that the example's name stands for."""
        runs = Runs(self.store, lambda: datetime.now(UTC), os.urandom)
        seen = runs.look_up("default", self.manifest()["metadata"]["name"])
        assert seen is not None
        found = read_head(self.store, StoreKeys("default", seen.record.run_id))
        assert isinstance(found, HeadAt)
        return found.head

    def records(self) -> list[Record]:
        return [record for _, lines in read_records(self.store, self.head()) for record, _ in lines]

    def completed_by_attempt(self) -> dict[int, set[str]]:
        """Return which steps were recorded by which attempt."""
        done: dict[int, set[str]] = {}
        attempt = 0
        for event in (event for record in self.records() for event in record.events):
            match event:
                case Claimed():
                    attempt = event.attempt
                case StepCompleted():
                    done.setdefault(attempt, set()).add(event.step.id)
                case _:
                    pass
        return done

    def _written(self) -> Path:
        file = self.root / "run.yaml"
        # JSON is YAML.
        file.write_text(json.dumps(self.manifest()))
        return file

    def _settings(self) -> dict[str, Any]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("MILEPOST_")}
        data = str(self.root / "data")
        return {
            "cwd": self.folder,
            "env": {**own, "PYTHONPATH": str(SDK), "PYTHONDONTWRITEBYTECODE": "1", "XDG_DATA_HOME": data},
            "text": True,
        }
