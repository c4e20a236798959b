"""A receiver with a memory: each key is applied once, by whichever process it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.testing import Ledger, Received

pytestmark = pytest.mark.req("S5")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def test_a_key_is_applied_once(ledger: Ledger) -> None:
    assert [ledger.apply("a", {"sum": 1}), ledger.apply("a", {"sum": 1}), ledger.apply("b")] == [
        True,
        False,
        True,
    ]
    assert ledger.applied() == [{"sum": 1}, None]
    assert ledger.received() == [
        Received("a", {"sum": 1}, applied=True),
        Received("a", {"sum": 1}, applied=False),
        Received("b", None, applied=True),
    ]


def test_without_a_key_it_is_applied_each_time(ledger: Ledger) -> None:
    assert [ledger.apply(None, 1), ledger.apply(None, 1)] == [True, True]
    assert ledger.applied() == [1, 1]


def test_a_key_stands_for_one_thing(ledger: Ledger) -> None:
    ledger.apply("a", 1)

    with pytest.raises(ValueError, match="key a was applied for 1, and is now for 2"):
        ledger.apply("a", 2)
    assert [each.applied for each in ledger.received()] == [True, False]


def test_nothing_was_received_where_nobody_called(ledger: Ledger) -> None:
    assert ledger.received() == []
    assert not ledger.file.exists()


def test_what_a_killed_process_has_told_is_kept_and_processes_take_turns(ledger: Ledger) -> None:
    program = (
        "import os, signal, sys; from milepost.testing import Ledger; ledger = Ledger(sys.argv[1])\n"
        "for key in range(50): ledger.apply(str(key))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(ledger.file)], env={**os.environ, **path})
        for _ in range(2)
    ]

    assert [process.wait(60) for process in processes] == [-signal.SIGKILL] * 2
    applied = [each.key or "" for each in ledger.received() if each.applied]
    assert (len(ledger.received()), sorted(applied)) == (100, sorted(map(str, range(50))))


def test_only_a_test_has_a_ledger_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MILEPOST_TEST_FOLDER", raising=False)
    with pytest.raises(KeyError, match="only a test"):
        Ledger.from_environment()

    monkeypatch.setenv("MILEPOST_TEST_FOLDER", str(tmp_path))
    assert Ledger.from_environment().file.parent == tmp_path
