"""DBOS in its own environment: one case a process, its figures as one line of JSON on standard output.

    python -m tests.bench.peers.dbos_workflow CASE SETTINGS

Workflows and steps as its documentation shows them. It knows nothing of Milepost. `url` is the system
database's, SQLite or PostgreSQL; `executor` the executor's id, which a pod would have as its name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]  # only in its own environment

from tests.bench.payload import conversation, size_of, text

_FINAL = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})


def _return_text(number: int, size: int) -> str:
    return text(number, size)


def _open(size: int) -> list[dict[str, Any]]:
    return conversation(size)


def _turn(messages: list[dict[str, Any]], number: int, size: int) -> dict[str, Any]:
    assert messages, "the model reads the whole conversation"
    return {"role": "tool", "content": text(number, size)}


def _act(ledger: str, step: str, seconds: float) -> str:
    # There is no key in a step that a receiver could know a repetition by.
    note(Path(ledger), {"step": step, "who": os.environ["BENCH_WHO"]})
    time.sleep(seconds)
    note(Path(ledger), {"done": step, "who": os.environ["BENCH_WHO"]})
    return step


# Applied as functions: as decorators they would leave what they decorate untyped.
return_text: Any = DBOS.step()(_return_text)
open_conversation: Any = DBOS.step()(_open)
turn: Any = DBOS.step()(_turn)
act: Any = DBOS.step()(_act)


def _collect(total: int, size: int) -> int:
    return sum(len(return_text(number, size)) for number in range(total))


def _talk(opening: int, total: int, size: int) -> int:
    messages = open_conversation(opening)
    for number in range(total):
        messages.append(turn(messages, number, size))
    return size_of(messages)


def _three_acts(ledger: str, seconds: float) -> str:
    act(ledger, "first", 0.0)
    act(ledger, "slow", seconds)
    return str(act(ledger, "last", 0.0))


collect: Any = DBOS.workflow()(_collect)
talk_workflow: Any = DBOS.workflow()(_talk)
three_acts: Any = DBOS.workflow()(_three_acts)


def note(ledger: Path, line: dict[str, Any]) -> None:
    """Add a line to a ledger, on disk when this returns."""
    with ledger.open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def steps(settings: dict[str, Any]) -> dict[str, Any]:
    """Run `total` steps that return `size` characters each."""
    total, size = settings["total"], settings["size"]
    if settings.get("warm_up"):
        collect(settings["warm_up"], size)
    began = time.perf_counter()
    collect(total, size)
    return {"ms_per_step": (time.perf_counter() - began) * 1000 / total}


def talk(settings: dict[str, Any]) -> dict[str, Any]:
    """Run `total` turns on a conversation; each reads all of it and adds a message."""
    total = settings["total"]
    began = time.perf_counter()
    talk_workflow(settings["opening"], total, settings["size"])
    return {"ms_per_step": (time.perf_counter() - began) * 1000 / total}


def work(settings: dict[str, Any]) -> dict[str, Any]:
    """Be one of two pods: begin the workflow, or find it, and stay until it has ended or time is up."""
    # As an application that ends what it has begun before it goes.
    signal.signal(signal.SIGTERM, lambda *_: None)
    workflow = settings["workflow"]
    if settings["begin"]:
        with SetWorkflowID(workflow):
            DBOS.start_workflow(three_acts, settings["ledger"], settings["seconds"])
    print("ready", flush=True)
    until = time.monotonic() + settings["stay"]
    while True:
        status = DBOS.get_workflow_status(workflow)
        if (status and status.status in _FINAL) or time.monotonic() > until:
            return {"status": status.status if status else "ABSENT"}
        time.sleep(0.1)


CASES = {"steps": steps, "talk": talk, "work": work}


def main() -> None:
    """Run one case between the launch and the end of a DBOS instance."""
    case, settings = sys.argv[1], json.loads(sys.argv[2])
    if settings.get("held"):
        # What takes long on a busy machine is behind it, so that it comes to life when it is meant to.
        print("ready", flush=True)
        sys.stdin.readline()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": settings["url"],
            "executor_id": settings.get("executor", "local"),
            "application_version": "1",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    figures = CASES[case](settings)
    DBOS.destroy()
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
