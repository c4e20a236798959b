"""Which nodes have stopped reporting, told from their Leases by our own clock.

A kubelet renews its Lease every ten seconds. What counts is whether the renewal time has *changed* between
our reads, never what it says: nodes' clocks are not ours. Where most nodes fall silent together, or our own
reads fail, it is the control plane that is in trouble, and nobody's pod is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Nodes", "Silence", "renewals"]

# Three renewals of a kubelet's Lease: one lost renewal is weather, three are a silent node.
SILENT_AFTER: Final = 30.0
# Three of our own reads. A longer gap proves nothing about anybody, so all watches begin again after it.
BLIND_AFTER: Final = 15.0


@dataclass(frozen=True)
class Silence:
    """The nodes that have stopped reporting; `disturbed` says why even that cannot be trusted."""

    nodes: frozenset[str] = frozenset()
    disturbed: str = ""


def renewals(leases: list[dict[str, Any]]) -> dict[str, str]:
    """Return node to renewal time."""
    return {str(part["metadata"]["name"]): str((part.get("spec") or {}).get("renewTime")) for part in leases}


class Nodes:
    """What is known of the nodes. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._now = monotonic
        self._renewed: dict[str, tuple[str, float]] = {}
        self._read_at = monotonic()
        self._allowed = True

    def read(self, renewed: Mapping[str, str]) -> None:
        """Take in one successful read of all Leases."""
        now = self._now()
        fresh = now - self._read_at > BLIND_AFTER
        known = {} if fresh else self._renewed
        self._renewed = {
            node: known[node] if node in known and known[node][0] == time else (time, now)
            for node, time in renewed.items()
        }
        self._read_at = now
        self._allowed = True

    def forbidden(self) -> None:
        """Take in that Leases may not be read: then no node is ever called silent."""
        self._allowed = False

    def silence(self) -> Silence:
        """Return who is silent now."""
        if not self._allowed:
            return Silence()
        now = self._now()
        if now - self._read_at > BLIND_AFTER:
            return Silence(disturbed="the nodes' Leases cannot be read; pods are left as they are")
        silent = frozenset(node for node, (_, at) in self._renewed.items() if now - at > SILENT_AFTER)
        if 2 * len(silent) > len(self._renewed):
            count = f"{len(silent)} of {len(self._renewed)} nodes"
            return Silence(disturbed=f"{count} have stopped reporting at once; pods are left as they are")
        return Silence(silent)
