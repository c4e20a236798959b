"""Run one point or one soak, judge it, and keep count: what was hit, what ended, what was violated.

What is found wrong stops nothing: it is reported with the command that repeats it, and the journal of its
requests is kept, as lines of JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from typing_extensions import override

from milepost.errors import MilepostError
from milepost.testing.faults import Action, Delay, Drop, Flip, Hold, Reply, Truncate
from tests.faults.checks import Effects, Expected, Seen, Verdict, expected_of, judge
from tests.faults.points import How, Point, Requests
from tests.faults.processes import TookTooLong
from tests.faults.scene import Disturbed, Scene
from tests.faults.soak import DEADLINE_S, Soak

__all__ = [
    "AGENTS",
    "Clean",
    "NotClean",
    "Outcome",
    "SoakRun",
    "Tally",
    "Task",
    "clean_run",
    "judged",
    "perform",
]

AGENTS: Final = ("everything", "small", "heavy", "deferred", "careful", "waiting")


class NotClean(Exception):
    """A run that nobody disturbed is wrong already, so that there is nothing to hold others against."""

    def __init__(self, agent: str, verdict: Verdict) -> None:
        shown = "; ".join(verdict.violations[:5])
        super().__init__(f"a clean run of {agent} has {len(verdict.violations)} violations: {shown}")


@dataclass(frozen=True)
class Clean:
    """What an undisturbed run of an agent came to, and how many requests it made."""

    expected: Expected
    requests: Requests


@dataclass(frozen=True)
class SoakRun:
    """A run of an agent among random faults."""

    agent: str
    number: int
    store: str = "seaweedfs"

    @override
    def __str__(self) -> str:
        return f"{self.agent} on {self.store}: soak {self.number}"

    def command(self, seed: int) -> str:
        """Return the command that repeats it."""
        return (
            f"python -m tests.faults --seed {seed} --agent {self.agent} --store {self.store} "
            f"--soak {self.number}"
        )


Task: TypeAlias = Point | SoakRun


@dataclass(frozen=True)
class Outcome:
    """What became of one task: of its `meant` blows, `hits` really hit, `paused` of them without killing.

    `faults` counts those of the soak that fired, by kind, and `codes` how the processes ended.
    """

    name: str
    command: str
    verdict: Verdict
    meant: int = 0
    hits: int = 0
    paused: int = 0
    ended: bool = False
    attempts: int = 0
    seconds: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    codes: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Tally:
    """Counts over all outcomes, in the words of `build/faults.json`."""

    outcomes: list[Outcome] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """Return the figures."""
        verdicts = [outcome.verdict for outcome in self.outcomes]
        kinds, codes = Counter[str](), Counter[int]()
        for outcome in self.outcomes:
            kinds.update(outcome.faults)
            codes.update(outcome.codes)
        hits = sum(outcome.hits for outcome in self.outcomes)
        missed = sum(outcome.meant - outcome.hits for outcome in self.outcomes if outcome.meant)
        paused = sum(outcome.paused for outcome in self.outcomes)
        return {
            "points": sum(outcome.meant > 0 for outcome in self.outcomes),
            "kills": hits - paused,
            "paused": paused,
            "missed": missed,
            "faults_fired": hits + sum(kinds.values()),
            "faults_by_kind": dict(sorted(kinds.items())),
            "runs": len(self.outcomes),
            "runs_ended": sum(outcome.ended for outcome in self.outcomes),
            "attempts": sum(outcome.attempts for outcome in self.outcomes),
            "exit_codes": {str(code): count for code, count in sorted(codes.items())},
            "calls_repeated": sum(verdict.calls_repeated for verdict in verdicts),
            "violations": sum(len(verdict.violations) for verdict in verdicts),
            "effects_duplicated": sum(verdict.effects_duplicated for verdict in verdicts),
            "recorded_steps_repeated": sum(verdict.recorded_steps_repeated for verdict in verdicts),
        }


def judged(scene: Scene, run: Disturbed, expected: Expected) -> Verdict:
    """Return what is wrong with a run of the scene."""
    return judge(_seen(scene, run), expected)


def clean_run(scene: Scene, agent: str) -> Clean:
    """Run an agent undisturbed and return what came of it. Raises NotClean if that is not right."""
    run = scene.run(agent)
    seen = _seen(scene, run)
    expected = expected_of(seen)
    verdict = judge(seen, expected)
    if verdict.violations:
        raise NotClean(agent, verdict)
    return Clean(expected, Requests(len(run.requests), len(run.calls)))


def perform(scene: Scene, task: Task, clean: Clean, *, seed: int, journals: Path) -> Outcome:
    """Do one task and judge what came of it. The journal of one that went wrong is kept in `journals`."""
    return _outcome(scene, task, clean, seed, journals, lambda: _run(scene, task, seed))


def _run(scene: Scene, task: Task, seed: int) -> Disturbed:
    match task:
        case Point(agent, blows):
            return scene.run(agent, *blows)
        case SoakRun(agent, number):
            return scene.run_among_faults(agent, Soak(seed, number).arm, deadline=DEADLINE_S)


def _outcome(
    scene: Scene, task: Task, clean: Clean, seed: int, journals: Path, go: Callable[[], Disturbed]
) -> Outcome:
    name, command = str(task), task.command(seed)
    try:
        run = go()
        verdict = judged(scene, run, clean.expected)
    except (TookTooLong, MilepostError, AssertionError) as error:
        # A run that cannot even be read is the worst finding of all, and the others go on.
        return Outcome(name, command, Verdict([f"{type(error).__name__}: {error}"]))
    if verdict.violations:
        _keep(journals / f"{_slug(name)}.jsonl", run)
    fired = [passed.fault for passed in run.requests if passed.fault]
    faults = Counter(kind_of(fault) for fault in fired if not isinstance(fault, Hold))
    paused = [each for each in run.attempts if each.hit and each.blow and each.blow.how is How.PAUSE]
    return Outcome(
        name,
        command,
        verdict,
        meant=len(task.blows) if isinstance(task, Point) else 0,
        hits=sum(each.hit for each in run.attempts),
        paused=len(paused),
        ended=run.final.head.phase.terminal,
        attempts=len(run.attempts),
        seconds=run.seconds,
        faults=faults,
        codes=Counter(each.code for each in run.attempts),
    )


def kind_of(fault: Action) -> str:
    """Return the name under which a fault is counted."""
    match fault:
        case Reply(status, code, after):
            return f"{status} {code}{' after it was applied' if after else ''}"
        case Drop(after, reset):
            return f"{'reset' if reset else 'dropped'} {'after' if after else 'before'} it was applied"
        case Truncate(upload=upload):
            return f"{'request' if upload else 'answer'} truncated"
        case Flip(mended=mended, upload=upload):
            return f"{'request' if upload else 'answer'} flipped{' and mended' if mended else ''}"
        case Delay():
            return "delayed"
        case Hold():
            return "held"


def _seen(scene: Scene, run: Disturbed) -> Seen:
    return Seen(run, scene.store, Effects.read(scene.ledger, run.keys.run_id))


def _keep(file: Path, run: Disturbed) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    ends = [f"attempt {each.number}: {each.code}" for each in run.attempts]
    logs = [log.read_text(errors="replace") for log in sorted(run.world.glob("log-*"))]
    lines = [passed.line() for passed in (*run.requests, *run.calls)]
    file.write_text("\n".join([*lines, *ends, *logs]) + "\n")


def _slug(name: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in name)
