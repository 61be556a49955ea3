"""Arithmetic on sizes that rows, checks and decisions share."""

from __future__ import annotations

from rljob.api.training import TrainerBackend
from rljob.api.v1alpha1 import RLJobSpec


def uses_megatron(spec: RLJobSpec) -> bool:
    """Report whether Megatron-Core trains, with or without MindSpeed's kernels."""
    return spec.trainer.backend in (TrainerBackend.MEGATRON, TrainerBackend.MINDSPEED)


def model_parallel(spec: RLJobSpec) -> int:
    """Return the number of devices that share one sample: Megatron's sizes, or verl's Ulysses groups under FSDP2."""
    sizes = spec.trainer.parallelism
    return sizes.tensor * sizes.pipeline * sizes.context if uses_megatron(spec) else sizes.sequence


def data_parallel_ranks(spec: RLJobSpec) -> int:
    """Return the number of shares of a mini batch; at least 1, even where the sizes do not divide the devices."""
    return max(spec.devices // model_parallel(spec), 1)


def mini_batch(spec: RLJobSpec) -> int:
    """Return the prompts of an optimizer update."""
    return spec.trainer.mini_batch_size or spec.trainer.global_batch_size


def micro_batch(spec: RLJobSpec) -> int:
    """Return the samples of one pass on a device."""
    share = mini_batch(spec) * spec.trainer.samples_per_prompt // data_parallel_ranks(spec)
    return spec.trainer.micro_batch_size_per_device or max(share, 1)
