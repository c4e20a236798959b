"""What a scenario is: a small model with a stated bound, walked through all its interleavings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.model.code import Code
from tests.model.explore import Exploration, explore
from tests.model.finishing import Finisher
from tests.model.truth import Truth
from tests.model.world import World, Worlds

__all__ = ["AFTER_ALL", "ANSWERS", "RUN", "SOON", "Break", "Model", "Scenario", "walk"]

RUN = "a" * 20
SOON = 2000.0
"""An age at which all that a head has passed over may go, and nothing's retention is over."""
AFTER_ALL = 1e9
"""An age at which everything that can ever go by its age goes."""

ANSWERS = ("undecided", "expired", "clash", "stored without etag")


@dataclass(frozen=True)
class Model:
    """A scenario that is ready to be walked. `finisher` tells whether somebody fresh can end the run."""

    worlds: Worlds
    truth: Truth
    initial: World
    finisher: Finisher | None = None


@dataclass(frozen=True)
class Scenario:
    """`words` says who is in it and what may happen; `bound` is the default, `deeper` that of a full run."""

    name: str
    words: str
    build: Callable[..., Model]
    bound: dict[str, Any]
    deeper: dict[str, Any] = field(default_factory=dict)

    def model(self, code: Code | None = None, *, full: bool = False, **changes: Any) -> Model:
        """Return the scenario's model, with the product's code or a broken one, and a changed bound."""
        return self.build(code or Code(), **(self.bound | (self.deeper if full else {}) | changes))


@dataclass(frozen=True)
class Break:
    """A guard that is taken away, and the scenario that shows what it was for.

    `finish`: it is found by somebody fresh who cannot end the run. All others have to show without.
    """

    name: str
    scenario: str
    code: Code
    bound: Mapping[str, Any] = field(default_factory=dict)
    finish: bool = False


def walk(model: Model, *, most: int = 5_000_000, finish: bool = True) -> Exploration[World]:
    """Walk through all states of a model; if `finish`, somebody fresh has to end the run from quiet ones."""
    worlds, truth = model.worlds, model.truth

    def moves(world: World) -> Any:
        for words, after in worlds.moves(world):
            if not after.wrong and (wrong := truth.between(world.objects, after.objects)):
                yield words, after._replace(wrong=wrong)
            else:
                yield words, after

    def wrong(world: World) -> str:
        found = truth.wrong(world)
        return found or (model.finisher.wrong(world) if finish and model.finisher else "")

    with _quiet():
        try:
            return explore(model.initial, moves, wrong, most=most)
        finally:
            worlds.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Let nobody log: thousands of processes have their say, of which most never were."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)
