"""What of the past the model is shown: turns, and the policy by which long pasts are cut.

Nothing is left out silently: where turns are missing the prompt says how many and of what kind, every
completed step keeps a line in the list of completed steps, and what is left out is logged once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from milepost.llm.answers import Answer

__all__ = ["History", "Past", "Turn", "TurnKind", "cut"]

TurnKind: TypeAlias = Literal["completed", "failed", "refused", "unusable"]

CHARACTERS_A_TOKEN: Final = 4
"""A rough measure, the same for all models; how many tokens a text is only its provider can say."""

SHRINK_TO: Final = 0.75
"""The share of a limit that is left after cutting, so that the next turns leave the beginning as it is:
providers bill a beginning that they have seen before at a lower price."""

MESSAGES_A_TURN: Final = 2


@dataclass(frozen=True)
class History:
    """How much of its past a model is shown with each request.

    Once the turns (an answer, and what came of it: two messages) are more than `max_messages` or, by four
    characters a token, `max_tokens`, the oldest after the first `keep_first` turns are left out, until they
    are at most three quarters of that; the last `keep_last` turns always stay. What one step returned is
    shown up to `max_result` characters. Goal, context and instructions are never cut.
    """

    max_messages: int | None = None
    max_tokens: int | None = 100_000
    keep_first: int = 1
    keep_last: int = 5
    max_result: int = 40_000

    def __post_init__(self) -> None:
        if self.keep_first < 0 or self.keep_last < 1 or self.max_result < 1:
            raise ValueError("a history keeps at least the last turn, and a result at least one character")
        for name, limit in (("max_messages", self.max_messages), ("max_tokens", self.max_tokens)):
            if limit is not None and limit < 1:
                raise ValueError(f"{name} is a number above 0, or None, and not {limit}")


@dataclass(frozen=True)
class Turn:
    """An answer of the model and what came of it. `result` is as the model is shown it."""

    answer: Answer
    kind: TurnKind
    result: str
    line: str = ""

    @cached_property
    def size(self) -> int:
        """Characters of both messages, about."""
        asked = self.answer.calls[0] if self.answer.calls else None
        arguments = len(str(asked.arguments or asked.raw)) if asked else 0
        thought = sum(len(str(part.get("text", ""))) for part in self.answer.thinking)
        return len(self.answer.text) + thought + arguments + len(self.result)


@dataclass
class Past:
    """The turns so far. `left_out` of them, after the first `keep_first`, are not shown any more."""

    policy: History
    turns: list[Turn] = field(default_factory=list)
    left_out: int = 0
    digest: str = ""

    def add(self, turn: Turn, came_of_it: str) -> None:
        """Add a turn. `came_of_it` is the whole of what came of it, and the same whenever the run resumes."""
        self.turns.append(turn)
        together = f"{self.digest}\n{turn.answer.digest}\n{came_of_it}"
        self.digest = sha256(together.encode("utf-8", "surrogatepass")).hexdigest()

    def shorten(self) -> int:
        """Leave out what the policy says, and return how many turns that is more than before."""
        before = self.left_out
        if self._fits(1.0):
            return 0
        most = max(0, len(self.turns) - self.policy.keep_first - self.policy.keep_last)
        while self.left_out < most and not self._fits(SHRINK_TO):
            self.left_out += 1
        return self.left_out - before

    @property
    def first(self) -> Sequence[Turn]:
        """The turns before what is left out."""
        return self.turns[: self.policy.keep_first]

    @property
    def last(self) -> Sequence[Turn]:
        """The turns after what is left out."""
        return self.turns[self.policy.keep_first + self.left_out :]

    def note(self) -> str:
        """Return what the prompt says of the turns that are left out; empty where none are."""
        if not self.left_out:
            return ""
        gone = self.turns[self.policy.keep_first : self.policy.keep_first + self.left_out]
        counts = Counter(_told(turn) for turn in gone)
        what = ", ".join(f"{number} x {name}" for name, number in sorted(counts.items()))
        tokens = sum(turn.size for turn in gone) // CHARACTERS_A_TOKEN
        return (
            f"[{self.left_out} earlier turns, about {tokens} tokens, are left out here to keep this short: "
            f"{what}. What they completed stands in the list of completed steps.]"
        )

    def _fits(self, share: float) -> bool:
        shown = [*self.first, *self.last]
        messages, tokens = self.policy.max_messages, self.policy.max_tokens
        many = messages is not None and len(shown) * MESSAGES_A_TURN > messages * share
        size = sum(turn.size for turn in shown)
        return not many and not (tokens is not None and size > tokens * CHARACTERS_A_TOKEN * share)


def _told(turn: Turn) -> str:
    return turn.answer.calls[0].tool if turn.answer.calls else "answer without a call"


def cut(text: str, most: int) -> str:
    """Return the text, or its first `most` characters and how many are missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most} further characters are left out here]"
