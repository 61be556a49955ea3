"""Arithmetic on sizes that rows, checks and decisions share."""

from __future__ import annotations

from rljob.api.training import TrainerBackend
from rljob.api.v1alpha1 import RLJobSpec


def devices(spec: RLJobSpec) -> int:
    """NPU devices of the job."""
    return sum(group.nodes * group.devices_per_node for group in spec.worker_groups)


def uses_megatron(spec: RLJobSpec) -> bool:
    """Whether Megatron-Core trains, with MindSpeed's kernels or without."""
    return spec.trainer.backend in (TrainerBackend.MEGATRON, TrainerBackend.MINDSPEED)


def data_parallel_ranks(spec: RLJobSpec) -> int:
    """Shares into which a mini batch is cut; at least 1, also where the sizes do not divide the devices.

    Megatron: devices / (tensor × pipeline × context). FSDP2: devices / sequence (verl's ulysses groups).
    """
    sizes = spec.trainer.parallelism
    share = sizes.tensor * sizes.pipeline * sizes.context if uses_megatron(spec) else sizes.sequence
    return max(devices(spec) // share, 1)


def mini_batch(spec: RLJobSpec) -> int:
    """Prompts of an optimizer update."""
    return spec.trainer.mini_batch_size or spec.trainer.global_batch_size


def micro_batch(spec: RLJobSpec) -> int:
    """Samples of one pass on a device."""
    share = mini_batch(spec) * spec.trainer.samples_per_prompt // data_parallel_ranks(spec)
    return spec.trainer.micro_batch_size_per_device or max(share, 1)
