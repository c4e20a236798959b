"""What the records are made of: values, inputs, errors, places and usage, as frozen data.

Values of the author's are already encoded by `milepost.checkpoint.codec` when they come here; this module
never looks inside them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

__all__ = ["Data", "ErrorData", "Input", "Message", "StepPlace", "Text", "Usage", "Value", "changed"]

D = TypeVar("D")

MAX_MESSAGE: Final = 2000
"""Characters of a message about a whole run. With a result inline it still fits a head."""


def _printable(text: Any) -> Any:
    # A file name that is no UTF-8 comes as lone surrogates, which no JSON document can carry.
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text


def _cut(text: Any) -> Any:
    return text if not isinstance(text, str) or len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


Text: TypeAlias = Annotated[str, BeforeValidator(_printable)]
Message: TypeAlias = Annotated[str, BeforeValidator(_cut), BeforeValidator(_printable)]


def changed(whole: D, **changes: Any) -> D:
    """Return a dataclass with other values in some of its fields, whose constructor checks nothing.

    What `dataclasses.replace` does, at a fifth of its cost; a head has thirty fields and one is made a step.
    """
    made = object.__new__(type(whole))
    vars(made).update(vars(whole), **changes)
    return made


class Data(BaseModel):
    """A part of a record: never changed once made, and with no fields but those that it declares."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Value(Data):
    """An encoded value: inline, or the digest and size in bytes of the blob that holds it."""

    inline: Any = None
    blob: str = ""
    size: int = 0


class Input(Data):
    """One positional argument of a step.

    The digest is always there. The value is inline up to 2 KiB; a larger one that is itself a recorded
    result is named by the step that made it, and any other is not kept.
    """

    digest: str
    inline: Value | None = None
    result_of: str = ""


class ErrorData(Data):
    """An error as data: qualified type, message and the chain of causes, each cut to a readable length."""

    kind: Text
    message: Text
    chain: tuple[Text, ...] = ()


class StepPlace(Data):
    """Which step: its id and what the id is made of, with its ordinal among all steps of its branch.

    `after` is the step without a key that the same task started before it in this branch; empty where it
    was the first, None where the order says nothing: a step with a key, or the first of a task of the
    author's own. `group` is the phase that it belongs to, if any.
    """

    id: str
    branch: str = ""
    name: str
    key: str | None = None
    number: int = 1
    ordinal: int
    after: str | None = None
    group: str = ""


class Usage(Data):
    """What a try of a step used up of models: tokens in and out, cost in billionths of a US dollar."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_nano_usd: int = 0
    models: tuple[str, ...] = ()

    def __add__(self, other: Usage) -> Usage:
        """Return both together."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_nano_usd=self.cost_nano_usd + other.cost_nano_usd,
            models=tuple(dict.fromkeys((*self.models, *other.models))),
        )
