"""Which device holds which experts: the number of replicas by load, then a packing improved by swaps.

Arrays have these shapes: `loads` (layers, experts), tokens per expert; `placement` (layers, devices, slots), the
expert in each slot. All layers are planned at once. Equal input gives an equal plan on every machine: ties go to the
lower index, and the only arithmetic on floats is division, addition and comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int64]
Loads: TypeAlias = NDArray[np.int64]
Placement: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float64]

TOLERANCE = 5e-4
"""Relative excess of the fullest device over the mean at which a layer counts as balanced."""
PAIR_ROUNDS = 24
"""Rounds in which the heavier half of the devices swaps with the lighter half; four slots or more need fewer."""
STALLED_ROUNDS = 2
"""Rounds without a swap after which the pairs are given up: with two slots per device none helps."""
SINGLE_ROUNDS = 256
"""Rounds in which the fullest device of a layer swaps with the best partner among all."""
GAIN = 1e-9
"""Relative gain below which a swap is rounding."""


DEVICES_MAX = 1 << 14
"""Far more than any server spans."""
SLOTS_MAX = 1 << 10
"""Experts of a device and layer: far more than any model has, because a plan compares all pairs of them."""


class PlanError(ValueError):
    """The sizes permit no plan."""


def place(loads: Loads, devices: int, replicas: int, tolerance: float = TOLERANCE) -> Placement:
    """Return a placement without two replicas of an expert on one device. Raise PlanError if there is none."""
    check_sizes(loads.shape[1], devices, replicas)
    counts = replica_counts(loads, devices, replicas)
    state = _pack(loads, counts, devices)
    separate(state)
    improve(state, tolerance)
    return state.experts


def check_sizes(experts: int, devices: int, replicas: int) -> None:
    """Raise PlanError if this number of replicas of the experts does not fit on the devices."""
    if not 1 <= devices <= DEVICES_MAX:
        raise PlanError(f"devices {devices}: use 1 to {DEVICES_MAX:,}")
    if replicas > devices * SLOTS_MAX:
        raise PlanError(
            f"replicas {replicas} are more than {SLOTS_MAX:,} on each of {devices} devices; use more devices"
        )
    if replicas % devices:
        raise PlanError(
            f"replicas {replicas} do not divide among {devices} devices; every device holds the same number, so use a "
            f"multiple of {devices}"
        )
    if replicas < experts:
        least = -(-experts // devices) * devices
        raise PlanError(f"replicas {replicas} are fewer than the {experts} experts; use {least} or more")
    if replicas > experts * devices:
        raise PlanError(
            f"replicas {replicas}: {experts} experts on {devices} devices have at most {experts * devices}, as a "
            "second replica on a device only wastes memory"
        )


def replica_counts(loads: Loads, devices: int, replicas: int) -> NDArray[np.int64]:
    """Return (layers, experts) replicas: each further one goes to the expert with the largest load per replica.

    No other counts have a smaller largest load per replica. An expert has at most one replica per device.
    """
    layers, experts = loads.shape
    counts = np.ones((layers, experts), dtype=np.int64)
    shares = loads.astype(np.float64)
    if devices == 1:
        shares[:] = -1.0
    rows = np.arange(layers)
    for _ in range(replicas - experts):
        chosen = shares.argmax(axis=1)
        counts[rows, chosen] += 1
        number = counts[rows, chosen]
        shares[rows, chosen] = np.where(number < devices, loads[rows, chosen] / number, -1.0)
    return counts


def device_loads(loads: Loads, placement: Placement) -> Values:
    """Return (layers, devices) tokens, if the replicas of an expert share its tokens equally."""
    return _slot_loads(loads, placement).sum(axis=2)


def imbalance(per_device: Values) -> Values:
    """Return the largest load over the mean, by layer; 1 for a layer without tokens."""
    means = per_device.mean(axis=1)
    return np.where(means > 0, per_device.max(axis=1) / np.where(means > 0, means, 1.0), 1.0)


def unplanned_loads(loads: Loads, devices: int) -> Values:
    """Return (layers, devices) tokens without a plan: experts in order, the first devices hold one more if needed.

    vLLM 0.23.0, vllm/model_executor/layers/fused_moe/expert_map_manager.py, `determine_expert_map`.
    """
    parts = np.array_split(loads, devices, axis=1)
    return np.stack([part.sum(axis=1) for part in parts], axis=1).astype(np.float64)


def replicas_held(placement: Placement, experts: int) -> NDArray[np.int64]:
    """Return (layers, experts) replicas of a placement."""
    layers = len(placement)
    keys = placement.reshape(layers, -1) + np.arange(layers)[:, None] * experts
    return np.bincount(keys.ravel(), minlength=layers * experts).reshape(layers, experts)


def _slot_loads(loads: Loads, placement: Placement) -> Values:
    layers, experts = loads.shape
    flat, rows = placement.reshape(layers, -1), np.arange(layers)[:, None]
    held = replicas_held(placement, experts)
    return (loads[rows, flat] / held[rows, flat]).reshape(placement.shape)


@dataclass(frozen=True)
class State:
    """A placement that swaps change in place."""

    experts: Placement
    weights: Values
    """(layers, devices, slots) tokens of each slot."""
    totals: Values
    """(layers, devices) their sums."""

    @classmethod
    def of(cls, loads: Loads, placement: Placement) -> State:
        """Return the state of a placement, which it then owns."""
        weights = _slot_loads(loads, placement)
        return cls(placement, weights, weights.sum(axis=2))


def _pack(loads: Loads, counts: NDArray[np.int64], devices: int) -> State:
    """Fill the devices slot by slot: of the heaviest replicas left, the heaviest goes to the lightest device."""
    layers = loads.shape[0]
    shares = loads / counts
    order = np.argsort(-shares, axis=1, kind="stable")
    replicas: Placement = np.repeat(order.ravel(), np.take_along_axis(counts, order, 1).ravel()).reshape(layers, -1)
    weights = np.take_along_axis(shares, replicas, 1)
    shape = (layers, devices, replicas.shape[1] // devices)
    state = State(np.empty(shape, dtype=np.int64), np.empty(shape), np.zeros(shape[:2]))
    rows = np.arange(layers)[:, None]
    for slot in range(shape[2]):
        lightest = np.argsort(state.totals, axis=1, kind="stable")
        part = slice(slot * devices, (slot + 1) * devices)
        state.experts[rows, lightest, slot] = replicas[:, part]
        state.weights[rows, lightest, slot] = weights[:, part]
        state.totals[rows, lightest] += weights[:, part]
    return state


def separate(state: State) -> None:
    """Swap second replicas of an expert away from a device.

    Each swap leaves fewer of them, and there always is one: a device without the expert exists, as there are no more
    replicas than devices, and one of its experts is absent here or doubled there.
    """
    pending = np.arange(len(state.experts))
    while len(pending):
        found = np.argwhere(_doubled(state.experts[pending]))
        for index, device, slot in found.tolist():
            layer = int(pending[index])
            if state.experts[layer, device, slot] in state.experts[layer, device, :slot]:
                _swap_away(state, layer, device, slot)
        pending = pending[np.unique(found[:, 0])]


def _doubled(placement: Placement) -> NDArray[np.bool_]:
    """Return for each slot whether an earlier slot of its device has the same expert."""
    slots = placement.shape[-1]
    same: NDArray[np.bool_] = placement[..., :, None] == placement[..., None, :]
    same &= np.tri(slots, k=-1, dtype=bool)
    return same.any(axis=-1)


def _swap_away(state: State, layer: int, device: int, slot: int) -> None:
    """Swap this duplicate with the replica elsewhere that makes the larger load of the two devices smallest."""
    experts, weights, totals = state.experts[layer], state.weights[layer], state.totals[layer]
    mine = experts[device, slot]
    without = ~(experts == mine).any(axis=1)
    new_here = ~(experts[:, :, None] == experts[device]).any(axis=2)
    doubled_there = (experts[:, :, None] == experts[:, None, :]).sum(axis=2) > 1
    change = weights[device, slot] - weights
    larger = np.maximum(totals[device] - change, totals[:, None] + change)
    larger[~(without[:, None] & (new_here | doubled_there))] = np.inf
    other, place_there = divmod(int(larger.argmin()), experts.shape[1])
    _exchange(state, *(np.array([each]) for each in (layer, device, other, slot, place_there)))


def _exchange(
    state: State,
    layer: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    first_slot: NDArray[np.int64],
    second_slot: NDArray[np.int64],
) -> None:
    """Exchange one slot between two devices, for several layers or disjoint pairs at once."""
    here, there = (layer, first, first_slot), (layer, second, second_slot)
    state.experts[here], state.experts[there] = state.experts[there], state.experts[here]
    change = state.weights[there] - state.weights[here]
    state.weights[here], state.weights[there] = state.weights[there], state.weights[here]
    state.totals[layer, first] += change
    state.totals[layer, second] -= change


def improve(state: State, tolerance: float, *, few: bool = False) -> None:
    """Swap until the fullest device of every layer is within the tolerance, or no swap helps it.

    With `few`, only the fullest device of a layer swaps: slower, but with half of the swaps.
    """
    bounds = state.totals.mean(axis=1) * (1 + tolerance)
    if not few:
        _swap_pairs(state, bounds)
    _swap_fullest(state, bounds)


def _swap_pairs(state: State, bounds: Values) -> None:
    """Each device above the bound swaps with one of the lighter half; who meets whom changes from round to round."""
    layers, devices, slots = state.experts.shape
    half, rows = devices // 2, np.arange(layers)[:, None]
    stalled = 0
    for number in range(PAIR_ROUNDS):
        order = np.argsort(state.totals, axis=1, kind="stable")
        heavy = order[:, ::-1][:, :half]
        light = np.roll(order[:, :half], -number, axis=1)
        layer, pair = np.nonzero(state.totals[rows, heavy] > bounds[:, None])
        first, second = heavy[layer, pair], light[layer, pair]
        gap = state.totals[layer, first] - state.totals[layer, second]
        # The pair is equal after a swap that moves half of its gap.
        distance = state.weights[layer, first][:, :, None] - state.weights[layer, second][:, None, :]
        distance -= 0.5 * gap[:, None, None]
        np.abs(distance, out=distance)
        flat = distance.reshape(len(layer), slots * slots)
        best = flat.argmin(axis=1) if len(layer) else np.zeros(0, dtype=np.int64)
        here, there = np.divmod(best, slots)
        useful = flat[np.arange(len(layer)), best] < gap * (0.5 - GAIN)
        useful &= ~_clash(state, layer, first, second, here, there)
        stalled = 0 if useful.any() else stalled + 1
        if not len(layer) or stalled == STALLED_ROUNDS:
            return
        _exchange(state, *(each[useful] for each in (layer, first, second, here, there)))


def _clash(
    state: State,
    layer: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    first_slot: NDArray[np.int64],
    second_slot: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return whether the exchange would bring an expert to a device that has it."""
    leaving = state.experts[layer, first, first_slot][:, None]
    coming = state.experts[layer, second, second_slot][:, None]
    return (state.experts[layer, second] == leaving).any(axis=1) | (state.experts[layer, first] == coming).any(axis=1)


