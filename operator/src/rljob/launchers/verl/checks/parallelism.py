"""How the training spreads over the devices: what verl and Megatron-Core require of the parallel sizes.

Lines are those of verl 0.9.1 (below verl/) and of Megatron-Core 0.16.1 (below megatron/core/).
What depends on the model is in `model_splits`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.arithmetic import divisors, next_factor
from rljob.core.validation.devices import devices_text
from rljob.core.validation.fields import place_of
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.sizes import model_parallel, uses_megatron
from rljob.launchers.verl.values import whole

PARALLELISM = "spec.trainer.parallelism"


def _fsdp_knows_no_model_parallelism(spec: RLJobSpec) -> Iterator[Violation]:
    """The engine for FSDP2 has a mesh of its own and Ulysses, nothing else (verl/workers/config/engine.py:284-302)."""
    sizes = spec.trainer.parallelism
    if uses_megatron(spec):
        return
    given = ("tensor", sizes.tensor), ("pipeline", sizes.pipeline), ("context", sizes.context), ("expert", sizes.expert)
    for name, size in (*given, ("expertTensor", sizes.expert_tensor or 1)):
        if size > 1:
            fix = "use sequence for long sequences" if name == "context" else "remove it"
            yield Violation(
                f"{PARALLELISM}.{name}",
                f"{size}, but trainer.backend FSDP2 shards weights over all devices and has no {name} parallelism; "
                f"{fix}, or set trainer.backend to Megatron or MindSpeed",
            )


def _ulysses_belongs_to_fsdp(spec: RLJobSpec) -> Iterator[Violation]:
    """Megatron's engine has no such size; it splits sequences by context (verl/workers/config/engine.py:185-212)."""
    size = spec.trainer.parallelism.sequence
    if size > 1 and uses_megatron(spec):
        yield Violation(
            f"{PARALLELISM}.sequence",
            f"{size}: Ulysses requires FSDP2, but trainer.backend is {spec.trainer.backend}; use context instead",
        )


def _sequence_divides_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """FSDP2 builds a mesh of data × sequence ranks (verl/workers/engine/fsdp/transformer_impl.py:235-252,651-652).

    Where the sizes do not divide, the ranks beyond the mesh have no place in it.
    """
    size, group = spec.trainer.parallelism.sequence, spec.trainer_group
    count = group.devices
    if not uses_megatron(spec) and count % size:
        yield Violation(
            f"{PARALLELISM}.sequence",
            f"{size} does not divide {devices_text(spec, group)}; use one of {divisors(count)}",
        )


def _model_parallel_divides_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """The devices that remain per sample group are data-parallel ranks, and their number must be whole.

    megatron/core/parallel_state.py:738-743; with batches of a fixed size verl/utils/config.py:104-114 as well.
    """
    sizes, group = spec.trainer.parallelism, spec.trainer_group
    inner = model_parallel(spec)
    if uses_megatron(spec) and group.devices % inner:
        nodes = next_factor(group.nodes, group.devices_per_node, inner)
        yield Violation(
            PARALLELISM,
            f"tensor {sizes.tensor} × pipeline {sizes.pipeline} × context {sizes.context} = {inner} does not divide "
            f"{devices_text(spec, group)}; set {place_of(spec, group)}.nodes to {nodes}, or lower a size",
        )


def _experts_divide_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """Megatron builds a second grid over the same devices for the experts (megatron/core/parallel_state.py:785-795)."""
    sizes, group = spec.trainer.parallelism, spec.trainer_group
    if not uses_megatron(spec) or (sizes.expert == 1 and sizes.expert_tensor is None):
        return
    inner_tensor = sizes.expert_tensor or sizes.tensor
    inner = sizes.expert * inner_tensor * sizes.pipeline
    if group.devices % inner:
        default = "" if sizes.expert_tensor else " (defaults to tensor)"
        lower = "lower expert, or " if sizes.expert > 1 else ""
        yield Violation(
            f"{PARALLELISM}.{'expert' if sizes.expert > 1 else 'expertTensor'}",
            f"expert {sizes.expert} × expertTensor {inner_tensor}{default} × pipeline {sizes.pipeline} = {inner} does "
            f"not divide {devices_text(spec, group)}; {lower}set expertTensor to 1",
        )


def _shards_divide_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """Ranks beyond a mesh of replicas × shards have no place in it (verl/workers/engine/fsdp/utils.py:47-52)."""
    seen, group = effective(spec), spec.trainer_group
    for part in ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"):
        setting = seen.setting(f"{part}.fsdp_config.fsdp_size")
        size = whole(setting.value) if setting is not None else None
        if setting is None or size is None or uses_megatron(spec) or not 0 <= size < group.devices:
            continue
        if size == 0 or group.devices % size:
            yield Violation(
                setting.field,
                f"{size} does not divide {devices_text(spec, group)}; use one of {divisors(group.devices)}, or -1 for "
                "all of them",
            )


CHECKS: tuple[Check, ...] = (
    _fsdp_knows_no_model_parallelism,
    _ulysses_belongs_to_fsdp,
    _sequence_divides_devices,
    _shards_divide_devices,
    _model_parallel_divides_devices,
    _experts_divide_devices,
)
