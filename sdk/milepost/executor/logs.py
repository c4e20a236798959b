"""The executor's log: one line of JSON an event on standard output, every checkpoint write among them."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from milepost.checkpoint.committer import Committed
from milepost.checkpoint.head import Head
from milepost.checkpoint.records import StepCompleted, StepFailure

__all__ = ["StoreTrouble", "configure", "log_claim", "log_commit"]

TOLD_FIRST: Final = 5.0
TOLD_AGAIN: Final = 30.0
"""Seconds of trouble with the store after which it is logged, and between that and the next time."""


def configure(**context: Any) -> structlog.stdlib.BoundLogger:
    """Send all logs and warnings to standard output as JSON, with this context. Return a logger."""

    def in_context(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**context, **event}

    shared: list[Any] = [
        in_context,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(), *shared],
            processor=structlog.processors.JSONRenderer(),
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger()
    return logger


def log_claim(log: structlog.stdlib.BoundLogger, head: Head, duration_s: float) -> None:
    """Log the write that took the run over."""
    log.info(
        "claimed",
        epoch=head.epoch,
        seq=head.seq,
        steps=[],
        done=head.totals.steps_done,
        total=head.totals.steps_total,
        bytes=len(head.body()),
        duration_ms=round(duration_s * 1000, 2),
    )


def log_commit(log: structlog.stdlib.BoundLogger, committed: Committed) -> None:
    """Log one checkpoint write: the steps that it made durable, and what the run has used up by then."""
    steps = [event for event in committed.record.events if isinstance(event, StepCompleted | StepFailure)]
    head = committed.head
    log.info(
        "checkpoint",
        epoch=head.epoch,
        seq=head.seq,
        steps=[event.step.id for event in steps if isinstance(event, StepCompleted)],
        failed=[event.step.id for event in steps if isinstance(event, StepFailure)],
        done=head.totals.steps_done,
        total=head.totals.steps_total,
        tokens=head.totals.tokens,
        cost_usd=head.totals.cost_nano_usd / 1e9,
        bytes=committed.size,
        duration_ms=round(committed.duration_s * 1000, 2),
    )


@dataclass
class StoreTrouble:
    """Logs a store that gives no clear answer: once it is more than a blip, and then now and then.

    Called from whichever thread is waiting, before each of its pauses; times are seconds.
    """

    log: structlog.stdlib.BoundLogger
    deadline: float
    _told: dict[str, float] = field(default_factory=dict)

    def __call__(self, key: str, cause: str, waited: float) -> None:
        before = self._told.get(key, 0.0)
        # Told of before and waiting for less: that was another time.
        since = before if waited >= before else 0.0
        if waited - since < (TOLD_FIRST if since == 0 else TOLD_AGAIN):
            return
        self._told[key] = waited
        with suppress(OSError):  # who read the log is gone, and the wait goes on
            self.log.warning(
                "store-trouble",
                object=key,
                cause=cause,
                waited_s=round(waited),
                gives_up_after_s=self.deadline,
            )
