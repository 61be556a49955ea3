"""The rollout: replicas on devices, batches of the engine, and the CPUs that Ray needs for it.

Sources: verl 0.9.1, verl/workers/rollout/replica.py and verl/workers/config/rollout.py; vLLM's scheduler configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.arithmetic import divisors, next_multiple
from rljob.core.validation.devices import devices_text
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.rollout import BATCHED_TOKENS
from rljob.render.accelerator_table import RAY_CPUS_PER_DEVICE_MIN
from rljob.render.accelerators import facts_of
from rljob.render.hardware import sized

STORAGE_UNITS_KEY = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
SIZES = "spec.rollout.parallelism"


def _tensor_divides_a_node(spec: RLJobSpec) -> Iterator[Violation]:
    """A replica whose tensor ranks span nodes would be limited by the network."""
    group, tensor = spec.worker_groups[0], spec.rollout.parallelism.tensor
    if group.devices_per_node % tensor:
        yield Violation(
            f"{SIZES}.tensor",
            f"{tensor} does not divide workerGroups[0].devicesPerNode {group.devices_per_node}, so a replica would "
            f"span nodes; use one of {divisors(group.devices_per_node)}",
        )


def _replicas_fill_the_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """A node holds several whole replicas, or a replica takes several whole nodes."""
    sizes, group = spec.rollout.parallelism, spec.worker_groups[0]
    if sizes.data == 1 or group.devices_per_node % sizes.tensor:
        return
    replica, count = sizes.tensor * sizes.data, spec.devices
    product = f"tensor {sizes.tensor} × data {sizes.data} = {replica}"
    if count % replica:
        yield Violation(
            f"{SIZES}.data",
            f"{product} does not divide {devices_text(spec)}; use one of {divisors(count // sizes.tensor)}",
        )
    elif group.devices_per_node % replica and replica % group.devices_per_node:
        yield Violation(
            f"{SIZES}.data",
            f"{product} neither divides workerGroups[0].devicesPerNode {group.devices_per_node} nor is a multiple of "
            f"it, so replicas would share nodes; use one of {divisors(group.devices_per_node)}",
        )


def _experts_take_the_replica(spec: RLJobSpec) -> Iterator[Violation]:
    """An engine has no separate expert size: expert parallelism is off or spans the whole replica."""
    sizes = spec.rollout.parallelism
    replica = sizes.tensor * sizes.data
    if sizes.expert not in (1, replica):
        yield Violation(
            f"{SIZES}.expert",
            f"{sizes.expert} is neither 1 nor tensor {sizes.tensor} × data {sizes.data} = {replica}; use one of them",
        )


def _heads_are_shared_evenly(spec: RLJobSpec) -> Iterator[Violation]:
    """Tensor ranks split attention by heads."""
    heads, tensor = spec.model.attention_heads, spec.rollout.parallelism.tensor
    if heads is not None and heads % tensor:
        yield Violation(
            f"{SIZES}.tensor", f"{tensor} does not divide model.attentionHeads {heads}; use one of {divisors(heads)}"
        )


def _batched_tokens_hold_the_sequences(spec: RLJobSpec) -> Iterator[Violation]:
    """A decoding pass takes one token of every sequence."""
    tokens, sequences = spec.rollout.max_batched_tokens or BATCHED_TOKENS, spec.rollout.max_sequences
    if sequences is not None and tokens < sequences:
        yield Violation(
            "spec.rollout.maxBatchedTokens",
            f"{tokens} tokens per pass are fewer than rollout.maxSequences {sequences}; set it to {sequences} or more",
        )


def _batched_tokens_hold_a_prompt(spec: RLJobSpec) -> Iterator[Violation]:
    """Without chunked prefill a whole sequence must fit into one pass, even one that resumes after an abort."""
    tokens = spec.rollout.max_batched_tokens or BATCHED_TOKENS
    longest = spec.data.max_prompt_tokens + spec.data.max_response_tokens
    if spec.rollout.chunked_prefill is False and tokens < longest:
        default = "" if spec.rollout.max_batched_tokens else " (verl's default)"
        yield Violation(
            "spec.rollout.maxBatchedTokens",
            f"{tokens}{default}, but chunkedPrefill is off and data.maxPromptTokens {spec.data.max_prompt_tokens} + "
            f"maxResponseTokens {spec.data.max_response_tokens} = {longest}; set it to {longest}, or turn it on",
        )


def _top_k_is_whole(spec: RLJobSpec) -> Iterator[Violation]:
    """The schema accepts any number as text, because the value may be negative."""
    text = spec.rollout.top_k
    if text is None:
        return
    number = float(text)
    if not number.is_integer() or (number < 1 and number != -1):
        yield Violation("spec.rollout.topK", f"{text} is not a number of tokens; use -1 for all, or 1 or more")


def _ray_has_the_cpus(spec: RLJobSpec) -> Iterator[Violation]:
    """The trainer reserves CPUs of Ray, and hangs silently where there are too few (verl#7656)."""
    group = spec.worker_groups[0]
    cpu = sized(spec, group.template).cpu
    if cpu is None or facts_of(spec).ray_cpus_per_device is not None:
        return
    # KubeRay rounds the request up and passes it to Ray: generateRayStartCommand of v1.6.2.
    cpus = math.ceil(quantity(cpu))
    workers, units = RAY_CPUS_PER_DEVICE_MIN * group.devices_per_node, _storage_units(spec)
    # Ray places the units and their controller wherever a CPU is free.
    needed = workers + -(-(units + 1) // group.nodes)
    # Each device gets the same number of cores: `hardware`.
    enough = next_multiple(needed, group.devices_per_node)
    if cpus < needed:
        yield Violation(
            "spec.workerGroups[0].template.cpu",
            f"{cpu} gives Ray {cpus} CPUs a node, but verl reserves {RAY_CPUS_PER_DEVICE_MIN} × devicesPerNode "
            f"{group.devices_per_node} = {workers}, and {units} + 1 over {group.nodes} nodes for TransferQueue; with "
            f"fewer the run hangs; set it to {enough} or more",
        )


def _storage_units(spec: RLJobSpec) -> int:
    """Return the storage units of TransferQueue: the override, or the launcher's default of two per node."""
    for key, value in spec.verl.overrides.items():
        if key.lstrip("+") == STORAGE_UNITS_KEY and isinstance(value, int):
            return max(value, 1)
    return max(2, 2 * spec.worker_groups[0].nodes)


CHECKS: tuple[Check, ...] = (
    _tensor_divides_a_node,
    _replicas_fill_the_devices,
    _experts_take_the_replica,
    _heads_are_shared_evenly,
    _batched_tokens_hold_the_sequences,
    _batched_tokens_hold_a_prompt,
    _top_k_is_whole,
    _ray_has_the_cpus,
)
