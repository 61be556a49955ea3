"""Functions on manifests that several layers share."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rljob.cluster.kinds import Kind
    from rljob.core.observed import Manifest


SHARED_STRINGS = 16384
"""Maximum number of strings that are shared. Every kind has several objects, so the common strings fit."""
LONG_CHARACTERS = 256
SHARED_LONG_STRINGS = 256
"""The same for longer strings, of up to 16,384 characters, which stay in memory when their job is gone."""

_GVK = "x-kubernetes-group-version-kind"


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Drop keys with null values, as the API server does for fields that are not nullable."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(member) for member in value]
    return value


def without_fields(manifest: Manifest, paths: Iterable[tuple[str, ...]]) -> Manifest:
    """Return a copy without these fields; other parts are shared with the original, which is not changed."""
    kept: Any = manifest
    for path in paths:
        kept = _without(kept, path)
    result: Manifest = kept
    return result


def _without(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    name, rest = path[0], path[1:]
    if name == "*" and isinstance(value, list):
        return [_without(member, rest) for member in value]
    if not isinstance(value, Mapping) or name not in value:
        return value
    if rest:
        return {**value, name: _without(value[name], rest)}
    return {key: member for key, member in value.items() if key != name}


def interned(manifest: Manifest) -> Manifest:
    """Copy a manifest so that equal strings are one object across manifests; parsing creates every string again.

    This halves the memory of a thousand jobs' objects.
    """
    copy: Manifest = _interned(manifest)
    return copy


@functools.lru_cache(maxsize=SHARED_STRINGS)
def _shared(text: str) -> str:
    """Return the first of the equal strings. `sys.intern` keeps each string forever in early releases of Python 3.12.

    See https://github.com/python/cpython/issues/113993: every resourceVersion, timestamp and message would be kept.
    """
    return text


@functools.lru_cache(maxsize=SHARED_LONG_STRINGS)
def _shared_long(text: str) -> str:
    return text


def _interned(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {_shared(key): _interned(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_interned(member) for member in value]
    # An enum's member equals its string, but must keep its type.
    if type(value) is not str:
        return value
    return _shared(value) if len(value) <= LONG_CHARACTERS else _shared_long(value)


def same_json(left: object, right: object) -> bool:
    """Return whether two values are the same JSON: the order of keys is ignored, and 1 and 1.0 differ."""
    # Most values differ, which needs no serialization. Values that are equal in Python may differ as JSON.
    return left == right and json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def spec_fields(kind: Kind, document: Manifest) -> frozenset[str]:
    """Return the fields of a kind's spec, and those below them, from the OpenAPI v3 document of the kind's version."""
    schemas: dict[str, Manifest] = (document.get("components") or {}).get("schemas") or {}
    mine = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    schema = next((found for found in schemas.values() if mine in (found.get(_GVK) or ())), None)
    spec = _properties(_properties(schema).get("spec"))
    below = (f"{name}.{inner}" for name, member in spec.items() for inner in _properties(member))
    return frozenset([*spec, *below])


def _properties(schema: Manifest | None) -> Manifest:
    found: Manifest = (schema or {}).get("properties") or {}
    return found


def controller_uid(manifest: Manifest, kind: str = "RLJob") -> str | None:
    """Return the UID of the object's controller, if it is of that kind.

    The API server does not check owners; the chart's policies only protect references to kinds of this project.
    """
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller") and owner.get("kind") == kind), None)


def annotation(manifest: Manifest, name: str) -> str | None:
    """Return an annotation, or None."""
    return (manifest["metadata"].get("annotations") or {}).get(name)
