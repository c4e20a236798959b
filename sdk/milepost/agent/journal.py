"""The engine's one way to the log: what is recorded, making values durable, committing.

Where the run is lost or halted nothing here raises into the author's code, which may catch everything: the
process ends instead. Once `stop` was called no step starts any more, see `milepost.agent.switch`.

It is long because it is one object that all parts of the engine share, of short methods: what is recorded,
making values durable, committing, what runs and what has to wait, what lies ahead of the code.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from milepost.agent.ahead import Ahead
from milepost.agent.events import Events
from milepost.agent.memory import Memory
from milepost.agent.stillness import Stillness
from milepost.agent.switch import Switch
from milepost.agent.tools import Tool
from milepost.agent.unbroken import unbroken
from milepost.api.names import Entropy
from milepost.checkpoint import codec, inbox, values
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import Decided, Gate, GateType, Waiting, gate_id
from milepost.checkpoint.records import (
    Degraded,
    Event,
    GroupClosed,
    Halted,
    Input,
    Noted,
    Planned,
    Remembered,
    Resumed,
    Started,
    StepCompleted,
    StepFailure,
    StepPlace,
    StepSkipped,
    ToolCalled,
    Value,
)
from milepost.checkpoint.sending import Patience, persist
from milepost.checkpoint.store import Store
from milepost.errors import AgentStuck, Corrupt, Damaged, FormatTooNew, MilepostError, RunHalted, RunRestarts

__all__ = ["LINGER", "LINGER_AT_GATE", "MAX_INLINE_INPUT", "Journal", "Rules"]

E = TypeVar("E", bound=Event)
T = TypeVar("T")

MAX_INLINE_INPUT = 2 * 1024
"""Bytes of an input that a step's record carries itself."""

LINGER: Final = 0.005
"""Seconds that a commit waits for other running steps to end and share its write."""

LINGER_AT_GATE: Final = 1.0
"""Seconds without a step in flight after which a run that has come to a gate is taken to wait there."""

_BLOBS_AT_ONCE: Final = 4

_log: Final = logging.getLogger("milepost.run")


@dataclass(frozen=True)
class Rules:
    """What governs a run today, beside its code and what it began with. None: no limit.

    `cost_nano_usd` is in billionths of a US dollar. `memory_every` is how many steps are recorded between two
    copies of the agent's memory. `same_code` says that the code is the one that wrote what is recorded.
    `linger` is for how many seconds nothing must be under way until the process ends for gates alone.
    `environment` is that of this process, as its claim says it.
    """

    steps: int | None = None
    tokens: int | None = None
    cost_nano_usd: int | None = None
    memory_every: int = 10
    same_code: bool = True
    linger: float = LINGER_AT_GATE
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return not (self.steps is None and self.tokens is None and self.cost_nano_usd is None)


