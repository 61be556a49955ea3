"""Small questions about manifests that adapters and machinery share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rljob.core.observed import Manifest


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Drop keys with null, as the API server does for fields that are not nullable."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(member) for member in value]
    return value


def same_json(left: object, right: object) -> bool:
    """Whether two values are the same JSON: the order of keys does not matter, 1 and 1.0 differ."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def controller_uid(manifest: Manifest) -> str | None:
    """Give the uid of the object's controller, if it has one."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def annotation(manifest: Manifest, name: str) -> str | None:
    """Give an annotation, or None."""
    return (manifest["metadata"].get("annotations") or {}).get(name)
