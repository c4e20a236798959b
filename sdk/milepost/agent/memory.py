"""An agent's memory: what it would like to keep knowing, beside its log.

The agent's code makes it what it is, and on a resume makes it so again; what is written to the store, now and
then, is a copy: for people, and for an execution that begins anew with context. So nothing that was
recorded depends on how old the copy is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from typing_extensions import override

from milepost.agent.branch import in_step
from milepost.checkpoint import codec
from milepost.errors import Misuse

__all__ = ["Memory"]


def _check_place(name: str) -> None:
    if step := in_step.get():
        raise Misuse(
            f"memory {name!r} is changed inside the step {step}, which a resume does not execute; change it "
            "from the agent's own code, by what the step returns"
        )


class Memory(MutableMapping[str, Any]):
    """Storable values by name. `changed` says whether it is another than the copy in the store."""

    def __init__(self, encoded: Mapping[str, codec.JSON] | None = None) -> None:
        self._held: dict[str, codec.JSON] = dict(encoded or {})
        self.changed = False

    def encoded(self) -> dict[str, codec.JSON]:
        """Return what is held, as JSON."""
        return dict(self._held)

    @override
    def __getitem__(self, name: str) -> Any:
        return codec.decode(self._held[name], Any, path=f"memory {name}")

    @override
    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str):
            raise Misuse(f"memory is kept by names, which are strings, not {name!r}")
        _check_place(name)
        encoded = codec.encode(value, path=f"memory {name}")
        if name not in self._held or self._held[name] != encoded:
            self.changed = True
        self._held[name] = encoded

    @override
    def __delitem__(self, name: str) -> None:
        _check_place(name)
        del self._held[name]
        self.changed = True

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    @override
    def __len__(self) -> int:
        return len(self._held)
