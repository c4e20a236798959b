"""What people see of stored values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from milepost.checkpoint import codec


class Colour(Enum):
    RED = "red"


class Note(BaseModel):
    terms: tuple[str, ...]
    colour: Colour = Colour.RED


@dataclass
class Page:
    notes: Mapping[str, Note]


@pytest.mark.parametrize(
    ("value", "declared", "seen"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, Any, {"a": [1, 2.5, None, True, "x"]}),
        (Page({"p": Note(terms=("a", "b"))}), Page, {"notes": {"p": {"terms": ["a", "b"], "colour": "RED"}}}),
        ({1: "a", "1": "b"}, Any, {"1": "b"}),
        ({(1, 2): date(2026, 1, 2)}, Any, {"[1, 2]": "2026-01-02"}),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), Any, "2026-01-02T03:00:00+00:00"),
        ([Decimal("1.50"), UUID(int=1), timedelta(seconds=90)], Any, ["1.50", str(UUID(int=1)), "0:01:30"]),
        ({3, 1, 2}, Any, [1, 2, 3]),
        ([b"ab", float("nan"), 2**70], Any, ["YWI=", "nan", 2**70]),
        ({"$mp": "looks like a tag"}, Any, {"$mp": "looks like a tag"}),
    ],
)
def test_a_value_is_shown_as_the_json_that_people_expect(value: Any, declared: Any, seen: codec.JSON) -> None:
    assert codec.plain(codec.encode(value, declared)) == seen


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
        max_leaves=10,
    )
)
def test_whatever_is_stored_can_be_shown(value: Any) -> None:
    json.dumps(codec.plain(codec.encode(value)), allow_nan=False)
