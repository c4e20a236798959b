"""What a scenario numbers: bodies of objects, states of runs, events; and the code that its processes run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milepost.api.names import StoreKeys
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head, parse_head
from milepost.errors import MilepostError
from tests.model.code import Code
from tests.model.replay import Bytes, Table

__all__ = ["NAMESPACE", "Tables"]

NAMESPACE = "team"


class Tables:
    """The numbers of one scenario, which stay what they are while it is walked."""

    def __init__(self, code: Code | None = None) -> None:
        self.code = code or Code()
        self.bodies = Bytes()
        self.states = Table(repr)
        self.events = Table(repr)
        # Whole processes that wait for an answer, by what they do and the answers that they had.
        self.under_way: dict[Any, Any] = {}
        self._heads: dict[int, Head] = {}

    def head(self, body: int) -> Head:
        """Return the head in a body. Whoever wrote it, it must be one."""
        if body not in self._heads:
            raw = self.bodies.thing(body)
            run = raw.partition(b'"run_id":"')[2][:20].decode()
            namespace = raw.partition(b'"namespace":"')[2].partition(b'"')[0].decode()
            self._heads[body] = parse_head(raw, StoreKeys(namespace, run))
        return self._heads[body]

    @staticmethod
    def keys(run: str) -> StoreKeys:
        """Return the keys of a run of the model."""
        return StoreKeys(NAMESPACE, run)

    def state(self, number: int) -> State:
        """Return a state of its own, that its caller may change."""
        known: State = self.states.thing(number)
        return replace(
            known,
            completed=dict(known.completed),
            failed={step: list(each) for step, each in known.failed.items()},
            calls={step: dict(each) for step, each in known.calls.items()},
            steps_by_result=dict(known.steps_by_result),
        )

    def say(self, body: int) -> str:
        """Return what a body is, in words."""
        raw = self.bodies.thing(body)
        if not raw.startswith(b'{"format"') or b'"tail"' in raw or b'"spec_digest"' not in raw[:600]:
            return f"{len(raw)} bytes"
        try:
            head = self.head(body)
        except (MilepostError, ValueError):
            return f"{len(raw)} bytes"
        return f"epoch {head.epoch}, record {head.seq}, {head.phase}"
