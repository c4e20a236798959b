"""Values whose declared type is not at hand: facts of an earlier execution, results that a test looks at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from milepost.checkpoint import codec


class Colour(Enum):
    RED = "#f00"


@dataclass
class Dot:
    at: tuple[int, int]
    colour: Colour


class Picture(BaseModel):
    dots: list[Dot]
    made: datetime


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.req("S1", "D6")
@pytest.mark.parametrize(
    ("value", "declared", "read"),
    [
        ({"when": NOON, 1: (b"", {2})}, Any, {"when": NOON, 1: (b"", {2})}),
        (
            Picture(dots=[Dot((1, 2), Colour.RED)], made=NOON),
            Picture,
            {"dots": [{"at": (1, 2), "colour": "RED"}], "made": NOON},
        ),
        ([Dot((1, 2), Colour.RED), None], list[Dot | None], [{"at": (1, 2), "colour": "RED"}, None]),
    ],
    ids=["no classes", "a model", "a list of dataclasses"],
)
def test_what_needs_no_class_comes_as_it_was_and_of_an_instance_comes_what_it_holds(
    value: Any, declared: Any, read: Any
) -> None:
    assert codec.undeclared(codec.encode(value, declared)) == read