class Journal:
    """A claimed run's log, as the engine uses it."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        *,
        clock: Callable[[], datetime],
        entropy: Entropy,
        patience: Patience,
        rules: Rules = Rules(),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        # What is recorded so far: always the same one, which the committer folds on.
        self.state: State = committer.state
        self._values = values.Values(store, committer.head.keys, patience)
        self._committer = committer
        self._patience = patience
        self._committing = 0
        self._noted: list[Event] = []
        self._planned = self.state.totals.steps_total
        self._tasks: Mapping[str, tuple[str, ...]] = {}
        self._plans = 0
        self._plans_recorded = 0
        self._made: dict[str, Coroutine[Any, Any, Any]] = {}
        self._held: dict[str, Sequence[Coroutine[Any, Any, Any]]] = {}
        self._open: set[str] = set()
        self._stillness = Stillness(rules.linger, self._wait)
        self._switch = Switch(self._stillness)
        self._waits_at: list[str] = []
        self.waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ahead = Ahead(State())
        self._together: set[str] = set()
        self._in_groups: Counter[str] = Counter()
        self._since_memory = 0
        self._taken_facts: set[str] = set()
        self._facts: dict[str, list[str]] = {}
        # Not the loop's own threads: the author's functions may occupy all of those.
        self._threads = ThreadPoolExecutor(_BLOBS_AT_ONCE, thread_name_prefix="blobs")
        self.memory = Memory()
        # The branches of which earlier processes have gone on since results were to be checked again.
        self.checked: frozenset[str] = frozenset()
        # How a tool breaks today's rules; those that the agent declares have been looked at before.
        self.breaches: Callable[[Tool[..., Any]], Sequence[str]] = lambda _tool: ()
        self.events = Events()
        self.rules = rules
        self.clock = clock
        self.entropy = entropy
        self.monotonic = patience.monotonic
        self.pause = pause
        self.began = patience.monotonic()

    async def begin(self) -> None:
        """Make ready for the first line of the agent's code, once nothing can change how the run goes on."""
        self._ahead = Ahead(self.state)
        self.checked = frozenset(self.state.revalidated)
        self._plans_recorded = self.state.plans
        for step in sorted(self.state.facts, key=lambda step: self.state.facts[step].seq):
            self._facts.setdefault(step.rpartition("/")[2].partition("#")[0], []).append(step)
        seq = self.state.memory_at_restart
        if seq:
            copied = await self._event(seq, Remembered, lambda _: True)
            self.memory = Memory(await self._encoded(copied.memory, "the agent's memory"))

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._committer.head.run_id

    @property
    def attempt(self) -> int:
        """The number of this process among those of the run."""
        return self._committer.head.attempt

    def surely_ended(self, attempt: int) -> bool:
        """Tell whether nothing that an attempt had begun before can be at work any more."""
        # What this process began before is awaited before anybody asks.
        return attempt == self.attempt or attempt in self.state.proved_ends

    @property
    def step_attempts(self) -> int:
        """How often a step is tried where its code does not say."""
        return self._started().step_attempts

    @property
    def granularity(self) -> str:
        """What is recorded at once where the code does not say: tool-call, step or phase."""
        return self._started().granularity

    def _started(self) -> Started:
        assert self.state.started is not None, "record 1 is `started`"
        return self.state.started

    @property
    def key_root(self) -> str:
        """First part of every idempotency key."""
        return self._committer.head.key_root

    def plan(self, total: int) -> None:
        """Record with the next commit, whatever that is, how many steps there will be; once if said twice."""
        # While recorded steps are ahead the code says once more what it has said before.
        if total != self._planned and not self._ahead.in_branch(""):
            self._planned = total
            self._noted.append(Planned(total=total))

    def plan_tasks(self, tasks: Mapping[str, tuple[str, ...]], *, replanned: bool) -> None:
        """Record with the next commit which tasks there are, unless an earlier process has."""
        if not tasks or (tasks == self._tasks and not replanned):
            return
        self._tasks = tasks
        self._plans += 1
        if self._plans > self._plans_recorded:
            self._noted.append(Planned(tasks=tasks, replanned=replanned))

    def note(self, reason: str, message: str) -> None:
        """Record with the next commit something that people should know, and log it."""
        _log.warning(reason, extra={"note": message})
        self._noted.append(Noted(reason=reason, message=message))

    def awaited(
        self, place: str, made: Coroutine[Any, Any, T], holds: Sequence[Coroutine[Any, Any, Any]] = ()
    ) -> Coroutine[Any, Any, T]:
        """Expect that this coroutine, which the author's code is given, is awaited in the end.

        It awaits those that it `holds`.
        """
        self._made[place] = made
        self._held[place] = holds
        return made

    def begun(self, place: str) -> None:
        """Note that what stands at this place is being awaited."""
        self._made.pop(place, None)
        self._held.pop(place, None)

    @property
    def left_open(self) -> list[str]:
        """The steps that the code has begun and that have come to no end."""
        return sorted(self._open)

    def never_awaited(self) -> list[str]:
        """Return what the author's code has started and not awaited, and take it away."""
        # What was closed is none of them: `parallel` does so with what it does not begin after a failure. One
        # that was cancelled before it began could not.
        for place, holds in reversed(self._held.items()):
            if inspect.getcoroutinestate(self._made[place]) == inspect.CORO_CLOSED:
                for each in holds:
                    each.close()
        left = {
            place: made
            for place, made in self._made.items()
            if inspect.getcoroutinestate(made) == inspect.CORO_CREATED
        }
        for made in left.values():
            made.close()
        self._made.clear()
        self._held.clear()
        return list(left)

    def begun_before(self, made: Sequence[Coroutine[Any, Any, Any]], branches: Sequence[str]) -> list[bool]:
        """Tell of each coroutine, and the branch it is for, whether the log had something of it already.

        It may be a step of the branch around, which `run.step` gave the author's code.
        """
        places = {id(each): place for place, each in self._made.items()}
        return [
            self._ahead.has(branch) or (id(each) in places and self._ahead.has(places[id(each)]))
            for each, branch in zip(made, branches, strict=True)
        ]

    def replaying(self, branch: str) -> bool:
        """Tell whether recorded steps of a branch are still ahead of its code."""
        return self._ahead.in_branch(branch)

    def reach(self, place: StepPlace) -> None:
        """Note that the code has come to a step."""
        self._open.add(place.id)
        self._ahead.reach(place.id)

    def leave(self, place: StepPlace) -> None:
        """Note that the code has a step's result, or its error."""
        self._open.discard(place.id)

    def passed(self, place: StepPlace) -> None:
        """Note that the code is given the result of a step."""
        if place.group:
            self._in_groups[place.group] += 1

    def recorded_after(self, branch: str, step: str | None) -> str:
        """Return the step that was recorded after this one; empty where that cannot be told."""
        return "" if step is None else self._ahead.after(branch, step)

    async def commit(self, *events: Event, deferrable: bool = False) -> None:
        """Return once the events are durable, in one record; or, if `deferrable`, handed over at least.

        Where other steps are running the write waits a moment, so that those which end now share it. What
        belongs to a phase that is recorded as a whole is handed over.
        """
        completed = [event for event in events if isinstance(event, StepCompleted)]
        if completed and self._memory_is_due(len(completed)):
            # The step is handed over whatever is cancelled while the memory is being copied.
            await unbroken(self._commit_with_memory(events, completed, deferrable=deferrable))
        else:
            await self._commit(events, completed, deferrable=deferrable)

    async def _commit_with_memory(
        self, events: Sequence[Event], completed: Sequence[StepCompleted], *, deferrable: bool
    ) -> None:
        await self._commit((*events, await self._remembered()), completed, deferrable=deferrable)

    async def _commit(
        self, events: Sequence[Event], completed: Sequence[StepCompleted], *, deferrable: bool
    ) -> None:
        for event in events:
            match event:
                case StepCompleted(step=step) | StepFailure(step=step):
                    self._ahead.pass_by(step.branch)
                case _:
                    pass
        noted, self._noted = self._noted, []
        self._committing += 1
        self._stillness.begin()
        linger = LINGER if self._switch.in_flight > self._committing else 0.0
        held = deferrable and all(event.step.group in self._together for event in completed)
        try:
            await self._committer.commit(*noted, *events, deferrable=deferrable, held=held, linger=linger)
        finally:
            self._stillness.end()
            self._committing -= 1

    async def skip(self, place: StepPlace, reason: str) -> None:
        """Record that a step will not be executed."""
        self.begun(place.id)
        if place.id not in self.state.skipped:
            await self.may_go_on()
            await self.commit(StepSkipped(step=place, reason=reason))

    def defer(self, group: str) -> None:
        """Record the steps of this phase together when it closes."""
        self._together.add(group)

    def note_degraded(self, group: str, missing: Sequence[str], have: int, need: int) -> None:
        """Record with the next commit that a phase begins with less than it was meant to have."""
        if group not in self.state.degraded:
            self._noted.append(Degraded(group=group, missing=tuple(missing), have=have, need=need))

    async def close_group(self, group: str, *, whole: bool) -> None:
        """Return once all of a phase is durable. One that was left by an error is not `whole`, nor closed."""
        self._together.discard(group)
        if not whole:
            await self.settle()
        elif group not in self.state.closed_groups:
            await self.may_go_on()
            await self.commit(GroupClosed(group=group, steps=self._in_groups[group]))

    async def remember(self) -> None:
        """Write a copy of the agent's memory, if it is another than the last one."""
        if self.memory.changed:
            await self.commit(await self._remembered())

    def _memory_is_due(self, completed: int) -> bool:
        self._since_memory += completed
        return self.memory.changed and self._since_memory >= self.rules.memory_every

    async def _remembered(self) -> Remembered:
        self._since_memory, self.memory.changed = 0, False
        return Remembered(memory=await self.keep(self.memory.encoded(), most=-1))

    async def _remembered_by_now(self) -> list[Remembered]:
        """Return a copy of the memory, unless that of this execution in the store comes from further on."""
        copied = self.state.memory > self.state.memory_at_restart
        if not self.memory.changed or (copied and self._ahead.in_branch("")):
            return []
        return [await self._remembered()]

    def gate_id(self, type_: GateType, place: str, request_digest: str = "") -> str:
        """Return the id of a gate of this execution. An event's has one of its own, see `event_gate_id`."""
        return gate_id(type_, place, request_digest, self.state.executions)

    @property
    def may_restart(self) -> bool:
        """Whether the run can begin anew: not while a call may have had its effect and nobody knows.

        Its step has to be reached once more, where that is found out.
        """
        return not self.state.intents

    async def restart(self, gate: str) -> NoReturn:
        """Let the run begin anew, with what is recorded as given facts, as was decided at this gate.

        What is recorded after that belongs to the new beginning. So the other steps in flight end before.
        """
        await self._switch.let_others_end()
        remembered = await self._remembered_by_now()
        environment = self.rules.environment
        resumed = Resumed(strategy="RestartWithContext", environment=environment, gate=gate)
        await self._committer.commit(*remembered, resumed)
        self._committer.lose(RunRestarts(self.run_id))

    async def decision(self, gate: str) -> Decided:
        """Return the record of how a gate was passed."""
        return await self._event(self.state.decisions[gate], Decided, lambda event: event.gate == gate)

    async def answer(self, gate: str) -> inbox.Answer | Corrupt | None:
        """Return what lies in the inbox for a gate, or why it cannot be read; None if nothing does."""

        def read() -> inbox.Answer | Corrupt | None:
            try:
                return inbox.read(self._store, self._committer.head.keys, gate)
            except Corrupt as error:
                return error

        return await self._from_store(read)

    async def decided(self, answer: inbox.Answer, place: str) -> Decided:
        """Return the event that an answer becomes in the log."""
        return Decided(
            gate=answer.gate,
            place=place,
            type=answer.type,
            by=answer.by,
            at=answer.at,
            reason=answer.reason,
            answer=None if answer.answer is None else await self.keep(answer.answer),
        )

    def under_way(self) -> AbstractContextManager[None]:
        """Count something as going on, so that the process does not end for gates alone."""
        return self._stillness.under_way()

    async def freeze(self, gate: str, let_go: Callable[[], bool]) -> NoReturn:
        """Wait at a gate that is on record: for ever, as far as this process goes.

        `let_go` is called once all else is still, too, and says whether something can begin by that.
        """
        self._waits_at.append(gate)
        try:
            with self._stillness.frozen(let_go):
                await self._switch.leave()
        finally:
            # The author's code waits for it no more.
            self._waits_at.remove(gate)

    def _wait(self) -> None:
        self.stop()
        if not self.waits.done():
            self.waits.set_result(None)

    async def record_waiting(self) -> None:
        """Return once it is durable that the run waits, and everything before, its memory too."""
        remembered = [await self._remembered()] if self.memory.changed else []
        await self.commit(*remembered, Waiting(gates=tuple(self._waits_at)))

    def facts_like(self, component: str) -> list[str]:
        """Return the facts whose place had this component, whatever its number, that no step has adopted."""
        return [
            step
            for step in self._facts.get(component, ())
            if step not in self.state.adopted and step not in self._taken_facts
        ]

    def take_fact(self, step: str) -> bool:
        """Keep a fact for one step; False if another one was quicker."""
        if step in self._taken_facts:
            return False
        self._taken_facts.add(step)
        return True

    async def fact(self, step: str) -> StepCompleted:
        """Return the record of a step of the execution before a restart."""
        place = self.state.facts[step]
        return await self._event(place.seq, StepCompleted, lambda event: event.step.id == step)

    async def recorded(self, step: str) -> StepCompleted:
        """Return the record of a step that is completed."""
        place = self.state.completed[step]
        return await self._event(place.seq, StepCompleted, lambda event: event.step.id == step)

    async def called(self, seq: int, key: str) -> ToolCalled:
        """Return the call with this idempotency key that record `seq` holds."""
        return await self._event(seq, ToolCalled, lambda event: event.key == key and event.error is None)

    async def _event(self, seq: int, kind: type[E], wanted: Callable[[E], bool]) -> E:
        archive, head = self._committer.archive, self._committer.head
        # What is wrong with a record at hand is met again below, where the process ends for it.
        with suppress(Damaged, FormatTooNew):
            at_hand = archive.event_at_hand(head, seq, kind, wanted)
            if at_hand is not None:
                return at_hand
        return await self._from_store(partial(archive.event, head, seq, kind, wanted))

    async def keep(self, data: codec.JSON, most: int = values.MAX_INLINE) -> Value:
        """Return the record's form of an encoded value, made durable first where it is larger than `most`."""
        formed = values.form(data, most)
        if isinstance(formed, Value):
            return formed
        return await self._from_store(partial(self._values.write, formed))

    async def read(self, value: Value, declared: Any, *, path: str) -> Any:
        """Return a recorded value, each time a new copy, decoded as the type that the code declares today."""
        data = await self._encoded(value, path)
        try:
            return codec.decode(data, declared, path=path)
        except codec.DecodeError as error:
            await self.halt(
                "RecordedTypeChanged",
                f"{error}; it was recorded under a type that this code does not declare any more",
            )

    async def raw(self, value: Value, *, path: str) -> codec.JSON:
        """Return a recorded value as the JSON that it is recorded as."""
        return await self._encoded(value, path)

    async def _encoded(self, value: Value, path: str) -> Any:
        if value.blob:
            return await self._from_store(partial(self._values.read, value, of=path))
        return value.inline

    def input(self, data: codec.JSON) -> Input:
        """Return the record's form of one encoded argument."""
        raw = codec.dumps(data)
        digest = codec.digest(data, raw)
        if len(raw) <= MAX_INLINE_INPUT:
            return Input(digest=digest, inline=Value(inline=data, size=len(raw)))
        return Input(digest=digest, result_of=self.state.steps_by_result.get(digest, ""))

    async def settle(self) -> None:
        """Return once every step that has returned is recorded: what is done next may follow from it."""
        await self._committer.settle()

    def stop(self) -> None:
        """Start no step from now on."""
        self._switch.stop()

    async def idle(self) -> None:
        """Return once no step is in flight and nothing is on its way to the store.

        What was only handed over is written at once: there may be no time left after the last step.
        """
        await self._committer.flush()
        await self._switch.idle()
        await self._committer.flush()

    async def may_start(self) -> None:
        """Return if a step may start; never return once the process is stopping, or the run is used up."""
        if self.rules.limited and not self._switch.stopping:
            await self._check_limits()
        await self.may_go_on()

    async def may_go_on(self) -> None:
        """Return if the agent's code may go on; never return once the process is stopping."""
        await self._switch.pass_through()

    async def _check_limits(self) -> None:
        # What is not durable yet counts, too: nothing would hold back a phase that is recorded as a whole.
        totals, rules = self._committer.totals, self.rules
        for name, used, limit in (
            ("steps", totals.steps_done, rules.steps),
            ("tokens", totals.tokens, rules.tokens),
            ("costUSD", totals.cost_nano_usd, rules.cost_nano_usd),
        ):
            if limit is not None and used >= limit:
                scale = 1e9 if name == "costUSD" else 1
                await self.halt(
                    "LimitReached",
                    f"spec.limits.{name} is {limit / scale:g} and {used / scale:g} are used; what is "
                    "recorded is kept, and with a higher limit the run goes on",
                )

    def in_flight(self) -> AbstractContextManager[None]:
        """Count a step as running, from its start until its record is durable."""
        return self._switch.step()

    async def _from_store(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            with self.under_way():
                return await loop.run_in_executor(self._threads, persist, call, self._patience)
        except Damaged as error:
            message = await loop.run_in_executor(self._threads, self._committer.explain, error)
            await self.halt(type(error).__name__, message)
        except MilepostError as error:
            self._committer.lose(error)

    def abandon(self, why: str) -> NoReturn:
        """End the process for the agent's own fault, which counts as a try of the step in flight."""
        self._committer.lose(AgentStuck(why))

    async def halt(self, reason: str, message: str, gate: Gate | None = None) -> NoReturn:
        """Record why the run cannot go on, once the other steps in flight have ended, and end the process.

        `gate` takes a person's decision about it, where one can be made.
        """
        await self._switch.let_others_end()
        # What is decided may be that the run begins anew, with the memory that it had.
        remembered = await self._remembered_by_now() if gate is not None else []
        await self._committer.commit(*remembered, Halted(reason=reason, message=message, gate=gate))
        self._committer.lose(RunHalted(reason, message))
