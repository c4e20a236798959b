"""A clock that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from milepost.testing import Clock

pytestmark = pytest.mark.req("S5")

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_it_stands_still_until_it_is_moved() -> None:
    clock = Clock(NOON)

    assert clock() == clock() == NOON
    clock.advance(90)
    clock.advance(timedelta(days=1))
    assert clock() == NOON + timedelta(days=1, seconds=90)
    clock.advance_to(NOON)
    clock.advance_to(NOON + timedelta(days=2))
    assert clock() == NOON + timedelta(days=2)


def test_it_tells_utc_whatever_it_was_told() -> None:
    assert Clock(datetime(2030, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))))().isoformat() == (
        "2030-01-01T12:00:00+00:00"
    )


def test_it_goes_by_no_time_without_a_zone_and_never_back() -> None:
    with pytest.raises(ValueError, match="names no zone"):
        Clock(datetime(2030, 1, 1))  # noqa: DTZ001  (that is the mistake)
    with pytest.raises(ValueError, match="does not go back"):
        Clock().advance(-1)
