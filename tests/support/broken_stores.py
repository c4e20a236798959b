"""Stores that break one rule of the contract each, beside those that the probe is tried on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from typing_extensions import override

from milepost.checkpoint.store import Absent, Answer, Clash, Found, Listed, Read, Stored, Unchanged
from tests.support.bent_stores import (
    Bent,
    ChecksThenCreates,
    ChecksThenReplaces,
    CreatesTheMissing,
    IgnoresIfMatch,
    IgnoresIfNoneMatch,
    KeepsTheDeleted,
    ListsLate,
)

__all__ = ["BROKEN", "LARGE", "PAGE"]

LARGE = 50_000
"""Bytes from which on these stores treat a body as a large one."""
PAGE = 25
"""Keys of a page, for a store that knows but one."""


class DropsMetadata(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key, body, {})


@dataclass
class KeepsCapitals(Bent):
    """Gives names of metadata back as they were written."""

    given: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        self.given[key] = dict(metadata)
        return self.inner.put_new(key, body, metadata)

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        found = self.inner.get(key, unless_etag=unless_etag)
        if isinstance(found, Found) and {name.lower() for name in self.given[key]} == set(found.metadata):
            return replace(found, metadata=self.given[key])
        return found


class InheritsMetadata(Bent):
    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        found = self.inner.get(key)
        old = found.metadata if isinstance(found, Found) else {}
        return self.inner.put_if(key, body, {**old, **metadata}, etag=etag)


class TakesNoEtagForNone(Bent):
    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        return self.inner.put_if(key, body, metadata, etag=etag) if etag else self.overwrite(key, body)


class RefusesAndWrites(Bent):
    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        answer = self.inner.put_if(key, body, metadata, etag=etag)
        if answer == Clash():
            self.overwrite(key, body)
        return answer


class SaysStoredAndWritesNothing(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        answer = self.inner.put_new(key, body, metadata)
        found = self.inner.get(key)
        assert isinstance(found, Found)
        return Stored(found.etag) if answer == Clash() else answer


class RaisesForAClash(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        answer = self.inner.put_new(key, body, metadata)
        if answer == Clash():
            raise FileExistsError(key)
        return answer


class ComputesEtags(Bent):
    """Answers a write with an ETag that no read gives."""

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        answer = self.inner.put_new(key, body, metadata)
        return Stored(hashlib.sha1(body).hexdigest()) if isinstance(answer, Stored) else answer  # noqa: S324  any will do


class AlwaysUnchanged(Bent):
    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return Unchanged() if unless_etag else self.inner.get(key)


class NeverUnchanged(Bent):
    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return self.inner.get(key)


class ReadsFolders(Bent):
    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        found = self.inner.get(key, unless_etag=unless_etag)
        below = isinstance(found, Absent) and any(self.inner.list(f"{key}/"))
        return Found(b"", "folder") if below else found


class CutsLargeBodies(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key, body[:LARGE], metadata)


class CreatesLargeOnesAnyway(Bent):
    """Honours the condition of small creations only, as with a completion that carries none."""

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.overwrite(key, body) if len(body) > LARGE else self.inner.put_new(key, body, metadata)


class WritesText(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key, body.replace(b"\r\n", b"\n"), metadata)


@dataclass
class ListsOldSizes(Bent):
    sizes: dict[str, int] = field(default_factory=dict)

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        self.sizes.setdefault(key, len(body))
        return self.inner.put_new(key, body, metadata)

    @override
    def list(self, prefix: str) -> Iterator[Listed]:
        return (replace(each, size=self.sizes[each.key]) for each in self.inner.list(prefix))


class ListsOnePage(Bent):
    @override
    def list(self, prefix: str) -> Iterator[Listed]:
        return iter(sorted(self.inner.list(prefix), key=lambda each: each.key)[:PAGE])


class ListsFolders(Bent):
    """Takes a prefix for a folder."""

    @override
    def list(self, prefix: str) -> Iterator[Listed]:
        return self.inner.list(prefix and f"{prefix.rstrip('/')}/")


class ListsWithoutSlash(Bent):
    """Loses the slash at the end of a prefix, as a path does."""

    @override
    def list(self, prefix: str) -> Iterator[Listed]:
        return self.inner.list(prefix.rstrip("/"))


class ListsWithoutDates(Bent):
    @override
    def list(self, prefix: str) -> Iterator[Listed]:
        return (replace(each, modified=0.0) for each in self.inner.list(prefix))


class DeletesWhatBeginsAlike(Bent):
    @override
    def delete(self, key: str) -> None:
        for each in self.inner.list(key):
            self.inner.delete(each.key)


class CannotDeleteTwice(Bent):
    @override
    def delete(self, key: str) -> None:
        if isinstance(self.inner.get(key), Absent):
            raise KeyError(key)
        self.inner.delete(key)


@dataclass
class RemembersTheDeleted(Bent):
    deleted: set[str] = field(default_factory=set)

    @override
    def delete(self, key: str) -> None:
        self.deleted.add(key)
        self.inner.delete(key)

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return Clash() if key in self.deleted else self.inner.put_new(key, body, metadata)


class FoldsCase(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key.lower(), body, metadata)

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return self.inner.get(key.lower(), unless_etag=unless_etag)


class DecodesKeys(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(unquote(key), body, metadata)

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return self.inner.get(unquote(key), unless_etag=unless_etag)


class SharesFlatKeys(Bent):
    """Writes all segments of a run to one key, as with names that are cut at 64 characters."""

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key[:64], body, metadata)

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return self.inner.get(key[:64], unless_etag=unless_etag)


class RaisesForTheMissing(Bent):
    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        found = self.inner.get(key, unless_etag=unless_etag)
        if isinstance(found, Absent):
            raise KeyError(key)
        return found


BROKEN: Mapping[type[Bent], str] = {
    RaisesForTheMissing: "a_missing_object_is_absent",
    IgnoresIfNoneMatch: "creating_an_object_twice_clashes_and_keeps_the_first",
    IgnoresIfMatch: "a_stale_etag_clashes_and_changes_nothing",
    CreatesTheMissing: "replacing_a_missing_object_creates_nothing",
    ChecksThenCreates: "of_many_creators_exactly_one_wins",
    ChecksThenReplaces: "of_many_replacements_of_one_state_exactly_one_wins",
    DropsMetadata: "an_object_reads_back_as_it_was_written",
    KeepsCapitals: "names_of_metadata_read_back_in_lower_case",
    InheritsMetadata: "metadata_belong_to_one_write_and_are_not_inherited",
    TakesNoEtagForNone: "a_condition_without_an_etag_is_a_mistake_and_writes_nothing",
    RefusesAndWrites: "each_state_is_replaced_by_its_own_etag_even_if_the_bytes_come_back",
    SaysStoredAndWritesNothing: "of_many_creators_exactly_one_wins",
    RaisesForAClash: "creating_an_object_twice_clashes_and_keeps_the_first",
    ComputesEtags: "an_object_is_replaced_on_condition_of_its_etag",
    AlwaysUnchanged: "a_missing_object_is_absent_whatever_is_known_of_it",
    NeverUnchanged: "a_known_object_reads_as_unchanged_until_it_changes",
    ReadsFolders: "a_key_is_no_folder",
    CutsLargeBodies: "a_large_body_is_kept_byte_for_byte_with_its_metadata",
    CreatesLargeOnesAnyway: "a_large_object_is_created_once_and_replaced_on_condition",
    WritesText: "bodies_are_kept_byte_for_byte",
    ListsLate: "a_listing_shows_what_was_written_before_it",
    ListsOldSizes: "a_listing_shows_the_last_write_and_no_deleted_object",
    ListsOnePage: "a_listing_of_many_objects_holds_each_once",
    ListsFolders: "a_listing_tells_a_folder_from_a_key_that_begins_alike",
    ListsWithoutSlash: "a_listing_holds_to_its_prefix",
    ListsWithoutDates: "a_listing_gives_dates_of_the_store",
    KeepsTheDeleted: "a_deleted_object_is_not_brought_back_by_its_old_etag",
    DeletesWhatBeginsAlike: "deleting_is_final_and_may_be_repeated",
    CannotDeleteTwice: "deleting_is_final_and_may_be_repeated",
    RemembersTheDeleted: "a_deleted_key_can_be_created_again",
    FoldsCase: "odd_keys_are_kept_apart",
    DecodesKeys: "odd_keys_are_kept_apart",
    SharesFlatKeys: "keys_of_every_shape_that_is_in_use_are_kept_apart",
}
"""Each with one test of the contract that must notice."""
