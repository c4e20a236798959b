from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import IO, Any

import pytest

RECEIVER = Path(__file__).parents[2] / "examples" / "01-documents" / "receiver.py"
START = {"step": "save=01.md", "key": "r/save=01.md", "attempt": 1, "pod": "documents-1"}


class Receiver:
    """The example's receiver in a process of its own, on loopback."""

    def __init__(self, database: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RECEIVER), "--port", "0", "--database", str(database)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.port = int(self._stdout().readline())

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def post(self, path: str, value: object, key: str | None = None) -> tuple[int, Any]:
        return self.ask("POST", path, json.dumps(value).encode(), {"Idempotency-Key": key} if key else {})

    def ledger(self) -> dict[str, list[dict[str, Any]]]:
        """Return what was kept, without the times and ids that differ from run to run."""
        status, ledger = self.ask("GET", "/ledger")
        assert status == 200
        return {
            table: [{name: value for name, value in row.items() if name != "at"} for row in rows]
            for table, rows in ledger.items()
        }

    def end(self, sign: signal.Signals) -> int:
        """Send the signal and return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(sign)
        code = self._process.wait(timeout=60)
        self._stdout().close()
        return code

    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    running = Receiver(tmp_path / "receiver.db")
    yield running
    running.end(signal.SIGKILL)


def test_a_key_is_applied_once_and_every_call_is_logged(receiver: Receiver) -> None:
    note = {"document": "01.md"}

    assert receiver.post("/effects", note, "r/save=01") == (200, {"id": "effect-1", "applied": True})
    assert receiver.post("/effects", note, "r/save=01") == (200, {"id": "effect-1", "applied": False})
    assert receiver.post("/effects", note, "r/save=02") == (200, {"id": "effect-2", "applied": True})

    assert receiver.ledger() == {
        "calls": [
            {"key": "r/save=01", "body": note, "status": 200, "applied": True},
            {"key": "r/save=01", "body": note, "status": 200, "applied": False},
            {"key": "r/save=02", "body": note, "status": 200, "applied": True},
        ],
        "applied": [
            {"key": "r/save=01", "body": note, "id": "effect-1"},
            {"key": "r/save=02", "body": note, "id": "effect-2"},
        ],
        "starts": [],
    }


def test_a_known_key_with_another_body_is_a_conflict_and_changes_nothing(receiver: Receiver) -> None:
    receiver.post("/effects", {"amount": 1}, "r/pay")

    assert receiver.post("/effects", {"amount": 2}, "r/pay") == (
        409,
        {"error": "the key r/pay was used with another body", "applied": False},
    )
    assert receiver.ledger() == {
        "calls": [
            {"key": "r/pay", "body": {"amount": 1}, "status": 200, "applied": True},
            {"key": "r/pay", "body": {"amount": 2}, "status": 409, "applied": False},
        ],
        "applied": [{"key": "r/pay", "body": {"amount": 1}, "id": "effect-1"}],
        "starts": [],
    }


def test_of_many_calls_at_once_with_one_key_exactly_one_is_applied(receiver: Receiver) -> None:
    together = Barrier(16)

    def call(_: int) -> bool:
        together.wait(timeout=60)
        _, answer = receiver.post("/effects", {}, "r/save")
        return bool(answer["applied"])

    with ThreadPoolExecutor(16) as pool:
        applied = list(pool.map(call, range(16)))

    assert sorted(applied) == [False] * 15 + [True]
    assert len(receiver.ledger()["calls"]) == 16


def test_starts_are_logged_each_time(receiver: Receiver) -> None:
    again = {**START, "attempt": 2, "pod": "documents-2"}

    assert receiver.post("/starts", START) == (200, {"logged": True})
    assert receiver.post("/starts", again) == (200, {"logged": True})

    assert receiver.ledger() == {"calls": [], "applied": [], "starts": [START, again]}


def test_times_come_from_the_receivers_own_clock_and_do_not_go_back(receiver: Receiver) -> None:
    for number in range(3):
        receiver.post("/effects", {}, f"r/{number}")

    _, ledger = receiver.ask("GET", "/ledger")
    times = [call["at"] for call in ledger["calls"]]

    assert times == sorted(times)
    assert times == [row["at"] for row in ledger["applied"]]


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    killed = Receiver(tmp_path / "receiver.db")
    killed.post("/starts", START)
    killed.post("/effects", {"n": 1}, "r/save")
    before = killed.ledger()
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL

    restarted = Receiver(tmp_path / "receiver.db")

    assert restarted.ledger() == before
    assert restarted.post("/effects", {"n": 1}, "r/save") == (200, {"id": "effect-1", "applied": False})
    restarted.end(signal.SIGKILL)


def test_sigterm_ends_it_without_an_error(tmp_path: Path) -> None:
    assert Receiver(tmp_path / "receiver.db").end(signal.SIGTERM) == 0


def test_it_says_that_it_is_well(receiver: Receiver) -> None:
    assert receiver.ask("GET", "/healthz") == (200, {"ok": True})


KEY = {"Idempotency-Key": "r/save"}


@pytest.mark.parametrize(
    ("path", "body", "headers", "sentence"),
    [
        ("/effects", b"{}", {}, "the header Idempotency-Key is missing"),
        (
            "/effects",
            b"{}",
            {"Idempotency-Key": "k" * 201},
            "an Idempotency-Key is at most 200 printable ASCII characters",
        ),
        ("/effects", b"{", KEY, "the body is not JSON in UTF-8"),
        ("/effects", b"\xff", KEY, "the body is not JSON in UTF-8"),
        ("/effects", b"[" * 100_000, KEY, "the body is not JSON in UTF-8"),
        ("/effects", b"[]", KEY, "the body is JSON, but no object"),
        (
            "/effects",
            b"",
            KEY | {"Content-Length": "-1"},
            "the header Content-Length is missing or no number",
        ),
        ("/effects", b"", KEY | {"Content-Length": "9" * 5000}, "the body is larger than 1048576 bytes"),
        (
            "/starts",
            json.dumps({**START, "step": "\ud800"}).encode(),
            {},
            "step is missing or no printable text",
        ),
        ("/starts", json.dumps({**START, "pod": None}).encode(), {}, "pod is missing or no printable text"),
        (
            "/starts",
            json.dumps({**START, "attempt": 10**30}).encode(),
            {},
            "attempt is missing or no whole number from 1 to 1000000",
        ),
    ],
)
def test_a_bad_request_gets_a_plain_sentence_and_leaves_nothing(
    receiver: Receiver, path: str, body: bytes, headers: dict[str, str], sentence: str
) -> None:
    assert receiver.ask("POST", path, body, headers) == (400, {"error": sentence})
    assert receiver.ledger() == {"calls": [], "applied": [], "starts": []}


def test_a_body_that_ends_early_is_refused(receiver: Receiver) -> None:
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=60) as link:
        link.sendall(b"POST /effects HTTP/1.1\r\nIdempotency-Key: r/save\r\nContent-Length: 10\r\n\r\n{}")
        link.shutdown(socket.SHUT_WR)
        answer = b""
        while part := link.recv(65536):
            answer += part

    assert answer.endswith(b'{"error": "the body ended early"}\n')
    assert receiver.ledger()["calls"] == []


def test_an_unknown_path_is_named(receiver: Receiver) -> None:
    assert receiver.post("/effect", {}, "r/save") == (404, {"error": "there is no /effect here"})
