"""The peers' sides of the benches: which there are, where each one stores, and how much it stored there.

Each measurement has a fresh database, folder or prefix. What a peer keeps anyway, such as its tables, is
taken off: it is measured after a run of one step, and with it that step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.ours import Bucket
from tests.bench.peer import Peer, Unavailable
from tests.bench.postgres import Postgres

__all__ = ["DBOS", "LANGGRAPH", "Rival", "rivals"]

LANGGRAPH = Peer("langgraph", "tests.bench.peers.langgraph_graph")
DBOS = Peer("dbos", "tests.bench.peers.dbos_workflow")


@dataclass(frozen=True)
class Room:
    """A fresh place for one measurement: the settings that name it, and the bytes that are in it."""

    settings: dict[str, Any]
    size: Callable[[], int]


@dataclass(frozen=True)
class Rival:
    """One peer with one place to store in."""

    name: str
    peer: Peer
    room: Callable[[], Room]
    _empty: dict[str, int] = field(default_factory=dict)

    def stores(self, case: str, **settings: Any) -> dict[str, Any]:
        """Return the figures of a case, and the bytes that it stored. Raises Unavailable."""
        if case not in self._empty:
            first = self.room()
            self.peer.ask(case, **{**settings, "total": 1, "opening": 1}, **first.settings)
            self._empty[case] = first.size()
        room = self.room()
        figures = self.peer.ask(case, **settings, **room.settings)
        return {**figures, "stored_bytes": room.size() - self._empty[case]}

    def asks(self, case: str, **settings: Any) -> dict[str, Any]:
        """Return the figures of a case. Raises Unavailable."""
        return self.peer.ask(case, **settings, **self.room().settings)


@dataclass
class Rooms:
    """Makes fresh places in a folder, a database server and a bucket."""

    folder: Path
    server: Postgres | str
    bucket: Bucket
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def langgraph_sqlite(self) -> Room:
        """Return a new file."""
        file = self._file()
        return Room({"saver": {"kind": "sqlite", "path": str(file)}}, lambda: _bytes(file))

    def langgraph_postgres(self) -> Room:
        """Return a new database. Raises Unavailable."""
        server, name = self._server(), self._name()
        return Room({"saver": {"kind": "postgres", "dsn": server.create(name)}}, lambda: server.size(name))

    def langgraph_s3(self) -> Room:
        """Return a new prefix in the bucket."""
        at, prefix = self.bucket.server, f"rivals/{self._name()}"
        saver = {
            "kind": "s3",
            "url": f"s3://{at.bucket}/{prefix}",
            "key": at.access_key,
            "secret": at.secret_key,
            "endpoint": at.endpoint,
            "region": at.region,
        }
        return Room({"saver": saver}, lambda: self.bucket.stored(prefix))

    def dbos_sqlite(self) -> Room:
        """Return a new file."""
        file = self._file()
        return Room({"url": f"sqlite:///{file}"}, lambda: _bytes(file))

    def dbos_postgres(self) -> Room:
        """Return a new database. Raises Unavailable."""
        server, name = self._server(), self._name()
        return Room({"url": server.create(name)}, lambda: server.size(name))

    def _name(self) -> str:
        return f"room{next(self._numbers)}"

    def _file(self) -> Path:
        folder = self.folder / self._name()
        folder.mkdir()
        return folder / "bench.sqlite"

    def _server(self) -> Postgres:
        if isinstance(self.server, str):
            raise Unavailable(self.server)
        return self.server


def rivals(folder: Path, server: Postgres | str, bucket: Bucket) -> list[Rival]:
    """Return all peers, in the order in which they are measured."""
    rooms = Rooms(folder, server, bucket)
    return [
        Rival("langgraph-sqlite", LANGGRAPH, rooms.langgraph_sqlite),
        Rival("langgraph-postgres", LANGGRAPH, rooms.langgraph_postgres),
        Rival("langgraph-s3", LANGGRAPH, rooms.langgraph_s3),
        Rival("dbos-sqlite", DBOS, rooms.dbos_sqlite),
        Rival("dbos-postgres", DBOS, rooms.dbos_postgres),
    ]


def _bytes(file: Path) -> int:
    """Return the bytes of a database's file and of the logs beside it."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))
