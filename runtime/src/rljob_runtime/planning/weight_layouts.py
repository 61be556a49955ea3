"""Which box of each weight a die holds, in Megatron's layout of training and in vLLM's of rollout.

Weights of all layers are one array whose first dimension is the layer. Attention has grouped queries, and every layer
has experts or none has; latent attention and models that mix both kinds of layers are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rljob_runtime.planning.assignment import assign
from rljob_runtime.planning.reshard import Box, Holdings, ReshardError, Weight, best_places, even_bounds
from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import BF16, MATRICES

EMBEDDING, OUTPUT, QUERY, KEY_VALUE = "embedding", "output", "query", "key and value"
PROJECTION, MLP, EXPERTS, ROUTER = "attention output", "mlp", "experts", "router"
SPLIT_BY_TENSOR = (QUERY, KEY_VALUE, PROJECTION, MLP)


@dataclass(frozen=True)
class Training:
    """Megatron's sizes. What is left of the dies of a stage is data parallel."""

    tensor: int
    pipeline: int
    expert: int
    stages: tuple[int, ...] | None = None
    """Layers of each stage; None for equal ones, the first with one more if needed."""


@dataclass(frozen=True)
class Serving:
    """The sizes of one vLLM replica over all dies: experts are spread over all of them."""

    tensor: int


def weights_of(shape: Shape) -> dict[str, Weight]:
    """Return the weights of a model; norms and biases, a thousandth of the bytes, are left out."""
    if shape.latent is not None:
        raise ReshardError(f"{shape.name}: latent attention is not supported")
    layers, hidden, moe = shape.layers, shape.hidden, shape.experts
    found = {
        EMBEDDING: Weight((shape.vocabulary,), hidden * BF16),
        QUERY: Weight((layers, shape.heads), shape.head * hidden * BF16),
        KEY_VALUE: Weight((layers, shape.kv_heads), 2 * shape.head * hidden * BF16),
        PROJECTION: Weight((layers, shape.heads), shape.head * hidden * BF16),
    }
    if not shape.tied:
        found[OUTPUT] = found[EMBEDDING]
    if moe is None:
        return found | {MLP: Weight((layers, shape.width), MATRICES * hidden * BF16)}
    if shape.has_dense_layers or moe.shared_width:
        raise ReshardError(f"{shape.name}: dense layers or shared experts beside routed ones are not supported")
    return found | {
        EXPERTS: Weight((layers, moe.count), MATRICES * hidden * moe.width * BF16),
        ROUTER: Weight((layers,), moe.count * hidden * BF16),
    }


def training(shape: Shape, sizes: Training, dies: int) -> list[Holdings]:
    """Return what each die holds in Megatron's order of ranks: tensor, context, data, pipeline, fastest first.

    Experts are split over the dies of a stage in the same order, without expert tensor parallelism (megatron-core
    0.16.1, parallel_state.py:796: the `RankGenerator` for experts).
    """
    in_stage = dies // sizes.pipeline
    if in_stage * sizes.pipeline != dies or in_stage % sizes.tensor or in_stage % sizes.expert:
        raise ReshardError(f"{dies} dies are no multiple of pipeline × tensor or pipeline × expert of {sizes}")
    if sizes.stages is not None and (len(sizes.stages) != sizes.pipeline or sum(sizes.stages) != shape.layers):
        raise ReshardError(f"stages {sizes.stages} do not hold {shape.layers} layers in {sizes.pipeline} stages")
    weights = weights_of(shape)
    bounds = even_bounds(shape.layers, sizes.pipeline)
    if sizes.stages is not None:
        bounds = list(pairwise(accumulate(sizes.stages, initial=0)))
    holdings: list[Holdings] = []
    for die in range(dies):
        stage, local = divmod(die, in_stage)
        layers, tensor = bounds[stage], local % sizes.tensor
        mine = _split(weights, layers, tensor, sizes.tensor)
        if EXPERTS in weights:
            mine[EXPERTS] = _box(layers, even_bounds(weights[EXPERTS].extent[1], sizes.expert)[local % sizes.expert])
        ends_held = {EMBEDDING: stage == 0 or (shape.tied and stage == sizes.pipeline - 1)}
        ends_held[OUTPUT] = stage == sizes.pipeline - 1
        vocabulary = even_bounds(shape.vocabulary, sizes.tensor)[tensor]
        mine |= {name: _box(vocabulary) for name, held in ends_held.items() if held and name in weights}
        holdings.append(mine)
    return holdings


def serving(shape: Shape, sizes: Serving, dies: int, order: Sequence[int] | None = None) -> list[Holdings]:
    """Return what each rank needs in vLLM's order: tensor fastest, then data; rank n of all has the n-th experts.

    `order` lists the experts rank by rank, as an expert map can; without it they are in their own order.
    """
    if dies % sizes.tensor:
        raise ReshardError(f"{dies} dies are no multiple of tensor {sizes.tensor}")
    weights, layers = weights_of(shape), (0, shape.layers)
    holdings: list[Holdings] = []
    for rank in range(dies):
        tensor = rank % sizes.tensor
        mine = _split(weights, layers, tensor, sizes.tensor)
        if shape.experts is not None:
            first, last = even_bounds(shape.experts.count, dies)[rank]
            if order is not None:
                mine[EXPERTS] = tuple((layers, (expert, expert + 1)) for expert in sorted(order[first:last]))
            elif first < last:
                mine[EXPERTS] = _box(layers, (first, last))
        vocabulary = even_bounds(shape.vocabulary, sizes.tensor)[tensor]
        mine |= {name: _box(vocabulary) for name in (EMBEDDING, OUTPUT) if name in weights}
        holdings.append(mine)
    return holdings


def places_and_order(
    shape: Shape, source: Sequence[Holdings], target: Sequence[Holdings]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the die of each rank and the order of experts, if both are free.

    Ranks go where their attention is, then experts go to the ranks on dies that hold most of their layers. With a fixed
    order a rank can be where its attention is, or where its expert is, but rarely both.
    """
    if shape.experts is None or shape.experts.count < len(source):
        raise ReshardError(f"{shape.name}: fewer experts than {len(source)} dies; the order of experts changes nothing")
    weights = weights_of(shape)
    places = best_places(weights, source, [{k: v for k, v in each.items() if k != EXPERTS} for each in target])
    slots = [rank for rank, (a, b) in enumerate(even_bounds(shape.experts.count, len(source))) for _ in range(a, b)]
    gains = [[0] * shape.experts.count for _ in slots]
    for slot, rank in enumerate(slots):
        for (first, last), experts in source[places[rank]].get(EXPERTS, ()):
            for expert in range(*experts):
                gains[slot][expert] += last - first
    return places, tuple(assign(gains))


def _split(weights: dict[str, Weight], layers: tuple[int, int], tensor: int, parts: int) -> dict[str, tuple[Box, ...]]:
    """Return the boxes of some layers on one tensor rank; key heads are replicated if there are fewer than ranks."""
    mine: dict[str, tuple[Box, ...]] = {}
    for name in SPLIT_BY_TENSOR:
        if name in weights:
            count = weights[name].extent[1]
            shared = max(1, parts // count) if name == KEY_VALUE else 1
            mine[name] = _box(layers, even_bounds(count, parts // shared)[tensor // shared])
    if ROUTER in weights:
        mine[ROUTER] = _box(layers)
    return mine


def _box(*ranges: tuple[int, int]) -> tuple[Box, ...]:
    return (tuple(ranges),)
