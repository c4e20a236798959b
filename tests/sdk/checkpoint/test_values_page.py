"""The page on values says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.agent import failures
from milepost.agent.journal import MAX_INLINE_INPUT
from milepost.checkpoint import codec, values

PAGE = (Path(__file__).parents[3] / "docs/values.md").read_text()
KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(
    "said",
    [
        f"| one value, as JSON | {codec.MAX_BYTES // MIB} MiB |",
        f"| its lists, objects, items and pairs together | {codec.MAX_PARTS:,} |",
        f"| its nesting, in levels of JSON | {codec.MAX_DEPTH} ",
        f"| a value inside a record | {values.MAX_INLINE // KIB} KiB |",
        f"| an argument inside a record | {MAX_INLINE_INPUT // KIB} KiB |",
        f"up to {values.MAX_INLINE // KIB} KiB stands in the record",
        f"among the {values.CACHE_BYTES // MIB} MiB of blobs",
        f"cut to {failures.MAX_MESSAGE:,} characters, those of the chain to {failures.MAX_LINK}",
        f"up to {failures.MAX_CHAIN} errors",
    ],
)
def test_a_limit_on_the_page_is_the_codes(said: str) -> None:
    assert said in PAGE
