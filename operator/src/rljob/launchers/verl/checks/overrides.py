"""verl.overrides: keys that a typed field or the launcher sets, keys that verl 0.9.1 ignores, and harmful settings.

Keys that verl renamed or silently ignores are refused with the replacement, since a run would continue without them.
Sources: verl/trainer/config and main_ppo.py of verl 0.9.1; vllm issue 55228; vllm-ascend worker.py (wake_up).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import SECTION, flat, given
from rljob.launchers.verl.rows import ACTOR, REF, ROLLOUT, TRANSFORMER
from rljob.launchers.verl.sizes import uses_megatron
from rljob.launchers.verl.table import TYPED_KEYS, typed_keys
from rljob.launchers.verl.values import OFF
from rljob_runtime.planning import verl
from rljob_runtime.planning.flattening import SETTINGS_MAX, TOO_LARGE


@dataclass(frozen=True)
class Legacy:
    """A key of earlier versions of verl, or a section of keys."""

    key: str
    why: str
    rewrite: str


_GONE, _SILENT = "verl 0.9.1 has no such key", "verl 0.9.1 accepts it and ignores it"
_SCHEDULE = f"+{TRANSFORMER}"
LEGACY = (
    Legacy("custom_reward_function", _SILENT, "use spec.reward"),
    Legacy("reward_model.reward_manager", _SILENT, "use reward.reward_manager.name"),
    Legacy("reward_model.reward_kwargs", _SILENT, "use reward.reward_kwargs"),
    Legacy("reward_model", _SILENT, "use reward.reward_model"),
    Legacy(f"{ACTOR}.load_weight", _GONE, "use actor_rollout_ref.rollout.load_format: dummy for random weights"),
    Legacy(f"{REF}.load_weight", _GONE, "remove it"),
    Legacy(f"{ACTOR}.recompute_old_log_prob", _GONE, "use spec.optimizations.skipOldLogProb"),
    Legacy(f"{ACTOR}.megatron.swap_optimizer", _GONE, f"use {_SCHEDULE}.swap_optimizer"),
    Legacy(f"{ACTOR}.megatron.fix_router", _GONE, f"use {_SCHEDULE}.fix_router"),
    Legacy(
        f"{ACTOR}.megatron.pipeline_parallel_num_layer_list",
        _GONE,
        f"use {_SCHEDULE}.pipeline_model_parallel_layout",
    ),
    Legacy(
        "actor_rollout_ref.model.gradient_checkpointing_kwargs",
        _GONE,
        f"use {_SCHEDULE}.recompute_granularity, recompute_method and recompute_num_layers",
    ),
    Legacy(f"{ROLLOUT}.trust_remote_code", _GONE, "use spec.model.trustRemoteCode"),
    *(
        Legacy(f"algorithm.{name}", "verl 0.9.1 moved it", f"use algorithm.rollout_correction.{new}")
        for name, new in (
            ("rollout_is", "rollout_is, such as token"),
            ("rollout_is_threshold", "rollout_is_threshold"),
            ("rollout_is_threshold_lower", "rollout_rs_threshold"),
            ("rollout_is_level", "rollout_is, such as token"),
            ("rollout_is_mode", "rollout_is and rollout_rs"),
            ("rollout_is_veto_threshold", "rollout_rs"),
        )
    ),
    Legacy(
        "algorithm.filter_groups.max_num_gen_batches",
        "verl 0.9.1 ignores it with a warning",
        "use spec.algorithm.groupFilter.maxInflightBatches",
    ),
    Legacy("data.gen_batch_size", "verl 0.9.1 overrides it", "remove it; trainer.globalBatchSize decides"),
)
"""https://github.com/volcengine/verl: checked by composing the configuration of 0.9.1."""

LAUNCHERS_OWN = {
    "trainer.use_v1": "stopping and metrics depend on verl's V1 trainer",
    "trainer.v1.trainer_mode": "it selects the trainer that can stop on request, by spec.trainer.mode",
    f"{ROLLOUT}.router_config_path": "it selects the router that measures the replicas",
    f"{ROLLOUT}.prometheus.enable": "the exporter finds vLLM's metrics through it",
    f"{ROLLOUT}.prometheus.file": "the exporter reads it",
    f"{ROLLOUT}.disable_log_stats": "with true, verl refuses to start because of prometheus.enable",
    "transfer_queue.backend.SimpleStorage.required_node_resource": "the head has no CPUs for storage units",
    "ray_kwargs.ray_init.address": "the job runs in the cluster of its own pods",
}
"""Keys that the launcher sets in every run (`rljob_runtime.launcher_overrides`)."""

