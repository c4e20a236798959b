"""The documents example's receiver, running on a host beside the cluster, outside of every pod."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.interface import Host
from tools.cluster.progress import wait_until

__all__ = ["Receiver", "receiving"]

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "01-documents" / "receiver.py"


@dataclass(frozen=True)
class Receiver:
    """Where the receiver listens, and what it has been told."""

    url: str

    def ledger(self) -> dict[str, list[dict[str, Any]]]:
        """Return every call, every applied row and every reported start, the oldest first."""
        with urllib.request.urlopen(f"{self.url}/ledger", timeout=10) as answer:  # noqa: S310  (our own host)
            ledger: dict[str, list[dict[str, Any]]] = json.load(answer)
        return ledger


@contextmanager
def receiving(host: Host, folder: Path, port: int = 8900) -> Iterator[Receiver]:
    """Run the receiver on a host, with its database in the folder, and end it afterwards."""
    database = folder / "ledger.sqlite"
    address = ["--address", host.address, "--port", str(port), "--database", str(database)]
    process = host.popen([sys.executable, str(PROGRAM), *address], stdout=subprocess.DEVNULL)
    receiver = Receiver(f"http://{host.address}:{port}")
    try:
        wait_until(lambda: _answers(receiver, process), "the receiver to answer", within=20)
        yield receiver
    finally:
        process.terminate()
        process.wait(timeout=20)


def _answers(receiver: Receiver, process: subprocess.Popen[Any]) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the receiver ended at once, with code {process.returncode}")
    try:
        receiver.ledger()
    except OSError:
        return False
    return True
