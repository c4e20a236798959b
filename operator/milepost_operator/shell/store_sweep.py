"""Every few minutes: delete from each store what nothing needs any more, off the event loop.

What goes is judged by `milepost.checkpoint.sweep`, and goes as `milepost.checkpoint.deletion` does it. From
here comes which resources exist: by a list that is consistent and complete, taken after the store was
listed, and once more by a read of the one resource whose run is about to go. Where either fails, no run goes
for want of its resource. There is no finalizer: a resource is gone at once, and its checkpoints soon.

A sweep of a store costs a write, a listing and a deletion to learn the store's time, one listing request for
1,000 objects, and a read for each head and name that changed since the last one.
The surprise: it runs in one replica only because there is only one; a second would cost requests, no run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from milepost.checkpoint.deletion import Carried, Finding, Sweeper
from milepost.checkpoint.gathering import Memory
from milepost.checkpoint.sweep import Living, Remove, Trouble
from milepost.errors import MilepostError
from milepost_operator.shell.cluster import ApiError, Cluster, Unreachable
from milepost_operator.shell.stores import Stores
from milepost_operator.shell.stores_file import StoreEntry

__all__ = ["StoreSweep", "swept_namespaces"]

T = TypeVar("T")

log = structlog.get_logger(__name__)

_BLOBS_WITHIN_S: Final = 24 * 3600.0
"""For how long after a run's end its blobs are held against its records. The older go with the run."""

_API_WITHIN_S: Final = 60.0

# The loop of an operator that is stopping takes back what it was asked.
_NOT_KNOWN: Final = (ApiError, Unreachable, TimeoutError, CancelledError)


def swept_namespaces(entry: StoreEntry, watched: Sequence[str]) -> tuple[str, ...] | None:
    """Return the namespaces of a store to sweep, none of them for all; None where there is nothing to do."""
    if "*" in entry.allowed_namespaces:
        return tuple(watched)
    if not watched:
        return entry.allowed_namespaces
    both = tuple(name for name in entry.allowed_namespaces if name in watched)
    return both or None


@dataclass(frozen=True)
class _Resources:
    """Which resources exist, asked for from a thread."""

    cluster: Cluster
    cluster_id: str
    namespaces: Sequence[str]
    loop: asyncio.AbstractEventLoop

    def living(self) -> Living | None:
        try:
            return Living(self.cluster_id, self._ask(self._uids()))
        except _NOT_KNOWN as error:
            log.warning("no run goes for want of its resource: the list failed", error=str(error))
            return None

    def exists(self, namespace: str, name: str, uid: str) -> bool:
        try:
            raw = self._ask(self.cluster.get_run(namespace, name))
        except _NOT_KNOWN as error:
            log.warning("run kept: its resource was not read", run=f"{namespace}/{name}", error=str(error))
            return True
        return raw is not None and raw["metadata"]["uid"] == uid

    async def _uids(self) -> frozenset[str]:
        return frozenset(
            [
                raw["metadata"]["uid"]
                for namespace in self.namespaces or ("",)
                async for raw in self.cluster.list_runs(namespace)
            ]
        )

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        asked = asyncio.run_coroutine_threadsafe(question, self.loop)
        try:
            return asked.result(_API_WITHIN_S)
        finally:
            asked.cancel()


class StoreSweep:
    """Sweeps every store that may be used. No namespaces stand for all of them."""

    def __init__(
        self,
        stores: Stores,
        cluster: Cluster,
        namespaces: tuple[str, ...],
        *,
        every: float,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        self._stores = stores
        self._cluster = cluster
        self._namespaces = namespaces
        self._every = every
        self._sleep = sleep
        self._memories: dict[str, Memory] = {}
        self._stopped = threading.Event()

    async def watch(self) -> None:
        """Sweep again and again, until cancelled."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="store-sweep")
        try:
            while True:
                await self._sleep(self._every)
                await self(pool)
        finally:
            # A run under deletion is left where it is: the next sweep goes on.
            self._stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, pool: ThreadPoolExecutor) -> None:
        """Sweep every store once. Never raises: what fails is logged, and comes round again."""
        try:
            in_use = await self._stores.in_use()
        except MilepostError as error:
            log.warning("stores not swept", error=str(error))
            return
        loop = asyncio.get_running_loop()
        resources = _Resources(self._cluster, self._stores.cluster_id, self._namespaces, loop)
        for name, entry, runs in in_use:
            namespaces = swept_namespaces(entry, self._namespaces)
            if namespaces is None:
                continue
            memory = self._memories.setdefault(name, Memory())
            sweeper = Sweeper(runs, resources, memory=memory, blobs_within=_BLOBS_WITHIN_S)
            await loop.run_in_executor(pool, self._sweep, name, sweeper, namespaces)

    def _sweep(self, store: str, sweeper: Sweeper, namespaces: Sequence[str]) -> None:
        try:
            for finding in list(sweeper.look(namespaces)):
                if self._stopped.is_set():
                    return
                _tell(store, finding, sweeper.carry_out(finding))
        except MilepostError as error:
            log.warning("store not swept", store=store, error=str(error))
        except Exception:
            # A bug that one store's content brings out must not stop the others, nor the operator.
            log.exception("store not swept because of a bug", store=store)


def _tell(store: str, finding: Finding, done: Carried) -> None:
    about = {"store": store, "key": finding.key, "name": finding.name}
    match finding.verdict:
        case Trouble(why=why):
            log.warning("left alone", **about, why=why)
            return
        case Remove(cause=cause, why=why):
            what, about = "run deleted", {**about, "cause": cause.value, "why": why}
        case _:
            what = "objects deleted"
    if done.left:
        log.warning("not deleted", **about, left=done.left, objects=done.objects, bytes=done.size)
    else:
        log.info(what, **about, objects=done.objects, bytes=done.size)
