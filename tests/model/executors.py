"""An executor: claims, loads, and goes through the agent's steps as the engine does, effects and all.

Its claim, load and commits are the product's. What is modelled is the agent's program, groups of steps side
by side, and the engine's rule that a step whose result is recorded is not started. A result tells which
call the receiver of effects has answered, so that a step that was done twice would show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.activities import Claiming, Committing, Halting, Keeping, Loading, Written
from tests.model.replay import Raised
from tests.model.tables import Tables
from tests.model.truth import Log, Truth
from tests.model.world import Call, Move, Process, World, Worlds
from tests.support.histories import a_step, an_outcome

__all__ = ["At", "Executor", "Plan"]

_LEAVES = frozenset({"Fenced", "RunDeleted"})
"""What an executor ends quietly on. Any other error of its run is one that must not come."""

_DAMAGED = frozenset({"Corrupt", "Missing"})


@dataclass(frozen=True)
class Plan:
    """An agent: groups of steps, each begun once the one before is recorded, or handed over.

    `size` is how long each result is made, in characters. Steps call a receiver of effects, but for those in
    `plain`: these give another result to each pod. `every` is `everySteps`; with `blobs` results are stored
    apart from their records. `settles`: no effect before all that was handed over is recorded.
    """

    groups: tuple[tuple[str, ...], ...]
    size: int = 0
    plain: frozenset[str] = frozenset()
    every: int = 1
    settles: bool = True
    blobs: bool = False


class At(NamedTuple):
    """Where an executor is. `head` and `state` are numbers, `events` those of what waits for a commit.

    `calls` are the steps whose call is on its way, `ended` those that wait for a commit, `writing` those
    that the commit on its way holds. `pod` is the pod that it is, where operators make pods.
    """

    stage: str
    run: str
    attempt: int
    head: int = -1
    state: int = -1
    calls: tuple[str, ...] = ()
    ended: tuple[tuple[str, int], ...] = ()
    writing: tuple[tuple[str, int], ...] = ()
    pod: str = ""


class Executor:
    """A pod. It starts once it has a run and an attempt; a pod that died starts again as the same attempt."""

    def __init__(self, name: str, tables: Tables, truth: Truth, plan: Plan) -> None:
        self.name = name
        self._tables = tables
        self._truth = truth
        self._plan = plan

    @staticmethod
    def born(run: str, attempt: int) -> Process:
        """Return the process before it has done anything."""
        return Process(At("new", run, attempt))

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        process = world.actors[me]
        at: At = process.place
        if at.stage == "new" and at.run:
            claiming = Claiming(at.run, at.attempt, self.name, self._seed(process, "claim"))
            yield f"{self.name} starts", worlds.begin(world, me, claiming, at._replace(stage="claiming"))
        if at.stage in ("ready", "writing"):
            yield from self._steps(worlds, world, me, at)
        if at.stage == "ready":
            yield from self._commits(worlds, world, me, at)

    def _steps(self, worlds: Worlds, world: World, me: int, at: At) -> Iterator[Move]:
        for step in self._open_steps(at):
            wrong = self._repeats(world, at, step)
            begun = self._placed(world, me, at._replace(calls=tuple(sorted((*at.calls, step)))))
            yield f"{self.name} starts step {step}", begun._replace(wrong=wrong)
        for step in at.calls:
            waits = at._replace(calls=tuple(each for each in at.calls if each != step))
            if step in self._plan.plain:
                yield f"{self.name} ends step {step}", self._ends(worlds, world, me, waits, step, self.name)
                continue
            if self._unsettled(at, step):
                continue
            call = self._call(at, step)
            after, answer = worlds.take_effect(world, call)
            said = f"{self.name}'s call of step {step} reaches the receiver"
            yield f"{said} -> {answer}", self._ends(worlds, after, me, waits, step, answer)
            if world.faults and call not in world.calls:
                late = world._replace(faults=world.faults - 1, calls=tuple(sorted((*world.calls, call))))
                yield f"{self.name}'s call of step {step} gets no answer and is made again", late

    def _commits(self, worlds: Worlds, world: World, me: int, at: At) -> Iterator[Move]:
        process = world.actors[me]
        left = self._left(at)
        hurry = not left or (self._plan.settles and any(step not in self._plan.plain for step in at.calls))
        if at.ended and (len(at.ended) >= self._plan.every or hurry):
            events = tuple(event for _, event in at.ended)
            writing = at._replace(stage="writing", ended=(), writing=at.ended)
            commit = Committing(at.head, at.state, events, self._seed(process, "commit"))
            steps = " and ".join(step for step, _ in at.ended)
            yield f"{self.name} commits {steps}", worlds.begin(world, me, commit, writing)
        if not left and not at.ended and not at.calls:
            end = self._tables.events.number(an_outcome())
            commit = Committing(at.head, at.state, (end,), self._seed(process, "commit"))
            yield f"{self.name} commits the end", worlds.begin(world, me, commit, at._replace(stage="ending"))

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:
        process = world.actors[me]
        at: At = process.place
        match at.stage:
            case "claiming" if value == -1:
                return worlds.settle(world, me, self._gone(at))
            case "claiming":
                loading = at._replace(stage="loading", head=value)
                return worlds.begin(world, me, Loading(value), loading)
            case "loading":
                return self._acknowledged(worlds, world, me, at._replace(stage="ready", state=value))
            case "keeping":
                step = at.writing[0][0]
                ended = tuple(sorted((*at.ended, (step, value))))
                return worlds.settle(world, me, at._replace(stage="ready", writing=(), ended=ended))
            case "writing" | "ending":
                assert isinstance(value, Written)
                after = at._replace(head=value.head, state=value.state, writing=())
                checked = self._acknowledged(worlds, world, me, after._replace(stage="ready"))
                if value.damage:
                    halting = Halting(value.head, value.damage, self._seed(process, "halt"))
                    return worlds.begin(checked, me, halting, after._replace(stage="halting"))
                return worlds.settle(checked, me, self._gone(at)) if at.stage == "ending" else checked
            case _:
                return worlds.settle(world, me, self._gone(at))

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:
        process = world.actors[me]
        at: At = process.place
        if error.name in _DAMAGED and at.stage == "loading":
            halting = Halting(at.head, error.name, self._seed(process, "halt"))
            return worlds.begin(world, me, halting, at._replace(stage="halting"))
        wrong = "" if error.name in _LEAVES else f"{self.name} ended with {error.name}: {error.message}"
        return worlds.settle(world._replace(wrong=wrong), me, self._gone(at))

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:
        at: At = process.place
        if at.stage in ("new", "gone"):
            return None
        made = (step for step in at.calls if step not in self._plan.plain and not self._unsettled(at, step))
        calls = tuple(self._call(at, step) for step in made)
        return Process(At("new", at.run, at.attempt, pod=at.pod), lives=process.lives + 1), calls

    def _acknowledged(self, worlds: Worlds, world: World, me: int, at: At) -> World:
        """Hold what the product says is recorded against what is."""
        after = worlds.settle(world, me, at)
        head = self._tables.head(at.head)
        log = self._truth.log(world.objects, head.keys.head)
        state = self._tables.states.thing(at.state)
        if isinstance(log, Log):
            if log.lines[head.seq - 1 : head.seq] != (head.chain,):
                return after._replace(wrong=f"I4: record {head.seq} was acknowledged and is not in the log")
            if log.head.seq == head.seq and state != self._tables.states.thing(log.state):
                return after._replace(wrong=f"I12: the state at record {head.seq} is not what its log says")
        elif at.stage == "ready" and log is None and head.keys.head not in dict(world.objects):
            return after._replace(wrong="I4: a commit was acknowledged and there is no head")
        return after

    def _open_steps(self, at: At) -> Iterator[str]:
        """Yield the steps that the agent's code would start now."""
        known = {step for step, _ in (*at.ended, *at.writing)} | set(at.calls)
        state = self._tables.states.thing(at.state)
        for group in self._plan.groups:
            left = [step for step in group if not self._tables.code.recorded(state, step)]
            yield from (step for step in left if step not in known)
            on = {step for step, _ in at.ended} if self._plan.every > 1 else set()
            if any(step not in on for step in left):
                return

    def _unsettled(self, at: At, step: str) -> bool:
        """Tell whether a call has to wait, for a result that it may depend on and that is not recorded."""
        if not self._plan.settles:
            return False
        here = next(group for group in self._plan.groups if step in group)
        return any(each not in here for each, _ in (*at.ended, *at.writing))

    def _left(self, at: At) -> bool:
        """Tell whether any step is neither recorded nor ended."""
        ended = {step for step, _ in at.ended}
        state = self._tables.states.thing(at.state)
        steps = (step for group in self._plan.groups for step in group)
        return any(step not in ended and not self._tables.code.recorded(state, step) for step in steps)

    def _repeats(self, world: World, at: At, step: str) -> str:
        """Return what is wrong with starting a step, if its record was there when this writer claimed."""
        head = self._tables.head(at.head)
        log = self._truth.log(world.objects, head.keys.head)
        recorded = log.steps.get(step) if isinstance(log, Log) else None
        if recorded and recorded[0] <= head.epoch:
            return f"I2: {self.name} starts step {step}, which is recorded since epoch {recorded[0]}"
        return ""

    def _call(self, at: At, step: str) -> Call:
        """Return the call of a step: its arguments are the results of the steps before it."""
        head = self._tables.head(at.head)
        results = self._results(at)
        groups = [group for group in self._plan.groups if step in group]
        before = self._plan.groups[: self._plan.groups.index(groups[0])]
        given = [results[each] for group in before for each in group]
        arguments = hashlib.sha256(repr(given).encode()).hexdigest()[:8]
        return Call(
            self._tables.code.key(head.key_root, step, head.epoch),
            arguments,
            step,
            head.spec_digest,
            self.name,
        )

    def _results(self, at: At) -> dict[str, str]:
        state = self._tables.states.thing(at.state)
        found = {step: place.result_digest for step, place in state.completed.items()}
        for step, number in (*at.ended, *at.writing):
            found[step] = self._tables.events.thing(number).result_digest
        return found

    def _ends(self, worlds: Worlds, world: World, me: int, at: At, step: str, answer: str) -> World:
        event = a_step(step, answer.ljust(self._plan.size, "."))
        number = self._tables.events.number(event.model_copy(update={"summary": answer}))
        if self._plan.blobs:
            keeping = at._replace(stage="keeping", writing=((step, number),))
            return worlds.begin(world, me, Keeping(at.run, number), keeping)
        return self._placed(world, me, at._replace(ended=tuple(sorted((*at.ended, (step, number))))))

    @staticmethod
    def _placed(world: World, me: int, at: At) -> World:
        """Return the world with the process at another place of its program, be it in a commit or not."""
        return Worlds.with_process(world, me, world.actors[me]._replace(place=at))

    @staticmethod
    def _gone(at: At) -> At:
        return At("gone", at.run, at.attempt, pod=at.pod)

    def _seed(self, process: Process, purpose: str) -> str:
        """Return what nonces are drawn from: one life of a process does each thing to each head once."""
        at: At = process.place
        return f"{self.name}/{process.lives}/{purpose}/{at.head}"
