"""Norms, activations, rotary positions, casts and sampling of torch_npu and of vllm-ascend."""

from __future__ import annotations

import types
from typing import Any

import torch

from emulated_npu.operators import operator


def rms(tensor: Any, weight: Any, epsilon: float) -> tuple[Any, Any]:
    """Return the normalized tensor, and the reciprocal of its root mean square."""
    scale = torch.rsqrt(tensor.float().pow(2).mean(-1, keepdim=True) + epsilon)
    return (tensor.float() * scale * weight.float()).to(tensor.dtype), scale


@operator("npu::npu_rms_norm")
def rms_norm(a: types.SimpleNamespace) -> Any:
    """Return the norm."""
    return rms(a.input, a.gamma, a.epsilon)


@operator("npu::npu_add_rms_norm")
def add_rms_norm(a: types.SimpleNamespace) -> Any:
    """Return the norm of a sum, and the sum."""
    total = a.x1 + a.x2
    return *rms(total, a.gamma, a.epsilon), total


@operator("_C_ascend::npu_add_rms_norm_bias")
def add_rms_norm_bias(a: types.SimpleNamespace) -> Any:
    """Return the same with a bias."""
    total = a.x1 + a.x2
    made, scale = rms(total, a.gamma, a.epsilon)
    return (made if a.beta is None else made + a.beta), scale, total


@operator("npu::npu_swiglu")
def swiglu(a: types.SimpleNamespace) -> Any:
    """Return the gated activation."""
    gate, rest = a.input.chunk(2, a.dim)
    return torch.nn.functional.silu(gate) * rest


def rotated(tensor: Any, cosine: Any, sine: Any, mode: str) -> Any:
    """Return a tensor with rotary positions; `half` and `interleave` pair its elements differently."""
    if mode == "half":
        first, second = tensor.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    else:
        turned = torch.stack((-tensor[..., 1::2], tensor[..., ::2]), -1).flatten(-2)
    return (tensor.float() * cosine.float() + turned.float() * sine.float()).to(tensor.dtype)


@operator("npu::npu_rotary_mul")
def rotary_mul(a: types.SimpleNamespace) -> Any:
    """Return a tensor with rotary positions."""
    return rotated(a.input, a.r1, a.r2, a.rotary_mode)


@operator("npu::npu_apply_rotary_pos_emb")
def apply_rotary(a: types.SimpleNamespace) -> Any:
    """Return queries and keys with rotary positions."""
    mode = getattr(a, "rotary_mode", "half")
    return rotated(a.query, a.cos, a.sin, mode), rotated(a.key, a.cos, a.sin, mode)


@operator("atb::_npu_rotary_embedding")
def rotary_embedding(a: types.SimpleNamespace) -> None:
    """Write queries and keys with rotary positions."""
    cosine, sine = (part.unsqueeze(1) for part in a.cos_sin_cache[a.positions.flatten().long()].chunk(2, -1))
    if a.is_neox_style:
        cosine, sine = (torch.cat((part, part), -1) for part in (cosine, sine))
    else:
        cosine, sine = (part.repeat_interleave(2, -1) for part in (cosine, sine))
    for tensor in (a.query, a.key):
        part = tensor.view(len(cosine), -1, a.head_size)[..., : cosine.shape[-1]]
        part.copy_(rotated(part, cosine, sine, "half" if a.is_neox_style else "interleave"))


@operator("npu::npu_format_cast", "npu::_npu_format_cast", "npu::npu_format_cast_.acl_format")
def format_cast(a: types.SimpleNamespace) -> Any:
    """Return the same tensor: there is one layout of memory."""
    return a.input if hasattr(a, "input") else a.self


@operator("npu::npu_dtype_cast", "npu::_npu_dtype_cast")
def dtype_cast(a: types.SimpleNamespace) -> Any:
    """Return a tensor of another type."""
    return a.input.to(a.dtype)


@operator("atb::_npu_matmul_add_fp32")
def matmul_add(a: types.SimpleNamespace) -> None:
    """Add the gradient of a weight to one in float32."""
    a.C.add_(a.x.float().t() @ a.weight.float())


@operator("npu::npu_top_k_top_p")
def top_k_top_p(a: types.SimpleNamespace) -> Any:
    """Return logits without the unlikely tokens."""
    ordered, order = a.logits.sort(-1)
    if a.k is not None:
        least = ordered.gather(-1, (ordered.shape[-1] - a.k.long()).clamp(min=0).unsqueeze(-1))
        ordered = ordered.masked_fill(ordered < least, float("-inf"))
    if a.p is not None:
        unlikely = ordered.softmax(-1).cumsum(-1) <= 1 - a.p.unsqueeze(-1)
        unlikely[:, -1] = False
        ordered = ordered.masked_fill(unlikely, float("-inf"))
    return torch.empty_like(ordered).scatter_(-1, order, ordered)


@operator("npu::npu_cross_entropy_loss")
def cross_entropy_loss(a: types.SimpleNamespace) -> Any:
    """Return the loss of each row, the logarithms of all probabilities, and nothing for the loss of their sum."""
    probabilities = torch.log_softmax(a.input.float(), -1).to(a.input.dtype)
    loss = torch.nn.functional.nll_loss(
        probabilities.float(), a.target.long(), a.weight, reduction=a.reduction, ignore_index=a.ignore_index
    )
    none = torch.empty(0, device=a.input.device)
    return loss.to(a.input.dtype), probabilities, none, none
