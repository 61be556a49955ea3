"""JSON of the API server, read so that one object of a tenant cannot take the memory of all.

etcd stores objects of up to 1.5 MiB (--max-request-bytes), whatever the CRD of today allows, and parsed they take many
times that: `{}` is 3 bytes of a list and 72 of Python's memory. A list is therefore parsed item by item, and an item
that is larger than usual is reduced to what the operator reads before the next one is parsed. Its size is known before:
it is that of its text.

What is dropped: managedFields, annotations and labels that the operator does not know, and a spec that is larger than
the API allows, in whose place its size is kept, so that the job is refused instead of read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rljob.api.limits import SPEC_BYTES_MAX, SPEC_TOO_LARGE

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

USUAL_BYTES: Final = 32 * 1024
"""Characters of an object's JSON up to which it is kept as it is: a job with all fields in use has half of that."""
METADATA_BYTES_MAX: Final = 16 * 1024
"""Bytes of annotations or labels up to which all of them are kept."""
KEPT_PREFIX: Final = "rljob.dev/"
KEPT_VALUE_MAX: Final = 253
"""Characters of an annotation that is kept of a large object; the operator's own are shorter."""
OWN_KINDS: Final = frozenset({"RLJob", "RLRecipe", "ClusterRLRecipe"})
KEPT_OF_SPEC: Final = ("managedBy", "suspend")
"""Fields that decide whether and how a job runs, also of a spec that is too large."""
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


def decode(text: str, kind: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return an answer of the API server: an object, or a list whose items are reduced one by one.

    `kind` is that of a list's items, which need not state it. Raise ValueError if the text is not JSON.
    """
    try:
        return _decoded(text, kind)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _decoded(text: str, kind: str) -> Any:  # noqa: ANN401 - JSON
    if len(text) <= USUAL_BYTES:
        return json.loads(text)
    start = _skip(text, 0)
    if not text.startswith("{", start):
        return json.loads(text)
    answer, items = _members(text, start + 1, kind)
    if items is None:
        return reduced(answer, len(text))
    return answer | {"items": items}


def reduced(manifest: Manifest, size: int, kind: str = "") -> Manifest:
    """Return an object without what the operator does not read, if its text has more characters than usual."""
    metadata = manifest.get("metadata")
    if size <= USUAL_BYTES or not isinstance(metadata, Mapping):
        return manifest
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    for name in ("annotations", "labels"):
        if isinstance(entries := kept.get(name), Mapping) and _bytes(entries) > METADATA_BYTES_MAX:
            kept[name] = {
                key: value
                for key, value in entries.items()
                if key.startswith(KEPT_PREFIX) and len(str(value)) <= KEPT_VALUE_MAX
            }
    result = {**manifest, "metadata": kept}
    spec = manifest.get("spec")
    if manifest.get("kind", kind) in OWN_KINDS and spec is not None and (length := _bytes(spec)) > SPEC_BYTES_MAX:
        result["spec"] = without_spec(spec, {SPEC_TOO_LARGE: length})
    return result


def reduced_line(line: bytes) -> bytes:
    """Return the line of a watch event, with a reduced object if it is larger than usual."""
    if len(line) <= USUAL_BYTES:
        return line
    event = json.loads(line)
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        return line
    event["object"] = reduced(event["object"], len(line))
    return json.dumps(event).encode()


def without_spec(spec: object, why: Mapping[str, Any]) -> dict[str, Any]:
    """Return what takes the place of a spec: why it is not kept, and the fields that are."""
    small = dict(why)
    if isinstance(spec, Mapping):
        small |= {name: spec[name] for name in KEPT_OF_SPEC if isinstance(spec.get(name), bool) or _is_name(spec, name)}
        stop = spec.get("stop")
        if isinstance(stop, Mapping) and stop.get("requested") is True:
            small["stop"] = {"requested": True}
    return small


def _is_name(spec: Mapping[str, Any], name: str) -> bool:
    return isinstance(value := spec.get(name), str) and len(value) <= KEPT_VALUE_MAX


def _bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))


def _members(text: str, at: int, kind: str) -> tuple[dict[str, Any], list[Manifest] | None]:
    """Return the members of the object that began before `at`, and those of its `items` if it is a list."""
    answer: dict[str, Any] = {}
    items: list[Manifest] | None = None
    at = _skip(text, at)
    while not text.startswith("}", at):
        name, at = _DECODER.raw_decode(text, at)
        at = _expect(text, at, ":")
        if name == "items" and text.startswith("[", at):
            items, at = _items(text, at + 1, kind)
        else:
            answer[name], at = _DECODER.raw_decode(text, at)
        at = _separator(text, at, "}")
    return answer, items


def _items(text: str, at: int, kind: str) -> tuple[list[Manifest], int]:
    found: list[Manifest] = []
    at = _skip(text, at)
    while not text.startswith("]", at):
        item, end = _DECODER.raw_decode(text, at)
        found.append(reduced(item, end - at, kind) if isinstance(item, dict) else item)
        at = _separator(text, end, "]")
    return found, at + 1


def _separator(text: str, at: int, end: str) -> int:
    """Return the place of the next member, or of the end."""
    at = _skip(text, at)
    return at if text.startswith(end, at) else _expect(text, at, ",")


def _expect(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"character {at}: {sign!r} expected")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
