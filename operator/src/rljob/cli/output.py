"""What the option -o prints: one document per job, or per answer.

JSON is one value: the document, or a list if there are several, so that the output of one command is always valid JSON.
YAML is a stream of documents. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rljob.api import yaml11

TABLE, TEXT, JSON, YAML, CSV = "table", "text", "json", "yaml", "csv"
DATA = (JSON, YAML)
"""Formats for programs."""


def data_page(documents: Sequence[Any], output: str) -> str:
    """Return documents as JSON or YAML."""
    if output == YAML:
        return yaml11.dump_all(list(documents)).rstrip("\n")
    return json.dumps(documents[0] if len(documents) == 1 else list(documents), indent=2, ensure_ascii=False)
