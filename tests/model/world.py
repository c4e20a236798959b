"""A world of the model: a bucket, requests on their way, processes, and a receiver of effects.

Each move is one act that nothing can divide: a request reaches the bucket and its sender learns the answer,
or learns nothing and the request stays on its way; a request that outlived its sender arrives; a process
dies; a process decides something. A process that is paused is one whose moves do not come.

That an answer is applied and not told needs no move of its own: the sender gives a request up, and the
request arrives later. Nor does an answer that takes long: who has it does nothing until its next move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

from tests.model.replay import (
    Activity,
    Ask,
    Delete,
    Get,
    List,
    Put,
    Raised,
    Reach,
    Replayer,
    Reply,
    Request,
    Returned,
    Settle,
    Waits,
    etag_of,
    honest,
)

__all__ = ["Applied", "Call", "Move", "Objects", "Process", "Program", "World", "Worlds", "bodies_of"]

Objects: TypeAlias = tuple[tuple[str, int], ...]
"""The bucket: keys with the numbers of their bodies, sorted."""


class Call(NamedTuple):
    """A tool's request on its way to the receiver of effects. `work` is what the run was asked to do.

    Where its tool's effect is not keyed the receiver heeds no key: each call that arrives has its effect.
    """

    key: str
    arguments: str
    step: str
    work: str
    caller: str
    effect: str = "keyed"


class Applied(NamedTuple):
    """An effect that took place. The receiver answers each later call of the same key with `answer`."""

    key: str
    arguments: str
    step: str
    work: str
    answer: str


class Process(NamedTuple):
    """One actor. `place` is its program's own; `doing` and `answers` are the product's code it is in.

    `lives` counts how often it died, so that no two of its lives draw the same nonces.
    """

    place: Any
    doing: Activity | None = None
    answers: tuple[Reply, ...] = ()
    lives: int = 0


class World(NamedTuple):
    """One state of the model. So many `faults` and `crashes` may still happen; `gone` are deleted heads.

    `made` are the keys of the irreversible calls that were made, once for each call.
    """

    objects: Objects
    actors: tuple[Process, ...]
    late: tuple[Put | Delete, ...] = ()
    calls: tuple[Call, ...] = ()
    effects: tuple[Applied, ...] = ()
    faults: int = 0
    crashes: int = 0
    gone: frozenset[str] = frozenset()
    made: tuple[str, ...] = ()
    wrong: str = ""


Move: TypeAlias = tuple[str, World]


class Program(Protocol):
    """What a process does. All methods are pure."""

    name: str

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        """Yield what the process may decide by itself."""
        ...

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:
        """Return the world after the process' activity returned."""
        ...

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:
        """Return the world after the process' activity raised."""
        ...

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:
        """Return the process after it died and came back, and its calls that go on; None if it cannot die."""
        ...


def bodies_of(objects: Objects) -> dict[str, int]:
    """Return the bucket as a mapping."""
    return dict(objects)


