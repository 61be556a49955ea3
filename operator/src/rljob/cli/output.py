"""What the option -o prints, the same for every command that shows data.

`table` is for people, `wide` has more columns where there are any, `name` is one name per line as `kubectl` takes it,
`json` is one value: the document, or a list if there are several; `yaml` is a stream of documents. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rljob.api.group import GROUP

TABLE, WIDE, NAME, JSON, YAML, CSV = "table", "wide", "name", "json", "yaml", "csv"
DATA = (NAME, JSON, YAML)
"""Formats for programs."""
FORMS = (TABLE, WIDE, *DATA)


def data_page(documents: Sequence[Any], output: str, names: Sequence[str] | None = None) -> str:
    """Return documents as JSON or YAML, or their names; `names` are those of documents without jobs or kinds."""
    if output == NAME:
        return "\n".join(_names(list(documents)) if names is None else names)
    if output == YAML:
        # YAML is loaded by the commands that read or print it.
        from rljob.api import yaml11  # noqa: PLC0415 - see above

        return yaml11.dump_all(list(documents)).rstrip("\n")
    return json.dumps(documents[0] if len(documents) == 1 else list(documents), indent=2, ensure_ascii=False)


def _names(found: object) -> list[str]:
    """Return the names of the jobs or objects of a document, or of the lists in it."""
    if isinstance(found, list):
        return [name for each in found for name in _names(each)]
    if not isinstance(found, Mapping):
        return []
    if "job" in found:
        return [f"rljob.{GROUP}/{found['job']}"] if found["job"] else []
    if "kind" in found and "metadata" in found:
        group, slash, _ = str(found.get("apiVersion", "")).partition("/")
        kind = str(found["kind"]).lower()
        return [f"{kind}.{group}/{found['metadata']['name']}" if slash else f"{kind}/{found['metadata']['name']}"]
    return [name for each in found.values() if isinstance(each, list) for name in _names(each)]
