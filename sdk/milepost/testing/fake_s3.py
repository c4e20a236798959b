"""An S3 server inside the test's own process, with faults on demand.

    with FakeS3() as s3:
        store = open_store(s3.config())
        s3.fail(Fault(Drop(after=True), method="PUT", key="/head"))
        assert isinstance(store.put_new("run/head", b"1", {}), Unknown)   # the answer was lost
        assert s3.body("run/head") == b"1"                                # the write was not

It speaks HTTP, so that a real client is under test, and answers as AWS does (see
`milepost.testing.s3_objects`); faults are those of `milepost.testing.faults`. It keeps nothing.

The surprise: it does not check signatures, only whose key signed. Every key is welcome until it is rejected.
"""

from __future__ import annotations

import io
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.checkpoint.s3_client import S3Config
from milepost.testing.chunked import read_chunks
from milepost.testing.faults import Action, Delay, Drop, Fault, Faults, Flip, Hold, Reply, Truncate
from milepost.testing.loopback import Loopback, Raw, Wire
from milepost.testing.s3_messages import Object, Request, Response, error
from milepost.testing.s3_objects import Buckets
from milepost.testing.serving import answer_of, serve

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Action", "Delay", "Drop", "FakeS3", "Fault", "Flip", "Hold", "Reply", "Seen", "Truncate"]

_UNANSWERED = 0


@dataclass(frozen=True)
class Seen:
    """One request of the journal. `status` is what was answered, 0 for nothing."""

    request: Request
    status: int
    fault: Fault | None = None

    @property
    def line(self) -> str:
        """The request in short: `PUT run/head 200`."""
        return f"{self.request.method} {self.request.key} {self.status}"


class FakeS3:
    """A context manager that serves one or more buckets on loopback, at a free port."""

    def __init__(
        self,
        buckets: Sequence[str] = ("milepost",),
        *,
        page: int = 1000,
        clock: Callable[[], float] = time.time,  # noqa: TID251  the default of an argument
    ) -> None:
        """Prepare `buckets`, the first being the default; at most `page` objects fit a page of a listing."""
        self.bucket = buckets[0]
        self._buckets = Buckets(buckets, clock, page)
        self._faults = Faults()
        self._journal: list[Seen] = []
        self._rejected: dict[str, Reply] = {}
        self._lock = threading.Lock()
        self._server = Loopback(self._serve)
        self._folder = tempfile.TemporaryDirectory(prefix="fake-s3-", ignore_cleanup_errors=True)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._folder)
        self.sign_with("fake-key")
        self._open.enter_context(self._server)
        # A request that is held must not outlive the server.
        self._open.callback(self.heal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def endpoint(self) -> str:
        """Where it listens, `http://127.0.0.1:port`."""
        return self._server.endpoint

    @property
    def credentials(self) -> Path:
        """A folder with credentials that are accepted, in the form that `S3Config` takes."""
        return Path(self._folder.name)

    @property
    def journal(self) -> list[Seen]:
        """All requests so far, in the order of their answers."""
        with self._lock:
            return list(self._journal)

    def config(self, prefix: str = "", *, read_timeout: float = 20.0) -> S3Config:
        """Return the configuration of a store on the first bucket."""
        return S3Config(
            self.endpoint, self.bucket, prefix, credentials=self.credentials, read_timeout=read_timeout
        )

    def fail(self, *faults: Fault) -> None:
        """Add faults."""
        self._faults.add(*faults)

    def heal(self) -> None:
        """Take back all faults, and let go of the requests that they hold."""
        self._faults.clear()

    def reject(self, access_key_id: str, reply: Reply) -> None:
        """Refuse all requests that are signed with this key."""
        with self._lock:
            self._rejected[access_key_id] = reply

    def sign_with(self, access_key_id: str) -> None:
        """Put another key into the folder of credentials, as a rotation does."""
        (self.credentials / "access-key-id").write_text(access_key_id)
        (self.credentials / "secret-access-key").write_text(f"secret of {access_key_id}")

    def objects(self, bucket: str = "") -> dict[str, Object]:
        """Return what a bucket holds, by key."""
        return self._buckets.objects(bucket or self.bucket)

    def body(self, key: str, bucket: str = "") -> bytes:
        """Return the bytes of an object. Raises KeyError if there is none."""
        return self.objects(bucket)[key].body

    def uploads(self, bucket: str = "") -> list[str]:
        """Return the keys of the uploads in parts that were begun and neither completed nor given up."""
        return self._buckets.uploads(bucket or self.bucket)

    def drop_bucket(self, bucket: str = "") -> None:
        """Remove a bucket with all that it holds."""
        self._buckets.drop(bucket or self.bucket)

    def _serve(self, raw: Raw) -> Wire | None:
        request = _parsed(raw)
        fault = self._faults.due(request.method, f"{request.key}?{raw.path.partition('?')[2]}")
        told = serve(fault.action if fault else None, raw, self._forward).told
        with self._lock:
            self._journal.append(Seen(request, told.status if told else _UNANSWERED, fault))
        return told

    def _forward(self, raw: Raw) -> Wire | None:
        if len(raw.body) < int(raw.headers.get("Content-Length", "0")):
            # It was cut off on its way here, and nobody is left to be told.
            return None
        response = self._answer(_parsed(raw))
        return Wire(response.status, response.headers, response.body)

    def _answer(self, request: Request) -> Response:
        signed = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        if not signed:
            return error(403, "AccessDenied", "Anonymous access is forbidden for this operation")
        with self._lock:
            reply = self._rejected.get(signed)
        return _error(reply) if reply else self._buckets.answer(request)


def _error(reply: Reply) -> Response:
    told = answer_of(reply)
    return Response(told.status, told.headers, told.body)


def _parsed(raw: Raw) -> Request:
    path, _, query = raw.path.partition("?")
    bucket, _, key = urllib.parse.unquote(path).removeprefix("/").partition("/")
    headers = {name.lower(): value for name, value in raw.headers.items()}
    body = raw.body
    if "aws-chunked" in headers.get("content-encoding", ""):
        body, trailers = read_chunks(io.BytesIO(body))
        headers |= trailers
    options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    return Request(raw.method, bucket, key, options, headers, body)
