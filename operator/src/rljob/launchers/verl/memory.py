"""Convert the effective configuration of verl to the layout that `rljob_runtime.planning.memory` takes.

It reads that configuration instead of the fields, so that a key which a user or a recipe sets directly is counted. It
never fails: sizes that do not divide are reported by other checks and rounded here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.algorithms import has_critic
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.rollout import BATCHED_TOKENS
from rljob.launchers.verl.rows import ACTOR, EVALUATE, REF, ROLLOUT, SEPARATE, TRANSFORMER
from rljob.launchers.verl.sizes import data_parallel_ranks, micro_batch, mini_batch, uses_megatron
from rljob.launchers.verl.trained import trained
from rljob.launchers.verl.variables import worker_value
from rljob.render.accelerators import facts_of
from rljob.render.hbm import die_memory
from rljob_runtime.planning.memory import Die, Engine, MemoryPlan, Recompute, Rollout, Trainer, plan
from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import Cut

BUFFER_VARIABLE = "HCCL_BUFFSIZE"
BUFFER_DEFAULT = 200
"""MB, allocated twice per communicator: CANN 9.0, environment variables, HCCL_BUFFSIZE."""
BUFFER_MEGABYTES = range(1, 65537)
"""From CANN's least value to the memory of a whole die, 64 GiB."""
FRACTION, SEQUENCES = 0.5, 256
"""verl 0.9.1, trainer/config/rollout/rollout.yaml:46,84."""
BUCKET_KEY = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
BUCKET_MEGABYTES = 2048
"""verl 0.9.1, trainer/config/rollout/rollout.yaml."""
KEPT_EXPERTS = {"level0": 0.3, "level1": 0.1}
"""MindSpeed core_r0.16.0, docs/zh/features/moe-zero-memory.md: frees over 70 % and 90 % of the experts' activations."""

SLEEPS = f"{ROLLOUT}.free_cache_engine"
"""Whether verl lets engines sleep."""

Keys = Mapping[str, object]


def memory_plan(spec: RLJobSpec, shape: Shape) -> MemoryPlan | None:
    """Return what a job takes of its dies' memory; None where the class has no memory of its own."""
    parts = memory_parts(spec, shape)
    return plan(shape, *parts) if parts else None


def memory_parts(spec: RLJobSpec, shape: Shape) -> tuple[Die, Trainer, Rollout] | None:
    """Return what the plan is made from; None where the class has no memory of its own."""
    memory = die_memory(facts_of(spec))
    if memory is None:
        return None
    keys = _keys(spec)
    buffers = 2 * _buffer_megabytes(spec) << 20
    die = Die(memory.total_bytes, memory.visible_bytes, buffers)
    return die, _trainer(spec, shape, keys), _rollout(spec, keys)


def _keys(spec: RLJobSpec) -> dict[str, object]:
    """Return all keys that fields and overrides set, maps key by key."""
    return {key: setting.value for key, setting in effective(spec).settings.items()}


def buffer_megabytes(text: str) -> int | None:
    """Return a value of HCCL_BUFFSIZE; None for one that no die could hold, or that is no number."""
    found = re.fullmatch(r"[0-9]{1,5}", text)
    return int(text) if found and int(text) in BUFFER_MEGABYTES else None


def _buffer_megabytes(spec: RLJobSpec) -> int:
    return buffer_megabytes(worker_value(spec, BUFFER_VARIABLE) or "") or BUFFER_DEFAULT


def _trainer(spec: RLJobSpec, shape: Shape, keys: Keys) -> Trainer:
    sizes, megatron = spec.trainer.parallelism, uses_megatron(spec)
    section = "megatron" if megatron else "fsdp_config"
    optimizer = f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"
    weights = keys.get(f"{ACTOR}.{section}.param_offload") is True
    reference = keys.get(f"{REF}.{section}.param_offload")
    what = trained(spec)
    tokens, micro_batches = _micro_batches(spec)
    recompute, recompute_layers = _recompute(keys) if megatron else (Recompute.UNIFORM, 1)
    return Trainer(
        engine=Engine.MEGATRON if megatron else Engine.FSDP2,
        devices=spec.trainer_group.devices,
        stage_layers=_stages(shape.layers, sizes.pipeline, keys) if megatron else (shape.layers,),
        tokens=tokens,
        micro_batches=micro_batches,
        cut=Cut(sizes.tensor, sizes.expert, sizes.expert_tensor or sizes.tensor) if megatron else Cut(),
        context=sizes.context,
        recompute=recompute,
        recompute_layers=recompute_layers,
        kept_experts=KEPT_EXPERTS.get(str(keys.get(f"{TRANSFORMER}.moe_zero_memory")), 1.0),
        host_optimizer=keys.get(f"{TRANSFORMER}.swap_optimizer") is True or keys.get(optimizer) is True,
        offload_weights=weights,
        offload_optimizer=keys.get(f"{ACTOR}.{section}.optimizer_offload") is True,
        # Under FSDP2 always (workers/engine/fsdp/transformer_impl.py:459: CPUOffloadPolicy for forward_only). Otherwise
        # like the actor unless set (trainer/config/ref/megatron_ref.yaml:39).
        offload_reference=not megatron or (weights if reference is None else reference is True),
        # The reference of an adapter is the actor without it (trainer/ppo/v1/trainer_base.py:237).
        reference=not what.rank
        and (float(spec.algorithm.kl_coefficient) > 0 or keys.get("algorithm.use_kl_in_reward") is True),
        critic=has_critic(spec),
        adapter_rank=what.rank,
        critic_adapter_rank=what.critic_rank,
        element_bytes=what.element_bytes,
        evaluates=EVALUATE.holds(spec),
    )


