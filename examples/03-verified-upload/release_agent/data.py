"""How the data set comes about: a stand-in for a long computation, the same each time."""

import hashlib


def build(name: str, rows: int) -> str:
    """Return the data set as CSV: an hour and a reading in each row."""
    lines = [f"{row},{int(_digest(f'{name} {row}')[:6], 16) % 100}" for row in range(rows)]
    return "\n".join(["hour,reading", *lines]) + "\n"


def checksum(body: str) -> str:
    """Return the SHA-256 of what is uploaded, in hex."""
    return _digest(body)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
