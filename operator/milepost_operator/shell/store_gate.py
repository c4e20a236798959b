"""Whether a store may be used: whose prefix it is, and whether it was caught breaking a promise.

Each store is examined at the start, once a day, and whenever the operator's credentials for it have changed:
it is claimed for this cluster (`milepost.checkpoint.owner`) and probed (`milepost.checkpoint.probe`), in a
thread of its own, one probe of a store at a time. Until it has passed, its runs wait; other stores' do not.

The surprise: once admitted, a store stays so while it gives no answer, or refuses the operator's keys. That
shows in each run anyway, and says nothing of what it keeps. A failed check or another owner closes it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from milepost.api.names import Entropy
from milepost.checkpoint.owner import claim_prefix
from milepost.checkpoint.probe import BRIEF, FOLDER, Effort, Report, probe
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store
from milepost.errors import MilepostError, StoreOwnedElsewhere, StoreRefused, StoreUnavailable
from milepost_operator.core.observation import StoreProblem
from milepost_operator.shell.stores import NotYet, as_problem
from milepost_operator.shell.stores_file import StoreEntry, StoresFile

__all__ = ["Often", "StoreGate"]

log = structlog.get_logger(__name__)

_NONCE: Final = re.compile(rf"{FOLDER}[0-9a-f]+/[^\s:]+")
# A server may make writers of one key wait for one another for half a minute.
_DEADLINE_S: Final = 60.0
_CLAIM_WITHIN_S: Final = 5.0

Opening: TypeAlias = Callable[[StoreEntry, Path | None], Store]
"""Opens an entry with the operator's own credentials in a folder, or with none."""


@dataclass(frozen=True)
class Often:
    """When a store is examined again, after what was found; how often its keys and owner are looked at.

    All in seconds. `quiet` is for how long runs are held back without a word before the first verdict.
    """

    passed: float = 24 * 3600.0
    unsafe: float = 600.0
    otherwise: float = 15.0
    look: float = 30.0
    quiet: float = 10.0


