"""YAML as the API server's clients read it, with the line of every field.

PyYAML alone would make dates, sexagesimal numbers and the last of two equal keys out of what `kubectl`
takes for text, for text, and for a mistake. Values here are those of JSON and nothing else, so that a
manifest means the same with and without a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml
from typing_extensions import override

from milepost.errors import InvalidRun

__all__ = ["Document", "Path", "read_documents"]

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """One document of a file: its data, and where its parts stand."""

    data: Any
    node: yaml.Node

    def line_of(self, path: Path) -> int:
        """Return the line, from 1, of the field at `path`, or of the deepest part above it that is there."""
        node, line = self.node, self.node.start_mark.line
        for part in path:
            found = next((pair for pair in _children(node) if pair[0] == part), None)
            if found is None:
                break
            _, line, node = found
        return line + 1


def _children(node: yaml.Node) -> Iterator[tuple[str | int, int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield index, value.start_mark.line, value


class _Loader(yaml.SafeLoader):
    """YAML's scalars as JSON has them."""

    # The class's own table: SafeLoader's also knows dates and sexagesimal numbers.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's name)

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping. Raises InvalidRun for a key that is no text or stands there twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == _MERGE:
                continue
            if key.tag != _TEXT:
                raise InvalidRun(f"line {key.start_mark.line + 1}", _unquoted(key))
            if key.value in seen:
                raise InvalidRun(
                    f"line {key.start_mark.line + 1}", f"the key {key.value!r} stands there twice"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"


def _unquoted(key: yaml.Node) -> str:
    return f"a key must be text; put {key.value if isinstance(key, yaml.ScalarNode) else 'it'} in quotes"


for _tag, _pattern, _first in (
    ("bool", r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("int", r"[-+]?(0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))


def read_documents(text: str) -> list[Document]:
    """Return the documents that are not empty. Raises InvalidRun, with the line, for what is no YAML."""
    loader = _Loader(text)
    found = []
    try:
        while loader.check_node():
            node = loader.get_node()
            data = loader.construct_document(node)
            if data is not None and node is not None:
                found.append(Document(data, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidRun(
            f"line {mark.line + 1}" if mark else "the file", f"no YAML: {error.problem}"
        ) from error
    except yaml.YAMLError as error:
        raise InvalidRun("the file", f"no YAML: {error}") from error
    finally:
        loader.dispose()
    return found
