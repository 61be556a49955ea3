"""The judge: what its group can hold, that a function asks it, and that no other model gets devices.

Lines are those of verl 0.9.1, below verl/.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.arithmetic import divisors
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.judge import ENGINE, MODEL
from rljob_runtime.planning.on_policy import is_on

FIELD = "spec.reward.judge"


def _a_function_asks_it(spec: RLJobSpec) -> Iterator[Violation]:
    """Without one verl sends whole responses to a classifier and scores by its last class (reward_loop.py:150-160)."""
    if spec.reward.judge is not None and spec.reward.path is None:
        yield Violation(
            FIELD,
            f"builtin {spec.reward.builtin} asks no judge; set reward.path to a function that does, or remove judge",
        )


def _replicas_fill_its_nodes(spec: RLJobSpec) -> Iterator[Violation]:
    """The pool is split into replicas, and devices that are left over fail (single_controller/ray/base.py:289)."""
    judge, group = spec.reward.judge, spec.judge_group
    if judge is not None and group is not None and group.devices_per_node % judge.tensor:
        yield Violation(
            f"{FIELD}.tensor",
            f"{judge.tensor} does not divide devicesPerNode {group.devices_per_node} of group {group.name}; use one of "
            f"{divisors(group.devices_per_node)}",
        )


def _replicas_have_no_other_sizes(spec: RLJobSpec) -> Iterator[Violation]:
    """A replica is `tensor` devices; verl asserts with NPUs held where the pool has no whole number of larger ones."""
    seen = effective(spec)
    for size in ("data_parallel_size", "pipeline_model_parallel_size"):
        setting = seen.setting(f"{ENGINE}.{size}")
        if spec.reward.judge is not None and setting is not None and setting.value != 1:
            yield Violation(
                setting.field, f"{setting.value}: a replica of the judge has {FIELD}.tensor devices; remove it"
            )


def _other_pools_have_no_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """All devices of the other groups belong to trainer and rollout, so that verl refuses the sum with NPUs held.

    single_controller/ray/base.py:226-245.
    """
    seen, held = effective(spec), sum(group.devices for group in spec.worker_groups if group is not spec.judge_group)
    if spec.reward.judge is None and is_on(seen.value(f"{MODEL}.enable_resource_pool")):
        yield Violation(
            seen.field(f"{MODEL}.enable_resource_pool"),
            f"true, but no devices are left for the pool: trainer and rollout take all {held}; use reward.judge and "
            "one more worker group with roles: [Judge]",
        )
    if is_on(seen.value("distillation.enabled")):
        yield Violation(
            seen.field("distillation.enabled"),
            f"true, but no devices are left for the teacher's pool: trainer and rollout take all {held}, and a job "
            "has no group for a teacher; remove it",
        )


def _a_reward_model_is_named(spec: RLJobSpec) -> Iterator[Violation]:
    """The path is the model of the engine and of its tokenizer (experimental/reward_loop/reward_model.py:71)."""
    seen = effective(spec)
    if spec.reward.judge is None and is_on(seen.value(f"{MODEL}.enable")) and not seen.value(f"{MODEL}.model_path"):
        yield Violation(
            seen.field(f"{MODEL}.enable"),
            f"true, but no model is named; use reward.judge, or set verl.overrides[{MODEL}.model_path]",
        )


CHECKS: tuple[Check, ...] = (
    _a_reward_model_is_named,
    _a_function_asks_it,
    _replicas_fill_its_nodes,
    _replicas_have_no_other_sizes,
    _other_pools_have_no_devices,
)
