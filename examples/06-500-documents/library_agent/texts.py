"""What the agent reads: what the classes and functions of Python's standard library say of themselves.

They are small real texts that every machine with Python has, so that nothing has to be packaged. They are
read from the library's source files; nothing of them is imported.
"""

import ast
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel

SHORTEST = 60
"""Characters below which a text says too little."""

TERMS = 5
TERMS_OF_ALL = 30

WORD = re.compile(r"[a-z]{5,}")
COMMON = frozenset(
    WORD.findall(
        """
        about after again already before being between cannot either first other otherwise rather should since
        their there these those under until using value where which while whose without would
        """
    )
)


class Note(BaseModel):
    """What the agent keeps of one document."""

    document: str
    title: str
    words: int
    terms: dict[str, int]


def find_texts(count: int) -> list[str]:
    """Return the names of so many documents, such as `argparse.ArgumentParser`, in order."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    names = [
        f"{file.stem}.{name}" for file in files if not file.stem.startswith("_") for name in _texts(file.stem)
    ]
    if len(names) < count:
        raise LookupError(
            f"the library of this Python has {len(names)} such texts, which is less than {count}"
        )
    return names[:count]


def note_on(document: str) -> Note:
    module, _, name = document.partition(".")
    text = _texts(module)[name]
    counts = Counter(word for word in WORD.findall(text.lower()) if word not in COMMON)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:TERMS]
    title = text.partition("\n")[0]
    return Note(
        document=document,
        title=title,
        words=len(text.split()),
        terms={word: counts[word] for word in frequent},
    )


def terms_of(notes: Iterable[Note]) -> dict[str, int]:
    """Return the most frequent terms with their counts, the most frequent first."""
    counts: Counter[str] = Counter()
    for note in notes:
        counts.update(note.terms)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:TERMS_OF_ALL]
    return {word: counts[word] for word in frequent}


# Only a cache: a process that begins with it empty does the same, just later.
@lru_cache(maxsize=8)
def _texts(module: str) -> dict[str, str]:
    """Return the texts of a module's public classes and functions by their names."""
    source = Path(sysconfig.get_path("stdlib"), f"{module}.py").read_text(encoding="utf-8")
    public = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    )
    texts = {node.name: ast.get_docstring(node) or "" for node in public}
    return {name: text for name, text in texts.items() if len(text) >= SHORTEST}
