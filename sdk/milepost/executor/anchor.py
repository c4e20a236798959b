"""The anchor: how far the run had come by what the cluster knows, held against what the store says now.

A bucket can be put back to an older state, by a restored backup or a lifecycle rule, and what it then says
is sound in itself. Only somebody outside of it can tell. The operator keeps the newest position that it has
seen in the resource's status, and gives it to each pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.checkpoint.archive import Archive
from milepost.checkpoint.formats import read_json
from milepost.checkpoint.head import Head
from milepost.errors import RolledBack

__all__ = ["Anchor", "check_anchor", "parse_anchor"]


@dataclass(frozen=True)
class Anchor:
    """A record that was acknowledged: its number, the head's epoch then, and its digest."""

    seq: int
    epoch: int
    digest: str


def parse_anchor(text: str) -> Anchor | None:
    """Return the anchor in an environment variable; None where it is empty. Raises ValueError."""
    if not text:
        return None
    said = read_json(text.encode("utf-8", "backslashreplace"))
    try:
        anchor = Anchor(said["seq"], said["epoch"], said["digest"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{text!r} is no anchor") from error
    plain = isinstance(anchor.seq, int) and isinstance(anchor.epoch, int) and isinstance(anchor.digest, str)
    if not plain:
        raise ValueError(f"{text!r} is no anchor")
    return anchor


def check_anchor(anchor: Anchor, head: Head, archive: Archive) -> None:
    """Return if the history holds the anchor's record. Blocks.

    Raises RolledBack where it does not, and as reading the record does.
    """
    here = f"it ends with record {head.seq} of epoch {head.epoch}"
    seen = f"the cluster has seen record {anchor.seq} of epoch {anchor.epoch}"
    if anchor.seq > head.seq or anchor.epoch > head.epoch:
        raise RolledBack(head.keys.head, f"{here}, and {seen}: the store went back to an older state")
    if archive.digest(head, anchor.seq) != anchor.digest:
        raise RolledBack(
            head.keys.head,
            f"{here}, and {seen}, which was another one: the store went back to an older state, and was "
            "written to since",
        )
