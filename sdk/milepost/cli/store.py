"""`milepost store`: the commands about a whole store. Each lives in a module of its own."""

from __future__ import annotations

import typer

from milepost.cli.store_check import check

__all__ = ["app"]

app = typer.Typer(help="Check a store.", no_args_is_help=True, rich_markup_mode=None)

app.command("check")(check)
