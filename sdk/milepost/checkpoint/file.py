"""A store in a folder of one machine, for runs without a cluster.

Every object is one file: a line of JSON with its metadata, then its body. A write goes to a scratch file
that is synced and then renamed over the old one, under a lock that all processes of the machine share, so
a process that is killed at any point leaves the old object or the new one. It refuses keys that would
leave the folder, and it is not made for a folder that several machines share.

The surprise: there is one scratch file and one lock for the whole store. What a killed writer left in the
scratch file is overwritten by the next one, so nothing ever has to be cleaned up. A writer that is stopped
while it holds the lock keeps the others out; they wait for a bounded time and then say who holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import final

from milepost.checkpoint.store import (
    Absent,
    Answer,
    Clash,
    Found,
    Gone,
    Listed,
    Read,
    Refused,
    Stored,
    Unchanged,
    Unknown,
)
from milepost.errors import StoreRefused, StoreUnavailable

__all__ = ["FileStore"]

# Holds the lock and the scratch file; no key may begin with it.
_OWN = ".milepost"
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# The key does not fit the file system, such as `a/b` beside an object `a`.
# How often a lock that is taken is tried again, at first and at most.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_UNFIT = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST, errno.ELOOP})


class _BusyError(Exception):
    """The lock was not to be had. Nothing was changed."""

    def __init__(self, lock: Path, waited: float, holder: str) -> None:
        super().__init__(f"{lock} was not free for {waited:.0f} s; {holder}")
        self.waited = waited


@final
class FileStore:
    """A folder as a store; it is made by the first write.

    A write waits `lock_within` seconds for its turn: as long as an answer of S3 may take. Then it is Unknown,
    and a deletion raises StoreUnavailable; neither has changed anything.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        lock_within: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,  # noqa: TID251  the default of an argument
    ) -> None:
        """Take a monotonic `clock()` and `pause(seconds)` for the wait."""
        self._folder = Path(folder).absolute()
        self._lock_within = lock_within
        self._clock = clock
        self._pause = pause

    @property
    def uri(self) -> str:
        return f"file:{self._folder}"

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        """Return the whole object. Of a file that is none of this store's every byte is the body."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return Absent()
        except OSError as error:
            raise self._failed(key, error) from error
        etag = _etag(raw)
        if unless_etag and unless_etag == etag:
            return Unchanged()
        body, metadata = _unpack(raw)
        return Found(body, etag, metadata)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        def condition(path: Path) -> Answer | None:
            return Clash() if path.is_file() else None

        return self._write(key, body, metadata, condition)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        if not etag:
            raise ValueError("a conditional write needs the ETag that it replaces")

        def condition(path: Path) -> Answer | None:
            try:
                return None if _etag(path.read_bytes()) == etag else Clash()
            except (FileNotFoundError, NotADirectoryError):
                return Gone()

        return self._write(key, body, metadata, condition)

    def list(self, prefix: str) -> Iterator[Listed]:
        above = prefix.rpartition("/")[0]
        top = self._path(above) if above else self._folder
        for folder, folders, names in os.walk(top, onerror=self._cannot_list):
            if folder == str(self._folder):
                folders[:] = [each for each in folders if each != _OWN]
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(self._folder).as_posix()
                if key.startswith(prefix) and (found := self._listed(key, path)):
                    yield found

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            if not self._folder.exists():
                return
            with self._locked():
                path.unlink(missing_ok=True)
                _sync(path.parent)
                for folder in path.parents:
                    if folder == self._folder:
                        break
                    folder.rmdir()
        except _BusyError as busy:
            raise StoreUnavailable(key, waited=busy.waited, cause=str(busy)) from None
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR}:
                raise self._failed(key, error) from error

    def _write(
        self,
        key: str,
        body: bytes,
        metadata: Mapping[str, str],
        condition: Callable[[Path], Answer | None],
    ) -> Answer:
        path = self._path(key)
        raw = _pack(body, metadata)
        try:
            with self._locked() as scratch:
                if (no := condition(path)) is not None:
                    return no
                _make(path.parent)
                with scratch.open("wb") as file:
                    file.write(raw)
                    file.flush()
                    os.fsync(file.fileno())
                scratch.rename(path)
                _sync(path.parent)
        except _BusyError as busy:
            return Unknown(str(busy))
        except OSError as error:
            failed = self._failed(key, error)
            if isinstance(failed, StoreRefused):
                return Refused(failed.reason, failed.message, failed.advice)
            return Unknown(failed.cause)
        return Stored(_etag(raw))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Path]:
        """Keep all other writers away, and give the scratch file."""
        own = self._folder / _OWN
        _make(own)
        with FileIO(own / "lock", "r+", opener=_making) as lock:
            self._take(lock)
            try:
                _say_who_holds(lock)
                yield own / "scratch"
            finally:
                # Closing alone would leave it locked for as long as a forked child lives.
                fcntl.flock(lock, fcntl.LOCK_UN)

    def _take(self, lock: FileIO) -> None:
        began, pause = self._clock(), _FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = self._clock() - began
                if waited >= self._lock_within:
                    raise _BusyError(self._folder / _OWN / "lock", waited, _holder(lock)) from None
                self._pause(min(pause, self._lock_within - waited))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                return

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if parts[0] == _OWN or "\0" in key or any(part in {"", ".", ".."} for part in parts):
            raise ValueError(f"{key!r} cannot be the key of an object in a folder")
        return self._folder.joinpath(*parts)

    def _listed(self, key: str, path: Path) -> Listed | None:
        try:
            with path.open("rb") as file:
                head = file.readline()
                status = os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(key, error) from error
        return Listed(key, status.st_size - len(head), status.st_mtime)

    def _cannot_list(self, error: OSError) -> None:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
            raise self._failed(str(error.filename), error)

    def _failed(self, key: str, error: OSError) -> StoreRefused | StoreUnavailable:
        what = f"{self.uri}/{key}: {error.strerror}"
        if error.errno in _FORBIDDEN:
            return StoreRefused("StoreForbidden", what, advice="let this user read and write the folder")
        if error.errno in _UNFIT:
            return StoreRefused("StoreMisconfigured", what, advice="use a folder that holds nothing else")
        return StoreUnavailable(key, waited=0.0, cause=str(error))


def _making(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)


def _say_who_holds(lock: FileIO) -> None:
    """Leave this process's number in the lock's file, for those who wait in vain."""
    # It only informs; a full disk must not keep anybody from deleting.
    with contextlib.suppress(OSError):
        lock.write(b"%-20d" % os.getpid())


def _holder(lock: FileIO) -> str:
    pid = (lock.read(20) or b"").decode("ascii", "replace").strip()
    if not pid.isdecimal():
        return "who holds it is not known"
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        # Another kind of system, or a process of another container.
        return f"process {pid} holds it"
    return f"process {pid} holds it" + (" and is stopped" if state in {"T", "t"} else "")


def _pack(body: bytes, metadata: Mapping[str, str]) -> bytes:
    lowered = {name.lower(): value for name, value in metadata.items()}
    return json.dumps({"metadata": lowered}).encode() + b"\n" + body


def _unpack(raw: bytes) -> tuple[bytes, dict[str, str]]:
    head, _, body = raw.partition(b"\n")
    try:
        return body, {str(name): str(value) for name, value in json.loads(head)["metadata"].items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        # Whoever reads it finds that it is not what it should be, and can replace it on its ETag.
        return raw, {}


def _etag(raw: bytes) -> str:
    return f'"{hashlib.sha256(raw).hexdigest()}"'


def _make(folder: Path) -> None:
    """Make a folder and those above it so that a power cut does not undo it."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
