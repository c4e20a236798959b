"""Whether an answer fits what a gate asks for, said so that its giver can mend it.

The schema comes out of the run's log, so it is used for nothing but a comparison: what it refers to outside
of itself is not fetched.
"""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema
import referencing
import referencing.exceptions

from milepost.checkpoint import codec
from milepost.errors import InvalidRun

__all__ = ["answer_in", "plain"]

_WORDS: Final = {"yes": True, "y": True, "no": False, "n": False}


def answer_in(schema: Any, text: str | None, field: str) -> Any:
    """Return the answer in what was given for a gate of this schema; None stands for nothing given.

    Raises InvalidRun, naming the part that does not fit, and the schema.
    """
    if schema is None:
        if text is not None:
            raise InvalidRun(field, "the gate asks for no answer beyond yes or no; leave it out")
        return None
    if text is not None:
        return plain(schema, text, field)
    if _unfit(schema, None):
        raise InvalidRun(field, f"is needed; {_asked(schema)}")
    return None


def plain(schema: Any, text: str, field: str) -> Any:
    """Return the answer in a text: JSON, or, where the schema asks for no more, just as it was typed.

    Without a schema it is JSON. Raises InvalidRun where neither fits.
    """
    candidates: list[Any] = []
    why = ""
    try:
        candidates.append(codec.loads(text.encode("utf-8", "surrogateescape")))
    except codec.DecodeError as error:
        why = error.why
    if schema is None:
        if why:
            raise InvalidRun(field, why)
        return candidates[0]
    candidates += [text, *([_WORDS[text.lower()]] if text.lower() in _WORDS else [])]
    for each in candidates:
        if not _unfit(schema, each):
            return each
    raise InvalidRun(field, f"{why or _unfit(schema, candidates[0])}; {_asked(schema)}")


def _unfit(schema: Any, data: Any) -> str:
    """Return why data does not fit a schema, naming the part; empty where it does."""
    kind = jsonschema.Draft202012Validator
    checker = kind(schema, registry=referencing.Registry(), format_checker=kind.FORMAT_CHECKER)
    try:
        error = jsonschema.exceptions.best_match(checker.iter_errors(data))
    except referencing.exceptions.Unresolvable as missing:
        return f"nobody can tell whether it fits, as the schema refers to {missing.ref}"
    if error is None:
        return ""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"answer{where}: {error.message}"


def _asked(schema: Any) -> str:
    return f"asked for is JSON of this schema: {json.dumps(schema, ensure_ascii=False)}"
