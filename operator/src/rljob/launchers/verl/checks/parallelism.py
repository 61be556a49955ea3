"""How the training spreads over the devices: what verl and Megatron-Core require of the parallel sizes.

Lines are those of verl 0.9.1 (below verl/) and of Megatron-Core 0.16.1 (below megatron/core/).
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.arithmetic import divisors, next_factor
from rljob.core.validation.devices import devices_text
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.rows import TRANSFORMER
from rljob.launchers.verl.sizes import model_parallel, uses_megatron

PARALLELISM = "spec.trainer.parallelism"
LAYOUT_KEYS = frozenset(
    {
        "pipeline_model_parallel_layout",
        "pipeline_num_transformer_layers",
        "num_layers_in_first_pipeline_stage",
        "num_layers_in_last_pipeline_stage",
        "noop_layers",
    }
)
"""Keys of Megatron's transformer configuration that assign layers to stages."""


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
    size, count = spec.trainer.parallelism.sequence, spec.devices
    if not uses_megatron(spec) and count % size:
        yield Violation(
            f"{PARALLELISM}.sequence", f"{size} does not divide {devices_text(spec)}; use one of {divisors(count)}"
        )


def _model_parallel_divides_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """The devices that remain per sample group are data-parallel ranks, and their number must be whole.

    megatron/core/parallel_state.py:738-743; with batches of a fixed size verl/utils/config.py:104-114 as well.
    """
    sizes, group = spec.trainer.parallelism, spec.worker_groups[0]
    inner = model_parallel(spec)
    if uses_megatron(spec) and spec.devices % inner:
        nodes = next_factor(group.nodes, group.devices_per_node, inner)
        yield Violation(
            PARALLELISM,
            f"tensor {sizes.tensor} × pipeline {sizes.pipeline} × context {sizes.context} = {inner} does not divide "
            f"{devices_text(spec)}; set workerGroups[0].nodes to {nodes}, or lower a size",
        )


def _experts_divide_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """Megatron builds a second grid over the same devices for the experts (megatron/core/parallel_state.py:785-795)."""
    sizes, count = spec.trainer.parallelism, spec.devices
    if not uses_megatron(spec) or (sizes.expert == 1 and sizes.expert_tensor is None):
        return
    inner_tensor = sizes.expert_tensor or sizes.tensor
    inner = sizes.expert * inner_tensor * sizes.pipeline
    if count % inner:
        default = "" if sizes.expert_tensor else " (defaults to tensor)"
        yield Violation(
            f"{PARALLELISM}.{'expert' if sizes.expert > 1 else 'expertTensor'}",
            f"expert {sizes.expert} × expertTensor {inner_tensor}{default} × pipeline {sizes.pipeline} = {inner} does "
            f"not divide {devices_text(spec)}; {'lower expert, or ' if sizes.expert > 1 else ''}set expertTensor to 1",
        )


def _experts_are_shared_evenly(spec: RLJobSpec) -> Iterator[Violation]:
    """Every rank holds the same number of experts."""
    experts, size = spec.model.experts, spec.trainer.parallelism.expert
    if experts is not None and experts % size:
        yield Violation(
            f"{PARALLELISM}.expert", f"{size} does not divide model.experts {experts}; use one of {divisors(experts)}"
        )


def _layers_fill_the_stages(spec: RLJobSpec) -> Iterator[Violation]:
    """Stages hold the same number of layers, unless overrides state another layout."""
    layers, stages = spec.model.layers, spec.trainer.parallelism.pipeline
    if not uses_megatron(spec) or layers is None or stages == 1:
        return
    given = _layout(spec)
    if stages > layers:
        yield Violation(f"{PARALLELISM}.pipeline", f"{stages} stages are more than model.layers {layers}; lower it")
    elif not given and layers % stages:
        yield Violation(
            f"{PARALLELISM}.pipeline",
            f"{stages} stages do not divide model.layers {layers}; use one of {divisors(layers)}, or set an uneven "
            f"layout in verl.overrides: +{TRANSFORMER}.num_layers_in_first_pipeline_stage and "
            "num_layers_in_last_pipeline_stage",
        )
    elif given:
        yield from _uneven_stages(given, layers, stages)


def _layout(spec: RLJobSpec) -> dict[str, object]:
    """Return the overrides that assign layers to stages."""
    found: dict[str, object] = {}
    for key, value in spec.verl.overrides.items():
        plain = key.lstrip("+")
        if plain == TRANSFORMER and isinstance(value, dict):
            found |= {str(name): member for name, member in value.items()}
        elif plain.startswith(f"{TRANSFORMER}."):
            found[plain.removeprefix(f"{TRANSFORMER}.")] = value
    return {name: value for name, value in found.items() if name in LAYOUT_KEYS}


def _uneven_stages(given: dict[str, object], layers: int, stages: int) -> Iterator[Violation]:
    field = f"spec.verl.overrides[+{TRANSFORMER}"
    listed = given.get("pipeline_num_transformer_layers")
    if isinstance(listed, list) and all(_is_count(entry) for entry in listed):
        total = sum(listed)
        if len(listed) != stages or total != layers:
            yield Violation(
                f"{field}.pipeline_num_transformer_layers]",
                f"{len(listed)} stages with {total} layers, but trainer.parallelism.pipeline is {stages} and "
                f"model.layers {layers}",
            )
        return
    ends = [given[name] for name in sorted(given) if name.startswith("num_layers_in_")]
    if set(given) - {"num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"}:
        return  # The layout string of Megatron is checked by Megatron.
    if not all(_is_count(end) for end in ends):
        return  # verl's schema refuses the type.
    left, inner = layers - sum(int(str(end)) for end in ends), stages - len(ends)
    if left < inner or (left % inner if inner > 0 else left):
        yield Violation(
            f"{field}.num_layers_in_first_pipeline_stage]",
            f"first and last stage hold {layers - left} of model.layers {layers}; the other {left} do not divide over "
            f"the other {inner} stages",
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _heads_are_shared_evenly(spec: RLJobSpec) -> Iterator[Violation]:
    """Megatron's tensor ranks and Ulysses split attention by heads."""
    heads, sizes = spec.model.attention_heads, spec.trainer.parallelism
    if heads is None:
        return
    for name, size in (("sequence", sizes.sequence),) if not uses_megatron(spec) else (("tensor", sizes.tensor),):
        if heads % size:
            yield Violation(
                f"{PARALLELISM}.{name}",
                f"{size} does not divide model.attentionHeads {heads}; use one of {divisors(heads)}",
            )


CHECKS: tuple[Check, ...] = (
    _fsdp_knows_no_model_parallelism,
    _ulysses_belongs_to_fsdp,
    _sequence_divides_devices,
    _model_parallel_divides_devices,
    _experts_divide_devices,
    _experts_are_shared_evenly,
    _layers_fill_the_stages,
    _heads_are_shared_evenly,
)
