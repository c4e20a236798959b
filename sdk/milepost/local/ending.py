"""What follows when an executor has ended: a pure decision from its exit code and the run's head.

Success is read in the head and nowhere else, and so is that a run waits. A signal from outside is nobody's
fault and costs nothing; a crash, an exit code of the agent's own, and an exit that left no record behind are
counted, up to the run's limit. The surprise: a kill that repeats without any progress ends the attempts too,
since on a machine of one's own the killer may be its lack of memory.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.api.summary import HeadSummary
from milepost.checkpoint.records import PreviousEnd
from milepost.local.process import Exited

__all__ = [
    "OWN_CAUSES",
    "Again",
    "Attempt",
    "GiveUp",
    "Next",
    "Report",
    "Stop",
    "Wait",
    "after_exit",
    "phrase",
    "worth_telling",
]

OWN_CAUSES: Final = frozenset({"AgentFailed", "Crashed", "ExitedWithoutOutcome", "HaltedWithoutRecord"})
"""The causes that use up `retry.executorFailures`."""

FRUITLESS: Final = 5
"""Attempts in a row that may be lost from outside without a step recorded between them."""

_STORE_PAUSE: Final = 5.0
_LONGEST_PAUSE: Final = 30.0

_CRASHES: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
_OWN_CODES: Final[dict[int, str]] = {
    Exit.COMMITTED: "ExitedWithoutOutcome",
    Exit.HALTED: "HaltedWithoutRecord",
}


@dataclass(frozen=True)
class Attempt:
    """An attempt that has ended, and what came before it.

    `failures` counts earlier attempts that failed by the agent's own fault, `fruitless` those just before
    this one that were lost from outside without a step recorded.
    """

    number: int
    steps_before: int = 0
    failures: int = 0
    fruitless: int = 0
    limit: int = 3


@dataclass(frozen=True)
class Again:
    """Start another attempt after `pause` seconds."""

    previous: PreviousEnd
    failures: int
    fruitless: int = 0
    pause: float = 0.0


@dataclass(frozen=True)
class Wait:
    """The run waits at gates, and its process is no more: start another one once a gate has its answer."""

    previous: PreviousEnd


@dataclass(frozen=True)
class Report:
    """The head says how the run ended, or why it halted."""


@dataclass(frozen=True)
class GiveUp:
    """End the run as Failed: it has used up its failures."""

    reason: str
    message: str


@dataclass(frozen=True)
class Stop:
    """Start nothing more, and leave the run as it is; a later call can go on."""

    reason: str
    message: str


Next: TypeAlias = Again | Wait | Report | GiveUp | Stop


def after_exit(exited: Exited, head: HeadSummary | None, attempt: Attempt) -> Next:
    """Return what to do after the attempt, given the run's head as it was read after the end."""
    if head is None or head.phase is Phase.DELETING:
        return Stop("RunDeleted", "the run was deleted from the store while it was running")
    if head.phase.terminal or (head.phase is Phase.HALTED and head.attempt == attempt.number):
        return Report()
    if head.phase is Phase.WAITING and head.attempt == attempt.number:
        code = exited.code if exited.code >= 0 else 128 - exited.code
        return Wait(
            PreviousEnd(
                attempt=attempt.number, cause="Waiting", fault="disruption", exit_code=code, proved=True
            )
        )
    if head.attempt > attempt.number:
        return Stop("Fenced", f"attempt {head.attempt} of the run was started elsewhere, and goes on there")
    if exited.code == Exit.FENCED:
        return Stop("Fenced", "another writer has taken the run over, and goes on with it")
    if exited.code == Exit.START_ERROR:
        return Stop(exited.reason or "StartError", exited.message or "the executor could not start")
    end = _end(exited, attempt.number)
    if end.cause in OWN_CAUSES:
        return _after_failure(end, attempt)
    return _after_loss(end, attempt, progress=head.steps_done > attempt.steps_before)


def _after_failure(end: PreviousEnd, attempt: Attempt) -> Again | GiveUp:
    failures = attempt.failures + 1
    if failures >= attempt.limit:
        times = "1 attempt" if failures == 1 else f"{failures} attempts"
        return GiveUp(
            "ExecutorFailed",
            f"{times} failed by the agent's own fault, which spec.retry.executorFailures allows no more; "
            f"attempt {end.attempt} {phrase(end)}",
        )
    return Again(end, failures, pause=min(2.0 ** (failures - 1), _LONGEST_PAUSE))


def _after_loss(end: PreviousEnd, attempt: Attempt, *, progress: bool) -> Again | Stop:
    fruitless = 0 if progress else attempt.fruitless + 1
    if fruitless >= FRUITLESS:
        return Stop(
            "NoProgress",
            f"the last {fruitless} attempts were lost before they recorded a step; attempt {end.attempt} "
            f"{phrase(end)}; is there enough memory?",
        )
    pause = _STORE_PAUSE if end.cause == "StoreUnknown" else 0.0
    return Again(end, attempt.failures, fruitless, pause)


def _end(exited: Exited, number: int) -> PreviousEnd:
    """Return how the attempt ended, in the words that the log keeps. That its code was seen is proof."""
    end = partial(PreviousEnd, attempt=number, message=exited.message, proved=True)
    code = exited.code
    if code < 0:
        cause, fault = ("Crashed", "agent") if -code in _CRASHES else ("KilledBySignal", "disruption")
        return end(cause=cause, fault=fault, exit_code=128 - code, message=_name(-code))
    if code in (Exit.RELEASED, Exit.STORE_UNKNOWN):
        cause = "Released" if code == Exit.RELEASED else "StoreUnknown"
        return end(cause=cause, fault="disruption", exit_code=code)
    return end(cause=_OWN_CODES.get(code, "AgentFailed"), fault="agent", exit_code=code)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_PHRASES: Final = {
    "ExitedWithoutOutcome": "exited with code 0 and recorded no outcome",
    "HaltedWithoutRecord": "exited as halted and recorded nothing",
    "Released": "was asked to stop",
    "StoreUnknown": "could not reach its store",
    "Interrupted": "was interrupted",
    "Waiting": "had come to a gate",
    "Halted": "halted",
}


def phrase(end: PreviousEnd) -> str:
    """Return the end as the rest of a sentence that begins with the attempt."""
    match end.cause:
        case "KilledBySignal":
            return f"was killed ({end.message})"
        case "Crashed":
            return f"crashed ({end.message})"
        case "AgentFailed":
            said = f"failed with exit code {end.exit_code}"
        case cause:
            said = _PHRASES.get(cause, cause)
    return f"{said}: {end.message}" if end.message else said


def worth_telling(before: PreviousEnd | None, end: PreviousEnd, head: HeadSummary) -> PreviousEnd:
    """Return which end the next attempt records, of the one before it and of the one before that.

    An attempt that was lost before it could claim the run has done nothing that its end could prove.
    """
    unclaimed = head.attempt < end.attempt
    return before if unclaimed and before is not None and end.fault == "disruption" else end
