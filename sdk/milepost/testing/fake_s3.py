"""An S3 server inside the test's own process, with faults on demand.

    with FakeS3() as s3:
        store = open_store(s3.config())
        s3.fail(Fault(Drop(after=True), method="PUT", key="/head"))
        assert store.put_new("run/head", b"1", {}) == Unknown(...)     # the answer was lost
        assert s3.body("run/head") == b"1"                             # the write was not

It speaks HTTP, so that a real client is under test, and answers as AWS does (see
`milepost.testing.s3_objects`). It does not check signatures, only whose key signed, and keeps nothing.

The surprise: faults count the requests that match them, from the moment they are added; several faults may
match one request, and the first one that is due decides.
"""

from __future__ import annotations

import http.server
import socket
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

from milepost.checkpoint.s3_client import S3Config
from milepost.testing.aws_chunked import read_body
from milepost.testing.s3_objects import Buckets, Object, Request, Response, error

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Action", "Drop", "FakeS3", "Fault", "Flip", "Hold", "Reply", "Seen", "Truncate"]

_HELD_AT_MOST_S = 60.0
_UNANSWERED = 0


@dataclass(frozen=True)
class Reply:
    """Answer with this error; `after` says whether the request is applied first."""

    status: int
    code: str
    after: bool = False
    message: str = "as the test asked"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """Close the connection without an answer; `after` says whether the request is applied first."""

    after: bool = False


@dataclass(frozen=True)
class Truncate:
    """Announce the whole body, send only the first `at` bytes of it, and close the connection."""

    at: int


@dataclass(frozen=True)
class Flip:
    """Change one bit of the byte `at` in the answer's body."""

    at: int = 0


@dataclass(frozen=True)
class Hold:
    """Wait until the test sets `release`; `reached` is set once a request waits. Then go on as usual."""

    after: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait for the test, for a minute at most."""
        self.reached.set()
        self.release.wait(_HELD_AT_MOST_S)


Action: TypeAlias = Reply | Drop | Truncate | Flip | Hold


@dataclass(frozen=True)
class Fault:
    """What to do to the `nth` request (counted from 1) that matches, and to the `times` - 1 after it.

    `method` and `key` (a suffix of the object's key) match anything where they are empty.
    """

    action: Action
    method: str = ""
    key: str = ""
    nth: int = 1
    times: int = 1

    def matches(self, request: Request) -> bool:
        """Tell whether a request counts for this fault."""
        return self.method in {"", request.method} and request.key.endswith(self.key)


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


@dataclass
class _Armed:
    fault: Fault
    matched: int = 0

    def due(self, request: Request) -> bool:
        if not self.fault.matches(request):
            return False
        self.matched += 1
        return self.fault.nth <= self.matched < self.fault.nth + self.fault.times


class FakeS3:
    """A context manager that serves one or more buckets on loopback, at a free port.

    Requests are refused unless signed, by any key that was not rejected.
    """

    def __init__(
        self,
        buckets: Sequence[str] = ("milepost",),
        *,
        page: int = 1000,
        clock: Callable[[], float] = time.time,  # noqa: TID251  the default of an argument
    ) -> None:
        """Prepare `buckets`, the first being the default; `page` objects at most fit a page of a listing."""
        self.bucket = buckets[0]
        self._buckets = Buckets(buckets, clock, page)
        self._journal: list[Seen] = []
        self._armed: list[_Armed] = []
        self._rejected: dict[str, Reply] = {}
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="fake-s3-", ignore_cleanup_errors=True)
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self.sign_with("fake-key")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()
        self._folder.cleanup()

    @property
    def endpoint(self) -> str:
        """Where it listens, `http://127.0.0.1:port`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

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
        with self._lock:
            self._armed += [_Armed(each) for each in faults]

    def heal(self) -> None:
        """Take back all faults."""
        with self._lock:
            self._armed.clear()

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

    def drop_bucket(self, bucket: str = "") -> None:
        """Remove a bucket with all that it holds."""
        self._buckets.drop(bucket or self.bucket)

    def serve(self, request: Request) -> tuple[Response | None, Truncate | None]:
        """Answer one request, with its fault. None stands for a connection that closes unanswered."""
        fault = self._fault_of(request)
        action = fault.action if fault else None
        early = not getattr(action, "after", True)
        response: Response | None = None
        if early and isinstance(action, Hold):
            action.wait()
        if not early or isinstance(action, Hold):
            response = self._refusal(request) or self._buckets.answer(request)
        response = _distorted(action, response)
        with self._lock:
            self._journal.append(Seen(request, response.status if response else _UNANSWERED, fault))
        return response, action if isinstance(action, Truncate) else None

    def _fault_of(self, request: Request) -> Fault | None:
        with self._lock:
            due = [each.fault for each in self._armed if each.due(request)]
        return due[0] if due else None

    def _refusal(self, request: Request) -> Response | None:
        signed = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        if not signed:
            return error(403, "AccessDenied", "Anonymous access is forbidden for this operation")
        with self._lock:
            reply = self._rejected.get(signed)
        return error(reply.status, reply.code, reply.message, reply.headers) if reply else None


def _distorted(action: Action | None, response: Response | None) -> Response | None:
    match action:
        case Reply(status, code, _, message, headers):
            return error(status, code, message, headers)
        case Drop():
            return None
        case Hold(after=True):
            action.wait()
            return response
        case Flip(at) if response:
            body = bytearray(response.body)
            body[at] ^= 1
            return Response(response.status, response.headers, bytes(body))
        case _:
            return response


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fake: FakeS3) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake = fake
        self._open: set[socket.socket] = set()

    def opened(self, connection: socket.socket) -> None:
        self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        self._open.discard(connection)

    def close_connections(self) -> None:
        """End connections that clients keep open, so that no thread waits on them."""
        for connection in list(self._open):
            _hang_up(connection)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Headers and body leave in one packet.
    wbufsize = -1
    server: _Server

    @override
    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    @override
    def finish(self) -> None:
        self.server.closed(self.connection)
        try:
            super().finish()
        except OSError:
            # The client is gone, and with it whoever could be told.
            self.close_connection = True

    @override
    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            # As above.
            self.close_connection = True

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: the journal tells more."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_DELETE = do_POST = do_GET  # noqa: N815  the names are the base class's

    def _serve(self) -> None:
        response, cut = self.server.fake.serve(self._request())
        if response is None:
            self.close_connection = True
            _hang_up(self.connection)
            return
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        if cut:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body[: cut.at] if cut else response.body)
        self.wfile.flush()

    def _request(self) -> Request:
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path).removeprefix("/").partition("/")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body, trailers = read_body(headers, self.rfile)
        return Request(
            self.command,
            bucket,
            key,
            dict(urllib.parse.parse_qsl(query, keep_blank_values=True)),
            headers | trailers,
            body,
        )


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The client was faster.
        return
