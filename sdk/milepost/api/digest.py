"""The spec digest: tells whether two manifests ask for the same work.

It covers a versioned list of fields. A field at its default counts as absent, so that adding a field with a
default to the API changes no digest; mutable fields are left out, so that changing one continues the run.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

import rfc8785

from milepost.api.resource import MAX_EXACT_INTEGER, MAX_INPUT_BYTES, RunSpec
from milepost.errors import InvalidRun

__all__ = ["check_inputs", "spec_digest"]

VERSION: Final = 1
MAX_DEPTH: Final = 100
"""Far below where Python's own recursion ends, so that a manifest cannot end the operator's pass."""


def check_inputs(inputs: dict[str, Any]) -> None:
    """Refuse inputs that JSON cannot carry exactly through the API server.

    Raises InvalidRun, naming the place, where a number is not finite or reaches ±2^53, a text is not Unicode,
    a key is no text, a value has no JSON form or lies too deep, or the whole is over 128 KiB.
    """
    _check(inputs, "spec.inputs", MAX_DEPTH)
    size = len(rfc8785.dumps(inputs))
    if size > MAX_INPUT_BYTES:
        raise InvalidRun(
            "spec.inputs",
            f"{size} bytes are more than {MAX_INPUT_BYTES}; put the data in the bucket and pass its name",
        )


def _check(value: Any, path: str, depth: int) -> None:
    if depth == 0:
        raise InvalidRun("spec.inputs", f"nested more than {MAX_DEPTH} deep; flatten it")
    match value:
        case dict():
            for key, part in value.items():
                if not isinstance(key, str):
                    raise InvalidRun(path, f"the key {key!r} must be a string: put it in quotes")
                _check(key, path, depth)
                _check(part, f"{path}.{key}", depth - 1)
        case list() | tuple():
            for index, part in enumerate(value):
                _check(part, f"{path}[{index}]", depth - 1)
        case _:
            if fault := _fault(value):
                raise InvalidRun(path, fault)


def _fault(value: Any) -> str:
    """Say why JSON cannot carry this value that holds no others; nothing where it can."""
    match value:
        case None | bool():
            return ""
        case int() if abs(value) >= MAX_EXACT_INTEGER:
            return f"{value} does not lie within ±2^53 and would lose digits; pass it as a string"
        case float() if not math.isfinite(value):
            return f"{value} has no JSON form; pass it as a string"
        case str() if any("\ud800" <= char <= "\udfff" for char in value):
            return f"{value!r} holds half of a surrogate pair, which is no Unicode text"
        case int() | float() | str():
            return ""
        case _:
            return f"a {type(value).__name__} has no JSON form; pass it as a string, in quotes"


def spec_digest(spec: RunSpec) -> str:
    """Return the SHA-256, in hex, of the spec's defining fields in RFC 8785 form. Raises InvalidRun."""
    check_inputs(spec.inputs)
    _check(spec.goal, "spec.goal", MAX_DEPTH)
    fields: dict[str, Any] = {"entrypoint": spec.agent.entrypoint, "version": VERSION}
    if spec.goal:
        fields["goal"] = spec.goal
    if spec.inputs:
        fields["inputs"] = spec.inputs
    if spec.store.name != "default":
        fields["store"] = spec.store.name
    if spec.rerun:
        fields["rerun"] = spec.rerun
    return hashlib.sha256(rfc8785.dumps(fields)).hexdigest()