class Worlds:
    """The moves of all worlds of one scenario.

    `apply` is how the bucket answers a write, `kinds` the answers beside the usual that a fault may bring;
    `deletes` tells that objects are deleted in the scenario, so that a late create may still succeed.
    """

    def __init__(
        self,
        programs: tuple[Program, ...],
        replayer: Replayer,
        *,
        say: Callable[[int], str],
        kinds: tuple[str, ...] = (),
        deletes: bool = False,
        apply: Callable[[dict[str, int], Put], Reply] = honest,
    ) -> None:
        self.programs = programs
        self._replayer = replayer
        self._say = say
        self._kinds = kinds
        self._deletes = deletes
        self._apply = apply

    def close(self) -> None:
        """Let go of processes that are in the middle of something."""
        self._replayer.close()

    def moves(self, world: World) -> Iterator[Move]:
        """Yield every move of a world, in words and with the world after it."""
        for me, (program, process) in enumerate(zip(self.programs, world.actors, strict=True)):
            if process.doing is not None:
                yield from self._asking(world, me, process)
            yield from program.moves(self, world, me)
            if world.crashes and (death := program.crashed(process)) is not None:
                yield f"{program.name} dies", self._died(world, me, process, *death)
        for request in dict.fromkeys(world.late):
            yield from self._arrives(world, request)
        for call in dict.fromkeys(world.calls):
            rest = _without(world.calls, call)
            after, _ = self.take_effect(world._replace(calls=rest), call)
            yield f"{call.caller}'s call of step {call.step} reaches the receiver late", after

    def begin(self, world: World, me: int, activity: Activity, place: Any) -> World:
        """Return the world in which a process has entered the product's code, up to its first request."""
        process = world.actors[me]
        started = Process(place, activity, (), process.lives)
        return self._go_on(self.with_process(world, me, started), me, ())

    def settle(self, world: World, me: int, place: Any) -> World:
        """Return the world in which a process is in no code of the product, at this place of its program."""
        return self.with_process(world, me, Process(place, lives=world.actors[me].lives))

    @staticmethod
    def with_process(world: World, me: int, process: Process) -> World:
        """Return the world with another state of one process."""
        return world._replace(actors=(*world.actors[:me], process, *world.actors[me + 1 :]))

    def take_effect(self, world: World, call: Call) -> tuple[World, str]:
        """Return the world after a call reached the receiver, and what the receiver answers."""
        for known in world.effects:
            if known.key == call.key:
                if call.effect != "keyed":
                    wrong = f"E3: the effect of step {call.step} took place twice, under one key"
                    return world._replace(wrong=world.wrong or wrong), known.answer
                if known.arguments != call.arguments:
                    wrong = f"I3b: the key {call.key} came back with other arguments"
                    return world._replace(wrong=wrong), known.answer
                return world, known.answer
        effect = Applied(call.key, call.arguments, call.step, call.work, call.caller)
        again = [known for known in world.effects if (known.step, known.work) == (call.step, call.work)]
        wrong = f"I3: the effect of step {call.step} took place twice, by different keys" if again else ""
        effects = tuple(sorted((*world.effects, effect)))
        return world._replace(effects=effects, wrong=world.wrong or wrong), effect.answer

    def say(self, request: Request) -> str:
        """Return a request in words."""
        match request:
            case Put(key, body, etag):
                return f"{'PUT' if etag else 'create'} {_short(key)} ({self._say(body)})"
            case Get(key):
                return f"GET {_short(key)}"
            case Delete(key):
                return f"DELETE {_short(key)}"
            case List(prefix):
                return f"LIST {_short(prefix)}"
            case Reach(_, _, step):
                return f"call of step {step}"
            case Ask(key):
                return f"asks for the effect of {key.partition('/')[2]}"
            case Settle():
                return "waits until calls of who has ended have settled"

    def _go_on(self, world: World, me: int, answers: tuple[Reply, ...]) -> World:
        process = world.actors[me]
        assert process.doing is not None
        outcome = self._replayer.outcome(process.doing, answers)
        if isinstance(outcome, Waits):
            return self.with_process(world, me, process._replace(answers=outcome.answers))
        idle = self.with_process(world, me, process._replace(doing=None, answers=()))
        if isinstance(outcome, Returned):
            return self.programs[me].returned(self, idle, me, outcome.value)
        return self.programs[me].raised(self, idle, me, outcome)

    def _waiting(self, process: Process) -> Request:
        assert process.doing is not None
        outcome = self._replayer.outcome(process.doing, process.answers)
        assert isinstance(outcome, Waits), "a process in the product's code waits for an answer"
        return outcome.request

    def _asking(self, world: World, me: int, process: Process) -> Iterator[Move]:
        request = self._waiting(process)
        said = f"{self.programs[me].name}: {self.say(request)}"
        answers = process.answers

        def told(before: World, kind: Reply) -> World:
            return self._go_on(before, me, (*answers, kind))

        if isinstance(request, Reach | Ask | Settle):
            for words, after, reply in self._outside(world, me, request):
                yield f"{said} -> {words}", told(after, reply)
            return
        objects, reply = self._serve(world, request)
        yield f"{said} -> {reply.kind}", told(self._with_objects(world, objects), reply)
        if world.faults and isinstance(request, Put):
            for words, after, learnt in self._astray(world, request, objects, reply):
                yield f"{said} -> {words}", told(after, learnt)

    def _astray(
        self, world: World, request: Put, objects: Objects, reply: Reply
    ) -> Iterator[tuple[str, World, Reply]]:
        """Yield how a write and its answer may go astray: in words, the world, and what its sender learns."""
        fewer = world._replace(faults=world.faults - 1)
        if self._may_matter(world, request):
            later = fewer._replace(late=_with(world.late, request))
            yield "no answer, still on its way", later, Reply("unknown")
        if reply.kind == "stored":
            if self._deletes:
                twice = self._with_objects(fewer, objects)._replace(late=_with(fewer.late, request))
                yield "stored, and sent twice by the network", twice, reply
            if "stored without etag" in self._kinds:
                plain = self._with_objects(fewer, objects)
                yield "stored, no ETag said", plain, Reply("stored without etag")
        for kind in ("undecided", "expired", "clash"):
            if kind in self._kinds and reply.kind != kind:
                yield f"not applied, {kind}", fewer, Reply(kind)

    def _outside(
        self, world: World, me: int, request: Reach | Ask | Settle
    ) -> Iterator[tuple[str, World, Reply]]:
        """Yield what may come of a request to the receiver: in words, the world, and the answer."""
        match request:
            case Reach():
                call = self._call(me, request)
                calling = self._made(world, call)
                after, answer = self.take_effect(calling, call)
                yield answer, after, Reply("answered", text=answer)
                if world.faults:
                    late = calling._replace(faults=world.faults - 1, calls=_with(world.calls, call))
                    yield "no answer, still on its way", late, Reply("unknown")
            case Ask(key):
                found = [each.answer for each in world.effects if each.key == key]
                said = Reply("found", text=found[0]) if found else Reply("absent")
                yield said.text or "it is not there", world, said
            case Settle():
                yield "they have", self.settled(world, me), Reply("settled")

    def settled(self, world: World, me: int) -> World:
        """Return the world in which calls of processes that have ended, and of this one, come no more.

        Those that arrive do so before.
        """
        alive = {
            program.name
            for place, (program, process) in enumerate(zip(self.programs, world.actors, strict=True))
            if process.doing is not None and place != me
        }
        return world._replace(calls=tuple(call for call in world.calls if call.caller in alive))

    def _call(self, me: int, request: Reach) -> Call:
        key, arguments, step, effect = request
        return Call(key, arguments, step, "", self.programs[me].name, effect)

    @staticmethod
    def _made(world: World, call: Call) -> World:
        if call.effect != "irreversible":
            return world
        return world._replace(made=tuple(sorted((*world.made, call.key))))

    def _serve(self, world: World, request: Put | Get | List | Delete) -> tuple[Objects, Reply]:
        bucket = bodies_of(world.objects)
        match request:
            case Put():
                reply = self._apply(bucket, request)
                return tuple(sorted(bucket.items())), reply
            case Get(key):
                return world.objects, Reply("found", bucket[key]) if key in bucket else Reply("absent")
            case List(prefix):
                listed = tuple(item for item in world.objects if item[0].startswith(prefix))
                return world.objects, Reply("listed", listed=listed)
            case Delete(key):
                bucket.pop(key, None)
                return tuple(sorted(bucket.items())), Reply("deleted")

    def _with_objects(self, world: World, objects: Objects) -> World:
        if objects == world.objects:
            return world
        left = bodies_of(objects)
        heads = frozenset(key for key, _ in world.objects if key.endswith("/head") and key not in left)
        return self._pruned(world._replace(objects=objects, gone=world.gone | heads))

    def _arrives(self, world: World, request: Put | Delete) -> Iterator[Move]:
        objects, reply = self._serve(world, request)
        rest = world._replace(late=_without(world.late, request))
        if objects != world.objects:
            yield f"late {self.say(request)} arrives -> {reply.kind}", self._with_objects(rest, objects)

    def _died(
        self, world: World, me: int, process: Process, reborn: Process, calls: tuple[Call, ...]
    ) -> World:
        late = world.late
        if process.doing is not None:
            request = self._waiting(process)
            if isinstance(request, Delete) or (isinstance(request, Put) and self._may_matter(world, request)):
                late = _with(late, request)
            if isinstance(request, Reach):
                call = self._call(me, request)
                world, calls = self._made(world, call), (*calls, call)
        going = tuple(sorted({*world.calls, *calls}))
        return self.with_process(
            world._replace(late=late, calls=going, crashes=world.crashes - 1), me, reborn
        )

    def _pruned(self, world: World) -> World:
        """Forget late writes whose condition can never hold again: their arrival changes nothing."""
        late = tuple(each for each in world.late if isinstance(each, Delete) or self._may_matter(world, each))
        return world._replace(late=late) if len(late) != len(world.late) else world

    def _may_matter(self, world: World, put: Put) -> bool:
        standing = bodies_of(world.objects).get(put.key)
        if put.etag:
            # Whoever names an ETag has seen it, and what was replaced never comes back: each body is new.
            return standing is not None and etag_of(standing) == put.etag
        return standing is None or self._deletes


def _with(late: tuple[Any, ...], request: Any) -> tuple[Any, ...]:
    # Once is enough: a second copy finds what the first one left.
    return late if request in late else tuple(sorted((*late, request), key=repr))


def _without(late: tuple[Any, ...], request: Any) -> tuple[Any, ...]:
    return tuple(each for each in late if each != request)


def _short(key: str) -> str:
    namespace, _, rest = key.partition("/runs/")
    return f"{rest[:4]}…{rest[20:]}" if rest else namespace
