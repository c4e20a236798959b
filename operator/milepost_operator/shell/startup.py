"""The operator's parts put together, started and stopped; a part that dies takes the process with it.

Start-up refuses what would only be found out later: a stores file with a mistake, a cluster that does not
serve AgentRuns. A background task that ends for any reason ends the process with an error, because an
operator that looks alive and does nothing is worse than one that is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import kopf
import structlog
from aiohttp import web

from milepost.api.names import PLURAL
from milepost.api.resource import StoreSpec
from milepost.checkpoint.s3 import open_store
from milepost.checkpoint.store import Store
from milepost_operator.shell import health
from milepost_operator.shell.cache import Cache, RunKey
from milepost_operator.shell.cluster import ApiError, Cluster, Forbidden, NotFound, Unreachable
from milepost_operator.shell.connection import Headers, log_in
from milepost_operator.shell.nodes import Nodes, renewals
from milepost_operator.shell.queue import KeyedQueue, work
from milepost_operator.shell.reconcile import Reconciler
from milepost_operator.shell.settings import BadSettings, Settings
from milepost_operator.shell.store_gate import StoreGate
from milepost_operator.shell.store_sweep import StoreSweep
from milepost_operator.shell.stores import Stores
from milepost_operator.shell.stores_file import StoreEntry, StoresFile, read_stores
from milepost_operator.shell.sweep import Sweep

__all__ = ["Operator"]

# Five sweeps that failed: whatever keeps them from working, a fresh start may cure it.
_SWEEPS_MISSED: Final = 5
_CHECK_ANSWER_WITHIN_S: Final = 30.0
_DEFAULT_STORE: Final = StoreSpec().name

log = structlog.get_logger(__name__)


def utc_now() -> datetime:
    """Return the time of day: the operator's only clock for what users see."""
    return datetime.now(UTC)  # noqa: TID251  this is the clock that everything else takes as an argument


def open_s3(entry: StoreEntry, credentials: Path | None) -> Store:
    """Open a store with the operator's own credentials."""
    return open_store(entry.config(credentials))


def open_patiently(entry: StoreEntry, credentials: Path | None) -> Store:
    """Open a store for being checked, where many writers of one key wait for one another."""
    return open_store(entry.config(credentials, answer_within=_CHECK_ANSWER_WITHIN_S))


