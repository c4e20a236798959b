"""What the file store adds to the contract: several processes, killed writers, and a file system's limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from milepost.checkpoint.file import FileStore
from milepost.checkpoint.store import Absent, Found, Refused, Stored, Unknown
from milepost.errors import Corrupt, StoreRefused

PROCESSES, INCREMENTS = 4, 25

INCREMENT = """
import sys
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.store import Stored

store, done = FileStore(sys.argv[1]), 0
while done < int(sys.argv[2]):
    seen = store.get("counter")
    written = store.put_if("counter", b"%d" % (int(seen.body) + 1), {}, etag=seen.etag)
    done += isinstance(written, Stored)
"""

WRITE_FOR_EVER = """
import sys
from milepost.checkpoint.file import FileStore

store, etag, number = FileStore(sys.argv[1]), sys.argv[2], 0
while True:
    number += 1
    body = str(number % 10).encode() * 100_000
    etag = store.put_if("head", body, {"digit": str(number % 10)}, etag=etag).etag
"""


def stored(answer: object) -> str:
    assert isinstance(answer, Stored), answer
    return answer.etag


@pytest.mark.req("C2")
def test_no_increment_of_four_processes_is_lost(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put_new("counter", b"0", {})
    argv = [sys.executable, "-c", INCREMENT, str(tmp_path), str(INCREMENTS)]
    ended = [process.wait(60) for process in [subprocess.Popen(argv) for _ in range(PROCESSES)]]
    found = store.get("counter")

    assert ended == [0] * PROCESSES
    assert isinstance(found, Found)
    assert found.body == b"%d" % (PROCESSES * INCREMENTS)


@pytest.mark.req("C1")
def test_a_killed_writer_leaves_a_whole_object_and_a_store_that_works(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    etag = stored(store.put_new("head", b"", {}))
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path), etag])
        try:
            wait_for_another(store, etag)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait(10)
        found = store.get("head")

        assert isinstance(found, Found)
        assert found.body == found.metadata["digit"].encode() * 100_000
        assert [each.key for each in store.list("")] == ["head"]
        etag = stored(store.put_if("head", b"mine", {}, etag=found.etag))


def wait_for_another(store: FileStore, etag: str) -> None:
    end = time.monotonic() + 30
    while not isinstance(found := store.get("head", unless_etag=etag), Found) or found.body == b"mine":
        assert time.monotonic() < end, "the writer wrote nothing"
        time.sleep(0.01)


@pytest.mark.req("C1")
def test_what_a_killed_writer_left_half_written_is_no_object(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    stored(store.put_new("head", b"whole", {}))
    (tmp_path / ".milepost" / "scratch").write_bytes(b'{"metadata": {}}\nhal')

    assert [each.key for each in store.list("")] == ["head"]
    stored(store.put_new("next", b"n", {}))
    assert (tmp_path / ".milepost" / "scratch").exists() is False


def test_a_store_in_a_folder_that_does_not_exist_is_empty_and_stays_away(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "none")
    store.delete("head")

    assert (store.get("head"), list(store.list("")), list(store.list("ns/"))) == (Absent(), [], [])
    assert list(tmp_path.iterdir()) == []


def test_its_uri_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert FileStore("runs").uri == f"file:{tmp_path}/runs"


@pytest.mark.parametrize(
    "key", ["", "/etc/x", "a//b", "a/", "../x", "a/../../x", "./a", "a\0b", ".milepost/lock"]
)
def test_a_key_that_is_no_path_below_the_folder_is_a_mistake(tmp_path: Path, key: str) -> None:
    store = FileStore(tmp_path / "store")
    for call in (
        lambda: store.get(key),
        lambda: store.put_new(key, b"", {}),
        lambda: store.put_if(key, b"", {}, etag="e"),
        lambda: store.delete(key),
    ):
        with pytest.raises(ValueError, match="cannot be the key"):
            call()

    assert list(tmp_path.iterdir()) == []


def test_a_listing_does_not_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    with pytest.raises(ValueError, match="cannot be the key"):
        list(FileStore(tmp_path / "store").list("../"))


@pytest.mark.parametrize("key", ["a", "a/b/c", "n" * 300])
def test_a_key_that_the_file_system_cannot_hold_is_refused(tmp_path: Path, key: str) -> None:
    store = FileStore(tmp_path)
    stored(store.put_new("a/b", b"kept", {}))
    answer = store.put_new(key, b"", {})

    assert isinstance(answer, Refused)
    assert answer.reason == "StoreMisconfigured"
    assert [each.key for each in store.list("")] == ["a/b"]


def test_a_file_of_somebody_else_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "head").write_text("not an object")
    with pytest.raises(Corrupt, match="does not begin with an object's metadata"):
        FileStore(tmp_path).get("head")


def test_a_change_of_the_metadata_alone_changes_the_etag(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    first = stored(store.put_new("head", b"same", {"n": "1"}))

    assert stored(store.put_if("head", b"same", {"n": "2"}, etag=first)) != first


def test_folders_that_a_deletion_leaves_empty_go_with_it(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    stored(store.put_new("ns/runs/1/head", b"", {}))
    stored(store.put_new("ns/names/one", b"", {}))
    store.delete("ns/runs/1/head")

    assert sorted(each.name for each in (tmp_path / "ns").iterdir()) == ["names"]


def test_a_disk_without_room_leaves_the_write_unknown_and_the_old_object(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    etag = stored(store.put_new("head", b"old", {}))
    scratch = tmp_path / ".milepost" / "scratch"
    # A device that takes nothing stands for a full disk.
    scratch.symlink_to("/dev/full")
    answer = store.put_if("head", b"new", {}, etag=etag)

    assert isinstance(answer, Unknown)
    assert "No space left" in answer.cause
    assert store.get("head") == Found(b"old", etag, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    answer = FileStore(tmp_path).put_new("head", b"", {})

    assert isinstance(answer, Refused)
    assert answer.reason == "StoreForbidden"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "head").touch(mode=0)
    with pytest.raises(StoreRefused, match="let this user read and write the folder"):
        FileStore(tmp_path).get("head")
