"""The CustomResourceDefinition of AgentRun, made from the types in `milepost.api.resource`.

Pydantic's JSON schema becomes a structural one, as the API server wants it, and takes up the rules of
`milepost.api.validation`. What has no structural form raises; nothing is dropped in silence. Nothing here
writes a file or knows YAML.

The surprising part is which defaults are published. A field of `spec` itself always has its default, empty
or not, because a rule that compares old and new runs only where both are there. Below that, an empty
default would only fill up what `kubectl get -o yaml` shows, and status has none: the operator writes it all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from milepost.api.names import GROUP, KIND, PLURAL, VERSION
from milepost.api.resource import RunSpec, RunStatus
from milepost.api.validation import NAME_RULE, RULES, UNIQUE_BY, WORDS, Rule

__all__ = ["custom_resource_definition"]

Json = dict[str, Any]
Rules = Mapping[str, tuple[Rule, ...]]

_ANYTHING: Final[Json] = {"nullable": True, "x-kubernetes-preserve-unknown-fields": True}
_ENUM: Final = re.compile(r"\^\(([A-Za-z|]+)\)\$")
_LIMITS: Final = ("minLength", "maxLength", "minimum", "maximum", "maxItems", "maxProperties")

_COLUMNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("Phase", "string", ".status.phase"),
    ("Progress", "string", ".status.progress"),
    ("Attempt", "integer", ".status.attempt"),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def custom_resource_definition() -> Json:
    """Return the CustomResourceDefinition as plain data, in the order in which a person would write it.

    Raises ValueError where a type says something that has no structural form, or a rule has no field.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["mrun"],
                "categories": ["milepost"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": _root(RULES)},
                }
            ],
        },
    }


def _root(rules: Rules) -> Json:
    walk = _Walk(rules)
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": walk.model(RunSpec, "spec"),
        "status": walk.model(RunStatus, "status"),
    }
    if unused := (rules.keys() | UNIQUE_BY.keys()) - walk.seen:
        raise ValueError(f"rules without a field: {', '.join(sorted(unused))}")
    return {
        "description": "A long run of an agent that survives the loss of its pod.",
        "type": "object",
        "required": ["spec"],
        "properties": properties,
        "x-kubernetes-validations": [_published(NAME_RULE)],
    }


class _Walk:
    """One way through a model's JSON schema, with its definitions at hand and the paths it has seen."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.definitions: Mapping[str, Json] = {}
        self.seen: set[str] = set()

    def model(self, model: type[BaseModel], path: str) -> Json:
        whole = model.model_json_schema(by_alias=True)
        self.definitions = whole.pop("$defs", {})
        return self._structural(whole, path)

    def _structural(self, node: Json, path: str) -> Json:
        self.seen.add(path)
        node = self._inlined(node)
        node.pop("title", None)
        out: Json = {}
        if description := node.pop("description", ""):
            out["description"] = " ".join(description.split("\n\n")[0].split())
        rules = [*_pattern_rule(node), *self.rules.get(path, ())]
        out |= self._typed(node, path)
        out |= {keyword: node.pop(keyword) for keyword in ("default", *_LIMITS) if keyword in node}
        if node:
            raise ValueError(f"{path}: {json.dumps(node)} has no structural form")
        return out | ({"x-kubernetes-validations": [_published(rule) for rule in rules]} if rules else {})

    def _typed(self, node: Json, path: str) -> Json:
        """Take out of the node what goes with its type, and return it in its structural form."""
        match node.pop("type", None):
            case "object":
                return {"type": "object"} | self._contents(node, path)
            case "array":
                keys = list(UNIQUE_BY.get(path, ()))
                by_key = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys} if keys else {}
                return {"type": "array", "items": self._structural(node.pop("items"), f"{path}[]")} | by_key
            case "string":
                return {"type": "string"} | ({"enum": node.pop("enum")} if "enum" in node else {})
            case "integer":
                return {"type": "integer", "format": "int64"}
            case "number":
                return {"type": "number", "format": "double"}
            case "boolean":
                return {"type": "boolean"}
            case None if node.pop("x-kubernetes-int-or-string", False):
                kinds = [{"type": "integer"}, {"type": "string"}]
                return {"x-kubernetes-int-or-string": True, "anyOf": kinds}
            case None if not node:
                return dict(_ANYTHING)
            case other:
                raise ValueError(f"{path}: {other} has no structural form")

    def _inlined(self, node: Json) -> Json:
        """Put definitions where they are named, and take away the null that stands for absence."""
        node = dict(node)
        if "anyOf" in node:
            kinds = [kind for kind in node.pop("anyOf") if kind != {"type": "null"}]
            if len(kinds) != 1:
                raise ValueError(f"more than one kind has no structural form: {json.dumps(kinds)}")
            node = self._inlined(kinds[0]) | node
        if "$ref" in node:
            node = dict(self.definitions[node.pop("$ref").rpartition("/")[2]]) | node
        if "default" in node and node["default"] is None:
            del node["default"]
        return node

    def _contents(self, node: Json, path: str) -> Json:
        values = node.pop("additionalProperties", False)
        if values is True:
            return {"additionalProperties": dict(_ANYTHING)}
        if values:
            return {"additionalProperties": self._structural(values, f"{path}{{}}")}
        required = node.pop("required", [])
        properties = {}
        for name, part in node.pop("properties").items():
            place = f"{path}.{name}"
            properties[name] = self._structural(part, place)
            if name not in required:
                _settle_default(properties[name], place, nullable="anyOf" in part)
        return ({"required": required} if required else {}) | {"properties": properties}


def _settle_default(node: Json, path: str, *, nullable: bool) -> None:
    """Keep the field's default, or the `{}` that an object has for one, where it is to be published."""
    section, *below = path.split(".")
    if node.get("type") == "object" and not nullable:
        node.setdefault("default", {})
        inner = any("default" in part for part in node.get("properties", {}).values())
    else:
        inner = False
    if section != "spec" or not (len(below) == 1 or node.get("default") or inner):
        node.pop("default", None)


def _pattern_rule(node: Json) -> tuple[Rule, ...]:
    """Take the pattern out of a node: one that lists words becomes an enumeration there, any other a rule."""
    pattern = node.pop("pattern", "")
    if not pattern:
        return ()
    if listed := _ENUM.fullmatch(pattern):
        node.pop("maxLength", None)
        node["enum"] = listed[1].split("|")
        return ()
    if pattern not in WORDS:
        raise ValueError(f"the pattern {pattern} needs its words in milepost.api.validation")
    return (Rule(f"self.matches({json.dumps(pattern)})", WORDS[pattern]),)


def _published(rule: Rule) -> Json:
    return {"rule": rule.expression, "message": rule.message} | (
        {"fieldPath": rule.field} if rule.field else {}
    )