class Operator:
    """The process. `stop_flag` is set when it has to end; `failure` and `misconfigured` say why it did."""

    def __init__(self, settings: Settings, kopf_settings: kopf.OperatorSettings) -> None:
        self.settings = settings
        self.cache = Cache()
        self.queue: KeyedQueue[RunKey] = KeyedQueue(time.monotonic)
        self.stop_flag = asyncio.Event()
        self.failure = ""
        self.misconfigured = ""
        self._kopf_settings = kopf_settings
        self._nodes = Nodes(time.monotonic)
        self._tasks: list[asyncio.Task[None]] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._pool = ThreadPoolExecutor(settings.store_threads, thread_name_prefix="store")

    async def start(self) -> None:
        """Start everything but the watches, which Kopf starts next. Raises BadSettings."""
        stores_file = _stores_of(self.settings.stores_file)
        login = log_in(self._kopf_settings)
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=login.as_ssl_context(), limit=32))
        self._closers.append(session.close)
        headers = Headers(lambda: log_in(self._kopf_settings), time.monotonic)
        cluster = Cluster(session, login.server, headers)
        await _check_served(cluster)
        cluster_id = await _cluster_id(cluster, self.settings.release_namespace)
        gate = StoreGate(
            stores_file,
            self.settings.store_credentials,
            open_s3,
            open_patiently,
            cluster_id=cluster_id,
            entropy=os.urandom,
            monotonic=time.monotonic,
            on_change=self._wake_runs_of(asyncio.get_running_loop()),
        )
        stores = Stores(
            stores_file,
            self.settings.store_credentials,
            open_s3,
            barred=gate.barred,
            pool=self._pool,
            clock=utc_now,
            entropy=os.urandom,
            monotonic=time.monotonic,
            cluster_id=cluster_id,
            read_every=self.settings.progress_read_s,
        )
        reconciler = Reconciler(
            cluster,
            stores,
            self.cache,
            self._nodes,
            clock=utc_now,
            monotonic=time.monotonic,
            write_progress_every=self.settings.progress_write_s,
        )
        sweep = Sweep(cluster, self.cache, self.queue, self.settings.namespaces, time.monotonic)
        # Last of what may fail: Kopf calls this again where it does, and nothing may be started twice.
        await self._serve_health(sweep)
        self._spawn("stores", gate.watch())
        self._spawn("workers", work(self.queue, reconciler, self.settings.workers))
        self._spawn("nodes", self._watch_nodes(cluster))
        self._spawn("sweep", self._sweep(sweep))
        if every := self.settings.store_sweep_s:
            swept = StoreSweep(stores, cluster, self.settings.namespaces, every=every)
            self._spawn("store-sweep", swept.watch())
        log.info(
            "operator started",
            stores=sorted(stores_file.stores),
            namespaces=self.settings.namespaces or "all",
        )

    async def stop(self) -> None:
        """Stop everything that `start` started. A pass under way is left where it is: the next goes on."""
        # Kopf's own waiter for the flag would otherwise hold up the end for five seconds.
        self.stop_flag.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for close in reversed(self._closers):
            await close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _spawn(self, name: str, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self.failure = f"{task.get_name()} ended: {task.exception()!r}"
        log.error("a part of the operator has died", part=task.get_name(), exc_info=task.exception())
        self.stop_flag.set()

    async def _serve_health(self, sweep: Sweep) -> None:
        def ailing() -> str:
            if sweep.lagging:
                return "the watches miss what happens"
            late = time.monotonic() - sweep.finished_at > _SWEEPS_MISSED * self.settings.sweep_s
            return "the API server could not be swept for too long" if late else ""

        runner: web.AppRunner = await health.serve(
            self.settings.health_port, ailing, lambda: not self.failure
        )
        self._closers.append(runner.cleanup)

    def _wake_runs_of(self, loop: asyncio.AbstractEventLoop) -> Callable[[str], None]:
        """Return what asks, from any thread, for a pass over every run of a store."""

        def wake(store: str) -> None:
            for key in self.cache.runs():
                spec = (self.cache.run(key) or {}).get("spec", {})
                if (spec.get("store") or {}).get("name", _DEFAULT_STORE) == store:
                    self.queue.put(key)

        def from_any_thread(store: str) -> None:
            # A probe may outlive the loop.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(wake, store)

        return from_any_thread

    async def _watch_nodes(self, cluster: Cluster) -> None:
        known = self._nodes.silence()
        while True:
            try:
                self._nodes.read(renewals(await cluster.list_leases()))
            except Forbidden:
                self._nodes.forbidden()
            except (ApiError, Unreachable) as error:
                log.warning("leases not read", error=str(error))
            if (now := self._nodes.silence()) != known:
                log.warning("nodes changed", silent=sorted(now.nodes), disturbed=now.disturbed)
                changed = now.nodes ^ known.nodes
                keys = self.cache.runs() if now.disturbed != known.disturbed else self.cache.on_nodes(changed)
                for key in keys:
                    self.queue.put(key)
                known = now
            await asyncio.sleep(self.settings.lease_poll_s)

    async def _sweep(self, sweep: Sweep) -> None:
        while True:
            await asyncio.sleep(self.settings.sweep_s)
            try:
                await sweep()
            except (ApiError, Unreachable) as error:
                log.warning("not swept", error=str(error))


def _stores_of(path: Path) -> StoresFile:
    try:
        return read_stores(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"MILEPOST_STORES: the stores file cannot be read: {error}") from error


async def _check_served(cluster: Cluster) -> None:
    missing = {PLURAL, f"{PLURAL}/status"} - await cluster.served()
    if missing:
        raise BadSettings(
            f"the API server does not serve {', '.join(sorted(missing))}: install the CRD of this version"
        )


async def _cluster_id(cluster: Cluster, release_namespace: str) -> str:
    for name in ("kube-system", release_namespace):
        try:
            return await cluster.namespace_uid(name)
        except (Forbidden, NotFound):
            continue
    raise BadSettings(
        f"the operator may get neither namespace kube-system nor {release_namespace}; one is needed to tell "
        "this cluster's checkpoints from another's"
    )
