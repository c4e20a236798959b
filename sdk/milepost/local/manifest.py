"""An AgentRun manifest from a file, checked as the API server would check it.

The types are those of the resource itself, and a message names the field, what would be right, and the
line. It reads one run and no other kind: whoever wants several runs calls it several times.
"""

from __future__ import annotations

import difflib
import json
import textwrap
import types
import typing
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, Final

import pydantic
import pydantic_core
from pydantic import BaseModel
from pydantic.alias_generators import to_snake

from milepost.api.digest import check_inputs
from milepost.api.names import GROUP, KIND, VERSION, StoreKeys, check_name
from milepost.api.resource import RunSpec
from milepost.api.validation import WORDS
from milepost.errors import InvalidRun
from milepost.local.documents import Document, Path, read_documents

__all__ = ["Manifest", "load_manifest", "read_manifest"]

API_VERSION: Final = f"{GROUP}/{VERSION}"
_SHOWN: Final = 60
_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")

_KINDS: Final = {
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "model_attributes_type": "must be a mapping of names to values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
}
"""What pydantic calls an error, as what would be right."""


@dataclass(frozen=True)
class Manifest:
    """A run as its user asked for it."""

    namespace: str
    name: str
    spec: RunSpec


def load_manifest(file: File, *, namespace: str = "", name: str = "") -> Manifest:
    """Return the run in the file. Raises InvalidRun, with the file's name before the field's."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidRun(str(file), f"cannot be read: {why}") from error
    try:
        return read_manifest(text, namespace=namespace, name=name)
    except InvalidRun as error:
        raise InvalidRun(f"{file}: {error.field}", error.message) from error


def read_manifest(text: str, *, namespace: str = "", name: str = "") -> Manifest:
    """Return the AgentRun in the text; with several, the one called `name`.

    `namespace` is for a manifest that gives none; `default` where neither does. Raises InvalidRun.
    """
    document = _choose(read_documents(text), name)
    data = document.data
    for field in data:
        if field not in _TOP:
            raise _wrong(document, (field,), _unknown(str(field), _TOP))
    if data.get("apiVersion") != API_VERSION:
        raise _wrong(
            document, ("apiVersion",), f"{data.get('apiVersion')!r} is not known; write {API_VERSION}"
        )
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        raise _wrong(document, ("metadata",), "is required, with a name")
    called = _name(document, metadata)
    within = _namespace(document, metadata, namespace)
    return Manifest(within, called, _spec(document))


def _choose(documents: list[Document], name: str) -> Document:
    runs = [each for each in documents if isinstance(each.data, dict) and each.data.get("kind") == KIND]
    if not runs:
        kinds = sorted({_kind(each.data) for each in documents}) or ["nothing"]
        raise InvalidRun("kind", f"the file holds {', '.join(kinds)}; a run is one document of kind: {KIND}")
    names = [_called(each.data) for each in runs]
    if name:
        chosen = [each for each, called in zip(runs, names, strict=True) if called == name]
        if not chosen:
            raise InvalidRun("--name", f"no {KIND} is called {name!r}; the file holds {', '.join(names)}")
        return chosen[0]
    if len(runs) > 1:
        raise InvalidRun("the file", f"holds {len(runs)} runs; choose one with --name: {', '.join(names)}")
    return runs[0]


def _kind(data: Any) -> str:
    return str(data.get("kind", "a document without a kind")) if isinstance(data, dict) else "no mapping"


def _called(data: dict[str, Any]) -> str:
    metadata = data.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else "one without a name"


def _name(document: Document, metadata: dict[str, Any]) -> str:
    name = metadata.get("name")
    if not isinstance(name, str):
        other = "; generateName works on a cluster only" if "generateName" in metadata else ""
        raise _wrong(document, ("metadata", "name"), f"is required, as text{other}")
    try:
        return check_name(name)
    except InvalidRun as error:
        raise _wrong(document, ("metadata", "name"), error.message) from error


def _namespace(document: Document, metadata: dict[str, Any], wanted: str) -> str:
    given = metadata.get("namespace") or ""
    if wanted and given and wanted != given:
        raise _wrong(
            document, ("metadata", "namespace"), f"{given!r} is not {wanted!r}, as --namespace has it"
        )
    namespace = str(given or wanted or "default")
    try:
        StoreKeys(namespace)
    except InvalidRun as error:
        raise _wrong(document, ("metadata", "namespace"), error.message) from error
    return namespace


def _spec(document: Document) -> RunSpec:
    raw = document.data.get("spec")
    if not isinstance(raw, dict):
        raise _wrong(
            document, ("spec",), "is required: agent.image, agent.entrypoint, and the agent's inputs"
        )
    try:
        text = json.dumps(_without_nulls(raw), allow_nan=False)
    except ValueError as error:
        raise _wrong(document, ("spec",), f"has no form in JSON: {error}") from error
    try:
        spec = RunSpec.model_validate_json(text, strict=True, by_alias=True, by_name=False)
        check_inputs(spec.inputs)
    except pydantic.ValidationError as error:
        # An unknown field is most often the misspelt form of one that is missing, so it is named first.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        raise _wrong(document, ("spec", *first["loc"]), _right(first)) from error
    except InvalidRun as error:
        raise InvalidRun(
            f"{error.field} (line {document.line_of(('spec', 'inputs'))})", error.message
        ) from error
    _check_variables(document, spec)
    return spec


def _check_variables(document: Document, spec: RunSpec) -> None:
    for index, variable in enumerate(spec.pod.env):
        where = ("spec", "pod", "env", index)
        if variable.name.startswith("MILEPOST_"):
            raise _wrong(document, (*where, "name"), "names that begin with MILEPOST_ are reserved")
        if variable.value is not None and variable.value_from is not None:
            raise _wrong(document, where, "give value or valueFrom, not both")


def _without_nulls(spec: dict[str, Any]) -> dict[str, Any]:
    """Leave out fields that are null, which the API server takes for absent; inputs may hold nulls."""
    return {
        field: _without_nulls(value) if isinstance(value, dict) and field != "inputs" else value
        for field, value in spec.items()
        if value is not None
    }


def _wrong(document: Document, path: Path, message: str) -> InvalidRun:
    field = ""
    for part in path:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else part
    return InvalidRun(f"{field} (line {document.line_of(path)})", message)


def _right(error: pydantic_core.ErrorDetails) -> str:
    """Return what would be right, in words."""
    kind, found = error["type"], _shown(error["input"])
    match kind:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return _unknown(str(error["loc"][-1]), _fields_at(error["loc"][:-1]))
        case "string_pattern_mismatch":
            pattern = error["ctx"]["pattern"]
            return f"{found} {WORDS.get(pattern, f'must match {pattern}')}"
        case _:
            wanted = _KINDS.get(
                kind, error["msg"].replace("Input should", "must").replace("String should", "must")
            )
            return f"{wanted}, not {found}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return textwrap.shorten(text, _SHOWN, placeholder="...")


def _unknown(field: str, known: typing.Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(field, [*names, *map(to_snake, names)], n=1)
    meant = next((name for name in names if close and close[0] in (name, to_snake(name))), "")
    return f"is no field here; is it {meant}?" if meant else f"is no field here; there are {', '.join(names)}"


def _fields_at(path: Path) -> list[str]:
    """Return the names of the fields that may stand at `path` below spec."""
    model: type[BaseModel] | None = RunSpec
    for part in path:
        if model is None:
            return []
        if isinstance(part, str):
            field = next((each for each in model.model_fields.values() if each.alias == part), None)
            model = _model_in(field.annotation) if field else None
    return [str(field.alias) for field in model.model_fields.values()] if model else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a field, or of the items of a list of models."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (tuple, types.UnionType):
        return next(filter(None, map(_model_in, typing.get_args(annotation))), None)
    return None
