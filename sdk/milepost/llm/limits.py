"""Budgets of one LLMAgent, counted from what is recorded, so that a restart finds them as they were."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from typing_extensions import override

from milepost import AgentError
from milepost.llm.answers import Answer

__all__ = ["LimitName", "LimitReached", "Limits", "OnLimit", "Reached", "Spent"]

LimitName: TypeAlias = Literal["steps", "tokens", "cost_usd", "wall"]
OnLimit: TypeAlias = Literal["stop", "ask", "fail"]

REASONS: Final[dict[LimitName, str]] = {
    "steps": "StepCapReached",
    "tokens": "TokenLimitReached",
    "cost_usd": "CostLimitReached",
    "wall": "TimeLimitReached",
}


class LimitReached(AgentError):
    """A limit is used up, and the agent was told to fail then. `reason` is stable and CamelCase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


@dataclass(frozen=True)
class Limits:
    """How much an LLMAgent may use in one call of `run`; None is no limit. `wall` is seconds or a timedelta.

    Steps are calls of tools, tokens and cost those of all recorded answers, and the wall time runs from the
    call on, waiting for people and lost pods included.
    """

    steps: int | None = 60
    tokens: int | None = None
    cost_usd: float | None = None
    wall: float | timedelta | None = None

    def __post_init__(self) -> None:
        for name, limit in self.numbers().items():
            if limit is not None and not limit > 0:
                raise ValueError(f"the limit {name} is a number above 0, or None, and not {limit}")

    def numbers(self) -> dict[LimitName, float | None]:
        """Return the limits as numbers; the wall time in seconds."""
        wall = self.wall.total_seconds() if isinstance(self.wall, timedelta) else self.wall
        return {"steps": self.steps, "tokens": self.tokens, "cost_usd": self.cost_usd, "wall": wall}


@dataclass(frozen=True)
class Reached:
    """A limit that is used up."""

    name: LimitName
    used: float
    limit: float

    @property
    def reason(self) -> str:
        """Stable and CamelCase."""
        return REASONS[self.name]

    @override
    def __str__(self) -> str:
        unit = {"steps": "steps", "tokens": "tokens", "cost_usd": "USD", "wall": "seconds"}[self.name]
        return f"{self.used:g} of {self.limit:g} {unit} are used"


@dataclass
class Spent:
    """What has been used since `began`. `granted` is how often each limit was raised."""

    began: datetime
    steps: int = 0
    tokens: int = 0
    cost: int = 0
    granted: dict[LimitName, int] = field(default_factory=dict)

    def think(self, answer: Answer) -> None:
        """Count an answer of the model."""
        self.tokens += answer.tokens
        self.cost += answer.cost

    def used(self, now: datetime) -> dict[LimitName, float]:
        """Return what is used of each limit."""
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "cost_usd": self.cost / 1e9,
            "wall": (now - self.began).total_seconds(),
        }

    def reached(self, limits: Limits, now: datetime) -> Reached | None:
        """Return the first limit that is used up, if there is one."""
        used = self.used(now)
        for name, limit in limits.numbers().items():
            if limit is None:
                continue
            allowed = limit * (1 + self.granted.get(name, 0))
            if used[name] >= allowed:
                return Reached(name, used[name], allowed)
        return None

    def grant(self, reached: Reached) -> None:
        """Raise a limit by as much again as it was in the beginning."""
        self.granted[reached.name] = self.granted.get(reached.name, 0) + 1
