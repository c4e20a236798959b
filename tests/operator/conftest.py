from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.claim import claim, replace_head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Claimed, Event, Finished, PreviousEnd
from milepost.checkpoint.runs import HeadSeen, Runs
from milepost.checkpoint.store import Store
from milepost_operator.core.observation import StoreProblem
from milepost_operator.shell.cache import Cache, RunKey
from milepost_operator.shell.cluster import Cluster
from milepost_operator.shell.handlers import pod_event, run_event
from milepost_operator.shell.nodes import Nodes
from milepost_operator.shell.queue import KeyedQueue
from milepost_operator.shell.reconcile import Reconciler
from milepost_operator.shell.stores import NotYet, Stores
from milepost_operator.shell.stores_file import StoreEntry, StoresFile, read_stores
from tests.support.builders import NOON
from tests.support.fake_kubernetes import FakeKubernetes, Kubelet
from tests.support.histories import a_step, some_patience
from tests.support.store_doubles import Numbers

Raw = dict[str, Any]
KEY = RunKey("team", "docs")
SPEC: Raw = {"agent": {"image": "agent:1", "entrypoint": "documents.agent:index"}}
STORES = """
stores:
  default: {bucket: b, allowedNamespaces: ["*"], credentials: {secretName: keys}}
  closed: {bucket: b, allowedNamespaces: [other], credentials: {secretName: keys}}
"""


