"""What the watches have shown, trimmed: resources by key, pods by key and uid.

It saves requests; nothing is created or ended on its word. A pod that vanished is kept as it was last seen,
because that is the only place where the reason of its end may still be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from milepost.api.names import LABEL_ATTEMPT, LABEL_RUN
from milepost_operator.core.reading import trimmed

__all__ = ["Cache", "RunKey", "key_of_pod", "key_of_run", "version_of"]

_KEPT_GONE: Final = 3


class RunKey(NamedTuple):
    """A resource's namespace and name."""

    namespace: str
    name: str


def key_of_run(raw: Mapping[str, Any]) -> RunKey:
    """Return the key of a resource."""
    return RunKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def key_of_pod(raw: Mapping[str, Any]) -> RunKey | None:
    """Return the key of the run whose name the pod carries."""
    run = (raw["metadata"].get("labels") or {}).get(LABEL_RUN)
    return RunKey(raw["metadata"]["namespace"], run) if run else None


def version_of(raw: Mapping[str, Any]) -> int:
    """Return an object's version as a number; newer ones are greater."""
    text = str(raw["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0


class Cache:
    """The last known state of every run and of its pods."""

    def __init__(self) -> None:
        self._runs: dict[RunKey, dict[str, Any]] = {}
        self._pods: dict[RunKey, dict[str, dict[str, Any]]] = {}
        self._gone: dict[RunKey, dict[str, dict[str, Any]]] = {}
        self._touched: set[RunKey] = set()
        self._watched: dict[str, int] = {}

    def runs(self) -> list[RunKey]:
        """Return the keys of all known resources."""
        return list(self._runs)

    def run(self, key: RunKey) -> dict[str, Any] | None:
        """Return the resource as last seen."""
        return self._runs.get(key)

    def pods(self, key: RunKey) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield every pod of the run as last seen, and whether it is gone."""
        yield from ((raw, False) for raw in self._pods.get(key, {}).values())
        yield from ((raw, True) for raw in self._gone.get(key, {}).values())

    def watched(self, uid: str) -> int:
        """Return the newest version of an object that a watch has shown; 0 if none has."""
        return self._watched.get(uid, 0)

    def put_run(self, raw: Mapping[str, Any], *, watched: bool = False) -> bool:
        """Keep a resource unless a newer version of it is known. Return whether it was news."""
        if watched:
            self._watched[raw["metadata"]["uid"]] = version_of(raw)
        key = key_of_run(raw)
        known = self._runs.get(key)
        same = known is not None and known["metadata"]["uid"] == raw["metadata"]["uid"]
        if known is not None and same and version_of(known) >= version_of(raw):
            return False
        if not same:
            self._gone.pop(key, None)
        self._runs[key] = trimmed(raw)
        return True

    def drop_run(self, key: RunKey, uid: str) -> None:
        """Forget a resource that was deleted, unless another one has its name already."""
        self._watched.pop(uid, None)
        known = self._runs.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            del self._runs[key]
            self._gone.pop(key, None)
            self._touched.discard(key)

    def put_pod(self, raw: Mapping[str, Any], *, watched: bool = False) -> bool:
        """Keep a pod unless a newer version is known, or its end. Return whether it was news."""
        if watched:
            self._watched[raw["metadata"]["uid"]] = version_of(raw)
        key, uid = key_of_pod(raw), raw["metadata"]["uid"]
        if key is None or uid in self._gone.get(key, {}):
            return False
        known = self._pods.get(key, {}).get(uid)
        if known is not None and version_of(known) >= version_of(raw):
            return False
        self._pods.setdefault(key, {})[uid] = trimmed(raw, pod=True)
        self._touched.add(key)
        return True

    def drop_pod(self, raw: Mapping[str, Any]) -> None:
        """Keep a pod that was deleted as it was last seen."""
        self._watched.pop(raw["metadata"]["uid"], None)
        key, uid = key_of_pod(raw), raw["metadata"]["uid"]
        if key is None:
            return
        pods = self._pods.get(key, {})
        pods.pop(uid, None)
        if not pods:
            self._pods.pop(key, None)
        if key not in self._runs:
            return
        gone = self._gone.setdefault(key, {})
        gone[uid] = trimmed(raw, pod=True)
        for oldest in sorted(gone, key=lambda part: _attempt(gone[part]))[:-_KEPT_GONE]:
            del gone[oldest]
        self._touched.add(key)

    def set_pods(self, key: RunKey, live: Iterable[Mapping[str, Any]]) -> None:
        """Take in a live list of the run's pods: what is not in it is gone."""
        found = {raw["metadata"]["uid"]: raw for raw in live}
        for uid, known in list(self._pods.get(key, {}).items()):
            if uid not in found:
                self.drop_pod(known)
        for raw in found.values():
            self.put_pod(raw)

    def take_touched(self, key: RunKey) -> bool:
        """Return whether something happened to the run's pods since this was last asked."""
        touched = key in self._touched
        self._touched.discard(key)
        return touched

    def pod_uids(self) -> dict[str, RunKey]:
        """Return the uid of every pod that is known and not gone, and the key of its run."""
        return {uid: key for key, pods in self._pods.items() for uid in pods}

    def lose_pod(self, key: RunKey, uid: str) -> bool:
        """Take in that a pod is no longer there. Return whether that was news."""
        known = self._pods.get(key, {}).get(uid)
        if known is not None:
            self.drop_pod(known)
        return known is not None

    def on_nodes(self, nodes: frozenset[str]) -> set[RunKey]:
        """Return the keys of runs that have a pod on one of the nodes."""
        return {
            key
            for key, pods in self._pods.items()
            if any((raw.get("spec") or {}).get("nodeName") in nodes for raw in pods.values())
        }


def _attempt(raw: Mapping[str, Any]) -> int:
    text = str((raw["metadata"].get("labels") or {}).get(LABEL_ATTEMPT, ""))
    return int(text) if text.isdecimal() else 0
