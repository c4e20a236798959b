"""Make a sound run of what is left of a damaged one: another run id, the same key root, the same name.

What a survey could read is recorded again, event by event, in a new chain; record 1 says that this was done,
from which run, and what is lost. The damaged run's objects stay as they are, but for its head, which is
claimed first, so that nobody goes on with it, and ended last.

The surprise: a step whose record or blob is lost is not left out, it is open again. It runs once more under
the key that it had, so that a receiver which honours keys applies its effect once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypedDict

from milepost.api.names import Entropy, StoreKeys, new_run_id
from milepost.api.resource import RETENTION_S, DeletionPolicy, Phase
from milepost.checkpoint.answers import Purpose, Write
from milepost.checkpoint.base import base_key, make_base
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head, draft, first_head
from milepost.checkpoint.records import (
    OPERATOR,
    Claimed,
    Event,
    Finished,
    Halted,
    Record,
    Repaired,
    Started,
    StepCompleted,
    Withdrawn,
    blob_of,
)
from milepost.checkpoint.runs import REPAIRED, HeadSeen, NameSeen, Runs, Stale
from milepost.checkpoint.sealed import Segment, segment_key
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Found
from milepost.checkpoint.survey import Survey
from milepost.errors import Corrupt, MilepostError, Missing

__all__ = ["NotRepairable", "Rescue", "carry_out", "plan_repair"]

REPAIRING: Final = "Repairing"

_OF_DAMAGE: Final = frozenset({"Corrupt", "Missing", "RolledBack", REPAIRING})
"""Why runs halt that are then repaired. The new run has no reason to."""

_MOST_NAMED: Final = 1000
"""Steps that record 1 names as lost. It also says how many more there are."""


class NotRepairable(MilepostError):
    """No sound run can be made of what is left, or not yet; the message says what to do."""


@dataclass(frozen=True)
class Rescue:
    """A run that is ready to be written. `blobs` are digests of what is to be copied from the damaged run.

    `objects` are its segments and its base by their keys. Nothing of it was written yet.
    """

    survey: Survey
    head: Head
    objects: tuple[tuple[str, bytes], ...]
    blobs: tuple[str, ...]
    said: Repaired


def plan_repair(survey: Survey, *, at: datetime, entropy: Entropy) -> Rescue:
    """Return the run that can be made of what the survey read. Does no I/O.

    Raises NotRepairable where a newer Milepost could read more, and where nobody knows what was asked for.
    """
    if survey.too_new:
        newer = next(problem for problem in survey.problems if problem.kind == "FormatTooNew")
        raise NotRepairable(f"{newer.key}: {newer.what}; repair it with the newer Milepost that wrote it")
    if survey.head is not None and survey.head.head.phase is Phase.DELETING:
        raise NotRepairable(f"run {survey.keys.run_id} is being deleted")
    if survey.started is None:
        raise NotRepairable(
            f"record 1 of run {survey.keys.run_id}, which says what was asked for, is lost and stands in no "
            "base; apply the manifest with another spec.rerun to start anew"
        )
    said = Repaired(
        run_id=survey.keys.run_id,
        lost_records=survey.lost,
        repeats=survey.repeats[:_MOST_NAMED],
        unnamed=survey.unnamed + len(survey.repeats[_MOST_NAMED:]),
    )
    building = _Building(survey, survey.started, said, at=at, entropy=entropy)
    blobs: dict[str, None] = {}
    for record in survey.records.values():
        events = tuple(building.kept(record))
        if events:
            building.add(record, events)
            blobs |= dict.fromkeys(filter(None, map(blob_of, events)))
    building.close(at)
    return Rescue(survey, building.head, tuple(building.objects()), tuple(blobs), said)


class _Building:
    """The new run's head as it grows, record by record, with the bodies of the segments that it names."""

    def __init__(
        self, survey: Survey, started: Started, said: Repaired, *, at: datetime, entropy: Entropy
    ) -> None:
        self._survey = survey
        self._at = at
        self._entropy = entropy
        self._old = survey.head.head if survey.head else None
        self._lines: dict[Segment, tuple[bytes, ...]] = {}
        self._bodies: dict[Segment, bytes] = {}
        self._state = State()
        self._attempt = self._old.attempt if self._old else 0
        first = survey.records.get(1)
        earlier = [event for event in first.events if isinstance(event, Repaired)] if first else []
        commit = first_head(
            StoreKeys(survey.keys.namespace, new_run_id(entropy)),
            name=started.name,
            resource_uid=self._old.resource_uid if self._old else started.resource_uid,
            cluster=started.cluster,
            spec_digest=started.spec_digest,
            key_root=started.key_root,
            events=(started, *earlier, said),
            at=_time(first, at) if first else at,
            entropy=entropy,
            goal=started.goal,
            **_kept_as(self._old, started),
        )
        self.head = commit.head
        self._keep(commit.objects)
        self._state.apply(commit.record, commit.head.chain, commit.head.keys.head)

    def kept(self, record: Record) -> Iterator[Event]:
        """Yield the record's events that the new run has too."""
        lost, ended = self._survey.lost_blobs, self.head.phase.terminal
        for event in record.events:
            match event:
                case Started() | Repaired():
                    continue
                case Halted(reason=reason) if reason in _OF_DAMAGE:
                    continue
                case Finished(reason=reason) if reason == REPAIRED:
                    continue
                case StepCompleted(step=step) if step.id in self._state.completed:
                    if self._survey.lost:
                        # It was executed again, so that it had been withdrawn, by a record that is lost.
                        yield Withdrawn(step=step.id, reason="the record that withdrew it is lost")
                        yield event
                case Withdrawn(step=step_id) if step_id not in self._state.completed:
                    continue
                case _ if ended or blob_of(event) in lost:
                    continue
                case _:
                    yield event

    def add(self, record: Record, events: tuple[Event, ...]) -> None:
        """Add one record as its writer wrote it, in the epoch that it was written in."""
        claims = [event for event in events if isinstance(event, Claimed)]
        self._attempt = max(self._attempt, *(event.attempt for event in claims), 0)
        epoch = max(self.head.epoch, record.epoch - len(claims))
        self.head = replace(self.head, epoch=epoch, writer=self.head.writer if claims else record.worker)
        self._add(events, _time(record, self._at))

    def close(self, at: datetime) -> None:
        """Record who made this run, by a claim from outside, which starts nothing; and add a base of it."""
        if not self.head.phase.terminal:
            image = self._old.image if self._old else ""
            self._add((Claimed(attempt=self._attempt, writer=OPERATOR, image=image),), at)
        self._base = make_base(self._state, self.head.keys, self.head.nonce)
        self.head = replace(self.head, bases=(self._base[0],))

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Yield what the closed head names, by their keys. What was merged on the way is left out."""
        for segment in self.head.segments:
            yield segment_key(self.head.keys, segment), self._bodies[segment]
        base, body = self._base
        yield base_key(self.head.keys, base), body

    def _add(self, events: tuple[Event, ...], at: datetime) -> None:
        planned = draft(self.head, events, at=at, entropy=self._entropy)
        commit = planned.commit([(segment, self._lines[segment]) for segment in planned.merging])
        self.head = commit.head
        self._keep(commit.objects)
        try:
            self._state.apply(commit.record, commit.head.chain, commit.head.keys.head)
        except Corrupt as error:
            raise NotRepairable(f"what is left does not make a history: {error}") from error

    def _keep(self, objects: tuple[tuple[str, bytes], ...]) -> None:
        for _, body in objects:
            segment = self.head.segments[-1]
            self._bodies[segment] = body
            self._lines[segment] = tuple(body.splitlines(keepends=True)[1:])


def _time(record: Record, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(record.at)
    except ValueError:
        return otherwise


class _Kept(TypedDict):
    deletion_policy: DeletionPolicy
    retention_s: int


def _kept_as(old: Head | None, started: Started) -> _Kept:
    """Return what becomes of the run's objects: as the damaged head says, or else what was asked for."""
    if old is not None:
        return {"deletion_policy": old.deletion_policy, "retention_s": old.retention_s}
    asked = started.configuration
    delete = asked.get("deletionPolicy") == DeletionPolicy.DELETE
    seconds = asked.get("retentionSeconds")
    return {
        "deletion_policy": DeletionPolicy.DELETE if delete else DeletionPolicy.RETAIN,
        "retention_s": seconds if isinstance(seconds, int) else RETENTION_S,
    }


