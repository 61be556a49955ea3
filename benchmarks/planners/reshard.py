"""Resharding of Qwen3-235B-A22B from training to rollout: bytes and the balance of senders.

Beside the plan: what verl does in a colocated run (each die receives every tensor whole), and what a plan does that
leaves each rank on its own die and takes replicas in turn, as Awex does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.reshard import Holdings, Weight, intersection, needed_bytes, reshard, volume
from rljob_runtime.planning.weight_layouts import Serving, Training, places_and_order, serving, training, weights_of

GIB = 1 << 30
MODEL = "Qwen3-235B-A22B"
SIZES = Training(tensor=4, pipeline=4, expert=32)
ROLLOUT = Serving(tensor=4)
NODE = 16
"""Dies of an Atlas A3 node."""


def in_turn(weights: dict[str, Weight], source: Sequence[Holdings], target: Sequence[Holdings]) -> list[list[int]]:
    """Return bytes that each die sends and receives if rank n stays on die n and the n-th replica serves it."""
    sent, received = [0] * len(source), [0] * len(source)
    holders: dict[str, dict[object, list[int]]] = {name: {} for name in weights}
    for die, holdings in enumerate(source):
        for name, boxes in holdings.items():
            holders[name].setdefault(boxes[0], []).append(die)
    for die, needed in enumerate(target):
        for name, boxes in needed.items():
            for box, dies in holders[name].items():
                part = intersection(boxes[0], box)  # type: ignore[arg-type] # boxes are the keys
                if part is not None and die not in dies:
                    size = volume(part) * weights[name].cell_bytes
                    sent[dies[die % len(dies)]] += size
                    received[die] += size
    return [sent, received]


def lines() -> Iterator[str]:
    """Yield the table."""
    shape = BUILT_IN[MODEL]
    weights = weights_of(shape)
    model = sum(weight.cell_bytes * volume(tuple((0, end) for end in weight.extent)) for weight in weights.values())
    yield f"{MODEL}, tensor 4 × pipeline 4 × expert 32 to tensor 4 × data dies/4, experts over all dies"
    yield "| dies | way | GiB received per die: mean, largest | TiB in all | sent, largest / mean | plan, CPU s |"
    yield "|---|---|---|---|---|---|"
    for dies in (128, 1024):
        source, target = training(shape, SIZES, dies), serving(shape, ROLLOUT, dies)
        whole = [model - needed_bytes(weights, held) for held in source]
        yield _line(dies, "every tensor whole to every die", whole, None, None)
        sent, received = in_turn(weights, source, target)
        yield _line(dies, "ranks in order, replicas in turn", received, sent, None)
        began = time.thread_time()
        plan = reshard(weights, source, target, node=NODE)
        yield _line(dies, "plan", plan.received, plan.sent, time.thread_time() - began)
        if shape.experts is not None and shape.experts.count >= dies:
            began = time.thread_time()
            places, order = places_and_order(shape, source, target)
            free = reshard(weights, source, serving(shape, ROLLOUT, dies, order), node=NODE, places=places)
            yield _line(dies, "plan, experts in any order", free.received, free.sent, time.thread_time() - began)


def _line(dies: int, way: str, received: Sequence[int], sent: Sequence[int] | None, seconds: float | None) -> str:
    mean = sum(received) / dies
    balance = "" if sent is None else f"{max(sent) / (sum(sent) / dies):.3f}"
    cells = (f"{mean / GIB:.2f}, {max(received) / GIB:.2f}", f"{sum(received) / GIB / 1024:.2f}", balance)
    return f"| {dies} | {way} | {' | '.join(cells)} | {'' if seconds is None else f'{seconds:.1f}'} |"


def main() -> None:
    """Print the table."""
    for line in lines():
        print(line, flush=True)
