"""A log for agents that says each line once: it is silent while code runs that has run before."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Protocol

from typing_extensions import override

__all__ = ["Replays", "replaying_log"]


class Replays(Protocol):
    """What knows whether the running code has run before."""

    @property
    def replaying(self) -> bool:
        """Whether it has."""
        ...


class _Adapter(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, logger: logging.Logger, run: Replays) -> None:
        super().__init__(logger)
        self._run = run

    @override
    def isEnabledFor(self, level: int) -> bool:
        return not self._run.replaying and super().isEnabledFor(level)

    @override
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


def replaying_log(run: Replays) -> logging.LoggerAdapter[Any]:
    """Return a log that is silent while the run replays. `extra` of the author's is kept."""
    return _Adapter(logging.getLogger("milepost.agent"), run)