def carry_out(
    runs: Runs, rescue: Rescue, name: NameSeen | None, *, nobody_writes: bool, patience: Patience
) -> str:
    """Write the new run, let the name stand for it, end the damaged one, and return the new run's id.

    `name` None: no name is changed. Called again after it was cut off, with a survey of its own, it comes to
    the same end; what it wrote before is then led to by no name.

    Raises NotRepairable where the damaged head cannot be claimed and nobody affirms, with `nobody_writes`,
    that no executor of the run lives; Stale where the head or the name was changed meanwhile; and what
    reading and writing raise.
    """
    survey = rescue.survey
    held: HeadSeen | None = None
    if survey.head is None and not nobody_writes:
        raise NotRepairable(
            f"{survey.keys.head} cannot be claimed, so that an executor might still be at work; make sure "
            "that none is, and say so with --nobody-writes"
        )
    if survey.head is not None and not survey.head.head.phase.terminal:
        why = f"it is being saved as run {rescue.head.run_id}"
        held = runs.hold(survey.head, reason=REPAIRING, message=why)
    _write(runs, rescue, patience)
    if name is not None:
        runs.change_name(survey.keys.namespace, name, run_id=rescue.head.run_id, outcome="")
    if held is not None:
        _end(runs, held, f"it was damaged, and goes on as run {rescue.head.run_id}")
    # Until then people could answer the damaged run, and were told that their answer stands.
    _say_again(runs, survey.keys, rescue.head.keys, patience)
    return rescue.head.run_id


