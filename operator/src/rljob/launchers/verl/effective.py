"""The configuration that verl runs with, as far as the spec decides it: fields, overrides, baseline and defaults.

A restriction must not depend on how a value is spelt: by a field of the spec, by an override, by an override of a whole
map, or by an argument of vLLM below `engine_kwargs`. Checks therefore ask `Effective` for a key, and get the value
together with the field that a message names.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.baseline import CAPTURE_SIZES, GRAPH_MODE, ROWS, BaselineRow
from rljob.launchers.verl.rows import ROLLOUT
from rljob.launchers.verl.sizes import uses_megatron
from rljob.launchers.verl.table import TABLE
from rljob_runtime.contract import OverrideValue
from rljob_runtime.planning import flattening, verl
from rljob_runtime.planning.flattening import SETTINGS_MAX, VLLM
from rljob_runtime.planning.verl import SECTION, UNKNOWN, Section, Unknown

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
CAPTURE_SIZES_KEY = f"{ROLLOUT}.cudagraph_capture_sizes"
"""The rollout's own list takes precedence where it is not empty (vllm_async_server.py:321, verl 0.9.1)."""
CAPTURE_SIZES_ARGUMENT = f"{VLLM}.cudagraph_capture_sizes"
"""vLLM's own argument for the same; it refuses both (vllm/engine/arg_utils.py:2195-2201, 0.23.0)."""
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
    """What fields, overrides and the class's baseline set, by plain key of verl."""
    megatron: bool
    baseline: tuple[tuple[BaselineRow, OverrideValue], ...] = ()
    """Rows of the baseline that apply, with their values."""

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
            if found is None or not found.value:
                found = self.setting(f"{VLLM}.{argument}") or self.setting(CAPTURE_SIZES_ARGUMENT)
            return found
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
    """Return the effective configuration of a spec. The last few are kept, because every check asks for it."""
    for of, kept in _kept:
        if of() is spec:
            return kept
    made = _with_baseline(spec, Effective({setting.key: setting for setting in _settings(spec)}, uses_megatron(spec)))
    _kept.append((weakref.ref(spec), made))
    return made


def _with_baseline(spec: RLJobSpec, stated: Effective) -> Effective:
    """Add the rows of the class that the spec leaves open; a row sees those before it."""
    for row in ROWS:
        if row.is_free(stated, spec.verl.overrides) and (value := row.value(spec, stated)) is not None:
            added = Setting(row.plain, value, "spec.accelerator.class", by_override=False)
            settings, rows = {**stated.settings, row.plain: added}, (*stated.baseline, (row, value))
            stated = replace(stated, settings=settings, baseline=rows)
    return stated


def baseline_of(spec: RLJobSpec) -> tuple[tuple[BaselineRow, OverrideValue], ...]:
    """Return the rows of the class's baseline that apply to a spec, with their values."""
    return effective(spec).baseline


_kept: deque[tuple[weakref.ref[RLJobSpec], Effective]] = deque(maxlen=3)
"""Specs, which are immutable, and what was computed from them: one round reads the spec that a job runs with, the one
that its next cluster generation takes, and that of its evaluations."""


def _settings(spec: RLJobSpec) -> Iterator[Setting]:
    """Yield fields first, so that an override replaces what a field sets, as in job.json."""
    for row in TABLE:
        if row.when.holds(spec) and (value := row.value(spec)) is not None:
            yield Setting(row.key.lstrip("+"), value, f"spec.{row.field}", by_override=False)
    yield from given(spec)


def given(spec: RLJobSpec) -> Iterator[Setting]:
    """Yield every value of verl.overrides by its plain key; a map sets the keys below it, because verl merges maps."""
    settings = (
        setting
        for key, value in spec.verl.overrides.items()
        for setting in flat(key, value, f"spec.verl.overrides[{key}]")
    )
    yield from itertools.islice(settings, SETTINGS_MAX)


def flat(key: str, value: object, field: str) -> Iterator[Setting]:
    """Yield the settings of one override."""
    yield from (Setting(plain, single, field, by_override=True) for plain, single in flattening.flat(key, value))


__all__ = [
    "CAPTURE_SIZES",
    "GRAPH_MODE",
    "SECTION",
    "UNKNOWN",
    "VLLM",
    "Effective",
    "Setting",
    "baseline_of",
    "effective",
    "flat",
    "given",
]
