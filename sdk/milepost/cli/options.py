"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "CredentialsFolder", "Namespace", "Reason", "RunName", "StoreOption", "StoreUrl"]

StoreOption = Annotated[
    str,
    typer.Option(
        "--store", help="Where checkpoints are: file:PATH, or s3://BUCKET/PREFIX?endpoint=URL&region=REGION."
    ),
]

RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The run's namespace.")]

Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever reads the log.")]

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
