"""Strict JSON codec for the contract's frozen dataclasses: camelCase keys in JSON, snake_case fields in Python.

Used only by the other modules of the contract. Decoding follows the annotations of the class, so a field is described
once. An error contains the path of the invalid value. It is not pydantic, because the runtime is copied into the image
of any job and brings no packages of its own.

Operator and image may have different versions. Requests (job.json, a stop) are read strictly: a key that the reader
does not know must be reported. Responses (progress, an outcome) are read leniently: a newer sender may add keys.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from typing import Any, TypeVar

from rljob_runtime.contract.foreign_json import ForeignJSONError, legible, parse

T = TypeVar("T")
_SPARSE = "sparse"
QUOTED_CHARACTERS = 100
"""Characters of a foreign text that an error message quotes."""
INTEGER_BITS = 64
"""A larger integer is not written out: Python refuses that from 4,300 digits on (sys.get_int_max_str_digits)."""
UNKNOWN_SHOWN = 8
"""Unknown keys that an error message lists."""


class ContractError(ValueError):
    """A document does not fit the contract; the message names the path, what was seen and what is expected."""


def camel(name: str) -> str:
    """Turn a field name into its JSON key: `total_steps` -> `totalSteps`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def added(default: T) -> T:
    """Declare a field that was added later. It is omitted from JSON while it holds its default.

    A document that does not use the field keeps its bytes and its digest, and older images accept it.
    """
    return dataclasses.field(default=default, metadata={_SPARSE: True})


def quoted(value: object) -> str:
    """Return a foreign value for an error message: the start of a text, only the type of what may be long."""
    if isinstance(value, (dict, list)) or (isinstance(value, int) and value.bit_length() > INTEGER_BITS):
        return type(value).__name__
    text = repr(value[: QUOTED_CHARACTERS + 1] if isinstance(value, str) else value)
    return text if len(text) <= QUOTED_CHARACTERS + 2 else f"{text[:QUOTED_CHARACTERS]}…"


def encode(value: Any) -> Any:  # noqa: ANN401 - any member of the contract's closed set of types
    """Convert a dataclass of the contract into plain JSON values, omitting None fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {camel(f.name): encode(member) for f, member in fields if not _left_out(f, member)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, (list, tuple)):
        return [encode(member) for member in value]
    if isinstance(value, dict):
        return {key: encode(member) for key, member in value.items()}
    return value


def _left_out(field: dataclasses.Field[Any], member: object) -> bool:
    return member is None or (_SPARSE in field.metadata and member == field.default)


def dumps(value: object) -> bytes:
    """Return canonical bytes. Equal values yield equal bytes, so a hash identifies them."""
    text = json.dumps(encode(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.encode()


def loads(kind: type[T], data: bytes | str, *, strict: bool = True) -> T:
    """Read one document. Raises ContractError with the path of the first violation; unknown keys count if `strict`."""
    try:
        raw = parse(data)
    except ForeignJSONError as error:
        raise ContractError(f"{kind.__name__}: not JSON: {error}") from error
    return _decode(kind, raw, kind.__name__, strict)  # type: ignore[no-any-return]


def _decode(kind: Any, raw: Any, path: str, strict: bool) -> Any:  # noqa: ANN401, FBT001 - driven by annotations
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(kind, raw, path, strict)
    if origin in (tuple, list):
        if not isinstance(raw, list):
            raise ContractError(f"{path}: expected a list, got {type(raw).__name__}")
        member = typing.get_args(kind)[0]
        return origin(_decode(member, item, f"{path}[{index}]", strict) for index, item in enumerate(raw))
    if origin is dict:
        if not isinstance(raw, dict):
            raise ContractError(f"{path}: expected an object, got {type(raw).__name__}")
        member = typing.get_args(kind)[1]
        return {key: _decode(member, item, f"{path}.{key[:QUOTED_CHARACTERS]}", strict) for key, item in raw.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, raw, path, strict)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(raw)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise ContractError(f"{path}: {quoted(raw)} is not one of {allowed}") from None
    return _decode_scalar(kind, raw, path)


def _decode_scalar(kind: Any, raw: Any, path: str) -> Any:  # noqa: ANN401 - driven by annotations
    if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw)
    if type(raw) is kind:
        return raw
    raise ContractError(f"{path}: expected {getattr(kind, '__name__', kind)}, got {type(raw).__name__}")


def _decode_union(kind: Any, raw: Any, path: str, strict: bool) -> Any:  # noqa: ANN401, FBT001 - driven by annotations
    members = typing.get_args(kind)
    if raw is None and type(None) in members:
        return None
    problems = []
    # An int is also a valid float. Try exact types first, so that 3 stays an int.
    for member in sorted(members, key=lambda m: m is not type(raw)):
        if member is type(None):
            continue
        try:
            return _decode(member, raw, path, strict)
        except ContractError as error:
            problems.append(str(error))
    raise ContractError(problems[0])


def _decode_dataclass(kind: Any, raw: Any, path: str, strict: bool) -> Any:  # noqa: ANN401, FBT001 - driven by annotations
    if not isinstance(raw, dict):
        raise ContractError(f"{path}: expected an object, got {type(raw).__name__}")
    fields = _fields(kind)
    if strict and (unknown := sorted(set(raw) - set(fields))):
        named = ", ".join(key[:QUOTED_CHARACTERS] for key in unknown[:UNKNOWN_SHOWN])
        more = f" and {len(unknown) - UNKNOWN_SHOWN} more" if len(unknown) > UNKNOWN_SHOWN else ""
        raise ContractError(f"{path}: unknown keys {named}{more}; operator and image have different versions")
    values = {}
    for key, (name, hint, required) in fields.items():
        if key in raw:
            values[name] = _decode(hint, raw[key], f"{path}.{key}", strict)
        elif required:
            raise ContractError(f"{path}.{key}: missing")
    return kind(**values)


@functools.cache
def _fields(kind: type[Any]) -> dict[str, tuple[str, Any, bool]]:
    """Return name, type and whether it is required, by key. Cached, because reading annotations dominates decoding."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        camel(f.name): (f.name, hints[f.name], f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(kind)
    }
