"""One sample of each kind of stored object, the same bytes each time.

The files in tests/data/formats come from here: those of the newest version from today's code, those of
version 1 from this module as it ran beside the last code that wrote version 1. So it uses nothing that
code did not have, and adds by itself what later versions brought.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint import head as heads
from milepost.checkpoint import records

KEYS = StoreKeys("team", "m" * 20)
AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
TIME = AT.isoformat()


class Counted:
    """Entropy that is the same every time."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, size: int) -> bytes:
        self.count += 1
        return hashlib.sha256(str(self.count).encode()).digest()[:size]


def events(version: int) -> list[records.Event]:
    """Return an event of each kind with all of its fields set, as a version of a record has them."""
    later = version > 1
    value = records.Value(inline={"text": 'ä\u2028\U0001f600 "\\"', "n": [1, 2.5, None, True]}, size=40)
    one = records.Input(digest="1" * 64, inline=value)
    other = records.Input(digest="2" * 64, result_of="read")
    error = records.ErrorData(kind="builtins.OSError", message="no\nway", chain=("builtins.KeyError: 'k'",))
    end = records.PreviousEnd(
        attempt=1, cause="OOMKilled", fault="memory", exit_code=137, message="out of memory"
    )
    place = records.StepPlace(id="1:b/read=k", branch="1:b", name="read", key="k", number=2, ordinal=3)
    asked: dict[str, Any] = {"every_steps": 5, "configuration": {"retry": {"stepAttempts": 4}}}
    told: dict[str, Any] = {"description": "Read it.", "summary": "it was read"}
    return [
        records.Started(
            namespace="team",
            name="migrated",
            resource_uid="uid-1",
            cluster="cluster-1",
            key_root="m" * 20,
            spec_digest="3" * 64,
            entrypoint="package.module:agent",
            agent_version="1",
            goal="be read by later versions",
            inputs={"limit": 3, "names": ["a", "ß"]},
            step_attempts=4,
            **(asked if later else {}),
        ),
        records.Claimed(
            attempt=2,
            writer="pod-uid-2",
            pod="migrated-abcde-2",
            node="node-1",
            image="agent:1",
            code_digest="4" * 64,
            agent_version="1",
            milepost_version="0.1.0 on Python 3.11.9",
            tools={"send": "2"},
            previous_end=end,
        ),
        records.Planned(total=9),
        records.ToolCalled(
            step="1:b/read=k",
            call=1,
            tool="send",
            version="2",
            effect="keyed",
            key="m" * 20 + "/1:b/read=k",
            arguments="5" * 64,
            attempt=1,
            result=records.Value(blob="6" * 64, size=20_000),
            external_id="ext-1",
            evidence={"etag": "x"},
            started_at=TIME,
            duration_s=0.25,
            **({"inputs": (one,), "named": {"to": other}} if later else {}),
        ),
        records.ToolCalled(
            step="1:b/read=k",
            call=0,
            tool="look",
            effect="none",
            arguments="7" * 64,
            attempt=1,
            error=error,
            started_at=TIME,
            duration_s=0.5,
        ),
        records.StepFailure(
            step=place,
            attempt=1,
            final=False,
            inputs=(one, other),
            error=error,
            started_at=TIME,
            ended_at=TIME,
        ),
        records.StepCompleted(
            step=place,
            attempt=2,
            inputs=(one, other),
            declared="dict",
            result=value,
            result_digest="8" * 64,
            started_at=TIME,
            ended_at=TIME,
            meta={"cost": 1.5},
            **(told if later else {}),
        ),
        *(_events_of_version_3(place, one) if version > 2 else []),
        records.Halted(reason="RecordedTypeChanged", message="it was an int"),
        *([records.Repaired(**REPAIRED)] if version == 2 else []),
        records.Finished(phase=Phase.FAILED, reason="AgentRaised", message="no", result=value),
    ]


