"""The rollout: replicas on devices, and the CPUs that Ray needs for it.

Lines are those of verl 0.9.1 (below verl/) and of vLLM 0.23.0 (below vllm/).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import known_shape
from rljob.core.validation.arithmetic import divisors, next_multiple
from rljob.core.validation.devices import devices_text
from rljob.core.validation.fields import place_of
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import VLLM, effective
from rljob.launchers.verl.memory import BUCKET_KEY
from rljob.launchers.verl.rows import ACTOR, ROLLOUT
from rljob.launchers.verl.values import whole
from rljob.render.accelerator_table import RAY_CPUS_PER_DEVICE_MIN
from rljob.render.accelerators import facts_of
from rljob.render.hardware import sized
from rljob_runtime.planning.shapes import ShapeError

STORAGE_UNITS_KEY = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
STANDALONE_CPUS = 2
"""CPUs that a replica on devices of its own reserves for each (verl/workers/rollout/replica.py:202-208)."""
SIZES = "spec.rollout.parallelism"
WITHOUT_FP8 = ("910b", "a3")
"""Hardware of Atlas A2 and A3, as the tags of Ascend's images name it."""
CACHE_TYPE = f"{VLLM}.kv_cache_dtype"
QAT = tuple(f"{ACTOR}.{section}qat.enable" for section in ("", "fsdp_config.", "megatron."))
BYTES = 2
"""Of a number in bfloat16."""


def _tensor_divides_a_node(spec: RLJobSpec) -> Iterator[Violation]:
    """A node holds several whole tensor groups, or a tensor group takes several whole nodes.

    A replica is started as one server per node that it takes, on the devices of its workers in order
    (verl/workers/rollout/replica.py:107-117, vllm_rollout/vllm_async_server.py:1357-1364), and all replicas take all
    devices (verl/workers/engine_workers.py:655-661). With data above 1 each node holds whole tensor groups
    (vllm_async_server.py:384-387).
    """
    group, sizes = spec.rollout_group, spec.rollout.parallelism
    here = group.devices_per_node
    if here % sizes.tensor == 0:
        return
    if sizes.tensor % here == 0 and sizes.data == 1:
        if group.devices % sizes.tensor:
            yield Violation(
                f"{SIZES}.tensor",
                f"{sizes.tensor} does not divide {devices_text(spec, group)}; use one of {divisors(group.devices)}",
            )
        return
    multiple = f" or a multiple of {here}" if sizes.data == 1 else ""
    yield Violation(
        f"{SIZES}.tensor",
        f"{sizes.tensor} does not divide {place_of(spec, group)}.devicesPerNode {here}, so replicas would share nodes; "
        f"use one of {divisors(here)}{multiple}",
    )


def _tensor_spans_nodes(spec: RLJobSpec) -> Iterator[Violation]:
    """The ranks of a tensor group exchange activations in every layer, and the network between nodes is slower."""
    here, sizes = spec.rollout_group.devices_per_node, spec.rollout.parallelism
    if sizes.data == 1 and sizes.tensor > here and not sizes.tensor % here:
        yield Violation(
            f"{SIZES}.tensor",
            f"{sizes.tensor} spans {sizes.tensor // here} nodes of {here} devices: every layer waits for the network "
            f"between them; {here} or less stays within a node",
        )


def _replicas_fill_the_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """A node holds several whole replicas, or a replica takes several whole nodes.

    verl/workers/rollout/replica.py:107-117 and verl/workers/engine_workers.py:655-661. Parts of replicas that share a
    node are not refused, and start a server for devices of another node (vllm_async_server.py:1357-1364).
    """
    sizes, group = spec.rollout.parallelism, spec.rollout_group
    if sizes.data == 1 or group.devices_per_node % sizes.tensor:
        return
    replica, count = sizes.tensor * sizes.data, group.devices
    product = f"tensor {sizes.tensor} × data {sizes.data} = {replica}"
    if count % replica:
        yield Violation(
            f"{SIZES}.data",
            f"{product} does not divide {devices_text(spec, group)}; use one of {divisors(count // sizes.tensor)}",
        )
    elif group.devices_per_node % replica and replica % group.devices_per_node:
        yield Violation(
            f"{SIZES}.data",
            f"{product} neither divides {place_of(spec, group)}.devicesPerNode {group.devices_per_node} nor is a "
            f"multiple of it, so replicas would share nodes; use one of {divisors(group.devices_per_node)}",
        )


def _experts_take_the_replica(spec: RLJobSpec) -> Iterator[Violation]:
    """Expert parallelism is off or spans the whole replica (verl/workers/config/rollout.py:294-297)."""
    sizes = spec.rollout.parallelism
    replica = sizes.tensor * sizes.data
    if sizes.expert not in (1, replica):
        yield Violation(
            f"{SIZES}.expert",
            f"{sizes.expert} is neither 1 nor tensor {sizes.tensor} × data {sizes.data} = {replica}; use one of them",
        )


def _top_k_is_whole(spec: RLJobSpec) -> Iterator[Violation]:
    """Both -1 and 0 are all tokens, and no other number is below 1 (vllm/sampling_params.py:523-531)."""
    text = spec.rollout.top_k
    if text is None:
        return
    number = float(text)
    if not number.is_integer() or number < -1:
        yield Violation("spec.rollout.topK", f"{text} is not a number of tokens; use -1 or 0 for all, or 1 or more")


