"""The values of overrides by plain keys, however they are spelt: by a dotted key, by a map, or as JSON text for vLLM.

Operator and launcher read overrides through it, so that a rule about a key holds for each of its spellings.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping

VLLM = "actor_rollout_ref.rollout.engine_kwargs.vllm"
"""verl 0.9.1 passes the keys below it to vLLM (workers/rollout/vllm_rollout/vllm_async_server.py:287-349)."""


SETTINGS_MAX = 1000
"""Settings of a job's overrides, those in maps counted one by one: verl has about as many keys."""
INTEGER_MAX = 2**63 - 1
TOO_LARGE = "an integer of more than 64 bits"
"""Replaces such an integer in a setting; the operator refuses it."""
JSON_TEXT_MAX = 16_384
"""Characters of JSON text in an override."""


def plain_keys(overrides: Mapping[str, object]) -> dict[str, object]:
    """Return overrides by their plain keys; of a key that is set twice, the last value."""
    return {key: value for given, whole in overrides.items() for key, value in flat(given, whole)}


def flat(key: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the plain keys that one override sets; a map sets the keys below it, because verl merges maps.

    There is at most one more than a job may have, which the operator refuses.
    """
    yield from itertools.islice(_flat(key, value), SETTINGS_MAX + 1)


def _flat(key: str, value: object) -> Iterator[tuple[str, object]]:
    left = [(key.lstrip("+"), value)]
    while left:
        key, value = left.pop()
        members = _mapping(key, value)
        if members is None:
            yield key, _bounded(value)
        else:
            left += [(f"{key}.{name}", member) for name, member in reversed(list(members.items()))]


def _bounded(value: object) -> object:
    """Return a value without integers that arithmetic and messages could not take."""
    if isinstance(value, list):
        return [_bounded(member) for member in value]
    return TOO_LARGE if isinstance(value, int) and not -INTEGER_MAX <= value <= INTEGER_MAX else value


def _mapping(key: str, value: object) -> Mapping[str, object] | None:
    """Return a non-empty map, also where it is written as JSON text, which vLLM accepts for its arguments."""
    if isinstance(value, Mapping):
        return value or None
    if isinstance(value, str) and key.startswith(f"{VLLM}.") and value.lstrip().startswith("{"):
        return _json_map(value) if len(value) <= JSON_TEXT_MAX else None
    return None


@functools.lru_cache(maxsize=64)
def _json_map(text: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found else None
