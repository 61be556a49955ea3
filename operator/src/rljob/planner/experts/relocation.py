"""A new placement that keeps most replicas where they are: `rljob plan experts --current`.

A plan from scratch moves nearly every replica, because the devices are interchangeable to it. This one starts from the
current placement: it replaces only replicas whose number changed, then swaps only while a device is above the bound.
"""

from __future__ import annotations

import numpy as np

from rljob.planner.experts.placement import (
    TOLERANCE,
    Loads,
    Placement,
    PlanError,
    State,
    check_sizes,
    improve,
    replica_counts,
    separate,
)


def relocate(loads: Loads, current: Placement, tolerance: float = TOLERANCE) -> Placement:
    """Return a placement on the same devices and slots, for other loads. Raise PlanError if there is none."""
    layers, devices, slots = current.shape
    experts = loads.shape[1]
    if layers != loads.shape[0]:
        raise PlanError(f"the current map has {layers} layers, the loads {loads.shape[0]}; both must be of one model")
    if current.min() < 0 or current.max() >= experts:
        raise PlanError(f"the current map names experts outside of 0 to {experts - 1}; both must be of one model")
    check_sizes(experts, devices, devices * slots)
    counts = replica_counts(loads, devices, devices * slots)
    placement = current.copy()
    for layer in range(layers):
        _replace(placement[layer], loads[layer], counts[layer])
    state = State.of(loads, placement)
    separate(state)
    improve(state, tolerance, few=True)
    return state.experts


def arrivals(current: Placement, new: Placement) -> int:
    """Return how many replicas a device loads that it did not hold, over all layers; their slots do not matter."""
    held = (new[..., :, None] == current[..., None, :]).any(axis=-1)
    return int((~held).sum())


def _replace(placement: Placement, loads: Loads, counts: Loads) -> None:
    """Give the slots of replicas that are too many to experts that have too few; `placement` is one layer's."""
    shares = loads / counts
    totals = shares[placement].sum(axis=1)
    surplus = np.bincount(placement.ravel(), minlength=len(counts)) - counts
    free: list[tuple[int, int]] = []
    for expert in np.flatnonzero(surplus > 0):
        holders = np.argwhere(placement == expert).tolist()
        for _ in range(int(surplus[expert])):
            device, slot = max(holders, key=lambda place: totals[place[0]])
            holders.remove([device, slot])
            free.append((device, slot))
            placement[device, slot] = -1
            totals[device] -= shares[expert]
    missing: Loads = np.repeat(np.arange(len(counts)), np.maximum(-surplus, 0))
    for expert in missing[np.argsort(-shares[missing], kind="stable")]:
        # A device that has the expert is the last choice; the second replica is swapped away later.
        place = min(free, key=lambda each: (expert in placement[each[0]], totals[each[0]]))
        free.remove(place)
        placement[place] = expert
        totals[place[0]] += shares[expert]
