"""The outside world of this example: a service that applies each idempotency key once, and logs every call.

It stands for the mail gateway, payment service or database that a real agent would call. It lives outside the
agent's pods, so that its ledger can be held against what the run says of itself. It does not guess: the same
key with another body is a conflict (409), never a second effect.

The surprising thing: a repeated call is not an error here. It gets the first answer again, with
`"applied": false`, which is all that an agent needs in order to be killed at any moment and try again.

    POST /effects   header Idempotency-Key, body a JSON object: apply it once
    POST /starts    {"step", "key", "attempt", "pod"}: a step's body says that it begins
    GET  /ledger    {"calls": [...], "applied": [...], "starts": [...]}
    GET  /healthz

What was answered is on disk: each request is one SQLite transaction, synced before the answer. Times are
nanoseconds since 1970 by this machine's clock.
"""

import argparse
import hashlib
import json
import signal
import socketserver
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LARGEST_BODY = 1 << 20
LONGEST_KEY = 200
SLOWEST_CLIENT_SECONDS = 10
MOST_ATTEMPTS = 1_000_000

TABLES = """
CREATE TABLE IF NOT EXISTS calls
    (at INTEGER, key TEXT, body TEXT, status INTEGER, applied INTEGER);
CREATE TABLE IF NOT EXISTS applied
    (id INTEGER PRIMARY KEY, at INTEGER, key TEXT UNIQUE, digest TEXT, body TEXT);
CREATE TABLE IF NOT EXISTS starts
    (at INTEGER, step TEXT, key TEXT, attempt INTEGER, pod TEXT);
"""


class BadRequest(Exception):
    """The request cannot be understood; the message is the sentence that the client gets."""


class Ledger:
    """The calls, effects and starts in one SQLite file; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(TABLES)

    def apply(self, key: str, body: str) -> tuple[int, dict[str, Any]]:
        """Log the call, apply the key if it is new, and return status and answer.

        A known key gets the first answer again, with "applied": false; with another body it gets 409.
        """
        digest = hashlib.sha256(body.encode()).hexdigest()
        now = time.time_ns()
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            first = self._db.execute("SELECT id, digest FROM applied WHERE key = ?", (key,)).fetchone()
            if first is None:
                row = "INSERT INTO applied (key, digest, body, at) VALUES (?, ?, ?, ?)"
                number = self._db.execute(row, (key, digest, body, now)).lastrowid
                status, answer = 200, {"id": f"effect-{number}", "applied": True}
            elif first["digest"] == digest:
                status, answer = 200, {"id": f"effect-{first['id']}", "applied": False}
            else:
                status, answer = 409, {"error": f"the key {key} was used with another body", "applied": False}
            call = (now, key, body, status, answer["applied"])
            self._db.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?)", call)
        return status, answer

    def start(self, step: str, key: str, attempt: int, pod: str) -> None:
        """Log that a step's body begins."""
        with self._lock:
            self._db.execute(
                "INSERT INTO starts VALUES (?, ?, ?, ?, ?)", (time.time_ns(), step, key, attempt, pod)
            )

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """Return everything, oldest first."""
        with self._lock:
            return {
                "calls": self._rows("SELECT at, key, body, status, applied FROM calls ORDER BY rowid"),
                "applied": self._rows("SELECT at, key, body, 'effect-' || id AS id FROM applied ORDER BY id"),
                "starts": self._rows("SELECT at, step, key, attempt, pod FROM starts ORDER BY rowid"),
            }

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _rows(self, query: str) -> list[dict[str, Any]]:
        rows = [dict(row) for row in self._db.execute(query)]
        for row in rows:
            if "body" in row:
                row["body"] = json.loads(row["body"])
            if "applied" in row:
                row["applied"] = bool(row["applied"])
        return rows


class Handler(BaseHTTPRequestHandler):
    server: "Receiver"
    timeout = SLOWEST_CLIENT_SECONDS

    def do_GET(self) -> None:
        if self.path == "/ledger":
            self._answer(200, self.server.ledger.read())
        elif self.path == "/healthz":
            self._answer(200, {"ok": True})
        else:
            self._answer(404, {"error": f"there is no {self.path} here"})

    def do_POST(self) -> None:
        try:
            if self.path == "/effects":
                text, _ = self._body()
                self._answer(*self.server.ledger.apply(self._key(), text))
            elif self.path == "/starts":
                _, start = self._body()
                self.server.ledger.start(**_start(start))
                self._answer(200, {"logged": True})
            else:
                self._answer(404, {"error": f"there is no {self.path} here"})
        except BadRequest as bad:
            self._answer(400, {"error": str(bad)})

    def _key(self) -> str:
        key = self.headers.get("Idempotency-Key", "")
        if not key:
            raise BadRequest("the header Idempotency-Key is missing")
        if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
            raise BadRequest(f"an Idempotency-Key is at most {LONGEST_KEY} printable ASCII characters")
        return key

    def _body(self) -> tuple[str, dict[str, Any]]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise BadRequest("the header Content-Length is missing or no number")
        if len(length) > len(str(LARGEST_BODY)) or int(length) > LARGEST_BODY:
            raise BadRequest(f"the body is larger than {LARGEST_BODY} bytes")
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise BadRequest("the body ended early")
        try:
            text = raw.decode()
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise BadRequest("the body is not JSON in UTF-8") from None
        if not isinstance(value, dict):
            raise BadRequest("the body is JSON, but no object")
        return text, value

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server gives
        """Say nothing: the ledger is the log."""


def _start(value: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a step's start, or raise `BadRequest` naming the one that is wrong."""
    for field in ("step", "key", "pod"):
        text = value.get(field)
        if not isinstance(text, str) or not text or not text.isprintable():
            raise BadRequest(f"{field} is missing or no printable text")
    attempt = value.get("attempt")
    if type(attempt) is not int or not 1 <= attempt <= MOST_ATTEMPTS:
        raise BadRequest(f"attempt is missing or no whole number from 1 to {MOST_ATTEMPTS}")
    return {field: value[field] for field in ("step", "key", "attempt", "pod")}


class Receiver(ThreadingHTTPServer):
    """The server; `server_close` waits for the requests that are being answered."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], ledger: Ledger) -> None:
        super().__init__(address, Handler)
        self.ledger = ledger

    def server_bind(self) -> None:
        # HTTPServer would ask the name service for this host's name here, and wait where there is none.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


def main() -> None:
    """Serve until SIGTERM or Ctrl-C; the first line on stdout is the port."""
    parser = argparse.ArgumentParser(description="Apply each idempotency key once, and log every call.")
    parser.add_argument("--address", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8900, help="0: any free one; default: %(default)s")
    parser.add_argument("--database", type=Path, default=Path("receiver.db"), help="default: %(default)s")
    options = parser.parse_args()

    ledger = Ledger(options.database)
    with Receiver((options.address, options.port), ledger) as server:

        def stop(*_: object) -> None:
            # shutdown() waits for the loop that this handler has interrupted, so it needs another thread.
            threading.Thread(target=server.shutdown).start()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        print(server.server_port, flush=True)
        print(f"http://{options.address}:{server.server_port} keeps {options.database}", file=sys.stderr)
        server.serve_forever(poll_interval=0.1)
    ledger.close()


if __name__ == "__main__":
    main()
