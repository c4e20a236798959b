"""`python -m tests.faults`: kill executors at every request of their runs, soak runs in faults, report.

By default a slice: each request of each agent's clean run, before and after, some pauses and second kills,
and a short soak. With `--full` all of it, on both stores. With `--point` or `--soak` exactly one run.
The report goes to `build/faults.json`; the exit code is 1 if anything was violated, or too little was killed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.faults.campaign import AGENTS, Clean, NotClean, Outcome, SoakRun, Tally, Task, clean_run
from tests.faults.points import Blow, How, Line, Point, Requests, When, every_point, slice_of
from tests.faults.workers import Plan, do_all, scenes
from tools.cluster import seaweedfs, versitygw
from tools.cluster.interface import S3Server

BUILD: Final = Path("build")
STORES: Final = {"seaweedfs": seaweedfs.server, "versitygw": versitygw.server}
LEAST_KILLS: Final = 200
LEAST_FULL_KILLS: Final = 2000
SOAKS: Final = 24
FULL_SOAKS: Final = 60


def main() -> int:
    """Run what was asked for, and return the exit code."""
    options = _options()
    began = time.monotonic()
    wanted = _stores(options)
    with ExitStack() as stack:
        stores = {name: stack.enter_context(STORES[name]()) for name in wanted}
        clean = _clean(stores, wanted[0], options)
        plan = Plan(stores, clean, options.seed, BUILD / "faults", options.spawn)
        tasks = _tasks(options, {agent: each.requests for agent, each in clean.items()}, wanted)
        tally = _perform(tasks, plan, options.workers, began)
    report = tally.report() | {
        "seed": options.seed,
        "full": options.full,
        "stores": wanted,
        "workers": options.workers,
        "seconds": round(time.monotonic() - began, 1),
    }
    BUILD.mkdir(exist_ok=True)
    (BUILD / "faults.json").write_text(json.dumps(report, indent=2) + "\n")
    _say(json.dumps(report, indent=2))
    return 1 if _is_wrong(report, _least(options)) else 0


def _is_wrong(report: Mapping[str, Any], least: int) -> bool:
    if report["kills"] < least:
        _say(f"only {report['kills']} processes were killed, of {least} at least: this proves too little")
    vacuous: bool = report["kills"] < least
    unfinished: bool = report["runs_ended"] < report["runs"]
    return vacuous or unfinished or report["violations"] > 0


def _least(options: argparse.Namespace) -> int:
    if options.point or options.soak is not None or options.agent:
        return len(options.point)
    return LEAST_FULL_KILLS if options.full else LEAST_KILLS


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every point there is, on every store")
    parser.add_argument("--seed", type=int, default=1, help="of the soak; default: %(default)s")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: %(default)s")
    parser.add_argument("--spawn", action="store_true", help="start fresh interpreters instead of forking")
    parser.add_argument("--agent", choices=AGENTS, help="only this agent; default: all")
    parser.add_argument("--store", choices=list(STORES), help="only this store")
    parser.add_argument("--soak", type=int, help="only this run of the soak")
    parser.add_argument("--soaks", type=int, help="how many runs the soak has")
    one = parser.add_argument_group("one point", "each may be given again, for the next attempt")
    one.add_argument("--point", type=int, action="append", default=[], help="the request, counted from 1")
    one.add_argument("--when", type=When, choices=list(When), action="append", default=[])
    one.add_argument("--line", type=Line, choices=list(Line), action="append", default=[])
    one.add_argument("--how", type=How, choices=list(How), action="append", default=[])
    return parser.parse_args()


def _stores(options: argparse.Namespace) -> list[str]:
    if options.store:
        return [options.store]
    if options.full and not (lack := versitygw.lacking()):
        return list(STORES)
    if options.full:
        _say(f"without the second store: {lack}")
    return ["seaweedfs"]


def _clean(stores: Mapping[str, S3Server], name: str, options: argparse.Namespace) -> dict[str, Clean]:
    agents = [options.agent] if options.agent else list(AGENTS)
    with scenes(stores, spawn=options.spawn) as own:
        scene = own.on(name)
        found = {agent: clean_run(scene, agent) for agent in agents}
        # Side-by-side steps share their writes as it happens, so that two clean runs may differ by one.
        again = {agent: clean_run(scene, agent) for agent in agents}
    for agent, each in found.items():
        assert each.expected.result == again[agent].expected.result, (
            f"{agent} depends on more than its inputs"
        )
        _say(
            f"{agent}: a clean run makes {each.requests.store} requests to its store and "
            f"{each.requests.receiver} to the receiver"
        )
    return {
        agent: Clean(each.expected, _larger(each.requests, again[agent].requests))
        for agent, each in found.items()
    }


def _larger(one: Requests, other: Requests) -> Requests:
    return Requests(max(one.store, other.store), max(one.receiver, other.receiver))


def _tasks(options: argparse.Namespace, clean: Mapping[str, Requests], stores: Sequence[str]) -> list[Task]:
    agents = list(clean)
    if options.point:
        given = itertools.zip_longest(options.point, options.when, options.line, options.how)
        blows = tuple(
            Blow(index, when or When.BEFORE, line or Line.STORE, how or How.KILL)
            for index, when, line, how in given
        )
        return [Point(agents[0], blows, stores[0])]
    if options.soak is not None:
        return [SoakRun(agents[0], options.soak, stores[0])]
    soaks = options.soaks if options.soaks is not None else FULL_SOAKS if options.full else SOAKS
    soaked = [
        SoakRun(agents[number % len(agents)], number, stores[number % len(stores)]) for number in range(soaks)
    ]
    points = every_point(clean, stores) if options.full else slice_of(clean, stores[0])
    # The soak mostly waits, and goes on beside the points.
    return [*soaked, *points]


def _perform(tasks: Sequence[Task], plan: Plan, workers: int, began: float) -> Tally:
    tally = Tally()
    for outcome in do_all(tasks, plan, workers):
        tally.outcomes.append(outcome)
        _tell(outcome)
        if len(tally.outcomes) % 25 == 0 or len(tally.outcomes) == len(tasks):
            _tell_progress(tally, len(tasks), time.monotonic() - began)
    return tally


def _tell(outcome: Outcome) -> None:
    for violation in outcome.verdict.violations:
        _say(f"VIOLATION {outcome.name}: {violation}")
    if outcome.verdict.violations:
        _say(f"  again: {outcome.command}")


def _tell_progress(tally: Tally, of: int, seconds: float) -> None:
    figures: dict[str, Any] = tally.report()
    _say(
        f"[{seconds:5.0f} s] {figures['runs']}/{of} runs: {figures['kills']} killed, {figures['paused']} "
        f"paused, {figures['faults_fired']} faults fired, {figures['violations']} violations",
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotClean as wrong:
        sys.exit(f"VIOLATION {wrong}")
