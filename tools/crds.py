"""Writes the definition of AgentRun, from its types, to where people and the chart take it from.

    python -m tools.crds            writes crds/agentruns.yaml and the chart's template
    python -m tools.crds --check    changes nothing; fails where a file is not what the types say

The two differ in nothing but what Helm needs: the chart's can be left out, and is kept when the release goes,
since every AgentRun of the cluster goes with its definition.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from milepost.api.schema import custom_resource_definition

__all__ = ["documents", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent
PLAIN: Final = Path("crds/agentruns.yaml")
CHART: Final = Path("charts/milepost/templates/crd-agentruns.yaml")

_NOTE: Final = "Generated from milepost.api by `make crds`; do not edit."
_HELM_METADATA: Final = """\
  labels:
    {{- include "milepost.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


def documents() -> Mapping[Path, str]:
    """Return the files' contents by their paths below the project's root."""
    definition = custom_resource_definition()
    head = _yaml({key: definition[key] for key in ("apiVersion", "kind", "metadata")})
    spec = _yaml({"spec": definition["spec"]})
    return {
        PLAIN: f"# {_NOTE}\n{head}{spec}",
        CHART: "{{- /* "
        + _NOTE
        + " */ -}}\n{{- if .Values.crds.enabled }}\n"
        + head
        + _HELM_METADATA
        + spec.replace("{{", '{{ "{{" }}')
        + "{{- end }}\n",
    }


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=110, allow_unicode=True)


def main(argv: list[str]) -> int:
    """Write the files, or with `--check` say which are not as they should be. Return the exit code."""
    stale = [
        path
        for path, text in documents().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text() != text
    ]
    if argv == ["--check"]:
        for path in stale:
            print(f"{path} is not what the types say: run `make crds`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(documents()[path])
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
