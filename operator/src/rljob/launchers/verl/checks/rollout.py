"""The generation: replicas on devices, batches of the engine, captured graphs, and Ray's CPUs beneath all of it.

Sources: verl 0.9.1, verl/workers/rollout/replica.py and verl/workers/config/rollout.py; vLLM's scheduler configuration;
vllm-ascend issues 9564 and 9596 (graph capture runs out of streams).
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

CAPTURE_SIZES_MAX = 4
STORAGE_UNITS_KEY = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
SIZES = "spec.rollout.parallelism"


def _tensor_divides_a_node(spec: RLJobSpec) -> Iterator[Violation]:
    """Tensor parallelism over the network would be slower than fewer, larger replicas."""
    group, tensor = spec.worker_groups[0], spec.rollout.parallelism.tensor
    if group.devices_per_node % tensor:
        yield Violation(
            f"{SIZES}.tensor",
            f"{tensor} does not divide workerGroups[0].devicesPerNode {group.devices_per_node}, so a replica would "
            f"span nodes; use one of {divisors(group.devices_per_node)}",
        )


def _replicas_fill_the_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """Replicas lie side by side: several in a node, or each on several whole nodes."""
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
            f"it, so replicas would share nodes by halves; use one of {divisors(group.devices_per_node)}",
        )


def _experts_take_the_replica(spec: RLJobSpec) -> Iterator[Violation]:
    """An engine has no expert size of its own: expert parallelism is off, or over the whole replica."""
    sizes = spec.rollout.parallelism
    replica = sizes.tensor * sizes.data
    if sizes.expert not in (1, replica):
        yield Violation(
            f"{SIZES}.expert",
            f"{sizes.expert} is neither 1 nor tensor {sizes.tensor} × data {sizes.data} = {replica}; use one of them",
        )


def _heads_are_shared_evenly(spec: RLJobSpec) -> Iterator[Violation]:
    """Attention is split by heads."""
    heads, tensor = spec.model.attention_heads, spec.rollout.parallelism.tensor
    if heads is not None and heads % tensor:
        yield Violation(
            f"{SIZES}.tensor", f"{tensor} does not divide model.attentionHeads {heads}; use one of {divisors(heads)}"
        )


def _batched_tokens_hold_the_sequences(spec: RLJobSpec) -> Iterator[Violation]:
    """A decoding pass takes a token of every sequence."""
    tokens, sequences = spec.rollout.max_batched_tokens or BATCHED_TOKENS, spec.rollout.max_sequences
    if sequences is not None and tokens < sequences:
        yield Violation(
            "spec.rollout.maxBatchedTokens",
            f"{tokens} tokens a pass are fewer than rollout.maxSequences {sequences}; set it to {sequences} or more",
        )


def _batched_tokens_hold_a_prompt(spec: RLJobSpec) -> Iterator[Violation]:
    """Without chunks a whole sequence must fit one pass, also one that is taken up again after an abort."""
    tokens = spec.rollout.max_batched_tokens or BATCHED_TOKENS
    longest = spec.data.max_prompt_tokens + spec.data.max_response_tokens
    if spec.rollout.chunked_prefill is False and tokens < longest:
        default = "" if spec.rollout.max_batched_tokens else " (verl's default)"
        yield Violation(
            "spec.rollout.maxBatchedTokens",
            f"{tokens}{default}, but chunkedPrefill is off and data.maxPromptTokens {spec.data.max_prompt_tokens} + "
            f"maxResponseTokens {spec.data.max_response_tokens} = {longest}; set it to {longest}, or chunkedPrefill on",
        )


def _capture_sizes_are_few(spec: RLJobSpec) -> Iterator[Violation]:
    """Each size takes streams in every layer, and a device has about 1,900."""
    sizes = spec.rollout.capture_sizes
    if len(sizes) > CAPTURE_SIZES_MAX:
        yield Violation(
            "spec.rollout.captureSizes",
            f"{len(sizes)} sizes, but Ascend runs out of streams beyond {CAPTURE_SIZES_MAX}; an eighth, a quarter, a "
            "half and all of maxSequences is usual",
        )


def _capture_sizes_are_graphs(spec: RLJobSpec) -> Iterator[Violation]:
    """Eager mode captures nothing."""
    if spec.rollout.capture_sizes and spec.rollout.eager:
        yield Violation("spec.rollout.captureSizes", "rollout.eager is on, which captures no graphs; take one out")


def _capture_sizes_reach_the_full_batch(spec: RLJobSpec) -> Iterator[Violation]:
    """A batch larger than every graph runs without one."""
    sizes, sequences = spec.rollout.capture_sizes, spec.rollout.max_sequences
    if sizes and sequences is not None and sequences not in sizes:
        listed = ", ".join(map(str, sizes))
        yield Violation(
            "spec.rollout.captureSizes",
            f"{listed} lack rollout.maxSequences {sequences}: full batches would run without a graph; add it",
        )


def _capture_sizes_fit_the_drafts(spec: RLJobSpec) -> Iterator[Violation]:
    """Speculation decodes one token and its drafts for every sequence of a pass."""
    draft = spec.rollout.speculative
    unit = draft.tokens + 1
    wrong = [size for size in spec.rollout.capture_sizes if size % unit]
    if draft.method != "None" and wrong:
        listed, fixed = ", ".join(map(str, wrong)), ", ".join(str(next_multiple(size, unit)) for size in wrong)
        yield Violation(
            "spec.rollout.captureSizes",
            f"{listed}: with speculative.tokens {draft.tokens} sizes are multiples of {draft.tokens} + 1 = {unit}; "
            f"use {fixed}",
        )


def _top_k_is_whole(spec: RLJobSpec) -> Iterator[Violation]:
    """The schema takes a text, because the value may be negative."""
    text = spec.rollout.top_k
    if text is None:
        return
    number = float(text)
    if not number.is_integer() or (number < 1 and number != -1):
        yield Violation("spec.rollout.topK", f"{text} is no number of tokens; use -1 for all, or 1 and more")


def _ray_has_the_cpus(spec: RLJobSpec) -> Iterator[Violation]:
    """CPUs of Ray are reserved, and verl waits for ever, without a word, when they are not there (verl#7656)."""
    group = spec.worker_groups[0]
    cpu = sized(spec, group.template).cpu
    if cpu is None or facts_of(spec).ray_cpus_per_device is not None:
        return
    # KubeRay rounds the request up and passes it to Ray: generateRayStartCommand of v1.6.2.
    cpus = math.ceil(quantity(cpu))
    workers, units = RAY_CPUS_PER_DEVICE_MIN * group.devices_per_node, _storage_units(spec)
    # The units and their controller lie wherever a CPU is left.
    needed = workers + -(-(units + 1) // group.nodes)
    # Each device gets the same number of cores: `hardware`.
    enough = next_multiple(needed, group.devices_per_node)
    if cpus < needed:
        yield Violation(
            "spec.workerGroups[0].template.cpu",
            f"{cpu} gives Ray {cpus} CPUs a node, but verl reserves {RAY_CPUS_PER_DEVICE_MIN} × devicesPerNode "
            f"{group.devices_per_node} = {workers}, and {units} + 1 over {group.nodes} nodes for TransferQueue; with "
            f"fewer it waits without a word; set it to {enough} or more",
        )


def _storage_units(spec: RLJobSpec) -> int:
    """Read the units of TransferQueue: the override, or two a node as the launcher fills in."""
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
    _capture_sizes_are_few,
    _capture_sizes_are_graphs,
    _capture_sizes_reach_the_full_batch,
    _capture_sizes_fit_the_drafts,
    _top_k_is_whole,
    _ray_has_the_cpus,
)
