"""What to tell people where a run's history is damaged: what is wrong, what is left, what to call.

It never makes things worse: where the rest cannot be read either, the message says what is known without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milepost.api.names import StoreKeys
from milepost.checkpoint.store import Store
from milepost.checkpoint.survey import Survey, survey
from milepost.errors import Damaged, FormatTooNew, MilepostError, RolledBack, StoreRefused, StoreUnavailable

__all__ = ["MOST", "explain", "repair_command"]

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
    if isinstance(error, RolledBack) and not left.problems:
        # What is there is sound, and only somebody outside of the store knew that it is not all.
        command += " --as-it-is"
    return _cut(f"{said}. {_left(left)}. To go on from what is left: {command} --dry-run. {_repeats(left)}")


def repair_command(keys: StoreKeys, where: str, name: str) -> str:
    """Return the command that makes a sound run of a damaged one."""
    run = f"{keys.namespace}/{name}" if name else f"--run {keys.namespace}/{keys.run_id}"
    return f"milepost store repair '{where}' {run}"


def _left(left: Survey) -> str:
    if left.trusted == left.last:
        return f"Records 1 to {left.last} can be trusted"
    if left.trusted == 0 and not left.readable:
        return "No record can be read"
    upto = f"Records 1 to {left.trusted} of {left.last} can be trusted"
    beyond = ", ".join(f"{first} to {last}" for first, last in left.readable[:_NAMED])
    return f"{upto}, and {beyond} can be read" if beyond else upto


def _repeats(left: Survey) -> str:
    named = _listed(left.repeats)
    more = f"{left.unnamed} more of which no name is left" if left.unnamed else ""
    both = " and ".join(filter(None, (named, more)))
    return f"These steps are lost and run again: {both}" if both else "No completed step is known to be lost"


def _listed(steps: Sequence[str]) -> str:
    if len(steps) <= _NAMED:
        return ", ".join(steps)
    return f"{', '.join(steps[:_NAMED])} and {len(steps) - _NAMED} others"


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
