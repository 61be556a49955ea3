"""The objects beside an RLJob in its files: ConfigMaps, Secrets and claims. Pure.

In a cluster these objects exist already. A local run reads them from the file, and missing ones are reported by name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.cli.errors import UsageError


@dataclass(frozen=True)
class Surroundings:
    """The objects that a local run can use."""

    config_maps: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Name -> file name -> content."""
    secrets: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()


def read_surroundings(documents: Iterable[Mapping[str, Any]]) -> Surroundings:
    """Sort the documents by kind; kinds that a local run does not use are ignored."""
    config_maps, secrets, claims = {}, {}, set()
    for document in documents:
        kind, name = document.get("kind"), str((document.get("metadata") or {}).get("name", ""))
        if kind == "ConfigMap":
            config_maps[name] = _content(f"ConfigMap {name}", document, plain="data", encoded="binaryData")
        elif kind == "Secret":
            secrets[name] = _content(f"Secret {name}", document, plain="stringData", encoded="data")
        elif kind == "PersistentVolumeClaim":
            claims.add(name)
    return Surroundings(config_maps, secrets, frozenset(claims))


def _content(what: str, document: Mapping[str, Any], *, plain: str, encoded: str) -> dict[str, bytes]:
    try:
        decoded = {key: base64.b64decode(text, validate=True) for key, text in (document.get(encoded) or {}).items()}
    except (binascii.Error, TypeError, ValueError) as error:
        raise UsageError(f"{what}: {encoded} is not base64: {error}") from error
    return decoded | {key: str(text).encode() for key, text in (document.get(plain) or {}).items()}
