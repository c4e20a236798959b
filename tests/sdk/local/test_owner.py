"""The identity of a user on a machine."""

from pathlib import Path

import pytest

from milepost.local.owner import Unusable, data_folder, owner_of, resource_uid


def entropy(size: int) -> bytes:
    return bytes(range(size))


def test_the_owner_is_made_once_and_then_stays(tmp_path: Path) -> None:
    first = owner_of(tmp_path / "milepost", entropy)

    assert first == "local-00010203040506070809"
    assert owner_of(tmp_path / "milepost", lambda size: b"x" * size) == first


def test_a_call_that_was_killed_while_it_made_the_owner_leaves_room_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "owner").touch()

    assert owner_of(tmp_path, entropy) == "local-00010203040506070809"
    assert (tmp_path / "owner").read_text() == "local-00010203040506070809\n"


def test_a_uid_is_the_same_on_every_call_and_another_for_another_owner_or_name() -> None:
    uids = {
        resource_uid(owner, namespace, name)
        for owner in ("a", "b")
        for namespace in ("ours", "theirs")
        for name in ("one", "two")
    }

    assert len(uids) == 8
    assert resource_uid("a", "ours", "one") in uids


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_DATA_HOME": "/data"}, Path("/data/milepost")),
        ({"XDG_DATA_HOME": "relative"}, Path.home() / ".local/share/milepost"),
        ({}, Path.home() / ".local/share/milepost"),
    ],
)
def test_the_data_folder_follows_the_users_setting(environ: dict[str, str], expected: Path) -> None:
    assert data_folder(environ) == expected


def test_a_data_folder_that_cannot_be_made_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Unusable, match="set XDG_DATA_HOME to a folder that can be written"):
        owner_of(tmp_path / "file" / "milepost", entropy)
