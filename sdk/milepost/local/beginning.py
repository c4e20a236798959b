"""Find the run that a manifest stands for, or begin it: names, adoption and retention as on a cluster.

The same digest goes on with the run that the name stands for, or reports it; another digest supersedes it.
A cluster would refuse to change such a spec in place; here nothing lies between the file and the run, so a
changed manifest is what deleting and applying anew is there.
"""

from __future__ import annotations

from collections.abc import Callable

from milepost.api.digest import spec_digest
from milepost.api.names import StoreKeys
from milepost.api.summary import NameRecord, NameState
from milepost.checkpoint.runs import HeadSeen, NameSeen, NewRun, Runs, Stale, require_head
from milepost.local.manifest import Manifest
from milepost.local.owner import resource_uid

__all__ = ["find_or_begin", "head_of"]


def find_or_begin(
    runs: Runs, manifest: Manifest, owner: str, say: Callable[[str], None]
) -> HeadSeen | NameRecord:
    """Return the head of the manifest's run, or its name where it ended so long ago that only that is left.

    Raises InvalidRun, Missing, and what `Runs` raises but Stale.
    """
    uid = resource_uid(owner, manifest.namespace, manifest.name)
    digest = spec_digest(manifest.spec)
    new = NewRun(manifest.namespace, manifest.name, uid, owner, manifest.spec, digest)
    while True:
        try:
            return _find(runs, new, say)
        except Stale as error:
            say(f"{error}; looking again")


def head_of(runs: Runs, namespace: str, run_id: str) -> HeadSeen:
    """Return the head of a run that a name leads to. Raises Missing where it is gone."""
    keys = StoreKeys(namespace, run_id)
    head = require_head(runs.observe(keys), keys)
    assert isinstance(head, HeadSeen), "Unchanged answers only who names an ETag"
    return head


def _find(runs: Runs, new: NewRun, say: Callable[[str], None]) -> HeadSeen | NameRecord:
    known = runs.look_up(new.namespace, new.name)
    if known is None:
        run_id = runs.start(new)
        say(f"run {run_id} begins as {new.namespace}/{new.name} in {runs.store.uri}")
        return head_of(runs, new.namespace, run_id)
    expired = known.record.state is NameState.EXPIRED
    head = None if expired else head_of(runs, new.namespace, known.record.run_id)
    if known.record.spec_digest != new.spec_digest:
        return _supersede(runs, known, head, new, say)
    if head is None:
        return known.record
    if known.record.resource_uid != new.resource_uid:
        runs.adopt(new.namespace, known, head, new.resource_uid, cluster=new.cluster)
        say(f"run {known.record.run_id} was begun by somebody else; it is adopted")
        return _find(runs, new, say)
    runs.note_retention(
        new.namespace,
        known,
        deletion_policy=new.spec.deletion_policy,
        retention_s=new.spec.retention_seconds,
    )
    return head


def _supersede(
    runs: Runs, known: NameSeen, head: HeadSeen | None, new: NewRun, say: Callable[[str], None]
) -> HeadSeen:
    run_id = runs.supersede(known, head, new)
    if head is None or head.summary.phase.terminal:
        fate = f"stays as it ended, {head.summary.phase if head else known.record.outcome}"
    else:
        fate = "was ended as Superseded"
    say(
        f"the manifest asks for something else than run {known.record.run_id}, which {fate}; "
        f"run {run_id} begins in its place"
    )
    return head_of(runs, new.namespace, run_id)
