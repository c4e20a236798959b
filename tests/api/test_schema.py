from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import pytest
import yaml
from pydantic import BaseModel, Field

from milepost.api import schema
from milepost.api.schema import custom_resource_definition
from milepost.api.validation import RULES
from tools.crds import documents

ROOT: Final = Path(__file__).resolve().parents[2]
SPEC: Final[dict[str, Any]] = custom_resource_definition()["spec"]
(ONLY_VERSION,) = SPEC["versions"]
SCHEMA: Final[dict[str, Any]] = ONLY_VERSION["schema"]["openAPIV3Schema"]


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, part in node.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


NODES: Final = {
    **dict(nodes(SCHEMA["properties"]["spec"], "spec")),
    **dict(nodes(SCHEMA["properties"]["status"], "status")),
}


@pytest.mark.parametrize("path", documents(), ids=str)
def test_the_files_are_what_the_types_say(path: Path) -> None:
    assert (ROOT / path).read_text() == documents()[path]


def test_the_plain_file_reads_back_as_the_definition() -> None:
    (text,) = (text for path, text in documents().items() if path.parts[0] == "crds")

    assert yaml.safe_load(text) == custom_resource_definition()


def test_the_names_of_the_resource() -> None:
    assert (SPEC["group"], SPEC["scope"], ONLY_VERSION["name"], ONLY_VERSION["subresources"]) == (
        "milepost.dev",
        "Namespaced",
        "v1alpha1",
        {"status": {}},
    )
    assert SPEC["names"] == {
        "kind": "AgentRun",
        "listKind": "AgentRunList",
        "plural": "agentruns",
        "singular": "agentrun",
        "shortNames": ["mrun"],
        "categories": ["milepost"],
    }


def test_everything_in_the_spec_has_a_maximum() -> None:
    def unlimited(node: dict[str, Any]) -> bool:
        match node:
            case {"x-kubernetes-preserve-unknown-fields": True} | {"type": "boolean"} | {"enum": _}:
                return False
            case {"type": "string"} | {"x-kubernetes-int-or-string": True}:
                return "maxLength" not in node
            case {"type": "array"}:
                return "maxItems" not in node
            case {"type": "object", "additionalProperties": _}:
                return "maxProperties" not in node
            case _:
                return False

    assert [path for path, node in NODES.items() if unlimited(node)] == []


def test_nothing_is_left_that_no_structural_schema_may_hold() -> None:
    known = {
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minimum",
        "nullable",
        "properties",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    }

    assert {keyword for node in NODES.values() for keyword in node} <= known


def test_what_a_rule_compares_with_its_old_self_is_always_there() -> None:
    comparing = {path for path, rules in RULES.items() for rule in rules if "oldSelf" in rule.expression}

    def always_there(path: str) -> bool:
        parent, _, name = path.rpartition(".")
        here = name in NODES[parent].get("required", ()) or "default" in NODES[path] if parent else True
        return here and (not parent or always_there(parent))

    assert {path for path in comparing if not always_there(path)} == set()


def test_every_field_of_the_spec_is_immutable_but_these() -> None:
    mutable = {
        "spec.suspend",
        "spec.cancel",
        "spec.agent.image",
        "spec.agent.version",
        "spec.deletionPolicy",
        "spec.retentionSeconds",
        "spec.limits",
    }
    compared = {
        path for path, rules in RULES.items() for rule in rules if rule.expression == "self == oldSelf"
    } | {"spec.inputs"}

    fields = {f"spec.{name}" for name in NODES["spec"]["properties"]} - {"spec.agent"}
    of_the_agent = {f"spec.agent.{name}" for name in NODES["spec.agent"]["properties"]}
    assert fields | of_the_agent == compared | mutable


def test_status_has_no_defaults_that_would_pass_for_something_seen() -> None:
    assert [path for path, node in NODES.items() if path.startswith("status") and "default" in node] == []


def test_a_rule_for_a_field_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"spec\.gaol"):
        schema._root({**RULES, "spec.gaol": ()})


class TwoKinds(BaseModel):
    field: int | str


class Unworded(BaseModel):
    field: Annotated[str, Field(pattern="^x+$")]


class Unspeakable(BaseModel):
    field: Annotated[int, Field(multiple_of=3)]


@pytest.mark.parametrize(
    ("model", "said"),
    [(TwoKinds, "more than one kind"), (Unworded, "needs its words"), (Unspeakable, "multipleOf")],
)
def test_a_type_without_a_structural_form_is_an_error(model: type[BaseModel], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schema._Walk(RULES).model(model, "spec")