SUGGESTIONS_MAX = 8
"""Unknown keys for which the nearest is searched; the search compares with every key of verl."""
SHOWN = 40
"""Characters of a value that a message shows."""
NZ_NAMES = frozenset({"enable_nz", "enable_weight_nz_layout", "weight_nz_mode"})
NZ_VARIABLES = frozenset({"VLLM_ASCEND_ENABLE_NZ"})
EPLB_NAMES = frozenset({"dynamic_eplb", "enable_eplb", "expert_map_record_path"})
"""The last one switches dynamic EPLB on (vllm-ascend 0.23.0, vllm_ascend/ascend_config.py:873)."""
EPLB_VARIABLES = frozenset({"DYNAMIC_EPLB", "EXPERT_MAP_RECORD", "VLLM_ENABLE_EPLB"})


def _settings_are_few(spec: RLJobSpec) -> Iterator[Violation]:
    """Every check looks at every setting, so their number is bounded; their text has a bound of its own."""
    total = 0
    for key, value in spec.verl.overrides.items():
        field = f"spec.verl.overrides[{key}]"
        settings = list(flat(key.lstrip("+"), value, field))
        total += len(settings)
        if any(TOO_LARGE in (found.value if isinstance(found.value, list) else [found.value]) for found in settings):
            yield Violation(field, f"holds {TOO_LARGE}; correct it")
        if total > SETTINGS_MAX:
            yield Violation(field, f"more than {SETTINGS_MAX} settings with those of maps; remove some")
            return


def _keys_are_set_once(spec: RLJobSpec) -> Iterator[Violation]:
    """Spellings of one key replace each other, and the last one wins."""
    first: dict[str, str] = {}
    for setting in given(spec):
        other = first.setdefault(setting.key, setting.field)
        if other != setting.field:
            yield Violation(setting.field, f"{setting.key} is also set by {other}; remove one of them")


def _values_are_plain(spec: RLJobSpec) -> Iterator[Violation]:
    """job.json and Hydra accept scalars, lists of scalars and one level of maps."""
    for key, value in spec.verl.overrides.items():
        if not _is_override_value(value):
            yield Violation(
                f"spec.verl.overrides[{key}]",
                f"{type(value).__name__} is not a JSON scalar, nor a list or map of them (numbers must be finite)",
            )


def _keys_are_keys(spec: RLJobSpec) -> Iterator[Violation]:
    """Names joined by dots: no deletion or group of Hydra's grammar, and no brackets, a second spelling of a key."""
    for key in spec.verl.overrides:
        if verl.KEY.fullmatch(key.lstrip("+")) is None:
            yield Violation(
                f"spec.verl.overrides[{key}]",
                "is not a key; use names joined by dots, such as actor_rollout_ref.actor.entropy_coeff",
            )


def _keys_exist(spec: RLJobSpec) -> Iterator[Violation]:
    """A misspelt key would be refused by the launcher when NPUs are held, or ignored by verl if it has a `+`."""
    megatron = uses_megatron(spec)
    left = SUGGESTIONS_MAX
    for key, value in spec.verl.overrides.items():
        plus = "+" if key.startswith("+") else ""
        if verl.KEY.fullmatch(key.lstrip("+")) is None or not _is_override_value(value):
            continue
        for setting in flat(key.lstrip("+"), value, f"spec.verl.overrides[{key}]"):
            if setting.key in TYPED_KEYS or setting.key in LAUNCHERS_OWN or _legacy(setting.key):
                continue
            if (problem := verl.problem_of(plus + setting.key, megatron=megatron, suggest=left > 0)) is not None:
                left -= 1
                yield Violation(
                    setting.field, problem if setting.key == key.lstrip("+") else f"{setting.key}: {problem}"
                )


def _sections_are_of_verl(spec: RLJobSpec) -> Iterator[Violation]:
    """A trainer that an image brings has sections of its own (docs/design/0016-trainers.md); verl ignores them."""
    for key in spec.verl.overrides:
        if verl.KEY.fullmatch(key.lstrip("+")) is not None and verl.is_foreign(key, megatron=uses_megatron(spec)):
            section = key.lstrip("+").split(".")[0]
            yield Violation(
                f"spec.verl.overrides[{key}]",
                f"verl has no section {section[:SHOWN]}; only another trainer of the image can read it",
            )


