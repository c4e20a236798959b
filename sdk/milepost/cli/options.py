"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "CredentialsFolder", "StoreUrl"]

StoreUrl = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="The store: s3://BUCKET/PREFIX?endpoint=URL&region=REGION, or file:PATH."
    ),
]

CredentialsFolder = Annotated[
    Path | None,
    typer.Option(
        "--credentials",
        help="Folder with the files access-key-id, secret-access-key and, where there is one, "
        "session-token; left out: what the environment offers.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
