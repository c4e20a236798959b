"""Values as JSON and back, equal in type and value, or refused with the path of the part at fault.

JSON only, walked by ourselves, with a closed set of tags (`{"$mp": "datetime", "v": ...}`) that hold no
import paths: reading never imports, looks up or calls anything by a name from the data. Natives are never
coerced. Models, dataclasses, NamedTuples, Enums and subclasses of natives come back only as the *declared*
type names their class; their code does not run. Nothing here does I/O, except that a datetime's zone is
read from the image's time zone data.

    data, copy = store(value, declared_result(fn))      the author gets the copy
    raw = dumps(data)                                   what is written
    value = decode(loads(raw), declared_result(fn))     what a resume gets

What is kept and what is not: the order of a dict's keys is kept; the identity of a list that stands in two
places is not (two equal lists come back); NaN comes back as NaN, without its payload; what a
`cached_property` computed is computed again.

`wire` is the text and its bounds, `leaves` the tags of types without parts, `hints` what a declared type
says, `objects` what an instance holds, `encoder` and `decoder` the two walks, `compare` the proof,
`functions` the declared types of a function, `plain` the form for people.
"""

from milepost.checkpoint.codec.compare import first_difference
from milepost.checkpoint.codec.functions import declared_by_name, declared_parameters, declared_result
from milepost.checkpoint.codec.plain import plain
from milepost.checkpoint.codec.roundtrip import decode, encode, store, undeclared
from milepost.checkpoint.codec.wire import (
    JSON,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_PARTS,
    DecodeError,
    digest,
    dumps,
    loads,
)

__all__ = [
    "JSON",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_PARTS",
    "DecodeError",
    "declared_by_name",
    "declared_parameters",
    "declared_result",
    "decode",
    "digest",
    "dumps",
    "encode",
    "first_difference",
    "loads",
    "plain",
    "store",
    "undeclared",
]
