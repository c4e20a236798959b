"""`milepost store`: the commands about a whole store. Each lives in a module of its own."""

from __future__ import annotations

import typer

from milepost.cli.store_check import check
from milepost.cli.store_gc import gc
from milepost.cli.store_verify import repair, verify

__all__ = ["app"]

app = typer.Typer(help="Check a store, and the runs in it.", no_args_is_help=True, rich_markup_mode=None)

app.command("check")(check)
app.command("verify", short_help="Say what of a run, or of all runs, can be trusted.")(verify)
app.command("repair")(repair)
app.command("gc")(gc)
