"""The size of an object of the API: a rule of its CRD that bounds the spec as JSON, derived from the schema.

`maxLength`, `maxItems` and `maxProperties` bound every part, but their products add up to many MiB, because each bound
must allow the one job that needs it. So the CRD also bounds the sum. CEL cannot write an object as JSON; the rule adds
up the parts whose size varies: bytes of texts and keys, and per entry of a list or map what its fixed parts may take.
What does not vary (names of fields, numbers, short texts) is counted once, by `fixed_bytes`.

Bytes are those of UTF-8. What JSON adds for escapes is not counted: it does not reach the memory of a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.limits import SPEC_BYTES_MAX

Schema = Mapping[str, Any]
BYTES_PER_CHARACTER = 4
"""Of UTF-8, and of Python's widest strings."""
SHORT = 64
"""Texts of at most this many characters are counted as if they were that long, outside of lists."""
KEY_MAX = 317
"""Characters of a label's key: a subdomain, a slash and a name (k8s.io/apimachinery v0.36, pkg/util/validation)."""
_NUMBER, _BOOLEAN = 20, 5
_PUNCTUATION = 4
"""Quotes, colon and comma of a member, or brackets and a comma of an entry."""


@dataclass(frozen=True)
class Size:
    """The size of a value as JSON: at most `fixed` bytes, and what the CEL expression returns if there is one."""

    fixed: int
    varying: str = ""


def size_rule(schema: Schema) -> dict[str, str]:
    """Return the rule that bounds an object of this schema."""
    size = size_of(schema, "self")
    return {
        "rule": f"{size.varying} <= {SPEC_BYTES_MAX - size.fixed}",
        "message": (
            f"the spec is larger than {SPEC_BYTES_MAX // 1024} KiB as JSON; move long texts into files on a volume, "
            "into the image, or into a ConfigMap (code)"
        ),
    }


def size_of(schema: Schema, place: str, depth: int = 0) -> Size:
    """Return the size of the value at a place of a CEL expression."""
    match schema["type"]:
        case "boolean":
            return Size(_BOOLEAN)
        case "integer":
            return Size(_NUMBER)
        case "string":
            return _text(schema, place)
        case "array":
            return _entries(schema["items"], place, f"e{depth}", depth)
        case _ if "additionalProperties" in schema:
            return _map(schema["additionalProperties"], place, f"k{depth}", depth)
        case _:
            return _object(schema, place, depth)


def _text(schema: Schema, place: str) -> Size:
    if "enum" in schema:
        return Size(max(len(str(value)) for value in schema["enum"]) + 2)
    if (longest := schema["maxLength"]) <= SHORT:
        return Size(longest * BYTES_PER_CHARACTER + 2)
    return Size(2, f"size(bytes({place}))")


def _entries(item: Schema, place: str, name: str, depth: int) -> Size:
    size = size_of(item, name, depth + 1)
    each = size.fixed + _PUNCTUATION
    if not size.varying:
        return Size(2, f"size({place}) * {each}")
    return Size(2, f"{place}.map({name}, {each} + {size.varying}).sum()")


def _map(value: Schema, place: str, name: str, depth: int) -> Size:
    size = size_of(value, f"{place}[{name}]", depth + 1)
    each = size.fixed + _PUNCTUATION
    varying = f" + {size.varying}" if size.varying else ""
    return Size(2, f"{place}.map({name}, {each} + size(bytes({name})){varying}).sum()")


def _object(schema: Schema, place: str, depth: int) -> Size:
    fixed, parts = 2, []
    for name, member in schema["properties"].items():
        path = f"{place}.{_escaped(name)}"
        size = size_of(member, path, depth)
        fixed += len(name) + _PUNCTUATION + size.fixed
        if size.varying:
            # A required member of an entry is always there; `has` does no harm.
            parts.append(f"(has({path}) ? {size.varying} : 0)")
    if len(parts) > 1:
        return Size(fixed, f"[{', '.join(parts)}].sum()")
    return Size(fixed, parts[0] if parts else "")


RESERVED = frozenset({"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function"}) | {
    *("if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
}
"""Words of CEL, which a field is called by between underscores (k8s.io/apiserver v0.36, pkg/cel/escaping.go)."""


def _escaped(name: str) -> str:
    return f"__{name}__" if name in RESERVED else name
