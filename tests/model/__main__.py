"""Walk through the scenarios and print what was walked: `python -m tests.model [--full] [NAME ...]`.

With `--breaks` it walks the seeded breaks instead, and prints the shortest way to what each one does.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tests.model.breaks import BREAKS
from tests.model.explore import Exploration
from tests.model.scenarios import SCENARIOS, scenario, walk

_HEADS = ("states", "transitions", "depth", "ends", "seconds")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _row(name: str, *cells: object) -> str:
    return f"{name:<26}" + "".join(f"{cell:>13}" for cell in cells)


def _explain(found: Exploration[Any]) -> None:
    for number, words in enumerate(found.trace, 1):
        _say(f"    {number:>3}. {words}")
    _say(f"    ==>  {found.wrong}")


def _scenarios(names: list[str], *, full: bool) -> int:
    bad, states, transitions = 0, 0, 0
    _say(_row("scenario", *_HEADS))
    for each in SCENARIOS:
        if names and each.name not in names:
            continue
        began = time.monotonic()
        found = walk(each.model(full=full))
        took = f"{time.monotonic() - began:.1f}"
        _say(_row(each.name, found.states, found.transitions, found.depth, found.ends, took))
        states, transitions = states + found.states, transitions + found.transitions
        if found.wrong:
            bad += 1
            _explain(found)
    _say(_row("all", states, transitions, "", "", ""))
    return bad


def _breaks(names: list[str]) -> int:
    missed = 0
    for each in BREAKS:
        if names and each.name not in names:
            continue
        found = walk(scenario(each.scenario).model(each.code, **each.bound), finish=each.finish)
        _say(f"{each.name} ({each.scenario}, {found.states} states):")
        if found.wrong:
            _explain(found)
        else:
            missed += 1
            _say("    NOT FOUND")
    return missed


def main() -> int:
    """Return how many scenarios hold something wrong, or how many breaks were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--full", action="store_true", help="the deeper bounds")
    parser.add_argument(
        "--breaks", action="store_true", help="the seeded breaks, each of which must be found"
    )
    options = parser.parse_args()
    return _breaks(options.names) if options.breaks else _scenarios(options.names, full=options.full)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
