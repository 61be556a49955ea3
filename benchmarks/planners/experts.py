"""Expert placement: ours, DeepSeek's EPLB (global policy) and vLLM's, which runs if vLLM can be imported.

No trace of expert loads of a real model is public, so the loads are synthetic: lognormal, Zipf, and windows whose
logarithms drift as an AR(1) process.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rljob.planner.experts.placement import Counts, Loads, Placement, device_loads, imbalance, place, unplanned_loads
from rljob.planner.experts.relocation import arrivals, relocate
from rljob.planner.experts.windows import choose_way

LAYERS = 58
"""MoE layers of DeepSeek-V3: 61 layers, of which the first three are dense."""
REPEATS = 5
SEEDS = 10
DRIFT_SIGMA = 0.7
"""Standard deviation of the logarithm of a load in the drifting windows."""
HISTORY = 8
Planner = Callable[[Loads, int, int], Placement]


@dataclass(frozen=True)
class Size:
    """Experts, replicas and devices."""

    experts: int
    replicas: int
    devices: int

    def __str__(self) -> str:
        return f"{self.experts} → {self.replicas} on {self.devices}"


FLAGSHIP, SMALL = Size(256, 288, 32), Size(128, 144, 16)


def deepseek(loads: Loads, devices: int, replicas: int) -> Placement:
    """Give replicas to the largest load per replica; pack the heaviest into the lightest device with a free slot."""
    slots = replicas // devices
    placement: Placement = np.empty((len(loads), devices, slots), dtype=np.int64)
    for layer, row in enumerate(loads):
        experts = list(range(len(row)))
        counts = [1] * len(row)
        for _ in range(replicas - len(row)):
            largest = max(range(len(row)), key=lambda expert: row[expert] / counts[expert])
            experts.append(largest)
            counts[largest] += 1
        weights = [row[expert] / counts[expert] for expert in experts]
        held: list[list[int]] = [[] for _ in range(devices)]
        totals = [0.0] * devices
        for item in sorted(range(replicas), key=lambda item: -weights[item]):
            free = (device for device in range(devices) if len(held[device]) < slots)
            lightest = min(free, key=lambda device: totals[device])
            held[lightest].append(experts[item])
            totals[lightest] += weights[item]
        placement[layer] = np.array(held)
    return placement


def vllm_planner() -> Planner | None:
    """Return vLLM's planner, or None without vLLM."""
    if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("torch") is None:
        return None
    import torch  # noqa: PLC0415 - only here
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy  # noqa: PLC0415 - only here

    def plan(loads: Loads, devices: int, replicas: int) -> Placement:
        found = DefaultEplbPolicy.rebalance_experts(torch.from_numpy(loads), replicas, 1, 1, devices)
        placement: Placement = found.numpy().reshape(len(loads), devices, -1)
        return placement

    return plan


def lognormal(sigma: float, size: Size, generator: np.random.Generator) -> Loads:
    """Return loads of LAYERS layers."""
    loads: Loads = (generator.lognormal(0, sigma, (LAYERS, size.experts)) * 1e5).astype(np.int64)
    return loads


def zipf(size: Size, generator: np.random.Generator) -> Loads:
    """Return loads of LAYERS layers: in a random order of its own for each, the k-th expert has 1/k of the first."""
    row = 1e6 / np.arange(1, size.experts + 1)
    loads: Loads = generator.permuted(np.tile(row, (LAYERS, 1)), axis=1).astype(np.int64)
    return loads


def drifting(persistence: float, size: Size, windows: int, generator: np.random.Generator) -> Counts:
    """Return (windows, layers, experts) loads whose logarithms have this correlation from window to window."""
    state, counts = generator.normal(size=(LAYERS, size.experts)), []
    for _ in range(windows):
        counts.append(np.exp(DRIFT_SIGMA * state) * 1e5)
        state = persistence * state + np.sqrt(1 - persistence**2) * generator.normal(size=state.shape)
    found: Counts = np.array(counts).astype(np.int64)
    return found


def milliseconds(planner: Planner, loads: Loads, size: Size) -> float:
    """Return the CPU time of a plan, the smallest of some repeats."""
    times = []
    for _ in range(REPEATS):
        began = time.thread_time()
        planner(loads, size.devices, size.replicas)
        times.append(time.thread_time() - began)
    return 1e3 * min(times)


