"""How a draft comes about: a stand-in for a model, which understands one kind of remark."""

import re

from pydantic import BaseModel

WITHOUT = re.compile(r"\bwithout\s+(\w+)", re.IGNORECASE)


class Draft(BaseModel):
    """What the editor is shown."""

    heading: str
    lines: list[str]


def write(changes: list[str], remark: str) -> Draft:
    """Return a draft of an announcement. `without WORD` in a remark leaves out what mentions the word."""
    unwanted = [word.lower() for word in WITHOUT.findall(remark)]
    lines = [change for change in changes if not any(word in change.lower() for word in unwanted)]
    count = "1 change" if len(lines) == 1 else f"{len(lines)} changes"
    return Draft(heading=f"What is new: {count}", lines=lines)
