"""Attention of torch_npu and of vllm-ascend, and the cache of keys and values.

Layouts of queries: T tokens of all sequences, B batch, S length, N heads, D size of a head, H = N x D.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch

from emulated_npu.operators import operator

SEQUENCES = ("TND", "NTD_TND")


def attend(query: Any, key: Any, value: Any, scale: float, masked: Any = None) -> tuple[Any, Any]:
    """Return the attention, [heads, queries, size], and the logarithm of the sum, from [heads, length, size] each."""
    repeats = query.shape[0] // key.shape[0]
    key, value = (each.repeat_interleave(repeats, 0) if repeats > 1 else each for each in (key, value))
    scores = torch.matmul(query.float(), key.float().transpose(-1, -2)) * scale
    if masked is not None:
        scores = scores.masked_fill(masked, float("-inf"))
    total = torch.logsumexp(scores, -1, keepdim=True)
    weights = torch.exp(scores - total).nan_to_num(0.0)
    return torch.matmul(weights, value.float()).to(value.dtype), total


def hidden(a: types.SimpleNamespace, queries: int, keys: int, device: Any) -> Any:
    """Return what a query may not see. Mode 2: the first query sees the first key; 3: the last one sees all keys."""
    if a.sparse_mode in (2, 3):
        rows, columns = torch.arange(queries, device=device), torch.arange(keys, device=device)
        return columns[None, :] > rows[:, None] + (keys - queries if a.sparse_mode == 3 else 0)
    mask = a.atten_mask
    return None if mask is None else mask.bool().reshape(mask.shape[-2:])[:queries, :keys]


def pieces(ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last token of sequences that stand behind each other."""
    return list(pairwise((0, *ends)))


@operator("npu::npu_fusion_attention")
def fusion_attention(a: types.SimpleNamespace) -> Any:
    """Return the attention of the trainer, and of packed sequences the maximum and the sum of each softmax."""
    none = torch.empty(0, device=a.query.device)
    if a.input_layout != "TND":
        return batched_attention(a), none, none, none, 0, 0, 0
    output, totals = packed_attention(a)
    return output, totals, torch.ones_like(totals), none, 0, 0, 0


def sequences(a: types.SimpleNamespace) -> Iterator[tuple[slice, slice, Any]]:
    """Yield queries and keys of each of the sequences that stand behind each other, and what a query may not see."""
    for (start, end), (first, last) in zip(pieces(a.actual_seq_qlen), pieces(a.actual_seq_kvlen), strict=True):
        yield slice(start, end), slice(first, last), hidden(a, end - start, last - first, a.query.device)


def packed_attention(a: types.SimpleNamespace) -> tuple[Any, Any]:
    """Return the attention of packed sequences, and the logarithm of each sum: the maximum of a softmax of sum 1.

    The latter is [T, N, 8] as on an NPU, and each sequence is ordered by heads (flatten_softmax of MindSpeed e4772499,
    core/context_parallel/utils.py:58).
    """
    outputs, totals = [], []
    for queries, keys, masked in sequences(a):
        query, key, value = (each.transpose(0, 1) for each in (a.query[queries], a.key[keys], a.value[keys]))
        output, total = attend(query, key, value, a.scale, masked)
        outputs.append(output.transpose(0, 1))
        totals.append(total.flatten().unsqueeze(-1).expand(-1, 8))
    rest = a.query[a.actual_seq_qlen[-1] :]
    heads = a.query.shape[1]
    totals.append(rest.new_zeros(len(rest) * heads, 8, dtype=torch.float32))
    return torch.cat((*outputs, torch.zeros_like(rest))), torch.cat(totals).view(-1, heads, 8)


@operator("npu::npu_fusion_attention_grad")
def fusion_attention_gradient(a: types.SimpleNamespace) -> Any:
    """Return the gradients of packed sequences, whose softmax may be over more keys than these."""
    if a.input_layout != "TND":
        raise NotImplementedError(f"the emulated NPU has no gradient of attention with the layout {a.input_layout}")
    gradients = [torch.zeros_like(each, dtype=torch.float32) for each in (a.query, a.key, a.value)]
    heads, shared = a.query.shape[1], a.query.shape[1] // a.key.shape[1]
    for queries, keys, masked in sequences(a):
        query, made, given = (each[queries].float().transpose(0, 1) for each in (a.query, a.attention_in, a.dy))
        key, value = (each[keys].float().transpose(0, 1).repeat_interleave(shared, 0) for each in (a.key, a.value))
        largest, total = (each[queries].reshape(heads, -1, 8)[..., :1] for each in (a.softmax_max, a.softmax_sum))
        weights = torch.exp(query @ key.transpose(1, 2) * a.scale_value - largest) / total
        if masked is not None:
            weights = weights.masked_fill(masked, 0.0)
        scores = weights * (given @ value.transpose(1, 2) - (given * made).sum(-1, keepdim=True)) * a.scale_value
        gradients[0][queries] = (scores @ key).transpose(0, 1)
        for gradient, each in zip(
            gradients[1:], (scores.transpose(1, 2) @ query, weights.transpose(1, 2) @ given), strict=True
        ):
            gradient[keys] = each.unflatten(0, (-1, shared)).sum(1).transpose(0, 1)
    none = torch.empty(0, device=a.query.device)
    return *(each.to(a.query.dtype) for each in gradients), none, none


