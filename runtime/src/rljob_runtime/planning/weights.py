"""Number of elements of a model's weights, sharded as the engines do it, and bytes of its cache.

`memory` sums them by phase. Layouts treat three kinds of elements differently: elements that tensor parallelism shards,
elements that every tensor rank replicates, and elements of routed experts.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob_runtime.planning.shapes import Shape

BF16 = 2
FP32 = 4
MATRICES = 3
"""Gate, up and down projection of a SwiGLU MLP."""


@dataclass(frozen=True)
class Elements:
    """Numbers of elements of some weights."""

    cut: float = 0.0
    """Sharded by tensor parallelism: the number on one rank."""
    whole: float = 0.0
    """Replicated on every tensor rank."""
    experts: float = 0.0
    """Elements of routed experts on one die."""

    @property
    def dense(self) -> float:
        """All elements except the experts'."""
        return self.cut + self.whole

    @property
    def total(self) -> float:
        """All elements on a die."""
        return self.dense + self.experts

    def __add__(self, other: Elements) -> Elements:
        """Add part by part."""
        return Elements(self.cut + other.cut, self.whole + other.whole, self.experts + other.experts)


@dataclass(frozen=True)
class Cut:
    """How one copy of a model is sharded over dies."""

    tensor: int = 1
    expert: int = 1
    """Number of groups with whole experts."""
    expert_tensor: int = 1
    """Number of ranks that share each expert."""


def layer_elements(shape: Shape, layer: int, cut: Cut) -> Elements:
    """Return one layer's elements on a die."""
    norms = Elements(whole=2 * shape.hidden)
    return _attention(shape, cut) + _mlp(shape, layer, cut) + norms


def _attention(shape: Shape, cut: Cut) -> Elements:
    hidden, heads, tensor = shape.hidden, shape.heads, cut.tensor
    if latent := shape.latent:
        query_head = latent.plain_head + latent.rotary_head
        down = hidden * (latent.kv_rank + latent.rotary_head) + latent.kv_rank
        if latent.query_rank is None:
            up = hidden * heads * query_head
        else:
            up = latent.query_rank * heads * query_head
            down += hidden * latent.query_rank + latent.query_rank
        up += latent.kv_rank * heads * (latent.plain_head + latent.value_head) + heads * latent.value_head * hidden
        return Elements(cut=up / tensor, whole=down)
    # With fewer key heads than ranks, engines replicate them (vLLM's QKVParallelLinear).
    columns = shape.head * (heads / tensor + 2 * kv_heads_of_rank(shape, tensor))
    matrices = hidden * columns + heads * shape.head * hidden / tensor
    bias = columns if shape.qkv_bias else 0
    return Elements(cut=matrices + bias, whole=2 * shape.head if shape.head_norm else 0)


def kv_heads_of_rank(shape: Shape, tensor: int) -> int:
    """Return the number of key heads on a tensor rank: its share, and at least one."""
    return max(1, shape.kv_heads // tensor)


def _mlp(shape: Shape, layer: int, cut: Cut) -> Elements:
    moe = shape.experts
    if moe is None or not shape.has_experts(layer):
        return Elements(cut=MATRICES * shape.hidden * shape.width / cut.tensor)
    one = MATRICES * shape.hidden * moe.width / cut.expert_tensor
    return Elements(
        cut=MATRICES * shape.hidden * moe.shared_width / cut.tensor,
        # The router, and the gate of the shared expert.
        whole=shape.hidden * moe.count + (shape.hidden if moe.shared_gate else 0),
        experts=one * -(-moe.count // cut.expert),
    )


def embedding_elements(shape: Shape, cut: Cut) -> Elements:
    """Return the elements of the input embedding on a die. The output layer has the same number."""
    return Elements(cut=shape.vocabulary * shape.hidden / cut.tensor)


def model_elements(shape: Shape, cut: Cut) -> Elements:
    """Return all elements of a model on a die that holds every layer."""
    total = embedding_elements(shape, cut) + Elements(whole=shape.hidden)
    if not shape.tied:
        total += embedding_elements(shape, cut)
    for layer in range(shape.layers):
        total += layer_elements(shape, layer, cut)
    return total


def adapter_elements(shape: Shape, rank: int) -> int:
    """Return the elements of a LoRA adapter of every linear layer but the output: rank × (inputs + outputs) of each.

    Routed experts are counted as one of them: transformers keeps them as parameters, which peft's "all-linear" leaves
    out, and Megatron gives the local ones one adapter. With fewer targets it is an upper bound.
    """
    hidden, heads = shape.hidden, shape.heads
    if latent := shape.latent:
        query = heads * (latent.plain_head + latent.rotary_head)
        low = [(hidden, latent.query_rank), (latent.query_rank, query)] if latent.query_rank else [(hidden, query)]
        low += [(hidden, latent.kv_rank + latent.rotary_head)]
        low += [(latent.kv_rank, heads * (latent.plain_head + latent.value_head)), (heads * latent.value_head, hidden)]
    else:
        columns = shape.head * shape.kv_heads
        low = [(hidden, shape.head * heads), (hidden, columns), (hidden, columns), (shape.head * heads, hidden)]
    attention = sum(map(sum, low))
    total = 0
    for layer in range(shape.layers):
        moe = shape.experts if shape.has_experts(layer) else None
        width = moe.width + moe.shared_width if moe is not None else shape.width
        total += attention + MATRICES * (hidden + width)
    return rank * total


def kv_bytes_per_token(shape: Shape, tensor: int) -> int:
    """Return the bytes of one token in the cache of one die, in bf16.

    Two vectors per key head and layer. With MLA, one compressed vector and the rotary part, which every tensor rank
    replicates (arXiv 2405.04434, section 2.1).
    """
    if latent := shape.latent:
        return shape.layers * (latent.kv_rank + latent.rotary_head) * BF16
    return shape.layers * 2 * kv_heads_of_rank(shape, tensor) * shape.head * BF16


def absorbed_elements(shape: Shape, tensor: int) -> float:
    """Return the elements that an engine adds for MLA: a second copy of the key and value up-projections for decoding.

    vllm_ascend/attention/mla_v1.py, v0.23.0, process_weights_after_loading (W_UK_T and W_UV).
    """
    if not (latent := shape.latent):
        return 0.0
    return shape.layers * latent.kv_rank * shape.heads * (latent.plain_head + latent.value_head) / tensor
