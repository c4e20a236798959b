"""Two processes that both believe that a run is theirs.

Ours: two executors of one run in S3 at the same instant, as two pods of one attempt and as the pods of two
attempts; a pod that is replaced in the middle of a slow step, told to stop, and comes back with its result;
and a waiting run that is answered with yes and no at the same instant. Each notes in a synced ledger what it
requests of a receiver, under the key that Milepost hands it.

Theirs: one waiting LangGraph run that two processes answer at the same instant, one with yes and one with
no; and the slow step again with DBOS: two processes of one executor id, and, after a kill -9, one of another
id. DBOS hands a step no key, so each execution of a step is one that its receiver applies.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from milepost.api.exits import Exit
from milepost.checkpoint import inbox
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.sending import Patience
from tests.bench import report
from tests.bench.ours import Bucket, Place, now
from tests.bench.peer import Asked, Unavailable, figures
from tests.bench.rivals import DBOS, LANGGRAPH, Rival
from tests.bench.scene import Scene, scene
from tools.cluster.progress import say, wait_until

__all__ = ["answer_twice", "main", "overlap", "race"]

ROUNDS = 3
ACTS = 100
SLOW = 8.0
STRANDED_AFTER = 10.0


def main() -> None:
    """Measure, and write `two_writers.json`."""
    with scene() as here:
        say("two executors of one run")
        same = [race(here.bucket, f"same-{number}", (1, 1), ACTS) for number in range(ROUNDS)]
        two = [race(here.bucket, f"two-{number}", (1, 2), ACTS) for number in range(ROUNDS)]
        slow = overlap(here.bucket, "overlap", SLOW)
        answered = [answer_twice(here.bucket, f"answered-{number}") for number in range(ROUNDS)]
        say(f"ours: {same}, {two}, {slow}, {answered}")
        peers = {rival.name: figures(partial(_theirs, here, rival)) for rival in here.rivals}
    report.write(
        "two_writers",
        {
            "rounds": 2 * ROUNDS + 1,
            "refused": sum(each["refused"] for each in (*same, *two, slow)),
            "recorded_twice": sum(each["recorded_twice"] for each in (*same, *two, slow)),
            "applied_twice": sum(each["applied_twice"] for each in (*same, *two, slow)),
            "two_answers": {
                "rounds": ROUNDS,
                "both_acted_on": sum(len(each["acted_on"]) > 1 for each in answered),
                "acted_on": [each["acted_on"] for each in answered],
                "told": sum(each["told"] for each in answered),
            },
            "one_attempt_twice": same,
            "two_attempts_at_once": two,
            "replaced_in_a_slow_step": slow,
            "peers": peers,
            "machine": here.machine,
        },
    )


def race(bucket: Bucket, label: str, attempts: tuple[int, int], acts: int) -> dict[str, Any]:
    """Start two executors of one run at once, and return what came of it."""
    place = bucket.place(f"writers-{label}")
    place.begin("many_acts", ledger=str(place.file("ledger")), total=acts, seconds=0.02)
    with (
        place.executor(attempts[0], "pod-a") as first,
        place.executor(attempts[1], "pod-b") as second,
    ):
        codes = [process.wait(120) for process in (first, second)]
    return _outcome(place, codes, acts)


def overlap(bucket: Bucket, label: str, slow: float) -> dict[str, Any]:
    """Replace an executor in the middle of its slow step; it is asked to stop, and finishes late."""
    place = bucket.place(f"writers-{label}")
    ledger = place.file("ledger")
    place.begin("three_acts", ledger=str(ledger), seconds=slow)
    with place.executor(1, "pod-a") as old:
        _wait_for_act(ledger, "slow", 1)
        with place.executor(2, "pod-b") as new:
            _wait_for_act(ledger, "slow", 2)
            old.terminate()
            codes = [process.wait(60) for process in (old, new)]
    return _outcome(place, codes, 3)


def answer_twice(bucket: Bucket, label: str) -> dict[str, Any]:
    """Answer a waiting run with yes and no at the same instant, and let two executors go on at once.

    Returns the answers that were acted on, and how many of the two were told that the other one stands.
    """
    place = bucket.place(f"writers-{label}")
    ledger = place.file("ledger")
    place.begin("answered", ledger=str(ledger))
    place.carry_out()
    (gate,) = _head(place).gates
    at_once = threading.Barrier(2)

    def say_it(word: str) -> bool:
        mine = inbox.Answer(gate.id, AnswerType.APPROVE, by=word, at=now().isoformat(), answer=word)
        at_once.wait()
        return inbox.give(place.store, place.keys, mine, Patience(os.urandom)) is not mine

    with ThreadPoolExecutor(2) as people:
        told = sum(people.map(say_it, ("yes", "no")))
    with place.executor(2, "pod-a") as first, place.executor(3, "pod-b") as second:
        for process in (first, second):
            process.wait(120)
    return {"acted_on": sorted({line["step"] for line in _lines(ledger) if "step" in line}), "told": told}


def _outcome(place: Place, codes: list[int], acts: int) -> dict[str, Any]:
    requests = Counter(line["key"] for line in _lines(place.file("ledger")) if "step" in line)
    state = _state(place)
    return {
        "exit_codes": codes,
        "refused": codes.count(Exit.FENCED),
        "phase": str(state.phase),
        "steps": acts,
        "recorded_twice": state.totals.steps_done - acts,
        "requests": requests.total(),
        "requested_twice": sum(count > 1 for count in requests.values()),
        # A receiver applies each key once, so it applies more than there are steps only if a step had two.
        "applied_twice": len(requests) - acts,
    }


def _state(place: Place) -> State:
    return load(place.store, _head(place))


def _head(place: Place) -> Head:
    at = read_head(place.store, place.keys)
    assert isinstance(at, HeadAt), "a head stays"
    return at.head


def _lines(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def _wait_for_act(ledger: Path, step: str, count: int) -> None:
    wait_until(
        lambda: sum(line.get("step") == step for line in _lines(ledger)) >= count,
        f"the step {step} to begin {count} times",
        within=60,
    )


def _theirs(here: Scene, rival: Rival) -> dict[str, Any]:
    if rival.peer is LANGGRAPH:
        rounds = [_two_answers(here, rival, number) for number in range(ROUNDS)]
        said = {
            "two_answers": {
                "rounds": ROUNDS,
                "both_acted_on": sum(len(each) > 1 for each in rounds),
                "acted_on": rounds,
            }
        }
    else:
        said = {
            "replaced_in_a_slow_step": _dbos_overlap(here, rival),
            "killed_and_replaced_under_another_id": _dbos_stranded(here, rival),
        }
    say(f"{rival.name}: {said}")
    return said


def _two_answers(here: Scene, rival: Rival, number: int) -> list[str]:
    """Return the answers that the waiting run acted on."""
    room = rival.room().settings
    ledger = here.folder / f"answers-{rival.name}-{number}"
    if not LANGGRAPH.ask("ask", ledger=str(ledger), **room)["waiting"]:
        raise Unavailable("its run did not wait")
    with contextlib.ExitStack() as stack:
        asked = [
            stack.enter_context(LANGGRAPH.start("answer", answer=answer, **room)) for answer in ("yes", "no")
        ]
        for each in asked:
            each.wait_until_ready()
        for each in asked:
            each.go()
        for each in asked:
            # One that is refused ends with an error, and that is its figure: it did not act.
            with contextlib.suppress(Unavailable):
                each.figures()
    return sorted(line["acted"] for line in _lines(ledger))


def _dbos_overlap(here: Scene, rival: Rival) -> dict[str, Any]:
    room, ledger = rival.room().settings, here.folder / f"overlap-{rival.name}"
    with (
        _dbos(room, ledger, "pod-b", executor="local", begin=False) as new,
        _dbos(room, ledger, "pod-a", executor="local", begin=True) as old,
    ):
        new.wait_until_ready()
        _wait_for_act(ledger, "slow", 1)
        new.go()
        new.wait_until_ready()
        overlapped = not any(line.get("done") == "slow" for line in _lines(ledger))
        old.process.terminate()
        status = [each.figures()["status"] for each in (old, new)]
    return {"overlapped": overlapped, "status": status, **_executions(ledger)}


def _dbos_stranded(here: Scene, rival: Rival) -> dict[str, Any]:
    room, ledger = rival.room().settings, here.folder / f"stranded-{rival.name}"
    with _dbos(room, ledger, "pod-a", executor="pod-a", begin=True) as old:
        _wait_for_act(ledger, "slow", 1)
        old.process.kill()
    with _dbos(room, ledger, "pod-b", executor="pod-b", begin=False) as new:
        new.wait_until_ready()
        new.go()
        status = new.figures_when_ready()["status"]
    return {"status_after_s": STRANDED_AFTER, "status": status, **_executions(ledger)}


def _dbos(
    room: dict[str, Any], ledger: Path, who: str, *, executor: str, begin: bool
) -> contextlib.AbstractContextManager[Asked]:
    return DBOS.start(
        "work",
        env={**os.environ, "BENCH_WHO": who},
        executor=executor,
        begin=begin,
        held=not begin,
        workflow="the-run",
        ledger=str(ledger),
        seconds=SLOW,
        stay=60 if executor == "local" else STRANDED_AFTER,
        **room,
    )


def _executions(ledger: Path) -> dict[str, Any]:
    executions = Counter(line["step"] for line in _lines(ledger) if "step" in line)
    return {"executions": dict(executions), "applied_twice": sum(count > 1 for count in executions.values())}
