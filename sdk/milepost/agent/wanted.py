"""What an answer at a gate has to be: its JSON Schema for who gives it, and a strict check of what was given.

People and systems answer in JSON as everybody writes it, a time for instance as text; what the run keeps of
it is the value that this stands for, of the declared type. Nothing is coerced: text is no number.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from milepost.checkpoint import codec
from milepost.errors import Misuse, NotStorable

__all__ = ["Unfit", "Wanted"]

MAX_SHOWN: Final = 200
"""Characters of a wrong answer that a message quotes."""


class Unfit(Exception):
    """An answer is not what was asked for. The message says why, as in `answer.amount: ...`."""


class Wanted:
    """The type that an answer is to be of. None: an answer is to hold nothing.

    `schema` is its JSON Schema, `declared` the type itself. Raises Misuse where JSON cannot be checked
    against it; `what` says whose type it is.
    """

    def __init__(self, declared: Any, what: str) -> None:
        self.declared = declared
        self.schema: Any = None
        self._adapter: TypeAdapter[Any] | None = None
        if declared in (None, type(None)):
            return
        try:
            self._adapter = TypeAdapter(declared)
            self.schema = self._adapter.json_schema()
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            why = str(error).partition("\n")[0]
            raise Misuse(
                f"{what} cannot have an answer of type {declared!r}, for which JSON has no check: {why}"
            ) from error

    def fit(self, data: codec.JSON) -> tuple[codec.JSON, Any]:
        """Return a given answer as it is recorded, and as the author gets it. Raises Unfit."""
        if self._adapter is None:
            if data is not None:
                raise Unfit(f"answer: there is to be none, not {_shown(data)}")
            return None, None
        value = self._validated(self._adapter, data)
        try:
            return codec.store(value, self.declared, path="answer")
        except NotStorable as error:
            raise Unfit(str(error)) from error

    def check(self, value: Any) -> None:
        """Raise Unfit where a recorded answer is not of the type that is declared today."""
        try:
            if self._adapter is not None:
                self._adapter.validate_python(value, strict=True)
            elif value is not None:
                raise Unfit(f"answer: there is to be none, not {_shown(value)}")
        except ValidationError as error:
            raise Unfit(_first(error)) from error

    def _validated(self, adapter: TypeAdapter[Any], data: codec.JSON) -> Any:
        try:
            text = json.dumps(data)
        except RecursionError:
            raise Unfit("answer: it is nested too deeply") from None
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError as error:
            # A program that answers may know the log's own forms.
            if '"$mp"' not in text:
                raise Unfit(_first(error)) from error
        try:
            return adapter.validate_python(codec.decode(data, self.declared, path="answer"), strict=True)
        except codec.DecodeError as error:
            raise Unfit(str(error)) from error
        except ValidationError as error:
            raise Unfit(_first(error)) from error


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, ("answer", *first["loc"])))
    return f"{where}: {first['msg']}, not {_shown(first['input'])}"


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " ..."
