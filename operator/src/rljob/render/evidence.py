"""The ConfigMap of a job that outlives its clusters: what each ended attempt left, one key an attempt.

It is owned by the RLJob, holds the last ten attempts in at most 64 KiB, and loses the oldest first. The only object of
ours that is written more than once; who writes it names the version that was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from rljob.render import labels, names
from rljob.render.metadata import child_metadata
from rljob.render.names import JobIdentity

ATTEMPTS_KEPT = 10
BYTES_MAX = 64 * 1024
"""Of all entries together; the API server takes 1 MiB, but nobody reads that."""
_PREFIX, _SUFFIX = "attempt-", ".json"

Entry = dict[str, Any]


def key_of(attempt: int) -> str:
    """The key of an attempt."""
    return f"{_PREFIX}{attempt}{_SUFFIX}"


def has_entry(found: Mapping[str, Any], key: str) -> bool:
    """Whether an attempt is written down."""
    return key in (found.get("data") or {})


def entries(found: Mapping[str, Any]) -> Iterator[object]:
    """Read what is written down, in the attempts' order; what is no JSON is passed over."""
    data = found.get("data") or {}
    for key in sorted((key for key in data if _number(key)), key=_number):
        with suppress(json.JSONDecodeError):
            yield json.loads(data[key])


def build_evidence(
    job: JobIdentity, found: Mapping[str, Any] | None, attempt: int, entry: Mapping[str, Any]
) -> dict[str, Any]:
    """Give the ConfigMap with one more entry: to be created, or to replace the one that was found."""
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
    """Keep the newest attempts that fit; what is no attempt's was put there by somebody else, and goes."""
    kept: dict[str, str] = {}
    room = BYTES_MAX
    for key in sorted((key for key in data if _number(key)), key=_number, reverse=True)[:ATTEMPTS_KEPT]:
        room -= _size(data[key])
        if room < 0:
            break
        kept[key] = data[key]
    return dict(sorted(kept.items(), key=lambda entry: _number(entry[0])))


def _number(key: str) -> int:
    """Read the attempt of a key; 0 for any other key."""
    digits = key.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(digits) if key == f"{_PREFIX}{digits}{_SUFFIX}" and digits.isdecimal() else 0


def _fitting(entry: Entry) -> str:
    """Write an entry; pods, and then warnings, of a very long one go from the end."""
    for part in ("pods", "warnings"):
        while _size(_text(entry)) > BYTES_MAX and entry.get(part):
            entry[part] = entry[part][:-1]
    return _text(entry)


def _text(entry: Entry) -> str:
    # For people: `kubectl describe configmap` shows it as it stands.
    return json.dumps(entry, indent=1, ensure_ascii=False)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
