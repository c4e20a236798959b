"""Every few minutes, the whole truth: all resources and pods by LIST, held against what the watches showed.

A watch that is listed anew does not report what was deleted meanwhile, so something has to. A list may be
some milliseconds ahead of a watch, which means nothing; a watch that has still not shown what the sweep
before found is broken, and `lagging` says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog

from milepost_operator.shell.cache import Cache, RunKey, key_of_pod, key_of_run, version_of
from milepost_operator.shell.cluster import Cluster
from milepost_operator.shell.queue import KeyedQueue

__all__ = ["Sweep"]

log = structlog.get_logger(__name__)


class Sweep:
    """The comparison of the cache with the API server. No namespaces stand for all of them."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        queue: KeyedQueue[RunKey],
        namespaces: tuple[str, ...],
        monotonic: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._queue = queue
        self._namespaces = namespaces or ("",)
        self._monotonic = monotonic
        self._listed: dict[str, int] = {}
        self.lagging = False
        self.finished_at = monotonic()

    async def __call__(self) -> None:
        """Compare once, and ask for a pass over every run. Raises ApiError, Unreachable."""
        runs_before = {
            key: raw["metadata"]["uid"] for key in self._cache.runs() if (raw := self._cache.run(key))
        }
        pods_before = self._cache.pod_uids()
        listed: dict[str, int] = {}
        found: set[RunKey] = set()
        async for raw in self._all(self._cluster.list_runs):
            self._cache.put_run(raw)
            listed[raw["metadata"]["uid"]] = version_of(raw)
            found.add(key_of_run(raw))
        async for raw in self._all(self._cluster.list_all_pods):
            self._cache.put_pod(raw)
            listed[raw["metadata"]["uid"]] = version_of(raw)
            if (key := key_of_pod(raw)) is not None:
                found.add(key)
        for key, uid in runs_before.items():
            if uid not in listed:
                self._cache.drop_run(key, uid)
        for uid, key in pods_before.items():
            if uid not in listed:
                self._cache.lose_pod(key, uid)
        for key in found | runs_before.keys() | set(pods_before.values()):
            self._queue.put(key)
        self._judge(listed)

    def _judge(self, listed: dict[str, int]) -> None:
        missed = [uid for uid in listed if self._cache.watched(uid) < self._listed.get(uid, 0)]
        self.lagging = bool(missed)
        if missed:
            log.error("the watches lag", objects=len(missed))
        self._listed = listed
        self.finished_at = self._monotonic()

    async def _all(
        self, lister: Callable[[str], AsyncIterator[dict[str, Any]]]
    ) -> AsyncIterator[dict[str, Any]]:
        for namespace in self._namespaces:
            async for raw in lister(namespace):
                yield raw
