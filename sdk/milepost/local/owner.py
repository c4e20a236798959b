"""Who runs things on this machine: the identity that stands where a cluster's stands on a cluster.

The owner is a random id in the user's data folder. The first one that works in a store owns it; a colleague,
or a cluster, is refused there until somebody says that it may be taken over. With the id, a run's name and
namespace give the same resource uid on every call, so that the same manifest goes on with its run; after a
takeover it is another, and the run is adopted, as by a new resource on a cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from milepost.api.names import Entropy
from milepost.errors import MilepostError

__all__ = ["Busy", "Unusable", "data_folder", "only_one", "owner_of", "resource_uid"]


class Busy(MilepostError):
    """Another process on this machine works on the run at this moment."""


class Unusable(MilepostError):
    """The user's data folder cannot be written; says which variable moves it."""


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return Milepost's folder among the user's data: $XDG_DATA_HOME/milepost, or ~/.local/share/milepost."""
    given = environ.get("XDG_DATA_HOME", "")
    # The specification of the variable says to ignore a relative path.
    above = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "share"
    return above / "milepost"


def owner_of(folder: Path, entropy: Entropy) -> str:
    """Return the owner's id, and make one on the first call. Raises Unusable."""
    file = folder / "owner"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("a+", encoding="ascii") as kept:
            # Two first calls at once must agree, and one that was killed here must not leave nobody as owner.
            fcntl.flock(kept, fcntl.LOCK_EX)
            kept.seek(0)
            owner = kept.read().strip()
            if not owner:
                owner = f"local-{entropy(10).hex()}"
                kept.write(f"{owner}\n")
            return owner
    except OSError as error:
        raise Unusable(
            f"{file}: {error.strerror}; set XDG_DATA_HOME to a folder that can be written"
        ) from error


def resource_uid(owner: str, namespace: str, name: str) -> str:
    """Return what stands for the resource's uid: the same for each call of one owner."""
    return f"local-{hashlib.sha256(f'{owner}/{namespace}/{name}'.encode()).hexdigest()[:32]}"


@contextlib.contextmanager
def only_one(folder: Path, what: str) -> Iterator[None]:
    """Keep a second process of this machine from the same work until the block ends, however it ends.

    `what` names the work. Raises Busy where somebody else is at it, Unusable where `folder` is not writable.
    """
    file = folder / "running" / hashlib.sha256(what.encode()).hexdigest()[:32]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.open("ab")
    except OSError as error:
        raise Unusable(
            f"{file}: {error.strerror}; set XDG_DATA_HOME to a folder that can be written"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(f"another `milepost run` works on {what}; wait for it, or end it") from error
        yield
