"""What arguments a tool takes, as a schema, and arguments from a model, held to it.

A model's arguments are data by name. They are validated strictly, as JSON: text is no number, and nothing
unknown is let through. An argument that is not given is left out, so that the tool's own default stands.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NotRequired, Required

from pydantic import ConfigDict, Field, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from milepost.checkpoint import codec
from milepost.errors import ArgumentsInvalid

__all__ = ["adapter_of", "schema_of", "validated"]

MAX_SHOWN: Final = 200
"""Characters of a wrong argument that a message quotes."""


def adapter_of(fn: Callable[..., Any], *, skip: int) -> TypeAdapter[dict[str, Any]]:
    """Return what validates the arguments of a function by name, but for its first `skip` parameters.

    Raises TypeError where one of them cannot be given by name.
    """
    declared = codec.declared_by_name(fn)
    fields: dict[str, Any] = {}
    open_ended = False
    for parameter in list(inspect.signature(fn).parameters.values())[skip:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.name in declared:
            fields[parameter.name] = _field(declared[parameter.name], parameter.default)
        else:
            raise TypeError(
                f"parameter {parameter.name} of {fn.__qualname__} cannot be given by name, as models do"
            )
    # The fields are known here only, so no type checker can follow.
    make: Any = TypedDict
    named = make(fn.__name__, fields)
    named.__pydantic_config__ = ConfigDict(extra="allow" if open_ended else "forbid")
    return TypeAdapter(named)


def _field(declared: Any, default: Any) -> Any:
    try:
        TypeAdapter(declared)
    except PydanticSchemaGenerationError:
        # No class that pydantic can build: the tool takes the JSON as it is.
        declared = Any
    if default is inspect.Parameter.empty:
        return Required[declared]
    try:
        shown = {"default": codec.encode(default, declared)}
    except Exception:  # noqa: BLE001  (the author's default, only to be shown; it is none that JSON can say)
        shown = {}
    return NotRequired[Annotated[declared, Field(json_schema_extra=shown)]]


def schema_of(adapter: TypeAdapter[dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments. Raises pydantic's errors where a type has none."""
    return adapter.json_schema()


def validated(
    adapter: TypeAdapter[dict[str, Any]], tool: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a model's arguments, each of its declared type. Raises ArgumentsInvalid, naming every fault."""
    try:
        text = json.dumps(dict(arguments), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentsInvalid(tool, [("", f"they are not JSON: {error}")]) from error
    try:
        return adapter.validate_json(text, strict=True)
    except ValidationError as error:
        faults = [
            (".".join(map(str, each["loc"])), _fault(each["type"], each["msg"], each["input"]))
            for each in error.errors()
        ]
        raise ArgumentsInvalid(tool, faults) from error


def _fault(kind: str, message: str, given: Any) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not known"
    shown = json.dumps(given, default=repr, ensure_ascii=False)
    shown = shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + " ..."
    return f"{message}, not {shown}"
