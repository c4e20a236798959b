"""Models of whole executors on one run, with the people around it; and somebody fresh who ends the run.

From a quiet state pods of new attempts are started one after another. Where the run waits or has halted,
somebody fresh answers what is asked, until the run has ended well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from milepost.api.resource import Phase
from milepost.checkpoint.gates import AnswerType
from tests.model.bystanders import Sweep
from tests.model.code import Code
from tests.model.pasts import begun
from tests.model.people import Answers, Decides, LooksAtClock, Sends
from tests.model.pods import Life, LivingPod
from tests.model.replay import Replayer
from tests.model.scenario import AFTER_ALL, RUN, Model
from tests.model.tables import Tables
from tests.model.truth import Log, Truth
from tests.model.world import Process, Program, World, Worlds

__all__ = ["lives"]

_FRESH = 91
_MOST_LIVES = 9
_ENOUGH = 100


def lives(
    code: Code,
    *,
    agent: str,
    pods: int,
    faults: int,
    crashes: int,
    people: Sequence[tuple[str, AnswerType]] = (),
    events: Sequence[tuple[str, str]] = (),
    clocks: int = 0,
    deciders: int = 0,
    sweeps: int = 0,
    halts: frozenset[str] = frozenset(),
    resume: str = "Exact",
    in_turn: bool = False,
    every: int = 1,
) -> Model:
    """Return pods of a run of this agent, and who answers it.

    `people` answer its approval, each once, `events` are sent, by whom and with what, once each. `in_turn`:
    no pod starts before the last one has ended. `every` is `everySteps`.
    """
    tables = Tables(code)
    truth = Truth(tables, halts=halts, ends_well=True)
    programs: list[Program] = []
    actors: list[Process] = []

    def add(program: Program, process: Process) -> None:
        programs.append(program)
        actors.append(process)

    for attempt in range(1, pods + 1):
        pod = LivingPod(f"pod {attempt}", RUN, attempt, agent, halts, in_turn=in_turn)
        add(pod, pod.born())
    for name, says in people:
        add(Answers(name, tables, RUN, says), Process(1))
    for name, content in events:
        add(Sends(name, tables, RUN, "came", content), Process(1))
    for number in range(1, clocks + 1):
        add(LooksAtClock(f"operator {number}", tables, RUN), Process(2))
    for number in range(1, deciders + 1):
        add(Decides(f"decider {number}", tables, RUN), Process(1))
    if sweeps:
        add(Sweep("the sweeper", AFTER_ALL), Process(sweeps))
    objects = begun(tables, RUN, inputs={}, every_steps=every, configuration={"resume": {"strategy": resume}})
    initial = World(objects, tuple(actors), faults=faults, crashes=crashes)
    replayer = Replayer(tables)
    worlds = Worlds(tuple(programs), replayer, say=tables.say, deletes=bool(sweeps), apply=code.bucket)
    return Model(worlds, truth, initial, _Fresh(tables, truth, replayer, agent, halts))


def _is_to_come(actor: Process) -> bool:
    """Tell whether it is a pod that has not started, and so is as good as somebody fresh."""
    return isinstance(actor.place, Life) and actor.place.stage == "new"


class _Fresh:
    """Ends runs from quiet states in which no pod is left, once from each that looks the same."""

    def __init__(
        self, tables: Tables, truth: Truth, replayer: Replayer, agent: str, halts: frozenset[str]
    ) -> None:
        self._tables = tables
        self._truth = truth
        self._key = tables.keys(RUN).head
        self._pods = [
            LivingPod(f"fresh pod {attempt}", RUN, attempt, agent, halts | {"OutcomeUnknown"})
            for attempt in range(_FRESH, _FRESH + _MOST_LIVES)
        ]
        self._people = (
            Answers("fresh person", tables, RUN, AnswerType.APPROVE),
            Sends("fresh sender", tables, RUN, "came", "fresh", awaited=True),
            LooksAtClock("fresh operator", tables, RUN),
            Decides("fresh decider", tables, RUN),
        )
        self._alone: Callable[[Program], Worlds] = lambda program: Worlds(
            (program,), replayer, say=tables.say
        )
        self._known: dict[Any, str] = {}

    def wrong(self, world: World) -> str:
        number = dict(world.objects).get(self._key)
        ended = number is None or self._tables.head(number).phase.terminal
        if ended or any(actor.doing or _is_to_come(actor) for actor in world.actors):
            return ""
        seen = (world.objects, world.effects, world.made)
        if seen not in self._known:
            start = World(world.objects, (), effects=world.effects, made=world.made)
            self._known[seen] = self._try(start)
        return self._known[seen]

    def _try(self, world: World) -> str:
        phase: Phase | None = None
        for pod in self._pods:
            world = self._goes_through(world, pod, pod.born())
            log = self._truth.log(world.objects, self._key)
            if world.wrong or not isinstance(log, Log):
                return f"somebody fresh goes on, and then: {world.wrong or log}"
            phase = log.head.phase
            if phase is Phase.SUCCEEDED:
                return ""
            if phase in (Phase.WAITING, Phase.HALTED):
                for person in self._people:
                    world = self._goes_through(world, person, Process(1))
        return f"somebody fresh goes on, and never comes to an end: it is {phase}"

    def _goes_through(self, world: World, program: Program, process: Process) -> World:
        """Return the world after somebody was there alone, each time making the first of their moves."""
        worlds = self._alone(program)
        world = world._replace(actors=(process,))
        for _ in range(_ENOUGH):
            following = next(iter(worlds.moves(world)), None)
            if following is None or world.wrong:
                break
            before, (_, world) = world, following
            wrong = self._truth.between(before.objects, world.objects) or self._truth.wrong(world)
            world = world._replace(wrong=world.wrong or wrong)
        return world