class StoreGate:
    """What is known of each store of the stores file. `watch` finds it out; `barred` tells it."""

    def __init__(
        self,
        file: StoresFile,
        credentials: Path,
        open_store: Opening,
        open_patiently: Opening,
        *,
        cluster_id: str,
        entropy: Entropy,
        monotonic: Callable[[], float],
        on_change: Callable[[str], None],
        effort: Effort = BRIEF,
        often: Often = Often(),
        deadline: float = _DEADLINE_S,
    ) -> None:
        """Take the folder of the operator's credentials, and what to call with the name of a changed store.

        `open_patiently` opens a store for the probe, whose writers may wait long for one another; for so many
        seconds an unclear answer of theirs is followed up.
        """
        self._stores = file.stores
        self._credentials = credentials
        self._open_store = open_store
        self._open_patiently = open_patiently
        self._cluster_id = cluster_id
        self._entropy = entropy
        self._monotonic = monotonic
        self._on_change = on_change
        self._effort = effort
        self._often = often
        self._deadline = deadline
        self._began = monotonic()
        self._verdicts: dict[str, StoreProblem | None] = {}
        # For the looks between two examinations: opening one costs more than the look.
        self._opened: dict[str, Store] = {}
        self._stopped = threading.Event()

    def barred(self, name: str) -> StoreProblem | NotYet | None:
        """Return why the store must not be used at present; None where it may be."""
        if name in self._verdicts:
            return self._verdicts[name]
        if self._monotonic() - self._began < self._often.quiet:
            return NotYet(name)
        return StoreProblem(
            "StoreBeingChecked",
            f"store {name!r} is being checked before its first use, which takes a minute on some servers",
        )

    async def watch(self) -> None:
        """Examine every store, again and again, until cancelled."""
        pool = ThreadPoolExecutor(max(len(self._stores), 1), thread_name_prefix="gate")
        try:
            async with asyncio.TaskGroup() as group:
                for name, entry in self._stores.items():
                    group.create_task(self._keep(name, entry, pool))
        finally:
            self._stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    async def _keep(self, name: str, entry: StoreEntry, pool: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            keys = await loop.run_in_executor(pool, self._keys, name)
            self._opened.pop(name, None)
            wait = await loop.run_in_executor(pool, self._examine, name, entry)
            due = self._monotonic() + wait
            while self._monotonic() < due:
                await asyncio.sleep(min(self._often.look, max(due - self._monotonic(), 0)))
                if await loop.run_in_executor(pool, self._keys, name) != keys:
                    log.info("credentials changed", store=name)
                    break
                if await loop.run_in_executor(pool, self._is_taken, name, entry):
                    break

    def _examine(self, name: str, entry: StoreEntry) -> float:
        """Examine a store, keep what was found, and return in how many seconds to look again."""
        try:
            report = self._probed(name, entry)
        except MilepostError as error:
            self._settle(name, _as_steady_problem(error), proved=_proves(error))
            return self._often.otherwise
        log.info("store checked", store=name, report=report.as_json())
        if report.unsafe:
            self._settle(name, _unsafe(report))
            return self._often.unsafe
        self._settle(name, None)
        return self._often.passed

    def _probed(self, name: str, entry: StoreEntry) -> Report:
        self._claim(name, entry)
        store = self._open_patiently(entry, self._folder(name, entry))
        return probe(store, patience=self._patience(self._deadline), effort=self._effort)

    def _is_taken(self, name: str, entry: StoreEntry) -> bool:
        """Tell whether an admitted store has another owner now."""
        if self._verdicts.get(name) is not None:
            return False
        try:
            self._claim(name, entry)
        except StoreOwnedElsewhere:
            return True
        except MilepostError:
            # Nothing is known of the owner, and whoever needs the store will meet the same.
            return False
        return False

    def _claim(self, name: str, entry: StoreEntry) -> None:
        if name not in self._opened:
            self._opened[name] = self._open_store(entry, self._folder(name, entry))
        patience = self._patience(_CLAIM_WITHIN_S)
        claim_prefix(self._opened[name], self._cluster_id, recover_from=entry.recover_from, patience=patience)

    def _folder(self, name: str, entry: StoreEntry) -> Path | None:
        return self._credentials / name if entry.credentials else None

    def _patience(self, deadline: float) -> Patience:
        return Patience(self._entropy, deadline=deadline, monotonic=self._monotonic, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise StoreUnavailable(FOLDER, waited=0.0, cause="the operator is stopping")

    def _settle(self, name: str, found: StoreProblem | None, *, proved: bool = True) -> None:
        """Keep a verdict, and tell of it if it is another one. What proves nothing closes no open store."""
        if name in self._verdicts:
            before = self._verdicts[name]
            if found == before or (before is None and not proved):
                return
        self._verdicts[name] = found
        if found is None:
            log.info("store admitted", store=name)
        else:
            log.error("store refused", store=name, reason=found.reason, message=found.message)
        self._on_change(name)

    def _keys(self, name: str) -> bytes:
        """Return a digest of the operator's credentials for the store, as they lie in their folder."""
        digest = hashlib.sha256()
        for part in ("access-key-id", "secret-access-key", "session-token"):
            try:
                digest.update(hashlib.sha256((self._credentials / name / part).read_bytes()).digest())
            except OSError:
                digest.update(b"-")
        return digest.digest()


def _proves(error: MilepostError) -> bool:
    """Tell whether an error says something of what the store keeps, and not of who may ask it, or when."""
    return isinstance(error, StoreOwnedElsewhere) or not isinstance(error, StoreUnavailable | StoreRefused)


def _as_steady_problem(error: MilepostError) -> StoreProblem:
    """Return the problem in words that are the same each time, since they stand in a status."""
    if isinstance(error, StoreUnavailable):
        return StoreProblem(
            "StoreUnavailable",
            "the store gives no clear answer to the check that comes before its use, and is asked again; "
            f"last: {_NONCE.sub(FOLDER, error.cause)}",
        )
    problem = as_problem(error)
    if problem is None:
        raise error
    return StoreProblem(problem.reason, _NONCE.sub(FOLDER, problem.message), problem.halts)


def _unsafe(report: Report) -> StoreProblem:
    failed = "; ".join(f"{check.name}: {check.detail}" for check in report.unsafe)
    return StoreProblem(
        "StoreUnsafe",
        f"{report.store} must not be used, since two executors could both write one run. {failed}. Use "
        "another server, or a newer version of this one; `milepost store check` makes the same checks",
    )
