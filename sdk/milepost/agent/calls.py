"""What tools and steps know of their calls, and what can be said of one whose end nobody has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

from milepost.checkpoint import codec
from milepost.errors import Misuse, NotStorable

__all__ = ["Call", "Happened", "NotHappened", "Outcome", "PriorCall", "Try", "Unknown"]

T = TypeVar("T")

MAX_EVIDENCE: Final = 16 * 1024
"""Bytes of evidence that the record of one call carries."""


@dataclass
class Call:
    """What a tool can know of its call; the first parameter of a tool that asks for it.

    `key` is at most 64 ASCII characters and the same on every retry. `attempt` counts the tries of the
    step, from 1, across pods.
    """

    key: str
    attempt: int
    _evidence: dict[str, Any] = field(default_factory=dict, repr=False)
    _external_id: str | None = field(default=None, repr=False)

    def record(self, *, external_id: str | None = None, **evidence: Any) -> None:
        """Keep with the call what the other side calls it, and what proves it, 16 KiB of it at most.

        Raises NotStorable where a value has no lossless form without its type being declared.
        """
        if external_id is not None:
            if not isinstance(external_id, str):
                raise Misuse(f"an external id is a string, not {external_id!r}")
            self._external_id = external_id
        # Encoded here, where the author's line is at fault, and not once the call is being recorded.
        encoded = {name: codec.encode(value, path=f"evidence {name}") for name, value in evidence.items()}
        together = {**self._evidence, **encoded}
        if (size := len(codec.dumps(together))) > MAX_EVIDENCE:
            raise NotStorable("evidence", f"its {size} bytes are more than {MAX_EVIDENCE}; record its digest")
        self._evidence = together

    @property
    def external_id(self) -> str | None:
        """What the other side calls it, as recorded so far."""
        return self._external_id

    @property
    def evidence(self) -> dict[str, Any]:
        """What was recorded so far, as JSON."""
        return dict(self._evidence)


@dataclass(frozen=True)
class Happened(Generic[T]):
    """What `verify` returns where the effect is there: what the call would have returned, and its proof."""

    result: T
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class NotHappened:
    """What `verify` returns where the effect is certainly not there, and will not come."""


@dataclass(frozen=True)
class Unknown:
    """What `verify` returns where it cannot tell, or what it finds does not match. `why` is for people."""

    why: str


Outcome: TypeAlias = Happened[T] | NotHappened | Unknown


@dataclass(frozen=True)
class PriorCall:
    """A call that an earlier try of the step has made, as it is recorded.

    `number` is its place in the step: from 1 for calls with an effect, 0 or less for others. `error` is empty
    where it succeeded, and `unconfirmed` where nobody knows whether its effect happened. Where it succeeded
    and has a record of its own the same call is not made again: it returns what is recorded.
    """

    number: int
    tool: str
    version: str
    key: str
    error: str
    unconfirmed: bool
    external_id: str | None
    evidence: Mapping[str, Any]


@dataclass(frozen=True)
class Try:
    """The try of a step in which something is asked: the step's id, the try's number from 1, earlier calls.

    Tries are counted across processes. Calls that were lost with a process before they were recorded are
    not among `calls`.
    """

    step: str
    attempt: int
    calls: tuple[PriorCall, ...]
