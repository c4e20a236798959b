"""A proxy in front of a real server that loses, delays, damages or replaces requests and answers.

The server's conditions and its disk are the real ones; only the way to it is faulty. Faults are those of
`milepost.testing.faults`, matched on the path. It keeps a journal of every request and answer, for checks
from outside; with a file for it, as lines of JSON too.

The surprise: it answers `Expect: 100-continue` itself, so that what is lost is the answer to the whole
request. And headers pass as they are, `Host` included, since the client has signed them.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from milepost.testing.faults import Action, Fault, Faults
from milepost.testing.loopback import Loopback, Raw, Wire
from milepost.testing.serving import serve

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["FaultProxy", "Journal", "Passed"]

_SERVER_WITHIN_S = 60.0
# Servers close connections that nobody uses, and a request that meets that would be lost.
_FRESH_S = 2.0
# They speak of one connection, and the proxy has two.
_OF_THE_CONNECTION = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})
_CONDITIONS = ("if-match", "if-none-match")


@dataclass(frozen=True)
class Passed:
    """One request: what the server said, and what the client was told; 0 stands for nothing.

    `number` counts the requests of the journal from 1 in the order in which they came, `door` says through
    which proxy. `condition` holds the conditional headers, `etag` the server's; `at` is in seconds of a
    monotonic clock. `body` is the request's as it came, shorter than `announced` where its client died, and
    `answer` the server's; both are digests in the file.
    """

    method: str
    path: str
    server: int
    client: int
    number: int = field(default=0, compare=False)
    door: str = field(default="", compare=False)
    at: float = field(default=0.0, compare=False)
    condition: Mapping[str, str] = field(default_factory=dict, compare=False)
    checksum: str = field(default="", compare=False)
    etag: str = field(default="", compare=False)
    fault: Action | None = field(default=None, compare=False)
    announced: int = field(default=0, compare=False)
    body: bytes = field(default=b"", compare=False, repr=False)
    answer: bytes = field(default=b"", compare=False, repr=False)

    @property
    def key(self) -> str:
        """The object's key in its bucket, or, of other servers, what follows the first component."""
        return unquote(self.path.partition("?")[0]).removeprefix("/").partition("/")[2]

    @property
    def applied(self) -> bool:
        """Whether the server has done what it was asked for."""
        return 200 <= self.server < 300

    @property
    def acknowledged(self) -> bool:
        """Whether the client was told that it was done."""
        return 200 <= self.client < 300

    def line(self) -> str:
        """Return it as one line of JSON, bodies as their SHA-256."""
        plain: dict[str, Any] = {
            name: value for name, value in vars(self).items() if name not in {"body", "answer"}
        }
        plain |= {"at": round(self.at, 6), "fault": repr(self.fault) if self.fault else ""}
        plain |= {"key": self.key, "size": len(self.body), "answer_size": len(self.answer)}
        plain |= {"sha256": _digest(self.body), "answer_sha256": _digest(self.answer)}
        return json.dumps(plain)


class Journal:
    """What has passed, in the order of the answers; several proxies may share one."""

    def __init__(self, file: Path | None = None) -> None:
        """Keep the journal in memory, and add each line to the file where there is one."""
        self._passed: list[Passed] = []
        self._came = 0
        self._file = file
        self._lock = threading.Lock()

    def number(self) -> int:
        """Return the number of the next request."""
        with self._lock:
            self._came += 1
            return self._came

    def add(self, passed: Passed) -> None:
        """Add a request with its answer."""
        with self._lock:
            self._passed.append(passed)
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(passed.line() + "\n")

    def take(self) -> list[Passed]:
        """Return what has passed and forget it; numbers begin anew."""
        with self._lock:
            taken, self._passed, self._came = self._passed, [], 0
            return taken

    @property
    def passed(self) -> list[Passed]:
        """All so far."""
        with self._lock:
            return list(self._passed)


class FaultProxy:
    """A context manager that forwards to `upstream`, such as `http://127.0.0.1:8333`."""

    def __init__(
        self,
        upstream: str,
        journal: Journal | None = None,
        *,
        door: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a proxy; `door` is its name in the journal."""
        self._upstream = urlsplit(upstream).netloc
        self._faults = Faults()
        self._journal = journal or Journal()
        self._door = door
        self._clock = clock
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._left = False
        self._lock = threading.Lock()
        self._server = Loopback(self._serve)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.heal()
        self._server.__exit__(kind, error, trace)
        with self._lock:
            self._left = True
            idle, self._idle = self._idle, []
        for _, each in idle:
            each.close()

    @property
    def endpoint(self) -> str:
        """Where it listens, `http://127.0.0.1:port`."""
        return self._server.endpoint

    @property
    def journal(self) -> list[Passed]:
        """All requests so far, in the order of their answers."""
        return self._journal.passed

    def fail(self, *faults: Fault) -> None:
        """Add faults."""
        self._faults.add(*faults)

    def heal(self) -> None:
        """Take back all faults, and let go of the requests that they hold."""
        self._faults.clear()

    def _serve(self, raw: Raw) -> Wire | None:
        number = self._journal.number()
        fault = self._faults.due(raw.method, raw.path)
        served = serve(fault.action if fault else None, raw, self._forward)
        headers = {name.lower(): value for name, value in raw.headers.items()}
        said = served.said
        passed = Passed(
            raw.method,
            raw.path,
            said.status if said else 0,
            served.told.status if served.told else 0,
            number=number,
            door=self._door,
            at=self._clock(),
            condition={name: headers[name] for name in _CONDITIONS if name in headers},
            checksum=headers.get("x-amz-checksum-sha256", ""),
            etag={name.lower(): value for name, value in said.headers.items()}.get("etag", "")
            if said
            else "",
            fault=fault.action if fault else None,
            announced=int(headers.get("content-length", "0")),
            body=raw.body,
            answer=said.body if said else b"",
        )
        self._journal.add(passed)
        return served.told

    def _forward(self, raw: Raw) -> Wire | None:
        connection = self._connection()
        try:
            connection.putrequest(raw.method, raw.path, skip_host=True, skip_accept_encoding=True)
            length = 0
            for name, value in raw.headers.items():
                if name.lower() not in _OF_THE_CONNECTION:
                    connection.putheader(name, value)
                length = int(value) if name.lower() == "content-length" else length
            if raw.body and not length:
                connection.putheader("Content-Length", str(len(raw.body)))
            connection.endheaders(raw.body)
            if len(raw.body) < length and connection.sock is not None:
                # The rest of the body was lost on its way, and the server learns so.
                connection.sock.shutdown(socket.SHUT_WR)
            response = connection.getresponse()
            body = response.read()
            headers = {
                name: value
                for name, value in response.getheaders()
                if name.lower() not in _OF_THE_CONNECTION | {"content-length"}
            }
            if raw.method == "HEAD":
                headers["Content-Length"] = response.getheader("Content-Length") or "0"
        except (OSError, http.client.HTTPException):
            # The client learns as little as it would from a server that died.
            connection.close()
            return None
        self._keep(connection, reusable=not response.will_close and len(raw.body) >= length)
        return Wire(response.status, headers, body)

    def _keep(self, connection: http.client.HTTPConnection, *, reusable: bool) -> None:
        with self._lock:
            # A request that was held may come back after everybody has gone.
            if reusable and not self._left:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < _FRESH_S:
                    return connection
                connection.close()
        return http.client.HTTPConnection(self._upstream, timeout=_SERVER_WITHIN_S)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest() if body else ""
