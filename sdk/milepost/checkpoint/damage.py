"""What to tell people where a run's history is damaged: what is wrong, what is left, what to call.

It never makes things worse: where the rest cannot be read either, the message says what is known without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milepost.api.names import StoreKeys
from milepost.checkpoint.store import Store
from milepost.checkpoint.survey import Span, Survey, survey
from milepost.errors import Damaged, FormatTooNew, MilepostError, RolledBack, StoreRefused, StoreUnavailable

__all__ = ["MOST", "explain", "listed", "repair_command", "repeats", "trusted"]

MOST: Final = 1000
"""Characters of the message: what a condition shows of it, and half of what a record keeps."""

_NAMED: Final = 8


def explain(store: Store, keys: StoreKeys, error: MilepostError, *, where: str, name: str = "") -> str:
    """Return the message for a run that has to halt on this error, having read all that is left of it.

    `where` is the store's address as the command line takes it, and `name` the run's, where it is known.
    Blocks. Never raises what reading raises.
    """
    said = str(error)
    if isinstance(error, FormatTooNew):
        return said
    command = repair_command(keys, where, name)
    try:
        of_a_blob = isinstance(error, Damaged) and error.key.startswith(keys.blob(""))
        left = survey(store, keys, blobs=of_a_blob)
    except (Damaged, StoreRefused, StoreUnavailable):
        return _cut(f"{said}. To see what is left, and go on from it: {command} --dry-run")
    if isinstance(error, RolledBack) and not left.damage:
        # What is there is sound, and only somebody outside of the store knew that it is not all.
        command += " --as-it-is"
    lost = _sentence(repeats(left, _NAMED)) or "No completed step is known to be lost"
    # The command stands before the steps, whose names may be cut off.
    how = f"To go on from what is left: {command} --dry-run"
    return _cut(f"{said}. {_sentence(trusted(left))}. {how}. {lost}")


def repair_command(keys: StoreKeys, where: str, name: str) -> str:
    """Return the command that makes a sound run of a damaged one."""
    run = f"{keys.namespace}/{name}" if name else f"--run {keys.namespace}/{keys.run_id}"
    return f"milepost store repair '{where}' {run}"


def trusted(left: Survey) -> list[str]:
    """Return, a line each, which records can be trusted, which only be read, and which are lost."""
    if left.trusted == 0 and not left.readable:
        lines = ["no record can be read"]
    elif left.trusted == left.last:
        lines = [f"records 1 to {left.last} can be trusted"]
    elif left.trusted == 0:
        lines = [f"of the records 1 to {left.last} none can be trusted"]
    else:
        lines = [f"records 1 to {left.trusted} of {left.last} can be trusted"]
    if left.head is None:
        lines.append("newer records were in the head, 32 KiB at most, and are lost; their steps run again")
    if left.readable:
        lines.append(f"{_spans(left.readable)} can be read")
    if left.lost:
        lines.append(f"{_spans(left.lost)} {'is' if _is_one(left.lost) else 'are'} lost")
    return lines


def repeats(left: Survey, most: int) -> list[str]:
    """Return, a line each, which completed steps are lost, so many by name."""
    lines = []
    if left.repeats:
        lines.append(f"these steps are lost and run again: {listed(left.repeats, most)}")
    if left.unnamed:
        lines.append(f"steps that are lost and run again, of which no name is left: {left.unnamed}")
    return lines


def listed(names: Sequence[str], most: int) -> str:
    """Return so many of the names, and how many more there are."""
    more = len(names) - most
    others = f" and {more} {'other' if more == 1 else 'others'}" if more > 0 else ""
    return ", ".join(names[:most]) + others


def _spans(spans: Sequence[Span]) -> str:
    said = listed([str(one) if one == last else f"{one} to {last}" for one, last in spans], _NAMED)
    return f"{'record' if _is_one(spans) else 'records'} {said}"


def _is_one(spans: Sequence[Span]) -> bool:
    return len(spans) == 1 and spans[0][0] == spans[0][1]


def _sentence(lines: Sequence[str]) -> str:
    said = "; ".join(lines)
    return f"{said[:1].upper()}{said[1:]}"


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
