"""What the command line prints: tables, the end of a run, and the executor's lines as they come.

Progress and everything that the agent prints go to standard error, so that standard output holds the result
and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from milepost.api.resource import Phase
from milepost.checkpoint.head import Head
from milepost.cli.listing import Listed
from milepost.cli.log import Row
from milepost.local.runner import Outcome

__all__ = [
    "Progress",
    "age",
    "counted",
    "end_of",
    "new_table",
    "progress_of",
    "runs_table",
    "size",
    "steps_table",
    "tables",
]

_HIDDEN: Final = frozenset({"claimed", "end", "stopping", "released"})
"""Events of the executor that the runner tells in its own words."""

_NAMED: Final = frozenset({"step", "name", "what was seen", "goal", "object or run", "why"})
_WIDE: Final = 160
"""Columns of a table that is not shown on a terminal: nobody can have chosen a width."""

_KIB: Final = 1024
_HOUR_MIN: Final = 60
_DAY_MIN: Final = 24 * 60


@dataclass(frozen=True)
class Progress:
    """Prints what happens as it happens."""

    console: Console

    def say(self, text: str) -> None:
        """Print a line of the runner's."""
        self.console.print(Text(text, style="bold"), soft_wrap=True)

    def line(self, raw: str) -> None:
        """Print a line of the executor's: a checkpoint as its steps, anything of the agent's as it is."""
        event = _event(raw)
        match event:
            case {"event": "checkpoint", "steps": list(steps)}:
                for step in steps:
                    self.console.print(Text(f"  {_count(event)}  {step}", style="green"))
            case {"event": "step-failed", "step": step, "attempt_of_step": n, "attempts": of, "error": error}:
                self.console.print(
                    Text(f"  {step} failed, try {n} of {of}: {error}", style="yellow"), soft_wrap=True
                )
            case {"event": "store-trouble", "cause": str(cause), "waited_s": waited, "gives_up_after_s": end}:
                told = f"  the store has given no clear answer for {waited} s (until {end:.0f} s): {cause}"
                self.console.print(Text(told, style="yellow"), soft_wrap=True)
            case {"event": "base-damaged", "worker": str(), "error": str(error)}:
                told = f"  {error}; it is a cache, and nothing is lost"
                self.console.print(Text(told, style="yellow"), soft_wrap=True)
            case {"event": "agent-failed", "worker": str(), "exception": str(trace)}:
                self.console.print(Text(trace, style="yellow"), soft_wrap=True)
            case {"event": str(name), "worker": str()} if name in _HIDDEN:
                pass
            case _:
                self.console.print(Text.from_ansi(raw), soft_wrap=True)


def tables() -> Console:
    """Return where tables go: standard output."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def _event(raw: str) -> dict[str, Any]:
    try:
        event = json.loads(raw) if raw.startswith("{") else {}
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _count(event: dict[str, Any]) -> str:
    total = event.get("total")
    return f"{event.get('done')}/{total}" if total else f"{event.get('done')}"


def end_of(outcome: Outcome) -> Text:
    """Return the line that says how the run stands."""
    style = "bold green" if outcome.phase is Phase.SUCCEEDED else "bold red"
    why = f"{outcome.reason}: {outcome.message}" if outcome.message else outcome.reason
    return Text(f"run {outcome.run_id}: {outcome.phase}, {outcome.steps} steps recorded ({why})", style=style)


def steps_table(rows: Iterable[Row]) -> Table:
    """Return the log as a table."""
    table = new_table("seq", "step", "status", "tries", "started", "took", "size", "epoch", "attempt")
    for row in rows:
        table.add_row(
            str(row.seq),
            row.step,
            row.status,
            str(row.attempts),
            _time(row.started),
            f"{row.duration_s:.2f} s",
            "" if row.size is None else size(row.size),
            str(row.epoch),
            str(row.pod),
        )
    return table


def new_table(*columns: str) -> Table:
    """Return an empty table, of which only what a user named is ever broken into lines."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column not in _NAMED, overflow="fold")
    return table


def runs_table(runs: Iterable[Listed], *, with_ids: bool = False) -> Table:
    """Return the runs of a store as a table."""
    ids = ("run",) if with_ids else ()
    table = new_table("namespace", "name", *ids, "status", "steps", "attempt", "updated", "goal")
    for run in runs:
        steps = f"{run.steps}/{run.steps_total}" if run.steps_total else str(run.steps)
        style = "bold red" if run.problem else "" if run.named else "dim"
        table.add_row(
            run.namespace,
            run.name or run.run_id,
            *((run.run_id,) if with_ids else ()),
            Text(run.status, style=style),
            "" if run.problem else steps,
            "" if run.problem else str(run.attempt),
            _time(run.updated),
            Text(run.problem or run.goal),
        )
    return table


def age(seconds: float) -> str:
    """Return a time that has passed for people."""
    minutes = int(seconds) // 60
    if minutes < 2 * _HOUR_MIN:
        return f"{minutes} min" if minutes else f"{seconds:.0f} s"
    return f"{minutes // _HOUR_MIN} h" if minutes < 2 * _DAY_MIN else f"{minutes // _DAY_MIN} d"


def progress_of(head: Head) -> str:
    """Return how many steps are done, of those expected."""
    total = head.totals.steps_total
    return f"{head.totals.steps_done}/{total}" if total else str(head.totals.steps_done)


def size(number: int) -> str:
    """Return a number of bytes for people."""
    if number < _KIB:
        return f"{number} B"
    return f"{number / _KIB:.1f} KiB" if number < _KIB**2 else f"{number / _KIB**2:.1f} MiB"


def counted(number: int, noun: str) -> str:
    """Return a number of things for people."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _time(text: str) -> str:
    return f"{datetime.fromisoformat(text):%m-%d %H:%M:%S}" if text else ""
