"""Phases: named groups of steps, recorded together if asked, which can do with some inputs missing."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar

from milepost.agent.branch import current_branch, current_group
from milepost.agent.journal import Journal
from milepost.api.names import step_component, step_id
from milepost.errors import Misuse, StepFailed, TooFewInputs

__all__ = ["Group"]

K = TypeVar("K")
T = TypeVar("T")


class Group(Generic[K, T]):
    """One phase. `inputs` are those that are there, `missing` why the others are not (None: not known)."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        *,
        inputs: Mapping[K, T | StepFailed | None],
        at_least: int | None,
        granularity: Literal["step", "phase"] | None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise Misuse(f"a phase needs a name, which is a string, not {name!r}")
        if granularity not in (None, "step", "phase"):
            raise Misuse(f"phase {name!r} cannot have granularity {granularity!r}: step, or phase")
        if not isinstance(inputs, Mapping):
            raise Misuse(f"the inputs of phase {name!r} are a mapping of them by their names, not {inputs!r}")
        if at_least is not None and not isinstance(at_least, int):
            raise Misuse(f"phase {name!r} needs at least so many inputs, a number, not {at_least!r}")
        if current_group.get():
            raise Misuse(f"phase {name!r} is begun inside phase {current_group.get()!r}; end that one first")
        self.name = name
        self.inputs: dict[K, T] = {}
        self.missing: dict[K, StepFailed | None] = {}
        for key, value in inputs.items():
            if value is None or isinstance(value, StepFailed):
                self.missing[key] = value
            else:
                self.inputs[key] = value
        self._journal = journal
        self._need = len(inputs) if at_least is None else at_least
        self._together = (granularity or journal.granularity) == "phase"
        branch = current_branch.get()
        self._id = step_id(branch.path, step_component(name, number=branch.group_number(name)))
        self._token: Token[str] | None = None

    async def __aenter__(self) -> Self:
        missing = [str(key) for key in self.missing]
        if len(self.inputs) < self._need:
            raise TooFewInputs(self.name, have=len(self.inputs), need=self._need, missing=missing)
        if missing:
            self._journal.note_degraded(self._id, missing, len(self.inputs), len(self.inputs) + len(missing))
        self._token = current_group.set(self._id)
        if self._together:
            self._journal.defer(self._id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None, "what is left was entered"
        current_group.reset(self._token)
        await self._journal.close_group(self._id, whole=error is None)
