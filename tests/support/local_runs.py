"""Build local runs with real executors: a folder as the world, a store, and a runner that remembers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import milepost
from milepost.api.names import StoreKeys
from milepost.api.resource import RunSpec
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.fold import State
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.runs import Runs
from milepost.local.manifest import Manifest
from milepost.local.runner import Here, Outcome, run_here

AGENTS = Path(__file__).parent / "agents"
SDK = Path(milepost.__file__).parent.parent


@dataclass
class Desk:
    """A machine of its own in a folder: store, user's data, world, and what was said and paused."""

    root: Path
    folder: Path = AGENTS
    said: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.mkdir(exist_ok=True)

    @property
    def world(self) -> Path:
        return self.root / "world"

    @property
    def store(self) -> FileStore:
        return FileStore(self.root / "store")

    def here(self, data: str = "data", recover_from: tuple[str, ...] = ()) -> Here:
        return Here(
            store=self.store.uri,
            folder=self.folder,
            data=self.root / data,
            environ={**os.environ, "PYTHONPATH": str(SDK)},
            clock=lambda: datetime.now(UTC),
            entropy=os.urandom,
            pause=self.pauses.append,
            say=self.said.append,
            on_line=self.lines.append,
            node="desk",
            recover_from=recover_from,
        )

    def run(self, manifest: Manifest, data: str = "data", recover_from: tuple[str, ...] = ()) -> Outcome:
        return run_here(manifest, self.here(data, recover_from))

    def owner(self, data: str = "data") -> str:
        """Return the owner's id that lies in this data folder."""
        return (self.root / data / "owner").read_text().strip()

    def calls(self) -> list[tuple[str, bool]]:
        """Every call that the keyed tool received: the step of its key, and whether it was applied."""
        file = self.world / "calls"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [(call["key"], call["applied"]) for call in calls]

    def keys(self, outcome: Outcome) -> StoreKeys:
        return self.keys_of(outcome.run_id)

    def keys_of(self, run_id: str) -> StoreKeys:
        return StoreKeys("default", run_id)

    def state(self, outcome: Outcome) -> State:
        head = read_head(self.store, self.keys(outcome))
        assert isinstance(head, HeadAt)
        return load(self.store, head.head)

    def runs(self) -> Runs:
        return Runs(self.store, lambda: datetime.now(UTC), os.urandom)

    def attempts(self) -> int:
        """How many executors were started."""
        return sum(text.startswith("executor pid") for text in self.said)


def a_manifest(entrypoint: str = "counting_agent:count", *, name: str = "counting", **spec: Any) -> Manifest:
    return Manifest(
        "default",
        name,
        RunSpec.model_validate({"agent": {"image": "none", "entrypoint": entrypoint}, **spec}),
    )
