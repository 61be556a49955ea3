"""Arithmetic on sizes that rows, checks and decisions share."""

from __future__ import annotations

from rljob.api.training import TrainerBackend
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import facts_of
from rljob_runtime.planning import flattening, verl

CPU_SEQUENCES = 128
"""The launcher's default of max_num_seqs on CPUs (rljob_runtime.verl_plugin.platform.cpu_defaults)."""
SEQUENCES = "max_num_seqs"


def uses_megatron(spec: RLJobSpec) -> bool:
    """Report whether Megatron-Core trains, with or without MindSpeed's kernels."""
    return spec.trainer.backend in (TrainerBackend.MEGATRON, TrainerBackend.MINDSPEED)


def model_parallel(spec: RLJobSpec) -> int:
    """Return the number of devices that share one sample: Megatron's sizes, or verl's Ulysses groups under FSDP2."""
    sizes = spec.trainer.parallelism
    return sizes.tensor * sizes.pipeline * sizes.context if uses_megatron(spec) else sizes.sequence


def data_parallel_ranks(spec: RLJobSpec) -> int:
    """Return the number of shares of a mini batch; at least 1, even where the sizes do not divide the devices."""
    return max(spec.trainer_group.devices // model_parallel(spec), 1)


def mini_batch(spec: RLJobSpec) -> int:
    """Return the prompts of an optimizer update."""
    return spec.trainer.mini_batch_size or spec.trainer.global_batch_size


def updates(spec: RLJobSpec) -> int:
    """Return the optimizer updates of a step."""
    return -(-spec.trainer.global_batch_size // mini_batch(spec))


def micro_batch(spec: RLJobSpec) -> int:
    """Return the samples of one pass on a device."""
    share = mini_batch(spec) * spec.trainer.samples_per_prompt // data_parallel_ranks(spec)
    return spec.trainer.micro_batch_size_per_device or max(share, 1)


def replicas(spec: RLJobSpec) -> int:
    """Return the number of replicas of the rollout's engine; its pipeline has one stage in every job."""
    sizes = spec.rollout.parallelism
    return spec.rollout_group.devices // (sizes.tensor * sizes.data)


def engine_sequences(spec: RLJobSpec) -> int:
    """Return the sequences that an engine runs at a time: vLLM's own argument, the field, or the default."""
    given = flattening.plain_keys(spec.verl.overrides).get(f"{flattening.VLLM}.{SEQUENCES}")
    if isinstance(given, int) and given > 0:
        return given
    default = verl.keys(megatron=uses_megatron(spec))[f"actor_rollout_ref.rollout.{SEQUENCES}"]
    on_class = default if facts_of(spec).is_npu and isinstance(default, int) else CPU_SEQUENCES
    return spec.rollout.max_sequences or on_class
