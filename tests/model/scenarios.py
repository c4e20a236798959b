"""The scenarios: each a small model of its own, with a stated bound, walked through all its interleavings."""

from __future__ import annotations

from typing import Any

from tests.model.bystanders import Damager, Reader, Sweep
from tests.model.code import Code
from tests.model.executors import Executor, Plan
from tests.model.finishing import FreshOperator, FreshPod
from tests.model.life_scenarios import LIFE_SCENARIOS
from tests.model.operators import Operator, Pod, User, applied
from tests.model.passes import Resource
from tests.model.pasts import FAT, begun, grown, named
from tests.model.replay import Replayer
from tests.model.scenario import AFTER_ALL, ANSWERS, RUN, SOON, Model, Scenario, walk
from tests.model.tables import Tables
from tests.model.truth import Truth
from tests.model.world import Process, Program, World, Worlds

__all__ = ["RUN", "SCENARIOS", "Model", "Scenario", "scenario", "walk"]


def _executors(
    code: Code,
    *,
    executors: int,
    groups: tuple[tuple[str, ...], ...],
    faults: int,
    crashes: int,
    past: int = 0,
    bases: tuple[int, ...] = (),
    kinds: tuple[str, ...] = (),
    readings: int = 0,
    sweeps: int = 0,
    damages: int = 0,
    **plan: Any,
) -> Model:
    """Return pods on one run, with a past of so many steps, and who else is around it."""
    tables = Tables(code)
    truth = Truth(tables, damaging=bool(damages))
    first = 2 if past else 1
    attempts = range(first, first + executors)
    programs: list[Program] = [Executor(f"pod {n}", tables, truth, Plan(groups, **plan)) for n in attempts]
    actors = [Executor.born(RUN, n) for n in attempts]
    if readings:
        programs.append(Reader(tables, truth, RUN))
        actors.append(Process(readings))
    if sweeps:
        programs.append(Sweep("the sweeper", SOON))
        actors.append(Process(sweeps))
    if damages:
        programs.append(Damager(tables, RUN))
        actors.append(Process(damages))
    objects = grown(tables, RUN, past, bases=bases) if past else begun(tables, RUN)
    initial = World(objects, tuple(actors), faults=faults, crashes=crashes)
    worlds = Worlds(
        tuple(programs),
        Replayer(tables),
        say=tables.say,
        kinds=kinds,
        deletes=bool(sweeps),
        apply=code.bucket,
    )
    return Model(worlds, truth, initial, FreshPod(tables, truth, Plan(groups, **plan), RUN))


def _names(
    code: Code,
    *,
    versions: tuple[Resource | None, ...],
    operators: int,
    passes: int,
    pods: int,
    faults: int,
    crashes: int,
    sweepers: int = 0,
    sweeps: int = 1,
    has_begun: bool = False,
) -> Model:
    """Return operators, sweepers and pods around one name, and the user who applies these versions."""
    tables = Tables(code)
    truth = Truth(tables)
    programs: list[Program] = [Operator(f"operator {n}") for n in range(1, operators + 1)]
    actors = [Process(passes) for _ in programs]
    for number in range(1, pods + 1):
        programs.append(Pod(f"pod {number}", tables, truth, Plan(ONE)))
        actors.append(Executor.born("", 0))
    for number in range(1, sweepers + 1):
        programs.append(Sweep(f"sweeper {number}", AFTER_ALL))
        actors.append(Process(sweeps))
    programs.append(User(tables, versions))
    actors.append(Process(len(versions) - 1))
    objects = applied(tables, (), versions[0])
    if has_begun:
        objects = named(tables, objects)
    initial = World(objects, tuple(actors), faults=faults, crashes=crashes)
    worlds = Worlds(tuple(programs), Replayer(tables), say=tables.say, deletes=True, apply=code.bucket)
    return Model(worlds, truth, initial, FreshOperator(tables, truth, Plan(ONE)))


THREE = (("a",), ("b",), ("c",))
TWO = THREE[:2]
ONE = THREE[:1]
FATTEN: dict[str, Any] = {"size": FAT, "plain": frozenset("abc")}
CALM: dict[str, Any] = {"faults": 0, "crashes": 0}

FIRST = Resource("uid-1", "A")
AGAIN = Resource("uid-2", "A")
OTHER = Resource("uid-3", "B")
DELETED = Resource("uid-1", "A", "Delete")
ANEW = Resource("uid-2", "B", "Delete")

