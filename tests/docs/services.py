"""What the code in docs/steps.md takes for granted: its imports, and services that remember for ever."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime  # noqa: F401  (for the page's code)
from functools import cache  # noqa: F401  (as above)
from pathlib import Path
from uuid import uuid4  # noqa: F401  (as above)

from milepost import Call, Happened, NotHappened, Run, agent, tool  # noqa: F401  (as above)
from milepost.testing import Ledger


def folder() -> Path:
    """Return what stands for the outside world: the test kit's folder, or that of a test of its own."""
    return Path(os.environ.get("SERVICES_FOLDER") or os.environ["MILEPOST_TEST_FOLDER"])


def apply(key: str | None, what: str) -> None:
    Ledger.in_folder(folder()).apply(key, what)


class Bank:
    async def pay(self, invoice: str, *, idempotency_key: str) -> str:
        apply(idempotency_key, f"pay {invoice}")
        return f"paid {invoice}"


class Mail:
    async def send(self, reader: str, text: str, *, idempotency_key: str | None = None) -> None:
        assert text
        apply(idempotency_key, reader)


class Accounts:
    """One account."""

    async def points(self, customer: str) -> int:
        assert customer
        file = folder() / "points"
        return int(file.read_text()) if file.exists() else 0

    async def set_points(self, customer: str, total: int) -> None:
        assert customer
        (folder() / "points").write_text(str(total))

    async def add_points(self, customer: str, more: int) -> None:
        await self.set_points(customer, await self.points(customer) + more)


class Shop:
    """Takes orders at once and lists them SHOWN_AFTER seconds later, or, where it is not set, never.

    KILLED_BY_SHOP: whoever orders first is killed.
    """

    async def order(self, item: str) -> None:
        first = not self._ordered.exists()
        apply(None, item)
        self._ordered.write_text(str(time.time()))
        if first and os.environ.get("KILLED_BY_SHOP"):
            os.kill(os.getpid(), signal.SIGKILL)

    async def orders(self) -> list[str]:
        if not self._ordered.exists() or time.time() < float(self._ordered.read_text()) + SHOWN_AFTER:
            return []
        return [str(item) for item in Ledger.in_folder(folder()).applied()]

    @property
    def _ordered(self) -> Path:
        return folder() / "ordered-at"


SHOWN_AFTER = float(os.environ.get("SHOWN_AFTER", "inf"))
bank, mail, accounts, shop = Bank(), Mail(), Accounts(), Shop()
