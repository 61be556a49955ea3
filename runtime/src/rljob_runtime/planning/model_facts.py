"""What is known of a model's architecture, fact by fact, with the place that states it.

A manifest may state single facts, the content of config.json, or the name of an architecture; on the head of a run
there is the real config.json. The operator and the launcher turn each of them into `ModelFacts`, so that `model_splits`
gives the same verdict whatever stated a fact.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rljob_runtime.planning.shapes import SIZE_MAX, SUPPORTED, Shape, ShapeError, decoder_keys, shape_from_config

SCALED_BY_FACTOR_EXCEPT = frozenset({"su", "longrope", "llama3"})
"""Rotary embeddings whose config.json already counts the scaled positions (vllm 0.23.0, config/model.py:2180)."""


@dataclass(frozen=True)
class Fact:
    """One number about the model."""

    value: int
    name: str
    """As a message names it: the key of config.json, or the field of the manifest."""
    place: str = ""
    """Where a key of config.json is stated, such as `model.config`; empty for a field of the manifest."""
    sure: bool = True
    """False if the weights may have another value; such a fact never refuses a run."""

    def __str__(self) -> str:
        """Return the fact as a message names it: `num_attention_heads 14 of model.config`."""
        return f"{self.name} {self.value}{' of ' if self.place else ''}{self.place}"


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model's architecture; None for what is not known."""

    layers: Fact | None = None
    heads: Fact | None = None
    kv_heads: Fact | None = None
    experts: Fact | None = None
    """0 for a model that is known to be dense."""
    width: Fact | None = None
    """Inner size of a dense layer's MLP; None for a model without dense layers."""
    expert_width: Fact | None = None
    shared_width: Fact | None = None
    """Inner size of all shared experts together."""
    vocabulary: Fact | None = None
    positions: Fact | None = None
    engine_positions: Fact | None = None
    """Longest sequence that vLLM derives, with scaled rotary embeddings counted."""
    latent: bool = False
    """Whether the keys and values of all heads are one compressed vector, as DeepSeek's are."""

    def over(self, other: ModelFacts) -> ModelFacts:
        """Return these facts, with those of `other` for what is not known here."""
        return replace(other, latent=self.latent or other.latent, **dict(self.items()))

    def without(self, names: frozenset[str]) -> ModelFacts:
        """Return the facts without those of the given names."""
        unknown: dict[str, Any] = dict.fromkeys(names & FACTS)
        return replace(self, **unknown)

    def items(self) -> Iterator[tuple[str, Fact]]:
        """Yield every known fact with its name."""
        for name in sorted(FACTS):
            if (fact := getattr(self, name)) is not None:
                yield name, fact


FACTS = frozenset(field.name for field in fields(ModelFacts)) - {"latent"}
"""Names of all facts."""
KEYS = {
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "experts": ("num_experts", "n_routed_experts", "num_local_experts"),
    "positions": ("max_position_embeddings",),
}
"""Keys of config.json that mean the same in families whose other sizes are not known here (vllm 0.23.0,
transformers_utils/model_arch_config_convertor.py)."""
GENERIC = frozenset({"layers", "heads", "positions"})
"""Facts of an unknown family that are sure: vLLM and Megatron check them before they look at the family."""


def facts_of_shape(shape: Shape, place: str, *, family: bool = False) -> ModelFacts:
    """Return the facts of a shape. `family`: it stands for several releases, which differ in their positions."""
    moe = shape.experts

    def fact(value: int, name: str) -> Fact:
        return Fact(value, name, place)

    positions = Fact(shape.positions, "max_position_embeddings", place, sure=not family) if shape.positions else None
    return ModelFacts(
        layers=fact(shape.layers, "num_hidden_layers"),
        heads=fact(shape.heads, "num_attention_heads"),
        kv_heads=fact(shape.kv_heads, "num_key_value_heads"),
        experts=fact(moe.count if moe else 0, "num_experts"),
        width=fact(shape.width, "intermediate_size") if shape.has_dense_layers else None,
        expert_width=fact(moe.width, "moe_intermediate_size") if moe else None,
        shared_width=fact(moe.shared_width, "shared experts' intermediate size") if moe and moe.shared_width else None,
        vocabulary=fact(shape.vocabulary, "vocab_size"),
        positions=positions,
        latent=shape.latent is not None,
    )


def facts_of_config(config: Mapping[str, object], place: str) -> ModelFacts:
    """Return the facts of a config.json: all of a supported family, else those that every decoder has."""
    keys = decoder_keys(config)
    family = keys.get("model_type")
    found = ModelFacts()
    if isinstance(family, str) and family in SUPPORTED:
        # A config.json that lacks a size is reported where it is written or read.
        with contextlib.suppress(ShapeError):
            found = facts_of_shape(shape_from_config(config, place, place), place)
    common: dict[str, Any] = {name: _common(keys, name, place) for name in KEYS}
    found = found.over(ModelFacts(**common))
    return replace(found, engine_positions=_engine_positions(keys, place))


def _common(keys: Mapping[str, object], name: str, place: str) -> Fact | None:
    for key in KEYS[name]:
        if (value := _size(keys.get(key))) is not None:
            return Fact(value, key, place, sure=name in GENERIC)
    return None


def _engine_positions(keys: Mapping[str, object], place: str) -> Fact | None:
    """Return what vLLM derives from positions and rotary scaling (vllm 0.23.0, config/model.py:2171-2197)."""
    positions = _size(keys.get("max_position_embeddings"))
    scaling = keys.get("rope_parameters") or keys.get("rope_scaling")
    if positions is None:
        return None
    kind = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, Mapping) else None
    if not isinstance(scaling, Mapping) or not isinstance(kind, str) or kind in SCALED_BY_FACTOR_EXCEPT:
        return Fact(positions, "max_position_embeddings", place)
    if kind == "yarn":
        positions = _size(scaling.get("original_max_position_embeddings")) or positions
    factor = scaling.get("factor")
    if isinstance(factor, (int, float)) and not isinstance(factor, bool) and 0 < factor < SIZE_MAX:
        positions = int(positions * factor)
    return Fact(positions, "scaled max_position_embeddings", place)


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= SIZE_MAX else None
