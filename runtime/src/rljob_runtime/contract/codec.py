"""Strict JSON codec for the contract's frozen dataclasses: camelCase keys outside, snake_case fields inside.

Used only by the other modules of the contract. It decodes by the annotations of the class, so a field is described
once, and it fails with the path of what is wrong rather than with a traceback from deep inside.

Operator and image may be of different versions. Orders (job.json, a stop) are read strictly: what the other side wants
and this one does not know must be said. Answers (progress, an outcome) are read leniently: a newer side may tell more.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")
_SPARSE = "sparse"
QUOTED_CHARACTERS = 100
"""Characters of a foreign text that an error message quotes."""
UNKNOWN_SHOWN = 8
"""Unknown keys that an error message lists."""


class ContractError(ValueError):
    """A document does not fit the contract; the message names the path, what was seen and what is expected."""


def camel(name: str) -> str:
    """Turn a field name into its JSON key: `total_steps` -> `totalSteps`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def added(default: T) -> T:
    """Declare a field that came later: while it holds its default it is left out.

    So a document that does not use it keeps its bytes and its digest, and an older image still takes it.
    """
    return dataclasses.field(default=default, metadata={_SPARSE: True})


def legible(text: str) -> str:
    """Write out what UTF-8 has no bytes for: half of a pair, as where a library has cut a text in its middle."""
    return text.encode("utf-8", "backslashreplace").decode()


def quoted(value: object) -> str:
    """Quote a foreign value for an error message: the start of a text, and only the type of a list or an object."""
    if isinstance(value, (dict, list)):
        return type(value).__name__
    text = repr(value[: QUOTED_CHARACTERS + 1] if isinstance(value, str) else value)
    return text if len(text) <= QUOTED_CHARACTERS + 2 else f"{text[:QUOTED_CHARACTERS]}…"


def encode(value: Any) -> Any:  # noqa: ANN401 - any member of the contract's closed set of types
    """Turn a dataclass of the contract into plain JSON values; None fields are left out."""
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
    """Canonical bytes: the same value always gives the same bytes, so a hash identifies it."""
    text = json.dumps(encode(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.encode()


def loads(kind: type[T], data: bytes | str, *, strict: bool = True) -> T:
    """Read one document; raises ContractError with the path of the first violation; if strict, unknown keys are one."""
    try:
        raw = json.loads(data)
    except ValueError as error:
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
    # An int is also a valid float: exact types first, so that 3 stays 3.
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
        raise ContractError(f"{path}: unknown keys {named}{more}; operator and image are of different versions")
    values = {}
    for key, (name, hint, required) in fields.items():
        if key in raw:
            values[name] = _decode(hint, raw[key], f"{path}.{key}", strict)
        elif required:
            raise ContractError(f"{path}.{key}: missing")
    return kind(**values)


@functools.cache
def _fields(kind: type[Any]) -> dict[str, tuple[str, Any, bool]]:
    """By key: name, type, and whether it has to be there; reading annotations takes longer than all of the rest."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        camel(f.name): (f.name, hints[f.name], f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(kind)
    }
