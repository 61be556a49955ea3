"""Settings on which pinned upstream releases fail: each rule has both sides; warnings, variables and odd values."""

from __future__ import annotations

import pytest
from builders import Json, group, merged, small_spec, typed, validate
from corpus.bad import template
from corpus.upstream import BAD, NPU, OPTIONS, PASSES, RUNTIME_ENV, sets, variables

from rljob.api.accelerators import AcceleratorFacts
from rljob.core.validation.violation import Violation
from rljob.launchers.verl.checks.upstream import CHECKS, WARNINGS, ascend, environment, mindspeed, training
from rljob.launchers.verl.checks.upstream import megatron as megatron_rules
from rljob.launchers.verl.checks.upstream.settings import VALUE_SHOWN, Settings
from rljob.launchers.verl.effective import VLLM
from rljob.launchers.verl.rows import ROLLOUT
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN

NAMES = [rule.name for rule in (*training.RULES, *megatron_rules.RULES, *mindspeed.RULES, *ascend.RULES)]
NAMES += [rule.name for rule in environment.RULES]
WORKER, HEAD = "spec.workerGroups[0].template.env[0]", "spec.head.template.env[0]"


def warnings(change: Json) -> list[Violation]:
    return [warning for check in WARNINGS for warning in check(typed(small_spec(change)))]


def test_every_rule_has_a_manifest_on_either_side() -> None:
    assert sorted(NAMES) == sorted(set(NAMES))
    assert set(NAMES) == {name.split(" ")[0] for name in BAD} == set(PASSES)


@pytest.mark.parametrize("change", PASSES.values(), ids=PASSES.keys())
def test_what_upstream_accepts_passes(change: Json) -> None:
    assert validate("sums", small_spec(change)).violations == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward.reward_manager.name": "prime"}, "prime is none of verl's reward managers (naive, dapo"),
    ],
)
def test_what_ends_most_runs_is_a_warning(settings: Json, message: str) -> None:
    (warning,) = warnings(sets(settings))
    assert message in warning.message
    assert validate("sums", small_spec(sets(settings))).violations == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"reward.reward_manager.name": "gdpo"},
        {"reward.reward_manager.source": "importlib", "reward.reward_manager.name": "Mine"},
    ],
)
def test_what_verl_has_is_no_warning(settings: Json) -> None:
    assert warnings(sets(settings)) == []


@pytest.mark.parametrize("name", environment.PER_PROCESS)
def test_a_variable_of_a_single_process_is_a_warning_wherever_it_is_set(name: str) -> None:
    entry = {"env": [{"name": name, "value": "1"}]}
    (warning,) = warnings(template(entry))
    assert (warning.field, warning.message[: len(name) + 1]) == (WORKER, f"{name}:")
    assert warning.message.endswith("; remove it")
    (warning,) = warnings({"head": {"template": entry}})
    assert (warning.field, warning.message) == (HEAD, f"{name} {environment.OF_THE_HEAD}; remove it")
    key = f"{RUNTIME_ENV}.{name}"
    assert [found.field for found in warnings(sets({key: None}))] == [f"spec.verl.overrides[{key}]"]
    assert validate("sums", small_spec(template(entry))).violations == ()


def test_a_variable_of_the_engine_has_no_effect_on_the_head() -> None:
    entry = {"env": [{"name": "PYTORCH_NPU_ALLOC_CONF", "value": "expandable_segments:True"}]}
    change = NPU | {"head": {"template": entry}}
    assert validate("sums", small_spec(change)).violations == ()
    assert [(found.field, found.message.split(";")[0]) for found in warnings(change)] == [
        (HEAD, "PYTORCH_NPU_ALLOC_CONF reaches the driver only, no worker and no engine")
    ]


def test_other_variables_are_no_warning() -> None:
    assert warnings(variables(HCCL_BUFFSIZE="300") | {"head": {"template": {"env": [{"name": "A"}]}}}) == []


def refused_with(class_value: str, change: Json) -> list[str]:
    """Return the fields that are refused where the class sets the allocator's configuration."""
    row = BUILT_IN["atlas-a3-superpod"]
    facts = AcceleratorFacts.model_validate(row.model_dump(by_alias=True) | {"env": {ALLOCATOR: class_value}})
    spec = typed(small_spec(merged(NPU, change)), AcceleratorTable({**BUILT_IN, "atlas-a3-superpod": facts}))
    return [found.field for check in CHECKS for found in check(spec)]


ALLOCATOR, SEGMENTS, WHOLE = "PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True", "expandable_segments:False"
IN_RAY = f"{RUNTIME_ENV}.{ALLOCATOR}"


def patched(value: str) -> Json:
    container = {"name": "ray-worker", "env": [{"name": ALLOCATOR, "value": value}]}
    return {"podSpecPatch": {"workers": {"containers": [container]}}}


