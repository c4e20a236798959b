"""What the file store adds to the contract: several processes, killed writers, and a file system's limits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.checkpoint.file import FileStore
from milepost.checkpoint.store import Absent, Found, Refused, Stored, Unknown
from milepost.errors import StoreRefused, StoreUnavailable
from tests.support.store_doubles import FakeTime

PROCESSES, INCREMENTS = 4, 25
NOBODY = 65534

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

HOLD_THE_LOCK = """
import os, sys
from milepost.checkpoint.file import FileStore

fsync = os.fsync

def waiting(handle):
    # The scratch file is written, and the lock is held.
    print("held", flush=True)
    sys.stdin.readline()
    fsync(handle)

os.fsync = waiting
FileStore(sys.argv[1]).put_if("head", b"late", {}, etag=sys.argv[2])
"""

FORK_WITHIN_A_WRITE = """
import os, signal, sys
from milepost.checkpoint.file import FileStore

fsync, children = os.fsync, []

def forking(handle):
    # The scratch file is written, and the lock is held.
    if not children and os.readlink(f"/proc/self/fd/{handle}").endswith("/scratch"):
        children.append(os.fork())
        if not children[0]:
            signal.pause()
    fsync(handle)

os.fsync = forking
store = FileStore(sys.argv[1], lock_within=1.0)
print(type(store.put_new("first", b"", {})).__name__, type(store.put_new("second", b"", {})).__name__)
os.kill(children[0], signal.SIGKILL)
"""


def stored(answer: object) -> str:
    assert isinstance(answer, Stored), answer
    return answer.etag


@pytest.mark.req("C2")
def test_no_increment_of_four_processes_is_lost(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put_new("counter", b"0", {})
    argv = [sys.executable, "-c", INCREMENT, str(tmp_path), str(INCREMENTS)]
    ended = [process.wait(100) for process in [subprocess.Popen(argv) for _ in range(PROCESSES)]]
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
            writer.wait(60)
        found = store.get("head")

        assert isinstance(found, Found)
        assert found.body == found.metadata["digit"].encode() * 100_000
        assert [each.key for each in store.list("")] == ["head"]
        etag = stored(store.put_if("head", b"mine", {}, etag=found.etag))


def wait_for_another(store: FileStore, etag: str) -> None:
    end = time.monotonic() + 90
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


def test_a_file_of_somebody_else_is_an_object_that_can_be_replaced(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    (tmp_path / "head").write_text("not an object\nnor its body")
    found = store.get("head")

    assert isinstance(found, Found)
    assert (found.body, found.metadata) == (b"not an object\nnor its body", {})
    stored(store.put_if("head", b"an object", {}, etag=found.etag))


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


@pytest.fixture
def common_folder() -> Iterator[Path]:
    """A folder of somebody who may not do everything: root is nobody for as long as the test lasts."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(os.getuid())


def test_a_folder_that_may_not_be_written_is_refused(common_folder: Path) -> None:
    common_folder.chmod(0o500)
    answer = FileStore(common_folder).put_new("head", b"", {})

    assert isinstance(answer, Refused)
    assert answer.reason == "StoreForbidden"


def test_a_file_that_may_not_be_read_is_refused(common_folder: Path) -> None:
    (common_folder / "head").touch(mode=0)
    with pytest.raises(StoreRefused, match="let this user read and write the folder"):
        FileStore(common_folder).get("head")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that is in the middle of a write, and stop it there."""
    store = FileStore(tmp_path)
    etag = stored(store.put_new("head", b"early", {}))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path), etag],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)
        try:
            yield process
        finally:
            process.kill()


def wait_until_stopped(pid: int) -> None:
    end = time.monotonic() + 90
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end, "the process did not stop"
        time.sleep(0.01)


@pytest.mark.req("I7")
def test_a_writer_that_is_stopped_keeps_others_out_for_a_bounded_time_and_is_named(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    store = FileStore(tmp_path, lock_within=0.2)
    answer = store.put_new("other", b"", {})
    with pytest.raises(StoreUnavailable) as raised:
        store.delete("head")

    held = f"process {holder.pid} holds it and is stopped"
    assert isinstance(answer, Unknown)
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}/\.milepost/lock was not free for \d+ s; {held}", answer.cause
    )
    assert held in raised.value.cause
    assert raised.value.waited >= 0.2
    # Readers need no lock, and see nothing of what is half written.
    assert [each.key for each in store.list("")] == ["head"]
    assert store.get("other") == Absent()


def test_a_stopped_writer_that_goes_on_lets_the_next_one_in(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGCONT)
    assert holder.stdin is not None
    # One line for each sync: of the file, and of the folder.
    holder.stdin.write("\n" * 2)
    holder.stdin.close()
    store = FileStore(tmp_path)

    stored(store.put_new("other", b"", {}))
    found = store.get("head")
    assert isinstance(found, Found)
    assert found.body == b"late"


def test_a_process_that_died_with_the_lock_does_not_keep_it(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait(60)
    store = FileStore(tmp_path, lock_within=5.0)

    stored(store.put_new("other", b"", {}))
    found = store.get("head")
    assert isinstance(found, Found)
    assert found.body == b"early"


def test_a_child_that_was_forked_within_a_write_does_not_keep_the_lock(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FORK_WITHIN_A_WRITE, str(tmp_path)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)

    assert said.stdout.split() == ["Stored", "Stored"]


def test_those_who_wait_for_the_lock_try_less_and_less_often(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    del holder
    time = FakeTime()
    FileStore(tmp_path, lock_within=0.2, clock=time.monotonic, pause=time.pause).put_new("other", b"", {})

    assert time.pauses[:7] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05]
    assert sum(time.pauses) == pytest.approx(0.2)


@pytest.mark.req("C1")
def test_a_write_is_on_disk_before_it_is_seen_and_its_folders_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        fsync(handle)
        seen.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().relative_to(tmp_path)}")

    def renamed(source: Path, target: Path) -> None:
        rename(source, target)
        seen.append(f"rename {source.relative_to(tmp_path)} {target.relative_to(tmp_path)}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    etag = stored(FileStore(tmp_path).put_new("ns/head", b"1", {}))
    first, seen[:] = list(seen), []
    stored(FileStore(tmp_path).put_if("ns/head", b"2", {}, etag=etag))

    assert first == [
        "sync .",
        "sync .",
        "sync .milepost/scratch",
        "rename .milepost/scratch ns/head",
        "sync ns",
    ]
    assert seen == ["sync .milepost/scratch", "rename .milepost/scratch ns/head", "sync ns"]


@pytest.mark.req("C1")
def test_readers_see_whole_objects_while_they_are_replaced(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    etag = stored(store.put_new("head", b"0" * 100_000, {"digit": "0"}))
    writer = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path), etag])
    etags = {etag}
    try:
        wait_for_another(store, etag)
        while len(etags) < 8:
            found = store.get("head")
            assert isinstance(found, Found)
            assert found.body == found.metadata["digit"].encode() * 100_000
            assert [each.size for each in store.list("")] == [100_000]
            etags.add(found.etag)
    finally:
        writer.kill()
        writer.wait(60)
