"""A run in memory once more from each of its writes on: what the next process finds wherever one was lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override

from tests.support.sessions import RunInMemory
from tests.support.store_doubles import FaultyStore

__all__ = ["each_resume", "resumed_after"]


@dataclass
class _Resumed(RunInMemory):
    @override
    def __post_init__(self) -> None:
        """Leave the store as it is: the run is in it already."""


def resumed_after(run: RunInMemory, writes: int) -> RunInMemory:
    """Return the run as it was after so many of its writes. What was made of it stays as it is."""
    store = FaultyStore()
    for put in run.store.puts[:writes]:
        if put.etag:
            store.put_if(put.key, put.body, put.metadata, etag=put.etag)
        else:
            store.put_new(put.key, put.body, put.metadata)
    return _Resumed(store=store, step_attempts=run.step_attempts, attempt=run.attempt)


def each_resume(run: RunInMemory) -> Iterator[RunInMemory]:
    """Return the run as it was after each of its writes, the last one included."""
    return (resumed_after(run, writes) for writes in range(1, len(run.store.puts) + 1))