@pytest.mark.parametrize(
    ("class_value", "change", "fields"),
    [
        (SEGMENTS, {}, ["spec.accelerator.class"]),
        (SEGMENTS, variables(**{ALLOCATOR: WHOLE}), []),
        (WHOLE, variables(**{ALLOCATOR: SEGMENTS}), [WORKER]),
        (SEGMENTS, patched(WHOLE), []),
        (
            WHOLE,
            merged(variables(**{ALLOCATOR: WHOLE}), patched(SEGMENTS)),
            ["spec.podSpecPatch.workers.containers[0].env[0]"],
        ),
        (WHOLE, merged(variables(**{ALLOCATOR: SEGMENTS}), patched(WHOLE)), []),
        (WHOLE, merged(patched(SEGMENTS), sets({IN_RAY: WHOLE})), []),
        (SEGMENTS, merged(patched(WHOLE), sets({IN_RAY: SEGMENTS})), [f"spec.verl.overrides[{IN_RAY}]"]),
    ],
)
def test_of_a_variable_only_the_value_that_applies_is_judged(class_value: str, change: Json, fields: list[str]) -> None:
    assert refused_with(class_value, change) == fields


@pytest.mark.parametrize(
    "workers",
    [
        {"containers": "none"},
        {"containers": [{"name": "other", "env": [{"name": "RANK"}]}, "odd"]},
        {"containers": [{"name": "ray-worker", "env": ["odd", {"name": "A", "value": 3}]}]},
    ],
)
def test_a_patch_of_another_shape_is_judged_elsewhere(workers: Json) -> None:
    assert warnings({"podSpecPatch": {"workers": workers}}) == []


def test_a_variable_from_elsewhere_is_not_judged_by_its_value() -> None:
    reference = {"secretKeyRef": {"name": "a", "key": "b"}}
    change = NPU | template({"env": [{"name": "PYTORCH_NPU_ALLOC_CONF", "valueFrom": reference}]})
    assert validate("sums", small_spec(change)).violations == ()


def test_a_field_and_an_override_get_one_verdict() -> None:
    wide = NPU | group({"devicesPerNode": 16}) | {"rollout": {"parallelism": {"tensor": 4}}}
    change = merged(wide, {"trainer": {"globalBatchSize": 16}})
    by_variable = merged(change, group({"devicesPerNode": 16, "template": {"env": [
        {"name": "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE", "value": "4"}]}}))  # fmt: skip
    by_option = sets({f"+{OPTIONS}": {"enable_flashcomm2_parallel_size": 4}}, change)
    for spec in (by_variable, by_option):
        (violation,) = validate("sums", small_spec(spec)).violations
        assert "must be less than rollout.parallelism.tensor" in violation.message
    lowered = sets({f"+{OPTIONS}": {"enable_flashcomm2_parallel_size": 0}}, by_variable)
    assert validate("sums", small_spec(lowered)).violations == ()


def test_an_argument_of_the_engine_counts_as_the_field_that_it_replaces() -> None:
    change = variables(PYTORCH_NPU_ALLOC_CONF="expandable_segments:True")
    awake = sets({f"+{VLLM}.enable_sleep_mode": False}, change)
    assert validate("sums", small_spec(awake)).violations == ()
    asleep = sets({f"+{VLLM}": {"enable_sleep_mode": True}, f"+{ROLLOUT}.enable_sleep_mode": False}, change)
    assert [violation.field for violation in validate("sums", small_spec(asleep)).violations] == [WORKER]


def test_a_variable_turns_flashcomm_on_and_an_option_off() -> None:
    change = variables(VLLM_ASCEND_ENABLE_FLASHCOMM1="1")
    (violation,) = validate("sums", small_spec(change)).violations
    assert violation.field == "spec.rollout.parallelism.tensor"
    assert validate("sums", small_spec(variables(VLLM_ASCEND_ENABLE_FLASHCOMM1="0"))).violations == ()
    off = sets({f"+{OPTIONS}.enable_flashcomm1": False}, change)
    assert validate("sums", small_spec(off)).violations == ()


def test_without_graphs_no_size_is_captured() -> None:
    wide = NPU | group({"devicesPerNode": 16}) | {"rollout": {"parallelism": {"tensor": 4}, "captureSizes": [2]}}
    change = sets(
        {f"+{OPTIONS}.enable_flashcomm1": True, f"+{OPTIONS.removesuffix('additional_config')}compilation_config": {
            "cudagraph_mode": "none"}},
        merged(wide, {"trainer": {"globalBatchSize": 16}}),
    )  # fmt: skip
    (violation,) = validate("sums", small_spec(change)).violations
    assert "no graphs are captured" in violation.message


def test_settings_take_odd_values() -> None:
    odd = {"a": "x", "b": 10**400, "c": [1], "d": {"e": None}, "f": "9" * 400, "g": True, "h": "z" * 99}
    settings = Settings(typed(small_spec(sets({f"+odd.{name}": value for name, value in odd.items()}))))
    assert [settings.number(f"odd.{name}", 7) for name in "abcfg"] == [7, 7, 7, 7, 1]
    assert [settings.on(f"odd.{name}") for name in "abcg"] == [False, False, False, True]
    assert settings.listed("odd.c") == [1]
    assert [settings.shown(f"odd.{name}") for name in ("a", "g", "d.e")] == ["x", "true", "null"]
    assert len(settings.shown("odd.h")) == VALUE_SHOWN
    assert settings.field("odd.d.e") == "spec.verl.overrides[+odd.d]"
    assert settings.field("odd.none") == "spec.verl.overrides[odd.none]"


def test_an_unreadable_model_says_nothing_of_experts() -> None:
    assert Settings(typed(small_spec({"model": {"config": {"model_type": "mamba"}}}))).has_experts is None
