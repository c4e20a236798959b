"""What the command line prints: tables, and the end of a run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from milepost.api.resource import Phase
from milepost.checkpoint.head import Head
from milepost.cli.listing import Listed
from milepost.cli.log import Row
from milepost.cli.visible import visible
from milepost.local.runner import Outcome
from milepost.local.ways import summary_of

__all__ = [
    "age",
    "cost",
    "counted",
    "end_of",
    "new_table",
    "print_table",
    "progress_of",
    "runs_table",
    "size",
    "standing_of",
    "steps_table",
    "used",
]

_NAMED: Final = frozenset(
    {"step", "name", "what was seen", "goal", "object or run", "why", "note", "waits for"}
)
_NOTE: Final = 200
"""Characters of a note; JSON has all of it."""

_KIB: Final = 1024
_HOUR_MIN: Final = 60
_DAY_MIN: Final = 24 * 60


def print_table(table: Table) -> None:
    """Print a table to standard output. Where that is no terminal each row is one line, however long."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    # For a program that reads lines; and a long log is laid out in no time.
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    widths = [max(map(cell_len, cells)) for cells in columns]
    for row in zip(*columns, strict=True):
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        console.out("  ".join(cells).rstrip(), highlight=False)


def end_of(outcome: Outcome) -> Text:
    """Return the line that says how the run stands."""
    style = "bold green" if outcome.phase is Phase.SUCCEEDED else "bold red"
    why = f"{outcome.reason}: {outcome.message}" if outcome.message else outcome.reason
    return Text(
        visible(f"run {outcome.run_id}: {outcome.phase}, {counted(outcome.steps, 'step')} recorded ({why})"),
        style=style,
    )


def steps_table(rows: Iterable[Row]) -> Table:
    """Return the log as a table. What models used, and notes, are columns where there is any of it."""
    rows = list(rows)
    notes = any(map(_note, rows))
    tokens = any(row.tokens or row.cost_usd for row in rows)
    extra = [*(("tokens", "cost") if tokens else ()), *(("note",) if notes else ())]
    table = new_table("seq", "step", "status", "tries", "started", "took", "size", "epoch", "attempt", *extra)
    for row in rows:
        cells = [
            str(row.seq),
            visible(row.step),
            row.status,
            str(row.attempts or ""),
            _time(row.started),
            f"{row.duration_s:.2f} s" if row.duration_s or row.attempts else "",
            "" if row.size is None else size(row.size),
            str(row.epoch),
            str(row.pod),
        ]
        if tokens:
            cells += [f"{row.tokens:,}" if row.tokens else "", cost(row.cost_usd)]
        table.add_row(*map(Text, [*cells, *([_note(row)] if notes else [])]))
    return table


def _note(row: Row) -> str:
    """Return what else there is to say: who decided, when and why, what went wrong, or what came of it."""
    decided = f"by {row.by} at {_time(row.at)}" if row.by else ""
    told = ": ".join(filter(None, [decided, row.reason]))
    waits = row.description if row.status in ("waiting", "halted") else ""
    return visible(_short(" ".join(filter(None, [told, row.error, waits, row.summary]))))


def _short(text: str) -> str:
    line, _, more = text.partition("\n")
    return f"{line[:_NOTE]} ..." if more or len(line) > _NOTE else line


def new_table(*columns: str) -> Table:
    """Return an empty table, of which only what a user named is ever broken into lines."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column not in _NAMED, overflow="fold")
    return table


def runs_table(runs: Iterable[Listed], *, with_ids: bool = False) -> Table:
    """Return the runs of a store as a table. Some columns are there where a run has something in them."""
    runs = list(runs)
    ids = ("run",) if with_ids else ()
    more = {
        "failed": [str(run.failed or "") for run in runs],
        "skipped": [str(run.skipped or "") for run in runs],
        "phase": [run.group for run in runs],
        "tokens": [f"{run.tokens:,}" if run.tokens else "" for run in runs],
        "cost": [cost(run.cost_usd) for run in runs],
        "waits for": [", ".join(run.waits_for) for run in runs],
    }
    more = {name: cells for name, cells in more.items() if any(cells)}
    table = new_table("namespace", "name", *ids, "status", "steps", "attempt", *more, "updated", "goal")
    for number, run in enumerate(runs):
        steps = f"{run.steps}/{run.steps_total}" if run.steps_total else str(run.steps)
        style = "bold red" if run.problem else "" if run.named else "dim"
        table.add_row(
            run.namespace,
            run.name or run.run_id,
            *((run.run_id,) if with_ids else ()),
            Text(run.status, style=style),
            "" if run.problem else steps,
            "" if run.problem else str(run.attempt),
            *(Text(visible(cells[number])) for cells in more.values()),
            _time(run.updated),
            Text(visible(run.problem or run.goal)),
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


def standing_of(head: Head) -> str:
    """Return how far a run is: its counts, those that are 0 left out, and what it waits for."""
    totals = head.totals
    told = [
        f"{progress_of(head)} steps" if totals.steps_total else counted(totals.steps_done, "step"),
        f"{totals.steps_failed} failed" if totals.steps_failed else "",
        f"{totals.steps_skipped} skipped" if totals.steps_skipped else "",
        f"phase {totals.group} ({counted(totals.group_done, 'step')})" if totals.group else "",
        f"{counted(totals.gaps, 'phase')} with gaps" if totals.gaps else "",
        counted(totals.replans, "replan") if totals.replans else "",
        *used(totals.tokens, totals.cost_nano_usd / 1e9),
        f"attempt {head.attempt}",
        f"record {head.seq}",
    ]
    waits = summary_of(head.gates) if head.phase is Phase.WAITING else ()
    return visible(", ".join(filter(None, told)) + (f"; waits for {', '.join(waits)}" if waits else ""))


def used(tokens: int, cost_usd: float) -> list[str]:
    """Return what models used, as words; nothing where none was used."""
    return list(filter(None, [f"{tokens:,} tokens" if tokens else "", cost(cost_usd)]))


def cost(usd: float) -> str:
    """Return US dollars for people; nothing for none."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}" if usd else ""


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
