"""Convert the effective configuration of verl to the rollout that `rljob.planner.rollout` simulates."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.effective import CAPTURE_SIZES, effective
from rljob.launchers.verl.memory import SEQUENCES, memory_plan
from rljob.launchers.verl.rows import ASYNC
from rljob.planner.rollout.estimate import ReplicaSize, engine
from rljob.planner.rollout.setup import Setup, default_gears, usable_gears
from rljob.render.accelerators import facts_of
from rljob_runtime.planning.shapes import Shape

EAGER_MAX = 4096
"""Sizes that a job without graphs is given; beyond, every batch runs as it is, too."""


def rollout_setup(spec: RLJobSpec, shape: Shape) -> Setup:
    """Return the rollout of a step. Where the memory of a die is unknown, caches have no bound."""
    sizes, view = spec.rollout.parallelism, effective(spec)
    size = ReplicaSize(sizes.tensor, sizes.data, sizes.expert)
    memory = memory_plan(spec, shape)
    set_ = view.engine_value("max_num_seqs")
    sequences = set_ if isinstance(set_, int) and set_ > 0 else SEQUENCES
    return Setup(
        engine=engine(shape, size, sequences, memory.kv_tokens if memory else None),
        replicas=max(1, spec.rollout_group.devices // size.devices),
        gears=usable_gears(_captured(spec, sequences), sequences),
        prompts=spec.trainer.global_batch_size,
        samples=spec.trainer.samples_per_prompt,
        prompt_tokens=spec.data.max_prompt_tokens,
        response_tokens=spec.data.max_response_tokens,
        devices=spec.rollout_group.devices,
        dies_per_card=facts_of(spec).dies_per_card,
        runs_ahead=ASYNC.holds(spec),
    )


def _captured(spec: RLJobSpec, sequences: int) -> tuple[int, ...]:
    """Return the captured sizes: as the job lists them, all of vLLM's, or every size if no graph is captured.

    A graph's size is in tokens, of which a sequence with drafts has one more than its drafts.
    """
    view = effective(spec)
    if view.engine_value("enforce_eager") is True:
        return tuple(range(1, min(sequences, EAGER_MAX) + 1))
    listed = view.engine(CAPTURE_SIZES)
    sizes = listed.value if listed is not None else None
    draft = spec.rollout.speculative
    unit = draft.tokens + 1 if draft.method != "None" else 1
    whole = [size // unit for size in sizes if isinstance(size, int)] if isinstance(sizes, list) else []
    found = tuple(size for size in whole if size > 0)
    return found or default_gears(sequences)
