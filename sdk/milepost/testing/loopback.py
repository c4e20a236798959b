"""An HTTP server on loopback that ends at once, and can leave its clients without an answer.

It knows nothing of S3: whoever makes one gives it a function from a request to an answer, called in a
thread for each connection. It refuses TLS.

The surprise: connections that clients keep open are closed with the server, so that no thread outlives it.
"""

from __future__ import annotations

import http.server
import io
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from milepost.testing.chunked import read_chunks

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["RESET", "Loopback", "Raw", "Wire"]

_POLL_S = 0.05
# Switched on, with no time to send what is left: closing resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Raw:
    """A request as it came, its path with the query. A chunked body is put together again."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Wire:
    """An answer. If `cut` is not negative, only so many bytes of the body are sent.

    `RESET` stands for none at all: the client's connection is reset.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int = -1


RESET: Final = Wire(0)


class Loopback:
    """A context manager: serves from the moment it is entered until it is left.

    `answer` may return None, which closes the connection unanswered.
    """

    def __init__(self, answer: Callable[[Raw], Wire | None]) -> None:
        self._server = _Server(answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.hang_up()

    @property
    def endpoint(self) -> str:
        """Where it listens, `http://127.0.0.1:port`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[Raw], Wire | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.connections: set[socket.socket] = set()

    def hang_up(self) -> None:
        for connection in list(self.connections):
            _hang_up(connection)

    @override
    def shutdown_request(self, request: Any) -> None:
        if request.fileno() >= 0 and request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == _NO_LINGER:
            # Shutting it down first would end it in good order.
            self.close_request(request)
            return
        super().shutdown_request(request)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Headers and body leave in one packet.
    wbufsize = -1
    server: _Server

    @override
    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    @override
    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            # The client is gone, and with it whoever could be told.
            self.close_connection = True

    @override
    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        try:
            super().finish()
        except OSError:
            # As above: what was not sent yet is for nobody.
            self.wfile = io.BytesIO()

    @override
    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        # The client waits for this before it sends its body.
        self.wfile.flush()
        return True

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: the servers made of this keep journals."""

    def do_GET(self) -> None:
        answer = self.server.answer(self._request())
        if answer is None:
            self.close_connection = True
            _hang_up(self.connection)
            return
        if answer is RESET:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            return
        self.send_response_only(answer.status)
        length = {"Content-Length": str(len(answer.body))}
        for name, value in (length | dict(answer.headers)).items():
            self.send_header(name, value)
        if answer.cut >= 0:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: answer.cut] if answer.cut >= 0 else answer.body)
        self.wfile.flush()

    do_HEAD = do_PUT = do_DELETE = do_POST = do_GET  # noqa: N815  the names are the base class's

    def _request(self) -> Raw:
        headers = dict(self.headers.items())
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body, _ = read_chunks(self.rfile)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        return Raw(self.command, self.path, headers, body)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The client was faster.
        return
