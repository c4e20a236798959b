"""A receiver with a memory, as a file: what an agent's tools act on in a test, in place of the real service.

It knows by its key what it has applied, as a payment service does that takes idempotency keys. A call
without a key it applies each time, as most services do. What it was told survives the process that told it,
and several processes may talk to it at once.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["FOLDER", "Ledger", "Received"]

FOLDER: Final = "MILEPOST_TEST_FOLDER"
"""The environment variable that holds the folder which stands for the outside world in a test."""

_FILE: Final = "ledger.db"

_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS received (number INTEGER PRIMARY KEY, key TEXT, what TEXT, applied INTEGER);
    CREATE UNIQUE INDEX IF NOT EXISTS once ON received (key) WHERE applied AND key IS NOT NULL;
"""

_PATIENCE: Final = 30.0


@dataclass(frozen=True)
class Received:
    """One call that reached the ledger: its key, what it was about, and whether it was applied."""

    key: str | None
    what: Any
    applied: bool


class Ledger:
    """What was received and applied, in a file that is made when it is needed."""

    def __init__(self, file: Path | str) -> None:
        self.file = Path(file)

    @classmethod
    def in_folder(cls, folder: Path | str) -> Self:
        """Return the ledger of a folder that stands for the outside world."""
        return cls(Path(folder) / _FILE)

    @classmethod
    def from_environment(cls) -> Self:
        """Return the ledger of the test that this process belongs to. Raises KeyError outside of one."""
        folder = os.environ.get(FOLDER, "")
        if not folder:
            raise KeyError(f"{FOLDER} is not set: only a test of milepost.testing has a ledger")
        return cls.in_folder(folder)

    def apply(self, key: str | None, what: Any = None) -> bool:
        """Apply `what`, which is JSON, and tell whether it was: not where the key has been applied before.

        Without a key it is applied each time. Raises ValueError where the key was applied for something else.
        """
        text = json.dumps(what, sort_keys=True)
        with self._open() as ledger:
            before = None
            if key is not None:
                asked = ledger.execute("SELECT what FROM received WHERE applied AND key = ?", (key,))
                before = asked.fetchone()
            ledger.execute(
                "INSERT INTO received (key, what, applied) VALUES (?, ?, ?)", (key, text, before is None)
            )
        if before is not None and before[0] != text:
            raise ValueError(f"key {key} was applied for {before[0]}, and is now for {text}")
        return before is None

    def received(self) -> list[Received]:
        """Return every call that reached it, in order."""
        if not self.file.exists():
            return []
        with self._open() as ledger:
            rows = ledger.execute("SELECT key, what, applied FROM received ORDER BY number").fetchall()
        return [Received(key, json.loads(what), bool(applied)) for key, what, applied in rows]

    def applied(self) -> list[Any]:
        """Return what was applied, in order."""
        return [each.what for each in self.received() if each.applied]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction that keeps every other writer out until it ends."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.file, timeout=_PATIENCE, isolation_level=None)) as ledger:
            # It has to survive the end of a process, and not that of the machine.
            ledger.execute("PRAGMA synchronous = OFF")
            ledger.execute("BEGIN IMMEDIATE")
            for statement in filter(str.strip, _TABLE.split(";")):
                ledger.execute(statement)
            try:
                yield ledger
            except BaseException:
                ledger.execute("ROLLBACK")
                raise
            ledger.execute("COMMIT")