def _write(runs: Runs, rescue: Rescue, patience: Patience) -> None:
    old, new = rescue.survey.keys, rescue.head.keys
    for digest in rescue.blobs:
        found = runs.store.get(old.blob(digest))
        if not isinstance(found, Found):
            raise Missing(old.blob(digest), "it was there a moment ago")
        if hashlib.sha256(found.body).hexdigest() != digest:
            raise Corrupt(old.blob(digest), "it does not match the digest in its name")
        send(runs.store, Write(Purpose.CREATE, new.blob(digest), found.body), patience)
    _say_again(runs, old, new, patience)
    for key, body in rescue.objects:
        send(runs.store, Write(Purpose.CREATE, key, body), patience)
    head = rescue.head
    send(runs.store, Write(Purpose.CREATE, new.head, head.body(), head.metadata(), head=head), patience)


def _say_again(runs: Runs, old: StoreKeys, new: StoreKeys, patience: Patience) -> None:
    """Say to the new run what was said to the old one and not heard yet. What it was told itself stands."""
    said = {each.key.removeprefix(new.inbox) for each in runs.store.list(new.inbox)}
    for each in list(runs.store.list(old.inbox)):
        gate = each.key.removeprefix(old.inbox)
        answer = None if gate in said else runs.store.get(each.key)
        if isinstance(answer, Found):
            send(runs.store, Write(Purpose.ANSWER, f"{new.inbox}{gate}", answer.body), patience)


def _end(runs: Runs, head: HeadSeen, message: str) -> None:
    """End the damaged run. A pod that was starting may have claimed it since; it is refused then."""
    while True:
        try:
            runs.end(head, phase=Phase.CANCELLED, reason=REPAIRED, message=message)
        except Stale:
            seen = runs.observe(head.at.head.keys)
            if not isinstance(seen, HeadSeen):
                return
            head = seen
        else:
            return
