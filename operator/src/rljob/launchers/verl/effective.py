"""The configuration that verl runs with, as far as the spec decides it: one view of fields, overrides and defaults.

A restriction must not depend on how a value is spelt: by a field of the spec, by an override, by an override of a whole
map, or by an argument of vLLM below `engine_kwargs`. Checks therefore ask `Effective` for a key, and get the value
together with the field that a message names.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.job import TABLE
from rljob.launchers.verl.rows import ROLLOUT
from rljob.launchers.verl.sizes import uses_megatron
from rljob_runtime.planning import verl
from rljob_runtime.planning.verl import SECTION, UNKNOWN, Section, Unknown

VLLM = f"{ROLLOUT}.engine_kwargs.vllm"
"""verl 0.9.1 passes the keys below it to vLLM (workers/rollout/vllm_rollout/vllm_async_server.py:287-349)."""
VLLM_ARGUMENTS = {
    "dtype": "dtype",
    "load_format": "load_format",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_sleep_mode": "enable_sleep_mode",
    "logprobs_mode": "logprobs_mode",
    "enforce_eager": "enforce_eager",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "tensor_parallel_size": "tensor_model_parallel_size",
    "scheduling_policy": "scheduling_policy",
}
"""vLLM's argument -> verl's key of the rollout, which applies unless engine_kwargs has the argument
(vllm_async_server.py:325-350, verl 0.9.1)."""
CAPTURE_SIZES = "compilation_config.cudagraph_capture_sizes"
CAPTURE_SIZES_KEY = f"{ROLLOUT}.cudagraph_capture_sizes"
"""The rollout's own list takes precedence where it is not empty (vllm_async_server.py:321, verl 0.9.1)."""
GRAPH_MODE = "compilation_config.cudagraph_mode"
GRAPH_MODE_DEFAULT = "FULL_AND_PIECEWISE"
"""vllm_async_server.py:310, verl 0.9.1."""


@dataclass(frozen=True)
class Setting:
    """One value that the spec sets."""

    key: str
    """Plain key of verl."""
    value: object
    field: str
    """Path of the manifest's field, for messages."""
    by_override: bool


@dataclass(frozen=True)
class Effective:
    """The effective configuration of a spec."""

    settings: Mapping[str, Setting]
    """What fields and overrides set, by plain key of verl."""
    megatron: bool

    def setting(self, key: str) -> Setting | None:
        """Return what sets a key; None where verl's default applies."""
        return self.settings.get(key)

    def value(self, key: str) -> object:
        """Return the value of a key: what is set, or verl's default, UNKNOWN if only a running verl has it."""
        return verl.resolved(key, self._raw)

    def field(self, key: str) -> str:
        """Return the field that sets a key, or the override by which it could be set."""
        found = self.settings.get(key)
        return found.field if found else f"spec.verl.overrides[{key}]"

    def below(self, section: str) -> Iterator[Setting]:
        """Yield what is set below a section."""
        yield from (setting for key, setting in self.settings.items() if key.startswith(f"{section}."))

    def engine(self, argument: str) -> Setting | None:
        """Return what sets an argument of vLLM: below engine_kwargs, or by the rollout's key that verl passes on.

        An argument in a map is written with a dot, such as `compilation_config.cudagraph_mode`.
        """
        if argument == CAPTURE_SIZES:
            found = self.setting(CAPTURE_SIZES_KEY)
            return found if found and found.value else self.setting(f"{VLLM}.{argument}")
        found = self.setting(f"{VLLM}.{argument}")
        if found is not None and found.value is not None:
            return found
        key = VLLM_ARGUMENTS.get(argument)
        return self.setting(f"{ROLLOUT}.{key}") if key else None

    def engine_value(self, argument: str) -> object:
        """Return the value of an argument of vLLM, verl's default included; UNKNOWN where vLLM decides."""
        found = self.engine(argument)
        if found is not None:
            return found.value
        if argument == GRAPH_MODE:
            return GRAPH_MODE_DEFAULT
        key = VLLM_ARGUMENTS.get(argument)
        return self.value(f"{ROLLOUT}.{key}") if key else UNKNOWN

    def _raw(self, key: str) -> object | Section | Unknown:
        found = self.settings.get(key)
        if found is not None:
            return found.value
        return verl.keys(megatron=self.megatron).get(key, UNKNOWN)


def effective(spec: RLJobSpec) -> Effective:
    """Return the effective configuration of a spec."""
    return Effective({setting.key: setting for setting in _settings(spec)}, uses_megatron(spec))


def _settings(spec: RLJobSpec) -> Iterator[Setting]:
    """Yield fields first, so that an override replaces what a field sets, as in job.json."""
    for row in TABLE:
        if row.when.holds(spec) and (value := row.value(spec)) is not None:
            yield Setting(row.key.lstrip("+"), value, f"spec.{row.field}", by_override=False)
    yield from given(spec)


def given(spec: RLJobSpec) -> Iterator[Setting]:
    """Yield every value of verl.overrides by its plain key; a map sets the keys below it, because verl merges maps."""
    for key, value in spec.verl.overrides.items():
        yield from flat(key.lstrip("+"), value, f"spec.verl.overrides[{key}]")


def flat(key: str, value: object, field: str) -> Iterator[Setting]:
    """Yield the settings of one override."""
    left = [(key, value)]
    while left:
        key, value = left.pop()
        members = _mapping(key, value)
        if members is None:
            yield Setting(key, value, field, by_override=True)
        else:
            left += [(f"{key}.{name}", member) for name, member in reversed(list(members.items()))]


def _mapping(key: str, value: object) -> Mapping[str, object] | None:
    """Return a non-empty map, also where it is written as JSON text, which vLLM accepts for its arguments."""
    if isinstance(value, dict):
        return value or None
    if isinstance(value, str) and key.startswith(f"{VLLM}.") and value.startswith("{"):
        return _json_map(value)
    return None


@functools.lru_cache(maxsize=64)
def _json_map(text: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found else None


__all__ = ["SECTION", "UNKNOWN", "Effective", "Setting", "effective", "flat", "given"]
