"""What the executor logs of a store that gives no clear answer."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import LogCapture

from milepost.executor.logs import StoreTrouble


@pytest.fixture
def log() -> LogCapture:
    return LogCapture()


def trouble(log: LogCapture, *waits: float, key: str = "head") -> list[int]:
    """Return after how many seconds it was logged."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(None, processors=[log])
    told = StoreTrouble(logger, 120)
    for waited in waits:
        told(key, "503 SlowDown", waited)
    return [entry["waited_s"] for entry in log.entries]


@pytest.mark.req("I7", "F-D4")
def test_a_blip_is_not_logged_and_real_trouble_is_now_and_then(log: LogCapture) -> None:
    assert trouble(log, 0, 0.1, 4.9) == []
    assert trouble(log, *range(0, 100, 2)) == [6, 36, 66, 96]


def test_trouble_that_comes_again_is_logged_again(log: LogCapture) -> None:
    assert trouble(log, 0, 6, 50, 0, 4, 5, 6) == [6, 50, 5]


def test_the_line_says_what_is_wrong_and_until_when_it_is_tried(log: LogCapture) -> None:
    trouble(log, 7.2)

    assert log.entries == [
        {
            "event": "store-trouble",
            "log_level": "warning",
            "object": "head",
            "cause": "503 SlowDown",
            "waited_s": 7,
            "gives_up_after_s": 120,
        }
    ]
