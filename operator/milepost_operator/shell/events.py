"""The story of a run as Kubernetes Events, each told once.

An Event's name is made from the resource's uid and the telling's key, so the API server itself refuses to
tell it twice, also after the operator was restarted. Events are for people: losing one is logged and changes
nothing.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from datetime import datetime
from typing import Any, Final

import structlog

from milepost.api.names import GROUP, KIND, VERSION
from milepost.api.resource import AgentRun
from milepost_operator.core.conditions import timestamp
from milepost_operator.core.plan import Telling
from milepost_operator.shell.cluster import AlreadyExists, ApiError, Cluster, Unreachable

__all__ = ["Teller"]

_REMEMBERED: Final = 20_000
_LONGEST: Final = 1000
_COMPONENT: Final = "milepost-operator"

log = structlog.get_logger(__name__)


class Teller:
    """Tells Events, and remembers what was told so as not to ask the API server each pass."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._told: OrderedDict[str, None] = OrderedDict()

    async def tell(self, run: AgentRun, told: Telling, now: datetime) -> None:
        """Tell it, unless it was told before."""
        name = f"{run.name}.{hashlib.sha256(f'{run.uid}/{told.key}'.encode()).hexdigest()[:20]}"
        if name in self._told:
            return
        try:
            await self._cluster.create_event(run.namespace, _event(run, told, name, now))
        except AlreadyExists:
            pass
        except (ApiError, Unreachable) as error:
            log.warning(
                "event not told", run=f"{run.namespace}/{run.name}", reason=told.reason, error=str(error)
            )
            return
        self._told[name] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)


def _event(run: AgentRun, told: Telling, name: str, now: datetime) -> dict[str, Any]:
    at = timestamp(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": run.namespace},
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "namespace": run.namespace,
            "name": run.name,
            "uid": run.uid,
        },
        "type": told.type,
        "reason": told.reason,
        "message": told.message[:_LONGEST],
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": _COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
