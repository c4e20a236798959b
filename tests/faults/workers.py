"""Do tasks on all cores: each worker is a process with a scene of its own, on stores that they share.

Workers are started anew, not forked, and build their scenes when the first task asks for one. What a task
comes to is given back in the order in which tasks end.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

from tests.faults.campaign import Clean, Outcome, Task, perform
from tests.faults.processes import Forked, Spawned, Starter
from tests.faults.scene import Scene
from tools.cluster.interface import S3Server

__all__ = ["Plan", "Scenes", "do_all", "scenes"]


@dataclass(frozen=True)
class Plan:
    """What all tasks have in common. `stores` are by name, `clean` runs by agent."""

    stores: Mapping[str, S3Server]
    clean: Mapping[str, Clean]
    seed: int
    journals: Path
    spawn: bool = False


class Scenes:
    """A scene for each store, made when it is asked for."""

    def __init__(
        self, stores: Mapping[str, S3Server], folder: Path, starter: Starter, open_: ExitStack
    ) -> None:
        self._stores = stores
        self._folder = folder
        self._starter = starter
        self._open = open_
        self._made: dict[str, Scene] = {}

    def on(self, store: str) -> Scene:
        """Return the scene on this store."""
        if store not in self._made:
            folder = self._folder / store
            folder.mkdir()
            self._made[store] = self._open.enter_context(Scene.at(self._stores[store], folder, self._starter))
        return self._made[store]


@contextmanager
def scenes(stores: Mapping[str, S3Server], *, spawn: bool = False) -> Iterator[Scenes]:
    """Yield scenes whose executors are forked, or with `spawn` started as fresh interpreters."""
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="milepost-faults-", ignore_cleanup_errors=True)
        )
        starter: Starter = Spawned() if spawn else stack.enter_context(Forked())
        yield Scenes(stores, Path(folder), starter, stack)


def do_all(tasks: Sequence[Task], plan: Plan, workers: int) -> Iterator[Outcome]:
    """Do all tasks with so many workers, and yield what each came to as it ends."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _enter, (plan,)) as pool:
        for done in as_completed([pool.submit(_do, task) for task in tasks]):
            yield done.result()


_here: Final[list[tuple[Plan, Scenes]]] = []
"""The worker's own plan and scenes; a process is one worker."""


def _enter(plan: Plan) -> None:
    stack = ExitStack()
    _here.append((plan, stack.enter_context(scenes(plan.stores, spawn=plan.spawn))))
    # A worker ends without running what other programs run at their end.
    Finalize(None, stack.close, exitpriority=1)


def _do(task: Task) -> Outcome:
    plan, own = _here[0]
    return perform(own.on(task.store), task, plan.clean[task.agent], seed=plan.seed, journals=plan.journals)
