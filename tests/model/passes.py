"""An operator's passes over one name, and the cluster around them, for which objects of the bucket stand.

A pass is the real one in small: the resource and the pods are read at their source, then name and head; the
rules of `milepost_operator.core.rules` decide; what they decide is done by `milepost.checkpoint.runs`. Pods
start nothing here: a pod object that exists is taken up by one of the executors, some time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from milepost.api.digest import spec_digest
from milepost.api.names import StoreKeys
from milepost.api.resource import AgentRun, DeletionPolicy, Phase, RunSpec
from milepost.api.summary import NameState
from milepost.checkpoint.runs import HeadSeen, NameSeen, NewRun, Runs, Stale, require_head
from milepost.checkpoint.store import Found, Store
from milepost_operator.core.plan import (
    Action,
    Adopt,
    CreatePod,
    DeletePod,
    EndRun,
    NoteOutcome,
    StartRun,
    Supersede,
)
from milepost_operator.core.rules import plan
from tests.model.replay import Draws
from tests.support.builders import a_pod, a_run, a_spec, an_observation
from tests.support.histories import NOON

__all__ = ["CLUSTER", "PODS", "RESOURCE", "Resource", "one_pass", "resource_in"]

CLUSTER = "cluster-1"
NAMESPACE = "team"
NAME = "docs"
RESOURCE = "@resource"
PODS = "@pods/"


class Resource(NamedTuple):
    """One version of the AgentRun: who it is and what it asks for."""

    uid: str
    work: str
    policy: str = "Retain"

    @property
    def spec(self) -> RunSpec:
        """The spec."""
        spec = a_spec(inputs={"work": self.work})
        return spec.model_copy(update={"deletion_policy": DeletionPolicy(self.policy)})


@dataclass(frozen=True)
class _Seen:
    """What a pass read."""

    run: AgentRun
    name: NameSeen | None
    head: HeadSeen | None
    new: NewRun


def one_pass(store: Store, entropy: Draws, *, again: bool, kind: type[Runs] = Runs) -> str:
    """Make one pass, and return what it did. `again`: read the resource again before changing its record."""
    runs = kind(store, lambda: NOON, entropy, deadline=float("inf"))
    resource = resource_in(store)
    if resource is None:
        return "nothing is there"
    pods = list(store.list(PODS))
    name = runs.look_up(NAMESPACE, NAME)
    head = _head(runs, name)
    run = a_run(resource.spec, uid=resource.uid, phase=Phase.PENDING, attempt=0)
    new = NewRun(NAMESPACE, NAME, resource.uid, CLUSTER, resource.spec, spec_digest(resource.spec))
    seen = _Seen(run, name, head, new)
    run_id = name.record.run_id if name else ""
    found = [_pod(each.key, resource.uid) for each in pods if each.key.split("/")[1] == run_id]
    observation = an_observation(
        run,
        *sorted(found, key=lambda pod: (pod.attempt, pod.name)),
        name=name.record if name else None,
        head=head.summary if head else None,
        now=NOON,
        cluster=CLUSTER,
    )
    actions = plan(observation).actions
    changing = [action for action in actions if not isinstance(action, CreatePod | DeletePod)]
    if again and changing and resource_in(store) != resource:
        return "the resource is another one meanwhile"
    try:
        return ", ".join(_act(store, runs, seen, action) for action in actions) or "nothing to do"
    except Stale:
        return "seen too late"


def resource_in(store: Store) -> Resource | None:
    """Return the resource as the API server has it; None if there is none."""
    found = store.get(RESOURCE)
    return Resource(*json.loads(found.body)) if isinstance(found, Found) else None


def _head(runs: Runs, name: NameSeen | None) -> HeadSeen | None:
    if name is None:
        return None
    keys = StoreKeys(NAMESPACE, name.record.run_id)
    seen = runs.observe(keys)
    if seen is None and name.record.state is NameState.EXPIRED:
        return None
    found = require_head(seen, keys)
    assert isinstance(found, HeadSeen), "no ETag was named"
    return found


def _pod(key: str, uid: str) -> Any:
    _, _, owner, attempt = key.split("/")
    return a_pod(int(attempt), name=key, owned=owner == uid)


def _act(store: Store, runs: Runs, seen: _Seen, action: Action) -> str:
    match action, seen:
        case StartRun(), _:
            runs.start(seen.new)
        case Adopt(), _Seen(name=NameSeen() as name, head=HeadSeen() as head):
            runs.adopt(NAMESPACE, name, head, seen.run.uid)
        case Supersede(), _Seen(name=NameSeen() as name, head=head):
            runs.supersede(name, head, seen.new)
        case NoteOutcome(outcome), _Seen(name=NameSeen() as name):
            runs.note_outcome(NAMESPACE, name, outcome)
        case EndRun(phase, reason, message), _Seen(head=HeadSeen() as head):
            runs.end(head, phase=phase, reason=reason, message=message)
        case CreatePod(attempt), _Seen(name=NameSeen() as name):
            store.put_new(f"{PODS}{name.record.run_id}/{seen.run.uid}/{attempt}", b"pod", {})
        case DeletePod(name=pod), _:
            store.delete(pod)
        case _:
            raise AssertionError(f"no pass of the model is to {action}")
    return type(action).__name__
