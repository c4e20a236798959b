"""Whose prefix this is: the object `_owner`, created once, so that two clusters never share one by accident.

It holds the owner's id and the version of the layout below it. Another owner's prefix is taken over only on
the word of a person, who lists the old id in `recoverFrom`: the object is then replaced, so that the old
owner, should it still live, is refused in its turn. It is no lock and keeps nobody from reading.

The surprise: two operators of one cluster have one id. What keeps those apart is the claim of each run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.formats import NEWEST, Kind, read_json, upgrade, write_json
from milepost.checkpoint.sending import Patience, persist, send
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, FormatTooNew, RunDeleted, StoreOwnedElsewhere

__all__ = ["KEY", "LAYOUT", "Owner", "check_owner", "claim_prefix"]

KEY: Final = "_owner"
LAYOUT: Final = 1
"""Version of what lies below the prefix: which objects there are, and under which keys."""


class Owner(BaseModel):
    """What the object says. `recovered_from` are the owners before this one, the last one last."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    layout: Annotated[int, Field(ge=1)] = LAYOUT
    cluster: Annotated[str, Field(min_length=1)]
    recovered_from: list[str] = []

    def body(self) -> bytes:
        """Return the object's bytes."""
        return write_json({"format": NEWEST[Kind.OWNER], **vars(self)})


def claim_prefix(
    store: Store, cluster: str, *, recover_from: Collection[str] = (), patience: Patience
) -> Owner:
    """Make `cluster` the owner of the store's prefix, or find that it is; return what now stands.

    Nothing is written where it is the owner already. Raises StoreOwnedElsewhere where the prefix is
    another's that is not in `recover_from`, FormatTooNew, Corrupt, StoreUnavailable, StoreRefused.
    """
    while True:
        found = persist(lambda: store.get(KEY), patience)
        if not isinstance(found, Found):
            owner, etag = Owner(cluster=cluster), ""
        else:
            known = _parsed(found.body)
            if known.cluster == cluster:
                return known
            if known.cluster not in recover_from:
                raise StoreOwnedElsewhere(store.uri, found=known.cluster, ours=cluster)
            owner = Owner(cluster=cluster, recovered_from=[*known.recovered_from, known.cluster])
            etag = found.etag
        try:
            outcome = send(store, Write(Purpose.NAME, KEY, owner.body(), etag=etag), patience)
        except RunDeleted:
            # Somebody removed the object that was to be replaced: it is created then.
            continue
        if isinstance(outcome, Done):
            return owner


def check_owner(store: Store) -> None:
    """Raise Corrupt or FormatTooNew where it cannot be read whose the prefix is: nobody may work in it."""
    found = store.get(KEY)
    if isinstance(found, Found):
        _parsed(found.body)


def _parsed(body: bytes) -> Owner:
    try:
        owner = Owner.model_validate(upgrade(Kind.OWNER, read_json(body), KEY))
    except ValueError as error:
        raise Corrupt(
            KEY,
            f"it does not say whose prefix this is: {error}; delete it if nobody else can be at work in "
            "here: who comes next becomes the owner",
        ) from error
    if owner.layout > LAYOUT:
        raise FormatTooNew(KEY, kind="layout", found=owner.layout, known=LAYOUT)
    return owner
