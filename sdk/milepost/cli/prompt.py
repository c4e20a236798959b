"""The approval prompt of `milepost run`: shows exactly what is asked, and takes the answer at the terminal.

It refuses to guess: an empty line is no answer, and what does not fit the gate's schema is asked again. The
terminal is read a line at a time and never waited for longer than a second, since somebody else may answer.
"""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from milepost.checkpoint.gates import AnswerType
from milepost.cli.visible import indented, visible
from milepost.errors import InvalidRun
from milepost.local.answering import Said, when
from milepost.local.fitting import answer_in
from milepost.local.questions import Question

__all__ = ["Prompt", "at_terminal"]

_LOOK_EVERY: Final = 1.0
_MOST_LINES: Final = 40
"""Lines of a request that are shown at once."""

_MOST_BYTES: Final = 64 * 1024

_CHOICES: Final = {
    "a": "approve",
    "approve": "approve",
    "d": "deny",
    "deny": "deny",
    "f": "full",
    "full": "full",
    "l": "later",
    "later": "later",
}


class _Answered(Exception):
    """There is nothing to answer any more."""


class _Later(Exception):
    """The person would rather not answer now."""


def at_terminal() -> bool:
    """Tell whether a person can be asked here: at a terminal that this process may read from."""
    try:
        mine = os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, OSError, ValueError):
        # Closed, or no file at all.
        return False
    # A process in the background that reads from its terminal is stopped by it.
    return mine and sys.stdin.isatty() and sys.stderr.isatty()


@dataclass(frozen=True)
class Prompt:
    """Asks for approvals. `source` is the file descriptor of the terminal."""

    console: Console
    source: int = 0

    def __call__(self, question: Question, interrupted: Callable[[], str]) -> Said | None:
        """Show what is asked and return what was said; None for later, or where `interrupted` says why."""
        # What was typed before the question was there is no answer to it.
        termios.tcflush(self.source, termios.TCIFLUSH)
        try:
            self._show(question, whole=False)
            choice = self._choose(question, interrupted)
            given = self._answer(question, interrupted) if choice is AnswerType.APPROVE else None
            reason = self._line("reason (may be empty): ", interrupted)
        except (_Answered, _Later):
            return None
        return Said(choice, reason, given)

    def _show(self, question: Question, *, whole: bool) -> None:
        gate = question.gate
        end = f", until {when(gate.until)}" if gate.until else ""
        self._print(f"\napproval {question.label}{end}", "bold")
        lines = indented(question.request) if gate.request is not None else []
        cut = len(lines) - _MOST_LINES if not whole else 0
        for line in lines[:_MOST_LINES] if cut > 0 else lines:
            self._print(line)
        if cut > 0:
            self._print(f"  ... {cut} more lines; f shows all of them", "bold")
        if question.needs_answer:
            self._print("the answer, as JSON Schema:")
            for line in indented(gate.answer_schema):
                self._print(line)

    def _choose(self, question: Question, interrupted: Callable[[], str]) -> AnswerType:
        while True:
            typed = self._line("[a]pprove, [d]eny, [f]ull request, [l]ater? ", interrupted).lower()
            match _CHOICES.get(typed):
                case "approve":
                    return AnswerType.APPROVE
                case "deny":
                    return AnswerType.DENY
                case "full":
                    self._show(question, whole=True)
                case "later":
                    raise _Later
                case _:
                    self._print(f"{typed!r} is none of a, d, f, l" if typed else "a, d, f or l")

    def _answer(self, question: Question, interrupted: Callable[[], str]) -> object:
        if not question.needs_answer:
            return None
        while True:
            typed = self._line("answer: ", interrupted)
            try:
                return answer_in(question.gate.answer_schema, typed or None, "answer")
            except InvalidRun as error:
                self._print(error.message, "yellow")

    def _line(self, ask: str, interrupted: Callable[[], str]) -> str:
        """Return a line that was typed, without its end. Raises _Answered, and _Later at the end of input."""
        self.console.print(ask, end="", markup=False, highlight=False)
        while not select.select([self.source], [], [], _LOOK_EVERY)[0]:
            if why := interrupted():
                self._print(f"\n{why}", "bold")
                raise _Answered
        # A terminal gives a line at a time, however much has been typed ahead.
        typed = os.read(self.source, _MOST_BYTES)
        if not typed:
            self._print("")
            raise _Later
        return typed.decode("utf-8", "surrogateescape").strip()

    def _print(self, text: str, style: str = "") -> None:
        self.console.print(visible(text), style=style or None, markup=False, highlight=False, soft_wrap=True)
