"""The executor's log: one line of JSON an event on standard output, every commit among them."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from milepost.checkpoint.committer import Committed
from milepost.checkpoint.records import StepCompleted, StepFailure

__all__ = ["configure", "log_commit"]


def configure(**context: Any) -> structlog.stdlib.BoundLogger:
    """Send all logs to standard output as JSON. Return a logger with this context."""
    shared: list[Any] = [
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
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processor=structlog.processors.JSONRenderer(),
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(**context)
    return logger


def log_commit(log: structlog.stdlib.BoundLogger, committed: Committed) -> None:
    """Log one checkpoint write: bytes, milliseconds, and the steps that it made durable."""
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
        bytes=committed.size,
        duration_ms=round(committed.duration_s * 1000, 2),
    )
