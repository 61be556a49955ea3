"""Small questions about manifests that adapters and machinery share."""

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
"""Strings that are remembered to share them: more than one object of every kind has, so what all have stays."""

_GVK = "x-kubernetes-group-version-kind"


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Drop keys with null, as the API server does for fields that are not nullable."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(member) for member in value]
    return value


def without_fields(manifest: Manifest, paths: Iterable[tuple[str, ...]]) -> Manifest:
    """Leave fields out; what is not on their way is shared with the original, which stays as it is."""
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
    """Copy a manifest whose equal strings are one object across manifests: parsing makes every key and value anew.

    Of a thousand jobs' objects that is half of their memory.
    """
    copy: Manifest = _interned(manifest)
    return copy


@functools.lru_cache(maxsize=SHARED_STRINGS)
def _shared(text: str) -> str:
    """Give the first of the equal strings; `sys.intern` keeps each for ever in the first releases of Python 3.12.

    See https://github.com/python/cpython/issues/113993: every resourceVersion, timestamp and message would stay.
    """
    return text


def _interned(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {_shared(key): _interned(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_interned(member) for member in value]
    # An enum's member equals its string, and must stay what it is.
    return _shared(value) if type(value) is str else value


def same_json(left: object, right: object) -> bool:
    """Whether two values are the same JSON: the order of keys does not matter, 1 and 1.0 differ."""
    # Most differ, and that costs no text; values that Python takes for equal may not be the same JSON.
    return left == right and json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def spec_fields(kind: Kind, document: Manifest) -> frozenset[str]:
    """Name the fields of a kind's spec, and those below them, in the OpenAPI v3 document of the kind's version."""
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
    """Give the uid of the object's controller, if it has one of that kind.

    The API server checks no owner: only a reference with our kind is guarded by the chart's policies.
    """
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller") and owner.get("kind") == kind), None)


def annotation(manifest: Manifest, name: str) -> str | None:
    """Give an annotation, or None."""
    return (manifest["metadata"].get("annotations") or {}).get(name)