SCENARIOS = (
    Scenario(
        "two executors",
        "two pods on one run of three keyed steps",
        _executors,
        {"executors": 2, "groups": THREE, "faults": 1, "crashes": 0},
        {"crashes": 1},
    ),
    Scenario(
        "three executors",
        "three pods on one run of two keyed steps",
        _executors,
        {"executors": 3, "groups": TWO, **CALM},
        {"crashes": 1},
    ),
    Scenario(
        "a crash",
        "two pods on one run of two keyed steps; one of them dies anywhere and comes back",
        _executors,
        {"executors": 2, "groups": TWO, "faults": 0, "crashes": 1},
        {"faults": 1},
    ),
    Scenario(
        "answers",
        "a writer and its successor, and every answer that a store may give to a write",
        _executors,
        {"executors": 2, "groups": ONE, "faults": 2, "crashes": 0, "kinds": ANSWERS},
        {"groups": TWO},
    ),
    Scenario(
        "calls in flight",
        "two pods on one run of two keyed steps side by side; calls are lost, come late, outlive their pod",
        _executors,
        {"executors": 2, "groups": (("a", "b"),), "faults": 1, "crashes": 0},
        {"groups": (("a", "b"), ("c",)), "crashes": 1},
    ),
    Scenario(
        "every so many steps",
        "two pods, everySteps 2, a step that gives each another result, and a keyed one that it goes into",
        _executors,
        {"executors": 2, "groups": TWO, "plain": frozenset("a"), "every": 2, "faults": 0, "crashes": 1},
        {"groups": THREE, "faults": 1},
    ),
    Scenario(
        "sealing",
        "two pods whose every step seals a segment, and a base at the end",
        _executors,
        {"executors": 2, "groups": THREE, **FATTEN, "faults": 1, "crashes": 0},
        {"crashes": 1},
    ),
    Scenario(
        "merging",
        "two pods, the next step of which merges segments, and a sweeper",
        _executors,
        {"executors": 2, "groups": ONE, **FATTEN, "past": 4, "sweeps": 1, **CALM},
        {"faults": 1},
    ),
    Scenario(
        "reading",
        "a pod that merges segments, a sweeper, and a reader of the whole history",
        _executors,
        {
            "executors": 1,
            "groups": ONE,
            **FATTEN,
            "past": 4,
            "sweeps": 1,
            "readings": 1,
            "faults": 1,
            "crashes": 0,
        },
        {"executors": 2, "faults": 0, "readings": 1},
    ),
    Scenario(
        "bases",
        "two pods, the end of which writes a fourth base, while one that is named is lost or changed",
        _executors,
        {"executors": 2, "groups": ONE, **FATTEN, "past": 4, "bases": (2, 3, 4), "damages": 1, **CALM},
        {"damages": 2},
    ),
    Scenario(
        "pruning bases",
        "two pods, the end of which writes a fourth base, and a sweeper",
        _executors,
        {"executors": 2, "groups": ONE, **FATTEN, "past": 4, "bases": (2, 3, 4), "sweeps": 1, **CALM},
        {"faults": 1},
    ),
    Scenario(
        "blobs",
        "two pods that store a result as a blob before its record, and a sweeper",
        _executors,
        {
            "executors": 2,
            "groups": ONE,
            "blobs": True,
            "size": FAT + 1000,
            "sweeps": 1,
            "faults": 1,
            "crashes": 0,
        },
        {"groups": TWO},
    ),
    Scenario(
        "adoption",
        "two operators, and a manifest that is deleted and applied again",
        _names,
        {"versions": (FIRST, AGAIN), "operators": 2, "passes": 2, "pods": 0, "faults": 0, "crashes": 1},
        {"pods": 1, "crashes": 0},
    ),
    Scenario(
        "another spec",
        "two operators, and a manifest that is deleted and applied with another spec",
        _names,
        {"versions": (FIRST, OTHER), "operators": 2, "passes": 2, "pods": 0, "faults": 1, "crashes": 0},
        {"pods": 2, "faults": 0},
    ),
    Scenario(
        "deletion",
        "a run whose checkpoints go with its resource, its pod, and a sweeper",
        _names,
        {
            "versions": (DELETED, None),
            "operators": 0,
            "passes": 0,
            "pods": 1,
            "sweepers": 1,
            "has_begun": True,
            "faults": 1,
            "crashes": 0,
        },
        {"faults": 0, "crashes": 1, "sweeps": 2},
    ),
    Scenario(
        "deleted and applied anew",
        "such a run, a sweeper, an operator, and a manifest of another spec under the same name",
        _names,
        {
            "versions": (DELETED, ANEW),
            "operators": 1,
            "passes": 2,
            "pods": 0,
            "sweepers": 1,
            "has_begun": True,
            **CALM,
        },
        {"pods": 1},
    ),
    Scenario(
        "retention",
        "a run that ends, a sweeper to which its retention is over, an operator, and the manifest again",
        _names,
        {
            "versions": (FIRST, AGAIN),
            "operators": 1,
            "passes": 1,
            "pods": 1,
            "sweepers": 1,
            "has_begun": True,
            **CALM,
        },
        {"passes": 2, "versions": (FIRST, OTHER)},
    ),
    Scenario(
        "two sweepers",
        "two sweepers on a run whose resource goes",
        _names,
        {
            "versions": (DELETED, None),
            "operators": 0,
            "passes": 0,
            "pods": 0,
            "sweepers": 2,
            "has_begun": True,
            **CALM,
        },
        {"crashes": 1},
    ),
    Scenario(
        "unnamed heads",
        "two operators that begin a run, and a sweeper to which every head without a name is old",
        _names,
        {
            "versions": (FIRST,),
            "operators": 2,
            "passes": 1,
            "pods": 0,
            "sweepers": 1,
            "faults": 0,
            "crashes": 1,
        },
        {"passes": 2},
    ),
    *LIFE_SCENARIOS,
)


def scenario(name: str) -> Scenario:
    """Return the scenario of this name."""
    return next(each for each in SCENARIOS if each.name == name)
