"""Find out whether the keys of one namespace's pods open what is another's, before anything is claimed.

A sibling of the namespace is read, listed and written to; each has to be refused. Nothing is created: the
write is on condition of an object that is not there. The sibling's name begins with the namespace's own, so
that a policy for `team-a*` is caught as well as one for everything.

The surprise: a refused reading of what is not there proves little, since AWS answers so to whoever may not
list. So the owner's object is read too, which is there and lies outside of every namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import islice
from typing import Final

from milepost.checkpoint.owner import KEY as OWNER
from milepost.checkpoint.store import Expired, Refused, Store, Undecided, Unknown
from milepost.errors import StoreNotIsolated, StoreRefused, StoreUnavailable

__all__ = ["Isolation", "check_isolation", "sibling_of"]

_NO_SUCH_ETAG: Final = '"00000000000000000000000000000000"'


class Isolation(StrEnum):
    """What the administrator asks of the keys that pods have."""

    REQUIRED = "required"
    NONE = "none"


def sibling_of(namespace: str) -> str:
    """Return the prefix, with its slash, that pods of the namespace must find closed."""
    return f"{namespace}-sibling/"


def check_isolation(store: Store, namespace: str) -> None:
    """Return if other namespaces are closed to whoever opened this store.

    Four requests. Raises StoreNotIsolated, naming what is open, and as reading does.
    """
    sibling = sibling_of(namespace)
    probe = f"{sibling}runs/isolation"
    calls: Mapping[str, Callable[[], object]] = {
        f"read {OWNER}": lambda: store.get(OWNER),
        f"read {sibling}": lambda: store.get(probe),
        f"list {sibling}": lambda: list(islice(store.list(sibling), 1)),
        f"write below {sibling}": lambda: _write(store, probe),
    }
    opened = [name for name, call in calls.items() if _is_open(call)]
    if opened:
        raise StoreNotIsolated(store.uri, namespace, opened)


def _is_open(call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreRefused as error:
        if error.reason == "StoreForbidden":
            return False
        raise
    return True


def _write(store: Store, key: str) -> None:
    """Write so that nothing can come of it. Raises what a reading would raise."""
    match store.put_if(key, b"", {}, etag=_NO_SUCH_ETAG):
        case Refused(reason=reason, message=message, advice=advice):
            raise StoreRefused(reason, message, advice=advice)
        case Unknown(cause=cause) | Undecided(cause=cause) | Expired(cause=cause):
            raise StoreUnavailable(key, waited=0.0, cause=cause)
        case _:
            return