def balance_lines(planners: dict[str, Planner]) -> Iterator[str]:
    """Yield the table of balance and time."""
    generator = np.random.default_rng(0)
    yield f"{LAYERS} layers; max/mean load of a device: mean of the layers, worst layer; CPU ms of a plan"
    yield "| sizes | loads | no plan | " + " | ".join(planners) + " |"
    yield "|---" * (3 + len(planners)) + "|"
    for size, name, loads in (
        (FLAGSHIP, "lognormal 0.5", lognormal(0.5, FLAGSHIP, generator)),
        (FLAGSHIP, "lognormal 1", lognormal(1.0, FLAGSHIP, generator)),
        (FLAGSHIP, "Zipf 1", zipf(FLAGSHIP, generator)),
        (SMALL, "Zipf 1", zipf(SMALL, generator)),
        (Size(256, 288, 96), "lognormal 0.5", lognormal(0.5, FLAGSHIP, generator)),
        (Size(256, 288, 144), "lognormal 0.5", lognormal(0.5, FLAGSHIP, generator)),
        (Size(256, 288, 144), "Zipf 1", zipf(FLAGSHIP, generator)),
    ):
        cells = [str(size), name, f"{imbalance(unplanned_loads(loads, size.devices)).mean():.3f}"]
        for planner in planners.values():
            layers = imbalance(device_loads(loads, planner(loads, size.devices, size.replicas)))
            cells.append(f"{layers.mean():.4f}, {layers.max():.4f}; {milliseconds(planner, loads, size):.1f} ms")
        yield "| " + " | ".join(cells) + " |"


def drift_lines(planners: dict[str, Planner]) -> Iterator[str]:
    """Yield the tables of the next window and of the replicas that devices have to load."""
    yield f"mean of {SEEDS} seeds; planned on one window, judged on the next; the last two columns are for ours"
    yield "| sizes | correlation | no plan | " + " | ".join(planners) + f" | {HISTORY} windows | trials say |"
    yield "|---" * (5 + len(planners)) + "|"
    for size in (FLAGSHIP, SMALL):
        for persistence in (0.95, 0.8, 0.5):
            rows = [_next_window(planners, size, persistence, seed) for seed in range(SEEDS)]
            yield f"| {size} | {persistence} | " + " | ".join(f"{cell:.3f}" for cell in np.mean(rows, axis=0)) + " |"
    yield ""
    yield "share of replicas that a device has to load after one window of drift; max/mean that is reached"
    yield "| sizes | correlation | DeepSeek | ours | ours, --current | the same, until DeepSeek's balance |"
    yield "|---|---|---|---|---|---|"
    for size in (FLAGSHIP, SMALL):
        for persistence in (0.95, 0.8, 0.5):
            yield f"| {size} | {persistence} | " + " | ".join(_moves(size, persistence)) + " |"


def _next_window(planners: dict[str, Planner], size: Size, persistence: float, seed: int) -> list[float]:
    windows = drifting(persistence, size, HISTORY + 1, np.random.default_rng(seed))
    last, following = windows[-2], windows[-1]
    scores = [float(imbalance(unplanned_loads(following, size.devices)).mean())]
    plans = [planner(last, size.devices, size.replicas) for planner in planners.values()]
    choice = choose_way(windows[:-1], size.devices, size.replicas)
    plans.append(place(choice.way.loads(windows[:-1]), size.devices, size.replicas))
    scores += [float(imbalance(device_loads(following, plan)).mean()) for plan in plans]
    return [*scores, choice.expected or 0.0]


def _moves(size: Size, persistence: float) -> list[str]:
    first, second = drifting(persistence, size, 2, np.random.default_rng(0))
    sizes = (size.devices, size.replicas)
    theirs, ours = deepseek(first, *sizes), place(first, *sizes)
    theirs_later = deepseek(second, *sizes)
    reached = float(imbalance(device_loads(second, theirs_later)).mean()) - 1
    cells = []
    for before, after in (
        (theirs, theirs_later),
        (ours, place(second, *sizes)),
        (ours, relocate(second, ours)),
        (ours, relocate(second, ours, reached)),
    ):
        share = arrivals(before, after) / (LAYERS * size.replicas)
        cells.append(f"{share:.0%}; {imbalance(device_loads(second, after)).mean():.4f}")
    return cells


def main() -> None:
    """Print all tables."""
    planners: dict[str, Planner] = {"DeepSeek": deepseek}
    if (upstream := vllm_planner()) is not None:
        planners["vLLM"] = upstream
    planners["ours"] = place
    for line in (*balance_lines(planners), "", *drift_lines(planners)):
        print(line, flush=True)
