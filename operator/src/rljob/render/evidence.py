"""The ConfigMap of a job that outlives its clusters: a record of each ended attempt, one key per attempt.

The RLJob owns it. It contains the last ten attempts in at most 64 KiB and drops the oldest first. It is the only object
of the operator that is written more than once; writers state the version that they have read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from rljob.render import labels, names
from rljob.render.metadata import child_metadata
from rljob.render.names import JobIdentity
from rljob_runtime.contract import ForeignJSONError, parse_foreign_json

ATTEMPTS_KEPT = 10
BYTES_MAX = 64 * 1024
"""Maximum size of all entries together. The API server accepts 1 MiB, but the records should stay readable."""
_PREFIX, _SUFFIX = "attempt-", ".json"

Entry = dict[str, Any]


def key_of(attempt: int) -> str:
    """Return the key of an attempt."""
    return f"{_PREFIX}{attempt}{_SUFFIX}"


def has_entry(found: Mapping[str, Any], key: str) -> bool:
    """Return whether an attempt is recorded."""
    return key in (found.get("data") or {})


def entries(found: Mapping[str, Any]) -> Iterator[object]:
    """Return the records in the attempts' order; entries that are not JSON are ignored."""
    data = found.get("data") or {}
    for key in sorted((key for key in data if _number(key)), key=_number):
        with suppress(ForeignJSONError):
            yield parse_foreign_json(data[key])


def build_evidence(
    job: JobIdentity, found: Mapping[str, Any] | None, attempt: int, entry: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ConfigMap with one more entry, to be created or to replace the one that was found."""
    new: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    if found is None:
        new["metadata"] = child_metadata(job, names.evidence_name(job), labels.ATTEMPTS)
        before: Mapping[str, str] = {}
    else:
        new["metadata"] = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
        before = found.get("data") or {}
    new["data"] = _bounded({**before, key_of(attempt): _fitting(dict(entry))})
    return new


def _bounded(data: dict[str, str]) -> dict[str, str]:
    """Keep the newest attempts that fit; keys that are not attempts were added by somebody else and are removed."""
    kept: dict[str, str] = {}
    room = BYTES_MAX
    for key in sorted((key for key in data if _number(key)), key=_number, reverse=True)[:ATTEMPTS_KEPT]:
        room -= _size(data[key])
        if room < 0:
            break
        kept[key] = data[key]
    return dict(sorted(kept.items(), key=lambda entry: _number(entry[0])))


def _number(key: str) -> int:
    """Return the attempt number of a key; 0 for any other key."""
    digits = key.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(digits) if key == f"{_PREFIX}{digits}{_SUFFIX}" and digits.isdecimal() else 0


def _fitting(entry: Entry) -> str:
    """Serialize an entry; from a very long one, pods and then warnings are removed, the last ones first."""
    for part in ("pods", "warnings"):
        while _size(_text(entry)) > BYTES_MAX and entry.get(part):
            entry[part] = entry[part][:-1]
    return _text(entry)


def _text(entry: Entry) -> str:
    # Indented, because `kubectl describe configmap` shows it as it is.
    return json.dumps(entry, indent=1, ensure_ascii=False)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
