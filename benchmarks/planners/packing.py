"""Micro-batches with groups of several sizes: ours, plain context parallelism, and two others under the same costs.

The others are the grouping that the CANN recipes describe (shares of ranks by tokens, and plain groups where a rank
would have more than 1.3 of the mean), and the scheduler of hybrid context parallelism in Megatron-Core 0.16.1, which
runs if torch and Megatron-Core can be imported. That one has no limit of tokens per micro-batch, as it computes
sequences one by one, and knows no pipeline stages.
Costs are relative: verl's workload of a 7B model, and an assumed 0.35 of its linear term for the exchange of keys and
values.
"""

from __future__ import annotations

import heapq
import importlib.util
import random
import time
from collections.abc import Callable, Iterator, Sequence

from rljob_runtime.planning.context_groups import Cost, Machine, Packing, least_size, pack

COST = Cost(linear=24576.0, quadratic=1.0, ring=0.35 * 24576.0)
SEQUENCES = 2048
LARGE = 8192
REPEATS = 3
DIES = 32
LONGEST = 32768
ABSORBED, ABSORBED_MAX, ROUNDED, OVERLOAD = 0.1, 0.5, 0.9, 1.3
"""Constants of the recipes' grouping."""
Step = tuple[float, float]
"""Time of a step, and the share of micro-batches with plain groups."""


def length_sets(count: int) -> dict[str, list[int]]:
    """Return the lengths of a step by name."""
    draw = random.Random(0)  # noqa: S311 - lengths of a benchmark

    def lognormal(mean_of_logs: float, deviation: float) -> list[int]:
        return [min(LONGEST, max(1, int(draw.lognormvariate(mean_of_logs, deviation)))) for _ in range(count)]

    return {
        "short, mean 1.5k": lognormal(6.81, 1.0),
        "32k responses, mean 7.3k": lognormal(8.63, 0.73),
        "90 % 1k, 10 % 30k": [30000 if draw.random() < 0.1 else 1000 for _ in range(count)],
        "uniform to 32k": [draw.randint(1, LONGEST) for _ in range(count)],
    }


def recipes(lengths: Sequence[int], machine: Machine, context: int) -> Step:
    """Return the step of the recipes' grouping, inside context-parallel groups of a fixed size."""
    ranks = machine.dies // context
    parts: list[list[int]] = [[] for _ in range(ranks)]
    heap = [(0.0, rank) for rank in range(ranks)]
    for tokens in sorted(lengths, reverse=True):
        load, rank = heap[0]
        parts[rank].append(tokens)
        heapq.heapreplace(heap, (load + machine.cost.of(tokens, 1), rank))
    steps = [[_grouped(batch, context, machine.cost) for batch in _first_fit(part, machine, context)] for part in parts]
    count = max(map(len, steps))
    spans = [max(step[number][0] for step in steps if number < len(step)) for number in range(count)]
    plain = [fell_back for step in steps for _, fell_back in step]
    return sum(spans) + (machine.stages - 1) * max(spans), sum(plain) / len(plain)


def _first_fit(lengths: Sequence[int], machine: Machine, context: int) -> list[list[int]]:
    """Return micro-batches by tokens: each sequence, the longest first, joins the first one with room."""
    batches: list[list[int]] = []
    room: list[int] = []
    for tokens in lengths:
        number = next((number for number, left in enumerate(room) if left >= tokens), len(room))
        if number == len(room):
            batches.append([])
            room.append(machine.tokens_per_die * context)
        batches[number].append(tokens)
        room[number] -= tokens
    return batches


def _grouped(batch: Sequence[int], context: int, cost: Cost) -> tuple[float, bool]:
    """Return the time of a micro-batch in a group of fixed size, and whether it is computed by all ranks together."""
    plain = sum(cost.of(tokens, context) for tokens in batch)
    mean = sum(batch) / context
    free, groups, left = context, [], []
    for tokens in sorted(batch, reverse=True):
        whole, part = divmod(tokens / mean, 1.0)
        size = int(whole)
        is_absorbed = size > 0 and part / size < ABSORBED and part < ABSORBED_MAX
        if not is_absorbed and (size or part > ROUNDED):
            size += 1
        if size and size <= free and size < context:
            groups.append((size, [tokens]))
            free -= size
        else:
            left.append(tokens)
    groups += [(1, []) for _ in range(free)]
    if not groups:
        return plain, True
    for tokens in left:
        min(groups, key=lambda group: sum(group[1]) / group[0])[1].append(tokens)
    if max(sum(members) / size for size, members in groups) > OVERLOAD * mean:
        return plain, True
    return max(sum(cost.of(tokens, size) for tokens in members) for size, members in groups), False


def megatron() -> Callable[[Sequence[int], Machine], Step] | None:
    """Return the scheduler of Megatron-Core, or None without it."""
    if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("torch") is None:
        return None
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler  # noqa: PLC0415 - only here

    class Dies:
        def __init__(self, count: int) -> None:
            self._count = count

        def size(self) -> int:
            return self._count

    def step(lengths: Sequence[int], machine: Machine) -> Step:
        scheduler = BalancedCPScheduler(machine.tokens_per_die, Dies(machine.dies))
        _, plans = scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)
        spans = []
        for by_die in plans:
            sizes: dict[int, int] = {}
            for index in (index for held in by_die for index in held):
                sizes[index] = sizes.get(index, 0) + 1
            spans.append(max(sum(machine.cost.of(lengths[index], sizes[index]) for index in held) for held in by_die))
        return sum(spans) + (machine.stages - 1) * max(spans), 0.0

    return step


def _ours(packing: Packing, plain_size: int) -> Step:
    batches = [{group.size for group in groups} for groups in packing.micro_batches]
    return packing.seconds, sum(sizes == {plain_size} for sizes in batches) / len(batches)


def lines() -> Iterator[str]:
    """Yield the table."""
    other = megatron()
    yield f"{SEQUENCES} sequences on {DIES} dies; speed of a step over plain context parallelism, share of plain ones"
    yield f"| lengths | context | stages | the recipes' grouping | Megatron-Core | ours | CPU ms | … for {LARGE} |"
    yield "|---|---|---|---|---|---|---|---|"
    large = length_sets(LARGE)
    for name, lengths in length_sets(SEQUENCES).items():
        for context, stages in ((4, 1), (4, 4), (8, 1), (8, 4)):
            machine = Machine(DIES, LONGEST // context, COST, stages)
            plain_size = least_size(max(lengths), machine.tokens_per_die)
            packing = pack(lengths, machine)
            steps = [recipes(lengths, machine, context), other(lengths, machine) if other and stages == 1 else None]
            steps.append(_ours(packing, plain_size))
            cells = [_cell(step, packing.plain_seconds) for step in steps]
            times = [f"{_milliseconds(each, machine):.0f}" for each in (lengths, large[name])]
            yield f"| {name} | {context} | {stages} | " + " | ".join((*cells, *times)) + " |"


def _milliseconds(lengths: Sequence[int], machine: Machine) -> float:
    """Return the CPU time of a plan, the smallest of some repeats."""
    times = []
    for _ in range(REPEATS):
        began = time.thread_time()
        pack(lengths, machine)
        times.append(time.thread_time() - began)
    return 1e3 * min(times)


def _cell(step: Step | None, plain: float) -> str:
    return "" if step is None else f"{plain / step[0]:.3f}, {step[1]:.0%}"


def main() -> None:
    """Print the table."""
    for line in lines():
        print(line, flush=True)
