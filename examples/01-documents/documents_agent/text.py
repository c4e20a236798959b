"""What the agent does with text: plain functions that know nothing of runs and steps."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

TERMS_PER_DOCUMENT = 8
LARGEST_INDEX = 3500  # bytes as JSON: a result of up to 4 KiB is shown in the run's status

WORD = re.compile(r"[a-z]{4,}")
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMON = frozenset(
    WORD.findall(
        """
        about above added after again against also another anything apart because been before being beside
        both called calls cannot come comes could does done down each else even ever every everything first
        five from gives goes good hand have here holds however into itself just keep keeps kept know known
        last later least left less like long longer made make makes many mean means more most much must
        never newest next nothing once only onto other others over part place said same says should since
        small some somebody something stand still such sure taken takes than that their them then there
        therefore they thing this those thus time together twice under until upon usual very want wants what
        whatever when where which while whoever whole whose will with within without would yield
        """
    )
)


class Note(BaseModel):
    """What the agent keeps of one document."""

    document: str
    title: str
    terms: list[str]
    links: list[str]


def find_documents(folder: str) -> list[str]:
    """Return the paths of the documents in a folder, in order."""
    if not Path(folder).is_dir():
        raise NotADirectoryError(f"there is no folder {folder}")
    return sorted(str(path) for path in Path(folder).glob("*.md"))


def take_notes(path: str) -> Note:
    text = Path(path).read_text(encoding="utf-8")
    title, _, body = text.partition("\n")
    words = WORD.findall(LINK.sub("]", body).lower())
    counts = Counter(word for word in words if word not in COMMON)
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    return Note(
        document=Path(path).name,
        title=title.removeprefix("# "),
        terms=by_frequency[:TERMS_PER_DOCUMENT],
        links=sorted(set(LINK.findall(text))),
    )


def index_of(notes: Iterable[Note]) -> dict[str, list[str]]:
    """Return each term that two or more documents share with those documents, the most shared first.

    The least shared are left out where the index would grow beyond `LARGEST_INDEX`.
    """
    found: dict[str, list[str]] = {}
    for note in notes:
        for term in note.terms:
            found.setdefault(term, []).append(note.document)
    shared = sorted(
        (term for term in found if len(found[term]) > 1), key=lambda term: (-len(found[term]), term)
    )
    index = {term: found[term] for term in shared}
    while len(json.dumps(index)) > LARGEST_INDEX:
        index.popitem()
    return index
