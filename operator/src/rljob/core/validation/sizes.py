"""The size of a spec: recipes and job together are bounded, as the CRD bounds each of them alone.

The merged spec is kept in memory for every job, and frozen in a ConfigMap together with what is rendered from it, for
which the API server has a limit of 1 MiB (ValidateConfigMap of k8s.io/kubernetes v1.36, pkg/apis/core/validation).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rljob.api.field_path import member
from rljob.api.limits import OVER_BUDGET, SPEC_BYTES_MAX, SPEC_TOO_LARGE
from rljob.core.validation.violation import Violation


def kept_size_violation(spec: Mapping[str, Any], place: str = "spec") -> Iterator[Violation]:
    """Report a spec that was not kept: it was stored before the API had its bound, or there was no memory left."""
    if OVER_BUDGET in spec:
        yield Violation(place, str(spec[OVER_BUDGET]))
    if SPEC_TOO_LARGE in spec:
        yield Violation(
            place, f"is {spec[SPEC_TOO_LARGE]} bytes, at most {SPEC_BYTES_MAX} are allowed; delete and recreate it"
        )


def size_violations(document: Mapping[str, Any], place: str = "spec") -> Iterator[Violation]:
    """Report a spec that is too large as JSON, with its largest field."""
    if (size := json_bytes(document)) > SPEC_BYTES_MAX:
        field, largest = _largest(document, place)
        yield Violation(
            field,
            f"has {largest} of the {size} bytes of {place}, of which at most {SPEC_BYTES_MAX} are allowed with its "
            "recipes; move long texts into files on a volume, into the image, or into a ConfigMap (spec.code)",
        )


def json_bytes(value: object) -> int:
    """Return the size of a value as JSON in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode(errors="surrogatepass"))


def _largest(document: Mapping[str, Any], place: str) -> tuple[str, int]:
    """Return the largest member, and within it the largest one while that is most of it."""
    field, size = place, json_bytes(document)
    node: object = document
    while isinstance(node, Mapping | list) and node:
        entries = (
            [(member(field, str(name)), entry) for name, entry in node.items()]
            if isinstance(node, Mapping)
            else [(f"{field}[{index}]", entry) for index, entry in enumerate(node)]
        )
        inner, found = max(((name, entry) for name, entry in entries), key=lambda each: json_bytes(each[1]))
        if field != place and json_bytes(found) * 2 < size:
            break
        field, size, node = inner, json_bytes(found), found
    return field, size