@dataclass
class World:
    """A cluster, a store and an operator in between, whose time passes only by `pass_time`."""

    api: FakeKubernetes
    kubelet: Kubelet
    store: Store
    server: str
    session: aiohttp.ClientSession
    pool: ThreadPoolExecutor
    seconds: list[float] = field(default_factory=lambda: [0.0])
    entropy: Numbers = field(default_factory=Numbers)
    watching: bool = True
    dark: set[str] = field(default_factory=set)
    open_store: Callable[[StoreEntry, Path | None], Store] | None = None
    barred: dict[str, StoreProblem | NotYet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.api.on_change = self._watch
        self.start_operator()

    def start_operator(self) -> None:
        """Begin with an operator that knows nothing, as after a crash."""
        self.cache = Cache()
        self.queue: KeyedQueue[RunKey] = KeyedQueue(self.monotonic)
        self.nodes = Nodes(self.monotonic)
        self.cluster = Cluster(self.session, self.server, dict)
        file: StoresFile = read_stores(STORES)
        self.stores = stores = Stores(
            file,
            Path("/nowhere"),
            self.open_store or (lambda _entry, _folder: self.store),
            barred=self.barred.get,
            pool=self.pool,
            clock=self.clock,
            entropy=self.entropy,
            monotonic=self.monotonic,
            cluster_id="cluster-1",
            read_every=10.0,
        )
        self.reconciler = Reconciler(
            self.cluster,
            stores,
            self.cache,
            self.nodes,
            clock=self.clock,
            monotonic=self.monotonic,
            write_progress_every=30.0,
        )
        for plural in ("agentruns", "pods"):
            for raw in self.api.all(plural):
                self._watch("ADDED", plural, raw)

    def _watch(self, kind: str, plural: str, raw: Raw) -> None:
        if not self.watching:
            return
        if plural == "agentruns":
            run_event(self.cache, self.queue, kind, raw)
        elif plural == "pods":
            pod_event(self.cache, self.queue, kind, raw)

    def clock(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds[0])

    def monotonic(self) -> float:
        return self.seconds[0]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in which all nodes but the dark ones renew their Leases."""
        end = self.seconds[0] + seconds
        while True:
            beat = dict.fromkeys(("node-1", "node-2", "node-3"), f"{self.seconds[0]}")
            self.nodes.read({**beat, **dict.fromkeys(self.dark, "long ago")})
            if self.seconds[0] >= end:
                return
            self.seconds[0] = min(self.seconds[0] + 5, end)

    async def settle(self, passes: int = 60) -> None:
        """Pass over every key that is due, until none is."""
        for _ in range(passes):
            key = self.queue.take()
            if key is None:
                return
            again = await self.reconciler(key)
            self.queue.done(key, again)
        raise AssertionError(f"still not settled after {passes} passes")

    async def after(self, seconds: float) -> None:
        """Let time pass, and settle."""
        self.pass_time(seconds)
        await self.settle()

    def apply(self, uid: str = "uid-1", spec: Raw | None = None, **more: Any) -> None:
        """Apply the manifest."""
        metadata = {"name": "docs", "namespace": "team", "uid": uid, "generation": 1, **more}
        self.api.put("agentruns", {"metadata": metadata, "spec": {**SPEC, **(spec or {})}})

    def edit(self, **spec: Any) -> None:
        """Change the spec, as a user does."""
        run = dict(self.run)
        run["spec"] = {**run["spec"], **spec}
        run["metadata"] = {**run["metadata"], "generation": run["metadata"]["generation"] + 1}
        self.api.put("agentruns", run)

    @property
    def run(self) -> Raw:
        found = self.api.get("agentruns", "team", "docs")
        assert found is not None
        return found

    @property
    def status(self) -> Raw:
        status: Raw = self.run.get("status") or {}
        return status

    @property
    def reason(self) -> str:
        """What `kubectl get` shows as Reason."""
        return str(next(part["reason"] for part in self.status["conditions"] if part["type"] == "Ready"))

    @property
    def pods(self) -> list[str]:
        return [raw["metadata"]["name"] for raw in self.api.all("pods", "team")]

    def pod(self, attempt: int) -> str:
        """Return the name of the pod of this attempt, which must be there."""
        return next(name for name in self.pods if name.endswith(f"-{attempt}"))

    @property
    def events(self) -> list[str]:
        raws = sorted(self.api.all("events"), key=lambda raw: int(raw["metadata"]["resourceVersion"]))
        return [f"{raw['reason']}: {raw['message']}" for raw in raws]

    @property
    def runs(self) -> Runs:
        return Runs(self.store, self.clock, self.entropy)

    @property
    def run_id(self) -> str:
        seen = self.runs.look_up("team", "docs")
        assert seen is not None
        return seen.record.run_id

    def env(self, name: str) -> dict[str, str]:
        """Return the plain environment variables of a pod."""
        raw = self.api.get("pods", "team", name)
        assert raw is not None
        return {
            part["name"]: part["value"] for part in raw["spec"]["containers"][0]["env"] if "value" in part
        }


class Executor:
    """What an executor does to the store, without running anything."""

    def __init__(self, world: World, attempt: int) -> None:
        self._world = world
        self._store = world.store
        name = world.pod(attempt)
        env = world.env(name)
        assert env["MILEPOST_ATTEMPT"] == str(attempt)
        end = env["MILEPOST_PREVIOUS_END"]
        claimed = Claimed(
            attempt=attempt,
            writer=name,
            image=env["MILEPOST_IMAGE"],
            previous_end=PreviousEnd.model_validate_json(end) if end else None,
        )
        keys = StoreKeys("team", env["MILEPOST_RUN_ID"])
        taken = claim(
            world.store, keys, claimed, at=world.clock(), entropy=world.entropy, patience=some_patience()
        )
        assert isinstance(taken, HeadAt)
        self._head: HeadAt = taken

    def record(self, event: Event) -> bool:
        """Record an event; False if another writer has taken over."""
        world = self._world
        taken = replace_head(
            self._store,
            self._head,
            (event,),
            at=world.clock(),
            entropy=world.entropy,
            patience=some_patience(),
        )
        if taken is not None:
            self._head = taken
        return taken is not None

    def step(self, name: str) -> bool:
        return self.record(a_step(name))

    def finish(self, phase: Phase = Phase.SUCCEEDED, reason: str = "Succeeded", message: str = "") -> bool:
        return self.record(Finished(phase=phase, reason=reason, message=message))


def head_of(world: World) -> HeadSeen:
    seen = world.runs.observe(StoreKeys("team", world.run_id))
    assert isinstance(seen, HeadSeen)
    return seen


@pytest.fixture
async def world() -> AsyncIterator[World]:
    seconds = [0.0]
    api = FakeKubernetes(now=lambda: NOON + timedelta(seconds=seconds[0]))
    server = TestServer(api.app())
    await server.start_server()
    pool = ThreadPoolExecutor(4)
    async with aiohttp.ClientSession() as session:
        base = str(server.make_url("")).rstrip("/")
        yield World(api, Kubelet(api), MemoryStore(), base, session, pool, seconds)
    await server.close()
    pool.shutdown()