def batched_attention(a: types.SimpleNamespace) -> Any:
    """Return the attention of a batch."""
    order = {"SBH": (1, 2, 0, 3), "BSH": (0, 2, 1, 3), "BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3)}[a.input_layout]
    flat = a.input_layout in ("SBH", "BSH")
    size = a.query.shape[-1] // a.head_num if flat else a.query.shape[-1]
    parts = (each.unflatten(-1, (-1, size)) if flat else each for each in (a.query, a.key, a.value))
    query, key, value = (each.permute(order) for each in parts)  # BNSD
    masked = hidden(a, query.shape[2], key.shape[2], a.query.device)
    output = torch.stack([attend(*each, a.scale, masked)[0] for each in zip(query, key, value, strict=True)])
    output = output.permute([order.index(place) for place in range(4)])
    return (output.flatten(-2) if flat else output).contiguous()


def paged(cache: Any, table: Any, length: int, heads: int) -> Any:
    """Return the keys or values of a sequence, [length, heads, size]."""
    blocks = cache[table[: -(-length // cache.shape[1])].long()]
    return blocks.reshape(-1, heads, blocks[0, 0].numel() // heads)[:length]


def infer(a: types.SimpleNamespace, ends: Sequence[int], lengths: Sequence[int], heads: int, scale: float) -> Any:
    """Return the attention of the rollout, over the cache if there is a table of blocks; heads are of keys."""
    if a.input_layout not in SEQUENCES:
        raise NotImplementedError(f"the emulated NPU has no attention with the layout {a.input_layout}")
    query = a.query
    outputs = torch.zeros_like(query)
    totals = torch.zeros(*query.shape[:2], 1, dtype=torch.float32, device=query.device)
    begin = 0
    for index, (start, end) in enumerate(pieces(list(ends))):
        if a.block_table is not None:
            length = lengths[index]
            key, value = (paged(each, a.block_table[index], length, heads) for each in (a.key, a.value))
        else:
            length = lengths[index] - begin
            key, value = (each[begin : begin + length] for each in (a.key, a.value))
            begin += length
        if end == start or not length:
            continue
        asked, key, value = (each.transpose(0, 1) for each in (query[start:end], key, value))
        made, total = attend(asked, key, value, scale, hidden(a, end - start, length, query.device))
        outputs[start:end], totals[start:end] = made.transpose(0, 1), total.transpose(0, 1)
    return outputs, totals


@operator("npu::npu_fused_infer_attention_score")
def infer_attention(a: types.SimpleNamespace) -> Any:
    """Return the attention of the rollout."""
    return infer(a, a.actual_seq_lengths, a.actual_seq_lengths_kv, a.num_key_value_heads or a.num_heads, a.scale)


@operator("npu::npu_fused_infer_attention_score_v2")
def infer_attention_v2(a: types.SimpleNamespace) -> Any:
    """Return the same, by other names."""
    heads = a.num_key_value_heads or a.num_query_heads
    return infer(a, a.actual_seq_qlen, a.actual_seq_kvlen, heads, a.softmax_scale)


@operator("npu::npu_fused_infer_attention_score.out", "npu::npu_fused_infer_attention_score_v2.out")
def infer_attention_out(a: types.SimpleNamespace) -> Any:
    """Write it into tensors that exist."""
    made = infer_attention(a) if hasattr(a, "num_heads") else infer_attention_v2(a)
    for place, result in zip(a.out, made, strict=True):
        if place.numel() == result.numel():
            place.copy_(result.view(place.shape))
    return a.out[0], a.out[1]


@operator(
    "npu::_npu_fused_infer_attention_score_get_max_workspace",
    "npu::_npu_fused_infer_attention_score_v2_get_max_workspace",
)
def workspace(a: types.SimpleNamespace) -> Any:
    """Return memory that nothing uses here."""
    return torch.empty(1, dtype=torch.uint8, device=a.query.device)


@operator("atb::_npu_reshape_and_cache")
def reshape_and_cache(a: types.SimpleNamespace) -> None:
    """Write keys and values into the slots of the cache; negative slots are for padding."""
    slots = a.slot_indices.long()
    kept = slots >= 0
    for new, cache in ((a.key, a.key_cache), (a.value, a.value_cache)):
        cache.view(-1, *new.shape[1:])[slots[kept]] = new[: len(slots)][kept]


@operator("npu::npu_scatter_pa_kv_cache")
def scatter_cache(a: types.SimpleNamespace) -> None:
    """Write the same, by another name of the slots."""
    a.slot_indices = a.slot_mapping
    reshape_and_cache(a)
