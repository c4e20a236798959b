"""Put the figures of the last run into docs/benchmarks.md: the tables between its markers, and the pictures.

The text around the tables is people's. A part whose bench has not run stays as it is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from tests.bench import report
from tests.bench.peer import ROOT, Peer, Unavailable
from tools.cluster.progress import say

__all__ = ["filled", "main"]

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "benchmarks"
PLOTS = Peer("plots", "tests.bench.peers.draw")

Figures = dict[str, Any]

_END = "<!-- end -->"


def main() -> None:
    """Write the tables and draw the pictures."""
    PAGE.write_text(filled(PAGE.read_text(), {name: report.read(name) for name in TABLES}))
    say(f"the tables in {PAGE} are those of this run")
    try:
        drawn = _draw()
    except (Unavailable, OSError) as error:
        say(f"the pictures stay as they were: {error}")
    else:
        say(f"drawn: {drawn}")


def filled(page: str, figures: dict[str, Figures]) -> str:
    """Return the page with the tables of these figures between their markers."""
    for name, table in TABLES.items():
        opening = f"<!-- figures: {name} -->"
        if figures.get(name) and opening in page:
            before, _, rest = page.partition(opening)
            _, end, after = rest.partition(_END)
            page = f"{before}{opening}\n{table(figures[name])}\n{end}{after}"
    return page


def _draw() -> str:
    command = [str(PLOTS.python()), "-m", PLOTS.module, str(report.FOLDER), str(PICTURES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(done.stderr.strip()[-300:])
    return done.stdout.strip()


def _storage(found: Figures) -> str:
    rows = [
        [
            "**Milepost**",
            _bytes(found["stored_bytes"]),
            _times(found),
            f"{found['slope']:.2f}",
            _series(found),
        ]
    ]
    for name, peer in found["peers"].items():
        if reason := peer.get("unavailable"):
            rows.append([name, f"not measured: {reason}", "", "", ""])
        else:
            ratio = {**peer, "payload_bytes": found["payload_bytes"]}
            rows.append(
                [name, _bytes(peer["stored_bytes"]), _times(ratio), f"{peer['slope']:.2f}", _series(peer)]
            )
    head = ["", "stored, 100 steps", "x payload", "slope", "50 / 100 / 200 / 400 steps"]
    met = _goal("times the payload", found["ratio"], found["goal_ratio"])
    return f"{_table(head, rows)}\n\n{met}{_measured(found)}"


def _conversation(found: Figures) -> str:
    rows = []
    for name, each in {"**Milepost**": found, **found["peers"]}.items():
        if reason := each.get("unavailable"):
            rows.append([name, f"not measured: {reason}", "", "", ""])
            continue
        ratio = {**each, "payload_bytes": found["payload_bytes"]}
        rows.append(
            [
                name,
                _bytes(each["stored_bytes"]),
                _times(ratio),
                f"{each['slope']:.2f}",
                f"{each['bytes_per_step']:,}",
                f"{each['ms_per_step']:.1f}",
            ]
        )
    head = ["", "stored", "x payload", "slope", "bytes a turn", "ms a turn"]
    met = _goal("MB", found["stored_bytes"] / 1e6, found["goal_bytes"] / 1e6)
    return f"{_table(head, rows)}\n\n{met}{_measured(found)}"


def _overhead(found: Figures) -> str:
    rows = []
    for name, each in {"**Milepost**, S3": found, **found["peers"]}.items():
        if reason := each.get("unavailable"):
            rows.append([name, f"not measured: {reason}", ""])
        else:
            rounds = " / ".join(f"{took:.1f}" for took in each["rounds_ms"])
            rows.append([name, f"{each['ms_per_step']:.1f}", rounds])
    first = _table(["", "ms a step", "its rounds"], rows)
    first += f"\n\nTo sync 4 KB took this disk {found['sync_p50_ms']:.1f} ms."
    if found["goal_ms"]:
        first += " " + _goal("ms, that of DBOS on SQLite in this run", found["ms_per_step"], found["goal_ms"])
    delays = sorted({row["delay_ms"] for row in found["delayed"]})
    kinds = {
        (1, True): "one branch",
        (10, False): "ten branches, a record for each step",
        (10, True): "ten branches, group commit",
    }
    took = {(row["branches"], row["group_commit"], row["delay_ms"]): row for row in found["delayed"]}
    rows = [
        [label, *(f"{took[*kind, delay]['ms_per_step']:.1f}" for delay in delays)]
        for kind, label in kinds.items()
    ]
    return (
        first + "\n\n" + _table(["ms a step", *(f"+{delay} ms" for delay in delays)], rows) + _measured(found)
    )


def _two_writers(found: Figures) -> str:
    cases = {
        "two executors of one attempt at once": found["one_attempt_twice"],
        "executors of attempts 1 and 2 at once": found["two_attempts_at_once"],
        "attempt 1 replaced in a slow step, finishing late": [found["replaced_in_a_slow_step"]],
    }
    ours = _table(
        ["Milepost", "rounds", "refused", "steps recorded twice", "requests repeated", "applied twice"],
        [
            [
                label,
                str(len(rounds)),
                str(sum(each["refused"] for each in rounds)),
                str(sum(each["recorded_twice"] for each in rounds)),
                str(sum(each["requested_twice"] for each in rounds)),
                str(sum(each["applied_twice"] for each in rounds)),
            ]
            for label, rounds in cases.items()
        ],
    )
    theirs = _table(["peer", "what happened"], [[name, _said(each)] for name, each in found["peers"].items()])
    answers = found["two_answers"]
    both = (
        f"Answered with yes and no at once, Milepost acted on both in {answers['both_acted_on']} of "
        f"{answers['rounds']} runs; whoever came second was told so in {answers['told']}."
    )
    return f"{ours}\n\n{both}\n\n{theirs}{_measured(found)}"


def _said(peer: Figures) -> str:
    if reason := peer.get("unavailable"):
        return f"not measured: {reason}"
    if answers := peer.get("two_answers"):
        return (
            f"answered by two processes at once: both the yes and the no were acted on in "
            f"{answers['both_acted_on']} of {answers['rounds']} runs"
        )
    slow, killed = peer["replaced_in_a_slow_step"], peer["killed_and_replaced_under_another_id"]
    return (
        f"same executor id: slow step executed {slow['executions'].get('slow', 0)} times, without a key"
        f"{'' if slow['overlapped'] else ' (the two did not overlap)'}; "
        f"other id after kill -9: {killed['status']} after {killed['status_after_s']:.0f} s"
    )


def _load(found: Figures) -> str:
    rows = [
        [
            f"{row['steps']:,}",
            str(row["requests"]),
            f"{row['seconds']:.2f}",
            f"{row['process_seconds']:.2f}",
            str(row["objects"]),
            _bytes(row["stored_bytes"]),
        ]
        for row in found["rows"]
    ]
    head = ["recorded steps", "requests", "seconds", "with the start of Python", "objects", "stored"]
    goals = {"requests at 1,000 steps": "requests_1000", "s at 1,000 steps": "seconds_1000"}
    goals["requests at 10,000 steps"] = "requests_10000"
    met = "\n".join(_goal(what, found[key], found["goals"][key]) for what, key in goals.items())
    return f"{_table(head, rows)}\n\n{met}{_measured(found)}"


def _sdk(found: Figures) -> str:
    what = {
        "import_s": "s for `import milepost`",
        "noop_step_cpu_us": "µs of CPU for a step that does nothing, on a store in memory",
        "rss_growth_mb": "MB of growth over 10,000 steps, beyond the results that the agent keeps",
        "parallel_puts": "writes for 1,000 steps of which 50 run at once",
        "false_halts": "of 100 resumes of unchanged concurrent code halted",
    }
    return "\n".join(
        f"- {_goal(said, found[key], found['goals'][key])}" for key, said in what.items()
    ) + _measured(found)


def _goal(what: str, found: float, most: float) -> str:
    verdict = "Goal met" if found <= most else "**Goal missed**"
    return f"{verdict}: {found:.4g}, of at most {most:.4g} {what}."


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *([*row, *[""] * (len(head) - len(row))] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _measured(found: Figures) -> str:
    on = found["machine"]
    return (
        f"\n\nMeasured on {on['date']}: {on['cpu']}, {on['cpus']} cores, {on['memory_gib']} GiB, "
        f"Python {on['python']}, load {on['load']} when it began."
    )


def _bytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _times(found: Figures) -> str:
    return f"{found['stored_bytes'] / found['payload_bytes']:.2f}"


def _series(found: Figures) -> str:
    return " / ".join(f"{stored / 1e6:.2f}" for stored in found["series"].values())


TABLES: dict[str, Callable[[Figures], str]] = {
    "storage": _storage,
    "conversation": _conversation,
    "overhead": _overhead,
    "two_writers": _two_writers,
    "load": _load,
    "sdk": _sdk,
}
