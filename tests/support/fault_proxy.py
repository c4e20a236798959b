"""A proxy in front of a real S3 server that loses, delays or replaces answers.

The server's conditions and its disk are the real ones; only the way to it is faulty. Faults are those of
`milepost.testing.faults`, matched on the path; it refuses those that change bodies, which the fake has.

The surprise: it answers `Expect: 100-continue` itself, so that what is lost is the answer to the whole
request. And headers pass as they are, `Host` included, since the client has signed them.
"""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from milepost.testing.faults import Drop, Fault, Faults, Hold, Reply
from milepost.testing.loopback import Loopback, Raw, Wire
from milepost.testing.s3_objects import error

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["FaultProxy", "Passed"]

_SERVER_WITHIN_S = 60.0
# They speak of one connection, and the proxy has two.
_OF_THE_CONNECTION = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True)
class Passed:
    """One request: what the server said, and what the client was told; 0 stands for nothing."""

    method: str
    path: str
    server: int
    client: int


class FaultProxy:
    """A context manager that forwards to `upstream`, such as `http://127.0.0.1:8333`."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._faults = Faults()
        self._journal: list[Passed] = []
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

    @property
    def endpoint(self) -> str:
        """Where it listens, `http://127.0.0.1:port`."""
        return self._server.endpoint

    @property
    def journal(self) -> list[Passed]:
        """All requests so far, in the order of their answers."""
        with self._lock:
            return list(self._journal)

    def fail(self, *faults: Fault) -> None:
        """Add faults. Raises TypeError for one that a proxy cannot do."""
        for each in faults:
            if not isinstance(each.action, Drop | Hold | Reply):
                raise TypeError(f"a proxy leaves bodies alone: {each.action}")
        self._faults.add(*faults)

    def heal(self) -> None:
        """Take back all faults, and let go of the requests that they hold."""
        self._faults.clear()

    def _serve(self, raw: Raw) -> Wire | None:
        fault = self._faults.due(raw.method, raw.path)
        action = fault.action if fault else None
        passed: Wire | None = None
        match action:
            case Drop(after) | Reply(after=after):
                passed = self._forward(raw) if after else None
                answer = _answer_of(action) if isinstance(action, Reply) else None
            case Hold(after):
                if not after:
                    action.wait()
                answer = passed = self._forward(raw)
                if after:
                    action.wait()
            case _:
                answer = passed = self._forward(raw)
        with self._lock:
            self._journal.append(Passed(raw.method, raw.path, _status(passed), _status(answer)))
        return answer

    def _forward(self, raw: Raw) -> Wire | None:
        connection = http.client.HTTPConnection(self._upstream, timeout=_SERVER_WITHIN_S)
        try:
            connection.putrequest(raw.method, raw.path, skip_host=True, skip_accept_encoding=True)
            for name, value in raw.headers.items():
                if name.lower() not in _OF_THE_CONNECTION:
                    connection.putheader(name, value)
            connection.endheaders(raw.body)
            response = connection.getresponse()
            body = response.read()
            headers = {
                name: value
                for name, value in response.getheaders()
                if name.lower() not in _OF_THE_CONNECTION | {"content-length"}
            }
            if raw.method == "HEAD":
                headers["Content-Length"] = response.getheader("Content-Length") or "0"
            return Wire(response.status, headers, body)
        except (OSError, http.client.HTTPException):
            # The client learns as little as it would from a server that died.
            return None
        finally:
            connection.close()


def _answer_of(reply: Reply) -> Wire:
    said = error(reply.status, reply.code, reply.message, reply.headers)
    return Wire(said.status, said.headers, said.body)


def _status(answer: Wire | None) -> int:
    return answer.status if answer else 0
