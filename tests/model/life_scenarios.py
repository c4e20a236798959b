"""The scenarios of whole executors: calls that must not be repeated, gates, and ways to resume."""

from __future__ import annotations

from typing import Final

from milepost.checkpoint.gates import AnswerType
from tests.model.lives import lives
from tests.model.scenario import Scenario

__all__ = ["LIFE_SCENARIOS"]

_UNKNOWN: Final = frozenset({"OutcomeUnknown"})
_ANN: Final = ("ann", AnswerType.APPROVE)
_BOB: Final = ("bob", AnswerType.DENY)

LIFE_SCENARIOS: Final = (
    Scenario(
        "an irreversible call",
        "two executors that make one, of which one dies, and a person who says what became of it",
        lives,
        {"agent": "tells", "pods": 2, "faults": 0, "crashes": 1, "deciders": 1, "halts": _UNKNOWN},
        {"faults": 1},
    ),
    Scenario(
        "a verified call",
        "two executors that make one, of which one dies, and a person who says what became of it",
        lives,
        {"agent": "delivers", "pods": 2, "faults": 0, "crashes": 1, "deciders": 1, "halts": _UNKNOWN},
        {"faults": 1},
    ),
    Scenario(
        "an approval",
        "two executors at a gate, of which one dies anywhere, and a person who approves",
        lives,
        {"agent": "approves", "pods": 2, "faults": 0, "crashes": 1, "people": (_ANN,)},
        {"faults": 1},
    ),
    Scenario(
        "an approved call",
        "two executors at an irreversible call that has to be approved, one of which dies, and people",
        lives,
        {
            "agent": "wires",
            "pods": 2,
            "faults": 0,
            "crashes": 1,
            "people": (_ANN,),
            "deciders": 1,
            "halts": _UNKNOWN,
        },
        {"people": (_ANN, _BOB), "crashes": 0},
    ),
    Scenario(
        "gates side by side",
        "two executors with two branches at gates, one of which dies anywhere, and a person who approves one",
        lives,
        {"agent": "branches", "pods": 2, "faults": 0, "crashes": 0, "people": (_ANN,)},
        {"crashes": 1},
    ),
    Scenario(
        "handed over",
        "two executors, everySteps 2, one of which dies anywhere, and effects that follow from what is not "
        "recorded yet",
        lives,
        {
            "agent": "hands_over",
            "pods": 2,
            "faults": 0,
            "crashes": 1,
            "every": 2,
            "deciders": 1,
            "halts": _UNKNOWN,
        },
        {"faults": 1},
    ),
    Scenario(
        "two answers",
        "two people who approve and deny at once, each of whom may not learn what became of it",
        lives,
        {"agent": "approves", "pods": 1, "faults": 1, "crashes": 0, "people": (_ANN, _BOB)},
        {"pods": 2, "faults": 0},
    ),
    Scenario(
        "a deadline",
        "two executors, a person who approves, and an operator to whom it is too late, and a sleep is over",
        lives,
        {"agent": "expires", "pods": 2, "faults": 0, "crashes": 0, "people": (_ANN,), "clocks": 1},
        {"crashes": 1, "clocks": 2},
    ),
    Scenario(
        "two deadlines",
        "an executor that may die, two operators to whom it is too late, and a person who approves",
        lives,
        {"agent": "expires", "pods": 1, "faults": 0, "crashes": 1, "people": (_ANN,), "clocks": 2},
        {"faults": 1},
    ),
    Scenario(
        "an early event",
        "two executors that wait for two events, and one who sends the first of them at any time",
        lives,
        {"agent": "listens", "pods": 2, "faults": 0, "crashes": 0, "events": (("eve", "x"),)},
        {"crashes": 1},
    ),
    Scenario(
        "two events",
        "an executor that waits for two events, and two who send one at any time",
        lives,
        {
            "agent": "listens",
            "pods": 1,
            "faults": 0,
            "crashes": 0,
            "events": (("eve", "x"), ("sue", "y")),
        },
        {"faults": 1},
    ),
    Scenario(
        "a sweep of what waits",
        "an executor at a gate that may die, a person who approves, and a sweeper to which everything is old",
        lives,
        {"agent": "approves", "pods": 1, "faults": 0, "crashes": 1, "people": (_ANN,), "sweeps": 2},
        {"pods": 2, "sweeps": 1},
    ),
    Scenario(
        "checked again",
        "two executors, the second of which checks what is recorded, and withdraws",
        lives,
        {
            "agent": "checks",
            "pods": 2,
            "faults": 0,
            "crashes": 0,
            "halts": _UNKNOWN,
            "resume": "Revalidate",
        },
        {"crashes": 1},
    ),
    Scenario(
        "checked and followed",
        "an executor after another, where what follows from a withdrawn step is recorded, and a person",
        lives,
        {
            "agent": "follows",
            "pods": 3,
            "faults": 0,
            "crashes": 0,
            "people": (_ANN,),
            "resume": "Revalidate",
            "in_turn": True,
        },
        {"faults": 1, "deciders": 1, "halts": _UNKNOWN},
    ),
    Scenario(
        "begun anew",
        "two executors, the second of which begins anew with what was found",
        lives,
        {
            "agent": "plans",
            "pods": 2,
            "faults": 0,
            "crashes": 0,
            "halts": _UNKNOWN,
            "resume": "RestartWithContext",
        },
        {"crashes": 1},
    ),
)