def _values_have_the_kind(spec: RLJobSpec) -> Iterator[Violation]:
    """Verl does not convert: the text "false" is true, and a number in quotes fails in the middle of the start."""
    known, typed = verl.keys(megatron=uses_megatron(spec)), typed_keys(spec)
    for setting in given(spec):
        default = known.get(setting.key)
        if default is SECTION and setting.value != {} and not _has_any(typed, setting.key):
            yield Violation(setting.field, f"{setting.key} is a section; name a key below it")
        elif isinstance(setting.value, str) and not setting.value.startswith("${"):
            if isinstance(default, bool):
                yield Violation(setting.field, f"{setting.value[:SHOWN]!r} is text; write true or false without quotes")
            elif isinstance(default, (int, float)):
                yield Violation(setting.field, f"{setting.value[:SHOWN]!r} is text; write a number without quotes")


def _typed_fields_are_set_once(spec: RLJobSpec) -> Iterator[Violation]:
    """The operator reasons about what a field of the spec sets, so nothing else may set it."""
    typed = typed_keys(spec)
    for setting in given(spec):
        field, name = setting.field, setting.key
        if (own := typed.get(name)) is not None:
            yield Violation(field, f"is set by spec.{own}; set it there")
        elif _has_any(typed, name):
            yield Violation(field, f"{name} is a section, and fields set some of its keys; name the single key")


def _has_any(typed: Iterable[str], section: str) -> bool:
    """Report whether a field sets a key of a section."""
    return any(known.startswith(f"{section}.") for known in typed)


def _launchers_keys_are_its_own(spec: RLJobSpec) -> Iterator[Violation]:
    """Without these keys a run could not report progress, stop on request or find its cluster."""
    for setting in given(spec):
        field, name = setting.field, setting.key
        if name not in TYPED_KEYS and (why := LAUNCHERS_OWN.get(name)) is not None:
            yield Violation(field, f"is set by the launcher: {why}; remove it")


def _keys_are_of_today(spec: RLJobSpec) -> Iterator[Violation]:
    """Recipes for earlier versions of verl contain keys that nothing reads any more."""
    for setting in given(spec):
        if setting.key not in TYPED_KEYS and (row := _legacy(setting.key)) is not None:
            yield Violation(setting.field, f"{row.why}; {row.rewrite}")


def _legacy(name: str) -> Legacy | None:
    return next((row for row in LEGACY if name == row.key or name.startswith(f"{row.key}.")), None)


def _rollout_is_asynchronous(spec: RLJobSpec) -> Iterator[Violation]:
    """The schema accepts `sync`, and the engine raises."""
    for setting in given(spec):
        field, name, value = setting.field, setting.key, setting.value
        if name == f"{ROLLOUT}.mode" and value != "async":
            yield Violation(field, f"{value!s:.32}: verl 0.9.1 supports asynchronous rollout only; remove it")


def _experts_stay_in_place(spec: RLJobSpec) -> Iterator[Violation]:
    """After a rebalance the next weight update silently loads experts into the wrong places (vllm#55228)."""
    reason = "EPLB moves experts, and the next weight update would load the wrong ones; turn it off"
    for setting in given(spec):
        field, name, value = setting.field, setting.key, setting.value
        if "eplb" in name.lower() and name.split(".")[-1] in EPLB_NAMES and value not in OFF:
            yield Violation(field, reason)
    yield from _variables(spec, EPLB_VARIABLES, reason)


def _weights_keep_their_layout(spec: RLJobSpec) -> Iterator[Violation]:
    """With weights in NZ layout vllm-ascend refuses to wake up, or generates garbage (vllm-ascend#5747)."""
    reason = "weights in NZ layout do not survive a weight update; set it to 0"
    for setting in given(spec):
        field, name, value = setting.field, setting.key, setting.value
        if name.split(".")[-1].lower() in NZ_NAMES and value not in OFF:
            yield Violation(field, reason)
    yield from _variables(spec, NZ_VARIABLES, reason)


def _variables(spec: RLJobSpec, names: frozenset[str], reason: str) -> Iterator[Violation]:
    for path, group in fields.groups(spec):
        for index, variable in enumerate(group.template.env):
            if variable.name in names and variable.value not in OFF:
                yield Violation(f"{path}.template.env[{index}]", f"{variable.name}: {reason}")


def _is_override_value(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_scalar, value.values()))
    return all(map(_is_scalar, value)) if isinstance(value, list) else _is_scalar(value)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))


CHECKS: tuple[Check, ...] = (
    _settings_are_few,
    _keys_are_set_once,
    _values_are_plain,
    _keys_are_keys,
    _typed_fields_are_set_once,
    _launchers_keys_are_its_own,
    _keys_are_of_today,
    _keys_exist,
    _values_have_the_kind,
    _rollout_is_asynchronous,
    _experts_stay_in_place,
    _weights_keep_their_layout,
)
WARNINGS: tuple[Check, ...] = (_sections_are_of_verl,)