def _micro_batches(spec: RLJobSpec) -> tuple[int, int]:
    """Return the most tokens of a micro batch on a die, and the micro batches of a rank's share of an update."""
    sizes = spec.trainer.parallelism
    length = spec.data.max_prompt_tokens + spec.data.max_response_tokens
    share = max(1, mini_batch(spec) * spec.trainer.samples_per_prompt // data_parallel_ranks(spec))
    group = sizes.context if uses_megatron(spec) else sizes.sequence
    if (tokens := spec.trainer.max_tokens_per_device) is not None:
        # verl multiplies the bound by the size of the group before it packs (workers/engine/utils.py:108-112).
        return tokens, max(1, share * length // (tokens * group))
    samples = micro_batch(spec)
    return -(-samples * length // group), max(1, share // samples)


def _recompute(keys: Keys) -> tuple[Recompute, int]:
    if keys.get(f"{TRANSFORMER}.recompute_granularity") != "full":
        return Recompute.NONE, 1
    method = Recompute.BLOCK if keys.get(f"{TRANSFORMER}.recompute_method") == "block" else Recompute.UNIFORM
    return method, _count(keys.get(f"{TRANSFORMER}.recompute_num_layers"), 1)


def _stages(layers: int, stages: int, keys: Keys) -> tuple[int, ...]:
    """Return the layers of each pipeline stage: as the overrides state, else in equal parts."""
    layout = keys.get(f"{TRANSFORMER}.pipeline_model_parallel_layout")
    if isinstance(layout, str):
        return _laid_out(layout, stages)
    first = keys.get(f"{TRANSFORMER}.num_layers_in_first_pipeline_stage")
    last = keys.get(f"{TRANSFORMER}.num_layers_in_last_pipeline_stage")
    ends = [_count(end, 0) for end in (first, last)]
    inner = stages - sum(end > 0 for end in ends)
    between = -(-(layers - sum(ends)) // max(1, inner))
    held = [between] * stages
    if ends[0]:
        held[0] = ends[0]
    if ends[1]:
        held[-1] = ends[1]
    return tuple(max(0, count) for count in held)


def _laid_out(layout: str, stages: int) -> tuple[int, ...]:
    """Parse Megatron's layout string: stages are separated by bars, `t` is a layer, `*n` repeats what precedes it.

    With virtual stages a die holds every n-th part: PipelineParallelLayerLayout of Megatron-Core core_r0.16.0.
    """
    flat = re.sub(r"\(([^()]*)\)\*(\d{1,3})", lambda found: found[1] * int(found[2]), layout)
    parts = [sum(int(times or 1) for times in re.findall(r"t(?:\*(\d{1,4}))?", part)) for part in flat.split("|")]
    return tuple(sum(parts[stage::stages]) for stage in range(stages))


def _rollout(spec: RLJobSpec, keys: Keys) -> Rollout:
    sizes, view = spec.rollout.parallelism, effective(spec)
    fraction, what = view.engine_value("gpu_memory_utilization"), trained(spec)
    return Rollout(
        tensor=sizes.tensor,
        data=sizes.data,
        expert=sizes.expert,
        memory_fraction=fraction if isinstance(fraction, float | int) and 0 < fraction <= 1 else FRACTION,
        sequences=_count(view.engine_value("max_num_seqs"), SEQUENCES, 1 << 31),
        batched_tokens=_count(view.engine_value("max_num_batched_tokens"), BATCHED_TOKENS, 1 << 31),
        sequence_tokens=spec.data.max_prompt_tokens + spec.data.max_response_tokens,
        bucket_bytes=_count(keys.get(BUCKET_KEY), BUCKET_MEGABYTES) << 20,
        apart=SEPARATE.holds(spec),
        # verl lets the engine sleep and wakes its weights (workers/rollout/vllm_rollout/vllm_async_server.py:875-883).
        keeps_cache=view.value(SLEEPS) is False or view.engine_value("enable_sleep_mode") is False,
        adapter_rank=0 if what.merged else what.rank,
    )


def _count(value: object, default: int, below: int = 1 << 20) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < below else default