def _events_of_version_3(place: records.StepPlace, one: records.Input) -> list[records.Event]:
    """Return the kinds of events that came with version 3, and `repaired`."""
    from milepost.checkpoint import gates  # noqa: PLC0415  (earlier versions had none)

    gate = gates.Gate(
        id="g" * 20,
        type=gates.GateType.APPROVAL,
        place="1:b/@publish",
        name="publish",
        key="k",
        request=records.Value(inline={"rows": 3}, size=10),
        request_digest="a" * 64,
        answer_schema={"type": "object"},
        since=TIME,
        until=TIME,
        options=(gates.AnswerType.APPROVE,),
    )
    return [
        records.Repaired(**REPAIRED),
        records.Planned(tasks={"b": ("a",)}, replanned=True),
        records.Intended(
            step="pay",
            call=1,
            tool="pay",
            version="3",
            effect="verified",
            key="m" * 20 + "/pay",
            arguments="b" * 64,
            inputs=(one,),
            named={"to": one},
            attempt=1,
            started_at=TIME,
            settles_within_s=60.0,
        ),
        records.StepSkipped(step=place.model_copy(update={"after": "list", "group": "collect"}), reason="no"),
        records.GroupClosed(group="collect", steps=3),
        records.Degraded(group="index", missing=("c",), have=2, need=3),
        gates.GateOpened(gate=gate),
        gates.Waiting(gates=("g" * 20,)),
        gates.Decided(
            gate="g" * 20,
            place="1:b/@publish",
            type=gates.AnswerType.DENY,
            by="ann",
            at=TIME,
            reason="too many",
            answer=records.Value(inline=2, size=1),
        ),
        records.Withdrawn(step="read", reason="gone", anew=True),
        records.Resumed(strategy="Revalidate", environment={"agent version": "2"}, gate="h" * 20),
        records.Remembered(memory=records.Value(blob="c" * 64, size=9)),
        records.Noted(reason="Diverged", message="took another path"),
    ]


REPAIRED: dict[str, Any] = {
    "run_id": "l" * 20,
    "lost_records": ((4, 6), (9, 9)),
    "repeats": ("1:b/write", "send"),
    "unnamed": 1,
}


def record(version: int) -> records.Record:
    """Return a record that holds all of them, which no run would ever write."""
    return records.Record(
        seq=7, epoch=3, worker="pod-uid-2", prev="9" * 64, at=TIME, events=tuple(events(version))
    )


def a_run(version: int) -> tuple[heads.Head, dict[str, bytes]]:
    """Return the head of a run whose tail was sealed once, and the segment by its key."""
    start, taken, *_ = events(version)
    entropy = Counted()
    more: dict[str, Any] = {"goal": "be read by later versions", "retention_s": 3600} if version > 1 else {}
    commit = heads.first_head(
        KEYS,
        name="migrated",
        resource_uid="uid-1",
        cluster="cluster-1",
        spec_digest="3" * 64,
        key_root="m" * 20,
        events=(start,),
        at=AT,
        entropy=entropy,
        **more,
    )
    objects: dict[str, bytes] = {}
    steps = [_step(number) for number in range(3)]
    for event in (taken, *steps):
        commit = heads.next_head(commit.head, (event,), at=AT, entropy=entropy)
        objects.update(written(commit))
    return commit.head, objects


def _step(number: int) -> records.Event:
    return records.StepCompleted(
        step=records.StepPlace(id=f"step-{number}", name=f"step-{number}", ordinal=number),
        attempt=1,
        result=records.Value(inline=str(number) * 12_000, size=12_002),
        result_digest=str(number) * 64,
        started_at=TIME,
        ended_at=TIME,
    )


def an_answer() -> bytes:
    """Return an answer with all of its fields set, as it lies in the inbox."""
    # Version 1 of the other kinds had no inbox.
    from milepost.checkpoint import inbox  # noqa: PLC0415
    from milepost.checkpoint.gates import AnswerType  # noqa: PLC0415
    from milepost.checkpoint.memory import MemoryStore  # noqa: PLC0415
    from milepost.checkpoint.sending import Patience  # noqa: PLC0415
    from milepost.checkpoint.store import Found  # noqa: PLC0415

    given = inbox.Answer(
        gate="g" * 20,
        type=AnswerType.APPROVE,
        by="ann",
        at=TIME,
        reason="ja, gut\n",
        answer={"text": "ä", "rows": [1, 2.5, None, True]},
        request_digest="a" * 64,
    )
    store = MemoryStore()
    inbox.give(store, KEYS, given, Patience(Counted()))
    found = store.get(KEYS.answer(given.gate))
    assert isinstance(found, Found)
    return found.body


def written(commit: heads.Commit) -> dict[str, bytes]:
    """Return what a commit writes before its head."""
    objects: Any = getattr(commit, "objects", None)
    if objects is None:
        segment: Any = getattr(commit, "segment", None)
        objects = [segment] if segment else []
    return dict(objects)
