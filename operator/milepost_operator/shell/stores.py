"""The stores in use, and what one pass reads and does in them, off the event loop.

Every call of `milepost.checkpoint.runs` blocks, so it runs in a small pool of threads. Heads are read again
at most every few seconds a run, and then only if they have changed, unless a decision hangs on them: then
the name and the head are read afresh, because nothing is ended or created on the word of a cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

from milepost.api.names import Entropy, StoreKeys
from milepost.api.resource import AgentRun, Phase
from milepost.api.summary import NameState
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import GateType, due
from milepost.checkpoint.runs import Clock, HeadSeen, NameSeen, NewRun, Runs, Stale, require_head
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store, Unchanged
from milepost.errors import (
    Corrupt,
    FormatTooNew,
    MilepostError,
    Missing,
    RunDeleted,
    StoreRefused,
    StoreUnavailable,
)
from milepost_operator.core.executor_pod import StoreAccess
from milepost_operator.core.observation import StoreProblem
from milepost_operator.core.plan import Adopt, EndRun, NoteOutcome, NoteRetention, StartRun, Supersede
from milepost_operator.shell.cache import RunKey
from milepost_operator.shell.stores_file import StoreEntry, StoresFile

__all__ = ["NotYet", "Recorded", "StoreAction", "Stores", "as_problem"]

P = ParamSpec("P")
T = TypeVar("T")

StoreAction = StartRun | Adopt | Supersede | EndRun | NoteOutcome | NoteRetention

_PATIENCE_S = 15.0
"""Seconds that an unclear answer of the store is followed up; the next pass asks again."""

_TRIES_TO_CANCEL = 20
"""An executor that commits many steps a second wins the race for the head often, but not so often."""


class NotYet(Exception):
    """Whether the store may be used is not known yet, and will be in a moment."""


@dataclass(frozen=True)
class Recorded:
    """What the store says of a run's name: nothing, or the name and the head that it leads to.

    Of a run that ended so long ago that its objects are gone there is the name alone.
    """

    name: NameSeen | None = None
    head: HeadSeen | None = None


@dataclass
class _Known:
    uid: str
    recorded: Recorded
    read_at: float


def as_problem(error: MilepostError) -> StoreProblem | None:
    """Return what an error of the store means for a run; None where it is no error of the store."""
    match error:
        case StoreUnavailable(key=key, cause=cause):
            # Without how long it took: a problem that changed its words would be a new status in each pass.
            message = f"{key}: the store gives no clear answer, and is asked again; last: {cause}"
            return StoreProblem("StoreUnavailable", message)
        case StoreRefused():
            return StoreProblem(error.reason, str(error))
        case Corrupt() | Missing():
            message = f"{error}; milepost store verify tells what is left, and store repair goes on from it"
            return StoreProblem(type(error).__name__, message, halts=True)
        case FormatTooNew() | RunDeleted():
            return StoreProblem(type(error).__name__, str(error), halts=True)
        case _:
            return None


class Stores:
    """All stores of the stores file, each opened when a run first needs it.

    `open_store` takes an entry and the folder of the operator's own credentials for it, or None. `barred`
    says by a store's name why it must not be used at present, None where nothing speaks against it.
    """

    def __init__(
        self,
        file: StoresFile,
        credentials: Path,
        open_store: Callable[[StoreEntry, Path | None], Store],
        *,
        barred: Callable[[str], StoreProblem | NotYet | None],
        pool: Executor,
        clock: Clock,
        entropy: Entropy,
        monotonic: Callable[[], float],
        cluster_id: str,
        read_every: float,
    ) -> None:
        self._file = file
        self._credentials = credentials
        self._open_store = open_store
        self._barred = barred
        self._pool = pool
        self._clock = clock
        self._entropy = entropy
        self._monotonic = monotonic
        self._cluster_id = cluster_id
        self._read_every = read_every
        self._opened: dict[str, Runs] = {}
        self._known: dict[RunKey, _Known] = {}

    @property
    def cluster_id(self) -> str:
        """Which cluster this is, as names and heads say it."""
        return self._cluster_id

    def problem(self, run: AgentRun) -> StoreProblem | None:
        """Return why the run cannot have its store at present. Raises NotYet."""
        entry = self._file.entry(run.spec.store.name, run.namespace)
        barred = entry if isinstance(entry, StoreProblem) else self._barred(run.spec.store.name)
        if isinstance(barred, NotYet):
            raise barred
        return barred

    async def in_use(self) -> list[tuple[str, StoreEntry, Runs]]:
        """Return every store that may be used at present. Raises as `milepost.checkpoint.runs` does."""
        usable = [(name, entry) for name, entry in self._file.stores.items() if self._barred(name) is None]
        return [(name, entry, await self._open(name, entry)) for name, entry in usable]

    def access(self, run: AgentRun) -> StoreAccess:
        """Return how an executor of the run reaches its store, which the stores file must grant it."""
        return self._entry(run).access

    def _entry(self, run: AgentRun) -> StoreEntry:
        entry = self._file.entry(run.spec.store.name, run.namespace)
        assert isinstance(entry, StoreEntry), "whoever comes here has asked for problems"
        return entry

    def uri(self, run: AgentRun) -> str:
        """Return where the run's store is, for people."""
        opened = self._opened.get(run.spec.store.name)
        return opened.store.uri if opened else ""

    def forget(self, key: RunKey) -> None:
        """Drop what is kept about a resource that no longer exists."""
        self._known.pop(key, None)

    async def read(self, run: AgentRun, *, afresh: bool, touched: bool = False) -> Recorded:
        """Return what the store says of the run's name.

        `afresh`: ask the store for all of it. `touched`: something happened, so ask for the head now.
        Raises what `milepost.checkpoint.runs` raises.
        """
        key = RunKey(run.namespace, run.name)
        known = self._known.get(key)
        usable = known is not None and known.uid == run.uid and known.recorded.name is not None
        if usable and not afresh and known is not None:
            if not touched and self._monotonic() - known.read_at < self._read_every:
                return known.recorded
            name = known.recorded.name
        else:
            runs = await self._runs(run)
            name = await self._call(runs.look_up, run.namespace, run.name)
        recorded = await self._follow(run, name, known.recorded.head if usable and known else None)
        self._known[key] = _Known(run.uid, recorded, self._monotonic())
        return recorded

    async def _follow(self, run: AgentRun, name: NameSeen | None, before: HeadSeen | None) -> Recorded:
        if name is None:
            return Recorded()
        runs = await self._runs(run)
        keys = StoreKeys(run.namespace, name.record.run_id)
        etag = before.etag if before else ""
        seen = await self._call(runs.observe, keys, unless_etag=etag)
        if seen is None and name.record.state is NameState.EXPIRED:
            return Recorded(name)
        if seen is None:
            # It may have been deleted since its name was read. Only if the name still stands it is damage.
            again = await self._call(runs.look_up, run.namespace, run.name)
            if again is None or again.etag != name.etag:
                return await self._follow(run, again, None)
        seen = require_head(seen, keys)
        return Recorded(name, before if isinstance(seen, Unchanged) else seen)

    async def answered(self, run: AgentRun, head: HeadSeen, now: datetime) -> bool:
        """Tell whether an open gate has its answer, having given those that only the clock can give.

        Raises as `read` does.
        """
        runs = await self._runs(run)
        return await self._call(_look_into_inbox, runs, head, now)

    async def act(self, run: AgentRun, digest: str, action: StoreAction, recorded: Recorded) -> None:
        """Carry out what changes the run's record, from what was read before. Raises Stale, and as `read`."""
        runs = await self._runs(run)
        self._known.pop(RunKey(run.namespace, run.name), None)
        new = NewRun(run.namespace, run.name, run.uid, self._cluster_id, run.spec, digest)
        match action, recorded:
            case StartRun(), _:
                await self._call(runs.start, new)
            case Adopt(), Recorded(NameSeen() as name, HeadSeen() as head):
                await self._call(runs.adopt, run.namespace, name, head, run.uid, cluster=self._cluster_id)
            case Supersede(), Recorded(NameSeen() as name, head):
                await self._call(runs.supersede, name, head, new)
            case NoteOutcome(outcome), Recorded(NameSeen() as name, _):
                await self._call(runs.note_outcome, run.namespace, name, outcome)
            case NoteRetention(policy, retention_s), Recorded(NameSeen() as name, _):
                await self._call(
                    runs.note_retention,
                    run.namespace,
                    name,
                    deletion_policy=policy,
                    retention_s=retention_s,
                )
            case EndRun(), Recorded(_, HeadSeen() as head):
                await self._end(runs, run, action, head)
            case _:
                raise Stale("the run's record is no longer there")

    async def _end(self, runs: Runs, run: AgentRun, action: EndRun, head: HeadSeen) -> None:
        """End the run. Cancelling does not depend on the step, so a race with the executor is repeated."""
        keys = StoreKeys(run.namespace, head.summary.run_id)
        for _ in range(_TRIES_TO_CANCEL):
            try:
                await self._call(
                    runs.end, head, phase=action.phase, reason=action.reason, message=action.message
                )
            except Stale:
                seen = await self._call(runs.observe, keys)
                if action.phase is not Phase.CANCELLED or not isinstance(seen, HeadSeen):
                    raise
                if seen.summary.phase.terminal:
                    return
                head = seen
            else:
                return
        raise Stale(f"run {head.summary.run_id} records faster than it can be cancelled")

    async def _runs(self, run: AgentRun) -> Runs:
        return await self._open(run.spec.store.name, self._entry(run))

    async def _open(self, name: str, entry: StoreEntry) -> Runs:
        if name not in self._opened:
            folder = self._credentials / name if entry.credentials else None
            store = await self._call(self._open_store, entry, folder)
            self._opened[name] = Runs(store, self._clock, self._entropy)
        return self._opened[name]

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))


def _look_into_inbox(runs: Runs, head: HeadSeen, now: datetime) -> bool:
    """Tell whether an open gate has its answer: by one listing, however many gates there are."""
    keys, halted = head.at.head.keys, head.summary.phase is Phase.HALTED
    # A halted run goes on by the answer to its halt; its other gates are passed after that.
    gates = [gate for gate in head.at.head.gates if not halted or gate.type is GateType.HALT]
    if not gates:
        return False
    there = {each.key for each in runs.store.list(keys.inbox)}
    answered = False
    for gate in gates:
        if keys.answer(gate.id) in there:
            answered = True
        elif (told := due(gate, now)) is not None:
            answer = inbox.Answer(gate.id, told, by="operator", at=now.isoformat())
            inbox.give(runs.store, keys, answer, Patience(runs.entropy, deadline=_PATIENCE_S))
            answered = True
    return answered
