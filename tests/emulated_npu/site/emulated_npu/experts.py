"""Mixtures of experts of torch_npu and of vllm-ascend: gates, order of tokens, grouped products."""

from __future__ import annotations

import types
from typing import Any

import torch

from emulated_npu.attention import pieces
from emulated_npu.operators import operator


@operator("npu::npu_grouped_matmul")
def grouped_matmul(a: types.SimpleNamespace) -> Any:
    """Return the products of groups of rows with a weight each; of type 2, with a part of the columns each."""
    if a.group_list is None:
        return [each @ weight for each, weight in zip(a.x, a.weight, strict=True)]
    counts = a.group_list if a.group_list_type != 1 else a.group_list.cumsum(0)
    groups = pieces(counts.tolist())
    if a.group_type == 2:
        return [torch.stack([a.x[0][:, start:end] @ a.weight[0][start:end] for start, end in groups])]
    rows = torch.cat(list(a.x))
    weights = a.weight[0] if len(a.weight) == 1 else a.weight
    return [torch.cat([rows[start:end] @ weights[index] for index, (start, end) in enumerate(groups)])]


@operator("npu::npu_moe_token_permute")
def token_permute(a: types.SimpleNamespace) -> Any:
    """Return tokens in the order of their experts, and where each of them went."""
    flat = a.indices.flatten()
    order = torch.argsort(flat, stable=True)
    chosen = a.indices.shape[1] if a.indices.dim() > 1 else 1
    count = a.num_out_tokens or len(flat)
    return a.tokens[order[:count] // chosen], torch.argsort(order, stable=True).int()


@operator("npu::npu_moe_token_unpermute")
def token_unpermute(a: types.SimpleNamespace) -> Any:
    """Return tokens in their own order, the weighted sum over the experts of each."""
    rows = a.permuted_tokens[a.sorted_indices.long()]
    if a.probs is None:
        return rows
    return (rows.unflatten(0, a.probs.shape) * a.probs.unsqueeze(-1)).sum(1).to(a.permuted_tokens.dtype)


@operator("npu::npu_moe_gating_top_k_softmax")
def gating_softmax(a: types.SimpleNamespace) -> Any:
    """Return the weights, the experts and the rows of each token."""
    weights, chosen = torch.softmax(a.x.float(), -1).topk(a.k, -1)
    rows = torch.arange(chosen.numel(), dtype=torch.int32, device=a.x.device).view(a.k, -1).t().contiguous()
    return weights.to(a.x.dtype), chosen.int(), rows


@operator("_C_ascend::moe_gating_top_k")
def gating(a: types.SimpleNamespace) -> Any:
    """Return the weights and the experts of each token, and all scores; type 0 is a softmax, 1 a sigmoid.

    Whole groups of experts are not chosen here: those of DeepSeek, with a correction of their scores.
    """
    if a.group_count != 1 or a.bias_opt is not None:
        raise NotImplementedError("the emulated NPU has no _C_ascend::moe_gating_top_k with groups or a correction")
    scores = torch.sigmoid(a.x.float()) if a.norm_type == 1 else torch.softmax(a.x.float(), -1)
    weights, chosen = scores.topk(a.k, -1)
    if a.renorm or a.norm_type == 1:
        weights = weights / (weights.sum(-1, keepdim=True) + a.eps)
    return (weights * a.routed_scaling_factor).to(a.x.dtype), chosen.int(), scores


@operator("_C_ascend::npu_moe_init_routing_custom")
def init_routing(a: types.SimpleNamespace) -> Any:
    """Return the tokens of the own experts in their order, then the others; where each went; tokens of each expert."""
    first, last = a.active_expert_range or (0, a.expert_num)
    flat = a.expert_idx.flatten().long()
    own = (flat >= first) & (flat < last)
    order = torch.argsort(torch.where(own, flat, a.expert_num), stable=True)
    counts = torch.bincount(flat[own] - first, minlength=last - first)
    none = torch.empty(0, device=a.x.device)
    return a.x[order // a.expert_idx.shape[1]], torch.argsort(order, stable=True).int(), counts, none


def routed(a: types.SimpleNamespace) -> tuple[Any, Any]:
    """Return expert and token of each permuted row: the tokens of the first expert, of the second, and so on."""
    if a.drop_and_pad:
        raise NotImplementedError("the emulated NPU has no permutation of tokens that drops and pads")
    experts, tokens = a.routing_map.bool().t().nonzero(as_tuple=True)
    return experts, tokens


@operator("npu::npu_moe_token_permute_with_routing_map")
def permute_with_map(a: types.SimpleNamespace) -> Any:
    """Return permuted tokens, their weights, and the token of each row, which only the next three operators read."""
    experts, tokens = routed(a)
    weights = torch.empty(0, device=a.tokens.device) if a.probs is None else a.probs[tokens, experts]
    return a.tokens[tokens], weights, tokens.int()


@operator("npu::npu_moe_token_permute_with_routing_map_grad")
def permute_with_map_gradient(a: types.SimpleNamespace) -> Any:
    """Return the gradients of tokens and of weights."""
    experts, tokens = routed(a)
    rows = a.permuted_token_out_grad
    gradient = rows.new_zeros(a.tokens_num, rows.shape[1]).index_add_(0, tokens, rows)
    if a.probs_grad is None:
        return gradient, torch.empty(0, device=rows.device)
    weights = rows.new_zeros(a.tokens_num, a.experts_num, dtype=a.probs_grad.dtype)
    weights[tokens, experts] = a.probs_grad
    return gradient, weights


@operator("npu::_npu_moe_token_unpermute_with_routing_map")
def unpermute_with_map(a: types.SimpleNamespace) -> Any:
    """Return the weighted sum of the rows of each token."""
    experts, tokens = routed(a)
    rows = a.permuted_tokens
    weighted = rows if a.probs is None else rows * a.probs[tokens, experts].unsqueeze(-1)
    made = weighted.new_zeros(*a.restore_shape).index_add_(0, tokens, weighted).to(rows.dtype)
    return made, tokens.int(), tokens.int(), torch.empty(0, device=rows.device)


@operator("npu::npu_moe_token_unpermute_with_routing_map_grad")
def unpermute_with_map_gradient(a: types.SimpleNamespace) -> Any:
    """Return the gradients of rows and of weights."""
    experts, tokens = routed(a)
    rows = a.unpermuted_tokens_grad[tokens]
    if a.probs is None:
        return rows, torch.empty(0, device=rows.device)
    weights = torch.zeros_like(a.probs)
    weights[tokens, experts] = (rows * a.permuted_tokens).sum(-1).to(weights.dtype)
    return (rows * a.probs[tokens, experts].unsqueeze(-1)).to(rows.dtype), weights