def _ray_has_the_cpus(spec: RLJobSpec) -> Iterator[Violation]:
    """The trainer reserves CPUs of Ray, and hangs silently where there are too few (verl#7656).

    A bundle per device (verl/single_controller/ray/base.py:146-160,192), and one CPU for each storage unit and for the
    controller of TransferQueue 0.1.11 (transfer_queue/storage/simple_storage.py:722, controller.py:943), which are on
    nodes that train.
    """
    for group in spec.worker_groups:
        cpu = sized(spec, group).cpu
        if cpu is None or facts_of(spec).ray_cpus_per_device is not None:
            continue
        # KubeRay rounds the request up and passes it to Ray: generateRayStartCommand of v1.6.2.
        cpus = math.ceil(quantity(cpu))
        trains = group is spec.trainer_group
        # The judge's pool is made as the trainer's (trainer/ppo/v1/trainer_base.py:829-831).
        each = RAY_CPUS_PER_DEVICE_MIN if trains or group is spec.judge_group else STANDALONE_CPUS
        workers, units = each * group.devices_per_node, _storage_units(spec)
        # Ray places the units and their controller wherever a CPU of a node that trains is free.
        needed = workers + (-(-(units + 1) // group.nodes) if trains else 0)
        # Each device gets the same number of cores: `hardware`.
        enough = next_multiple(needed, group.devices_per_node)
        queue = f", and {units} + 1 over {group.nodes} nodes for TransferQueue" if trains else ""
        if cpus < needed:
            yield Violation(
                f"spec.{place_of(spec, group)}.template.cpu",
                f"{cpu} gives Ray {cpus} CPUs a node, but verl reserves {each} × devicesPerNode "
                f"{group.devices_per_node} = {workers}{queue}; with fewer the run hangs; set it to {enough} or more",
            )


def _storage_units(spec: RLJobSpec) -> int:
    """Return the storage units of TransferQueue: the override, or the launcher's default of two per node."""
    given = effective(spec).setting(STORAGE_UNITS_KEY)
    if given is not None and isinstance(given.value, int):
        return max(given.value, 1)
    return max(2, 2 * spec.trainer_group.nodes)


def _the_class_has_the_format(spec: RLJobSpec) -> Iterator[Violation]:
    """Refuse formats that no kernel of the class computes with: vllm-ascend 0.23.0, verl 0.9.1.

    torchao is not among its formats (platform.py:140-145), and it has FP8 on A5 only (quantization/utils.py:132). A
    cache of another type than the model's is allocated, and attention writes the model's type into it
    (attention/attention_v1.py:419: kept and not read). verl's QAT is NVFP4, by CUDA's Triton (utils/qat/linear.py:30).
    """
    facts, seen = facts_of(spec), effective(spec)
    if not facts.is_npu:
        return
    without_fp8 = facts.image_suffix in WITHOUT_FP8
    name = spec.accelerator.class_
    format_, cache = seen.setting(f"{ROLLOUT}.quantization"), seen.setting(CACHE_TYPE)
    if format_ is not None and (format_.value == "torchao" or (format_.value == "fp8" and without_fp8)):
        yield Violation(
            format_.field,
            f"{format_.value}: vllm-ascend does not run it on class {name}; remove it, or use ascend with a model that "
            "msModelSlim has quantized",
        )
    if cache is not None and str(cache.value).startswith("fp8") and without_fp8:
        yield Violation(
            cache.field, f"{cache.value}: vllm-ascend has no cache of this type on class {name}; remove it, or use auto"
        )
    for key in QAT:
        training = seen.setting(key)
        if training is not None and training.value is True:
            yield Violation(
                training.field, f"verl's QAT computes in NVFP4, which class {name} does not have; remove it"
            )


def _the_bucket_holds_the_embedding(spec: RLJobSpec) -> Iterator[Violation]:
    """Without IPC no weight may be larger than a bucket (workers/rollout/vllm_rollout/bucketed_weight_transfer.py:141).

    CPUs have none (rljob_runtime/verl_plugin/platform). Of NPUs, driver and CANN decide, which the spec does not state
    (plugin/platform/platform_npu.py:164).
    """
    seen = effective(spec)
    megabytes = whole(seen.value(BUCKET_KEY))
    try:
        shape = known_shape(spec)
    except ShapeError:
        return  # `model_splits` reports it.
    if shape is None or megabytes is None or facts_of(spec).is_npu:
        return
    largest = shape.vocabulary * shape.hidden * BYTES >> 20
    if largest > megabytes:
        yield Violation(
            seen.field(BUCKET_KEY),
            f"{megabytes} MB, and the embedding of {shape.name} has {largest} MB in bfloat16, which is sent as one; "
            f"raise it to {next_multiple(largest + 1, 256)}",
        )


CHECKS: tuple[Check, ...] = (
    _the_class_has_the_format,
    _the_bucket_holds_the_embedding,
    _tensor_divides_a_node,
    _replicas_fill_the_devices,
    _experts_take_the_replica,
    _top_k_is_whole,
    _ray_has_the_cpus,
)
WARNINGS: tuple[Check, ...] = (_tensor_spans_nodes,)
