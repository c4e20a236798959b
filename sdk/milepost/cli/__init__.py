"""The command `milepost`.

The SDK alone, as an agent's image has it, brings the command without what it needs. It then says what to
install, and nothing else.
"""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["main"]

_EXTRA: Final = frozenset({"jsonschema", "rich", "typer", "yaml"})
_NOT_USABLE: Final = 2


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        from milepost.cli.app import app  # noqa: PLC0415  (the extra `cli` may be missing)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        sys.stderr.write(f"milepost: {missing} is not installed; pip install 'milepost[cli]'\n")
        sys.exit(_NOT_USABLE)
    app()
