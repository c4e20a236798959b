"""The spec digest: tells whether two manifests ask for the same work.

It covers a versioned list of fields. A field at its default counts as absent, so that adding a field with a
default to the API changes no digest; mutable fields are left out, so that changing one continues the run.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import rfc8785

from milepost.api.resource import MAX_EXACT_INTEGER, MAX_INPUT_BYTES, RunSpec
from milepost.errors import InvalidRun

__all__ = ["check_inputs", "spec_digest"]

VERSION: Final = 1


def check_inputs(inputs: dict[str, Any]) -> None:
    """Refuse inputs that JSON cannot carry exactly through the API server.

    Raises InvalidRun, naming the field, where an integer lies beyond ±2^53 or the whole is over 128 KiB.
    """
    _check_numbers(inputs, "spec.inputs")
    size = len(rfc8785.dumps(inputs))
    if size > MAX_INPUT_BYTES:
        raise InvalidRun(
            "spec.inputs",
            f"{size} bytes are more than {MAX_INPUT_BYTES}; put the data in the bucket and pass its name",
        )


def _check_numbers(value: Any, path: str) -> None:
    match value:
        case bool():
            pass
        case int() if abs(value) > MAX_EXACT_INTEGER - 1:
            raise InvalidRun(
                path, f"{value} is beyond ±2^53 and would lose digits on its way; pass it as a string"
            )
        case dict():
            for key, part in value.items():
                _check_numbers(part, f"{path}.{key}")
        case list() | tuple():
            for index, part in enumerate(value):
                _check_numbers(part, f"{path}[{index}]")
        case _:
            pass


def spec_digest(spec: RunSpec) -> str:
    """Return the SHA-256, in hex, of the spec's defining fields in RFC 8785 form. Raises InvalidRun."""
    check_inputs(spec.inputs)
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
