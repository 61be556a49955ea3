"""Sizes of a model, read from its config.json; `architectures` has those of well-known models.

`memory` and `model_facts` compute with them. Keys of config.json are those of Hugging Face's transformers, which its
decoders share.
Supported are dense decoders, mixtures of experts of the families Qwen and DeepSeek, and DeepSeek's latent attention
(MLA). An unknown family has no shape: with a wrong one, jobs that fit would be rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SUPPORTED = frozenset(
    {"qwen2", "qwen3", "llama", "mistral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2"}
)
"""`model_type` of decoders whose weights are all counted below (transformers, src/transformers/models)."""
BIASED = frozenset({"qwen2", "qwen2_moe"})
"""Families with a bias in query, key and value that their config.json does not mention."""
NORMED = frozenset({"qwen3", "qwen3_moe"})
"""Families that normalise queries and keys per head."""
SHARED_GATED = frozenset({"qwen2_moe"})
"""Families whose shared expert has its own gate."""

LAYERS_MAX = 4096
"""Far more than any model has; the memory model visits every layer."""
VALUE_SHOWN = 60
"""Characters of an invalid value that a message shows."""
SIZE_MAX = 1 << 31
"""Far more than any size of a model, and small enough for quick arithmetic."""


class ShapeError(ValueError):
    """A config.json that is not supported. The message names the key and the fix."""


class UnknownFamilyError(ShapeError):
    """A config.json of another family, which may be correct."""


@dataclass(frozen=True)
class Latent:
    """Sizes of DeepSeek's attention. The cache has one compressed vector per token (arXiv 2405.04434, section 2.1)."""

    query_rank: int | None
    """None if queries are not compressed."""
    kv_rank: int
    plain_head: int
    """Part of a head without position (qk_nope_head_dim)."""
    rotary_head: int
    """Part of a head with position (qk_rope_head_dim)."""
    value_head: int


@dataclass(frozen=True)
class Experts:
    """A mixture of experts."""

    count: int
    chosen: int
    """Experts per token."""
    width: int
    """Inner size of one expert."""
    shared_width: int
    """Total inner size of the shared experts."""
    shared_gate: bool
    first_layer: int
    """Layers before it are dense."""
    every: int
    """From that layer on, one of `every` layers has experts (decoder_sparse_step, moe_layer_freq)."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder."""

    name: str
    source: str
    """Source of the sizes."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    """Elements of one attention head."""
    width: int
    """Inner size of a dense layer's MLP."""
    vocabulary: int
    tied: bool
    """Whether embedding and output share their weights."""
    qkv_bias: bool = False
    head_norm: bool = False
    latent: Latent | None = None
    experts: Experts | None = None
    positions: int | None = None
    """Longest sequence that the model knows (max_position_embeddings); None if it is not known."""

    @property
    def has_dense_layers(self) -> bool:
        """Whether a layer has an MLP without experts."""
        return self.experts is None or self.experts.first_layer > 0 or self.experts.every > 1

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer, counted from 0, has experts."""
        moe = self.experts
        return moe is not None and layer >= moe.first_layer and (layer - moe.first_layer) % moe.every == 0


def shape_from_config(config: Mapping[str, object], name: str, source: str) -> Shape:
    """Read a config.json. Raises ShapeError for a missing key, a wrong type or an unknown family."""
    keys = decoder_keys(config)
    family = keys.get("model_type")
    if not isinstance(family, str) or family not in SUPPORTED:
        raise UnknownFamilyError(
            f"model_type {_shown(family)} is not supported; memory is planned for {', '.join(sorted(SUPPORTED))}"
        )
    heads, hidden = _count(keys, "num_attention_heads"), _count(keys, "hidden_size")
    moe = _experts(keys, family)
    return Shape(
        name=name,
        source=source,
        layers=_count(keys, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_count(keys, "num_key_value_heads", heads),
        head=_count(keys, "head_dim", max(1, hidden // heads)),
        width=_count(keys, "intermediate_size", moe.width if moe else None),
        vocabulary=_count(keys, "vocab_size"),
        tied=keys.get("tie_word_embeddings") is True,
        qkv_bias=family in BIASED or keys.get("attention_bias") is True,
        head_norm=family in NORMED,
        latent=_latent(keys),
        experts=moe,
        positions=_count(keys, "max_position_embeddings", 0) or None,
    )


def decoder_keys(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the keys of the decoder, which multimodal models have below text_config."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def _experts(keys: Mapping[str, object], family: str) -> Experts | None:
    name = next((name for name in ("num_experts", "n_routed_experts") if keys.get(name)), None)
    if name is None:
        return None
    width = _count(keys, "moe_intermediate_size")
    shared = _count(keys, "n_shared_experts", 0) * width or _count(keys, "shared_expert_intermediate_size", 0)
    every = _count(keys, "decoder_sparse_step", _count(keys, "moe_layer_freq", 1))
    # Qwen gives experts to layers whose number, counted from 1, is a multiple of the step (modeling_qwen3_moe.py).
    first = _count(keys, "first_k_dense_replace", every - 1)
    if keys.get("mlp_only_layers"):
        raise ShapeError("mlp_only_layers is not empty; memory is planned only for models with regular layers")
    return Experts(
        count=_count(keys, name),
        chosen=_count(keys, "num_experts_per_tok"),
        width=width,
        shared_width=shared,
        shared_gate=family in SHARED_GATED,
        first_layer=first,
        every=every,
    )


def _latent(keys: Mapping[str, object]) -> Latent | None:
    if not keys.get("kv_lora_rank"):
        return None
    return Latent(
        query_rank=_count(keys, "q_lora_rank", 0) or None,
        kv_rank=_count(keys, "kv_lora_rank"),
        plain_head=_count(keys, "qk_nope_head_dim"),
        rotary_head=_count(keys, "qk_rope_head_dim"),
        value_head=_count(keys, "v_head_dim"),
    )


def _count(keys: Mapping[str, object], name: str, default: int | None = None) -> int:
    value = keys.get(name)
    if value is None and default is not None:
        return default
    least = 0 if default == 0 or name == "first_k_dense_replace" else 1
    most = LAYERS_MAX if name == "num_hidden_layers" else SIZE_MAX
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ShapeError(
            f"{name} is {_shown(value)}, expected an integer from {least} to {most}; is this a config.json?"
        )
    return value


def _shown(value: object) -> str:
    """Return a value for a message, which a job may have made of any length."""
    if isinstance(value, int) and abs(value) > SIZE_MAX:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}…"