def _swap_fullest(state: State, bounds: Values) -> None:
    """Swap the fullest device of each layer above its bound with the best partner among all, until none helps."""
    left = np.flatnonzero(state.totals.max(axis=1) > bounds)
    slots = state.experts.shape[2]
    for _ in range(SINGLE_ROUNDS):
        if not len(left):
            return
        totals, experts, index = state.totals[left], state.experts[left], np.arange(len(left))
        fullest = totals.argmax(axis=1)
        top = totals[index, fullest]
        mine, held = state.weights[left, fullest], experts[index, fullest]
        change = mine[:, :, None, None] - state.weights[left][:, None, :, :]
        larger = np.maximum(top[:, None, None, None] - change, totals[:, None, :, None] + change)
        # A device that has the leaving expert cannot take it, nor this one an expert that it has.
        same = held[:, :, None, None] == experts[:, None, :, :]
        larger[same.any(axis=3)[..., None] | same.any(axis=1)[:, None, :, :]] = np.inf
        flat = larger.reshape(len(left), -1)
        best = flat.argmin(axis=1)
        useful = flat[index, best] < top * (1 - GAIN)
        here, rest = np.divmod(best, state.experts.shape[1] * slots)
        other, there = np.divmod(rest, slots)
        chosen = (left, fullest, other, here, there)
        _exchange(state, *(each[useful] for each in chosen))
        left = left[useful & (state.totals[left].max(axis=1) > bounds[left])]
