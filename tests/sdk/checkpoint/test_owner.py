from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from milepost.api.names import StoreKeys
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.owner import KEY, Owner, claim_prefix
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, FormatTooNew, MilepostError, StoreOwnedElsewhere
from tests.support.store_doubles import FakeTime, Fault, FaultyStore

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "formats" / "owner-1.json"
PATIENCE = Patience(os.urandom, deadline=60.0)


def claimed(store: Store, cluster: str, *recover_from: str) -> Owner:
    return claim_prefix(store, cluster, recover_from=recover_from, patience=PATIENCE)


def stored(store: Store) -> dict[str, object]:
    found = store.get(KEY)
    assert isinstance(found, Found)
    said: dict[str, object] = json.loads(found.body)
    return said


@pytest.mark.req("S7")
def test_the_first_cluster_owns_the_prefix_and_stays_its_owner() -> None:
    store = FaultyStore()

    assert claimed(store, "a") == claimed(store, "a") == Owner(cluster="a")
    assert stored(store) == {"format": 1, "layout": 1, "cluster": "a", "recovered_from": []}
    assert len(store.puts) == 1


@pytest.mark.req("S7")
def test_another_cluster_is_refused_and_told_both_ids_and_what_to_do() -> None:
    store = FaultyStore()
    claimed(store, "a")

    with pytest.raises(StoreOwnedElsewhere) as refused:
        claimed(store, "b")

    error = refused.value
    assert (error.reason, error.found, error.ours) == ("StoreOwnedElsewhere", "a", "b")
    assert str(error) == (
        "memory: belongs to a, and this is b; use another prefix; or, if that owner works there no more, "
        "take it over: list a in the store's recoverFrom, or give `milepost run` --recover-from a"
    )
    assert len(store.puts) == 1


@pytest.mark.req("S6", "S7")
def test_a_prefix_that_is_recovered_is_closed_to_the_owner_before() -> None:
    store = MemoryStore()
    claimed(store, "a")

    assert claimed(store, "b", "other", "a") == Owner(cluster="b", recovered_from=["a"])
    assert claimed(store, "b") == Owner(cluster="b", recovered_from=["a"])
    with pytest.raises(StoreOwnedElsewhere):
        claimed(store, "a")


@pytest.mark.req("S7")
def test_of_many_that_come_at_once_one_becomes_the_owner() -> None:
    store, start = MemoryStore(), threading.Barrier(16)

    def come(number: int) -> str:
        start.wait(60)
        try:
            return claimed(store, f"cluster-{number}").cluster
        except StoreOwnedElsewhere:
            return ""

    with ThreadPoolExecutor(16) as pool:
        owners = [name for name in pool.map(come, range(16)) if name]

    assert owners == [stored(store)["cluster"]]


@pytest.mark.req("S7")
def test_a_takeover_that_lost_the_race_is_refused() -> None:
    store = FaultyStore()
    claimed(store, "a")

    def another() -> None:
        claimed(store, "c", "a")

    store.next_puts(Fault(before=another))

    with pytest.raises(StoreOwnedElsewhere, match="belongs to c"):
        claimed(store, "b", "a")


@pytest.mark.req("S7")
@pytest.mark.parametrize("fault", [Fault.lost_answer, Fault.lost_request, Fault.conflict, Fault.busy])
def test_a_lost_answer_makes_nobody_an_owner_by_mistake(fault: Callable[[], Fault]) -> None:
    store, clock = FaultyStore(), FakeTime()
    store.next_puts(fault())
    patience = Patience(os.urandom, monotonic=clock.monotonic, pause=clock.pause)

    assert claim_prefix(store, "a", patience=patience) == Owner(cluster="a")
    assert stored(store)["cluster"] == "a"


def test_an_owner_that_is_removed_during_a_takeover_is_made_anew() -> None:
    store = FaultyStore()
    claimed(store, "a")
    store.next_puts(Fault(before=lambda: store.delete(KEY)))

    assert claimed(store, "b", "a") == Owner(cluster="b")


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (b'{"format":2,"who":"a"}', FormatTooNew, "the owner has format 2, which is newer than 1"),
        (
            b'{"format":1,"layout":2,"cluster":"a"}',
            FormatTooNew,
            "the layout has format 2, which is newer than 1",
        ),
        (b'{"format":1,"layout":1}', Corrupt, "it does not say whose prefix this is: "),
        (b'{"layout":1,"cluster":"a"}', Corrupt, "the owner does not say its format"),
        (b"", Corrupt, "it does not say whose prefix this is: "),
    ],
)
def test_what_cannot_be_read_is_left_as_it_is(body: bytes, error: type[MilepostError], said: str) -> None:
    store = FaultyStore()
    store.inner.put_new(KEY, body, {})

    with pytest.raises(error, match=said):
        claimed(store, "a", "a")
    assert store.puts == []


def test_the_object_can_be_no_namespaces() -> None:
    with pytest.raises(MilepostError):
        StoreKeys(KEY)


def test_its_form_is_the_golden_one() -> None:
    owner = Owner(cluster="cluster-2", recovered_from=["cluster-1"])
    if os.environ.get("MILEPOST_REWRITE_GOLDEN"):
        GOLDEN.write_bytes(owner.body())
    store = MemoryStore()
    store.put_new(KEY, GOLDEN.read_bytes(), {})

    assert owner.body() == GOLDEN.read_bytes()
    assert claimed(store, "cluster-2") == owner
