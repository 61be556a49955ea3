"""Graphs that the rollout's engine captures: how many fit a device, and which batches run without one.

Sources: vLLM 0.23.0, vllm/config/vllm.py:1618-1750 (_set_cudagraph_sizes); vllm-ascend 0.23.0, platform.py:207-261 and
593-640; verl 0.9.1, workers/rollout/vllm_rollout/vllm_async_server.py:307-324.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import model_facts
from rljob.core.validation.arithmetic import next_multiple
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import (
    CAPTURE_SIZES,
    CAPTURE_SIZES_ARGUMENT,
    GRAPH_MODE,
    Effective,
    effective,
)
from rljob.render.accelerators import facts_of
from rljob_runtime.planning.flattening import TOO_LARGE
from rljob_runtime.planning.model_facts import Fact

STREAMS = 2048
"""Streams of an Ascend device (vllm-ascend issues 1168 and 8585)."""
STREAMS_SPARE = 128
"""Streams that were kept for communication and copies (vllm-ascend issue 1168)."""
SIZES_OF_UNKNOWN_MODELS = 4
"""Sizes that fit a model of 400 layers: an eighth, a quarter, a half and all of max_num_seqs are usual."""
PIECEWISE = frozenset({"PIECEWISE", "FULL_AND_PIECEWISE"})
"""Modes that capture one graph per layer and size; the others capture one per size (platform.py:599-634)."""
NO_GRAPHS = "NONE"
MODES = (NO_GRAPHS, "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
"""vllm/config/compilation.py, CUDAGraphMode (0.23.0)."""
SIZE_MAX = 2**20
"""More tokens than any pass has."""
SIZES_SHOWN = 8
DEFAULT_LARGEST = 512
"""Largest size that is captured by default (platform.py:239)."""
WIDE_STEP_FROM = 256
"""Default sizes are multiples of 8 below it, and of 16 from it on (vllm.py:1712-1721)."""


def _sizes(seen: Effective) -> list[int]:
    """Return the sizes that the job sets, by whichever key, each once; `_sizes_are_numbers` refuses others."""
    return sorted({size for size in _listed(seen) if _is_size(size)})


def _listed(seen: Effective) -> list[Any]:
    found = seen.engine(CAPTURE_SIZES)
    return found.value if found and isinstance(found.value, list) else []


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= SIZE_MAX


def _shown(sizes: list[int]) -> str:
    more = f" and {len(sizes) - SIZES_SHOWN} more" if len(sizes) > SIZES_SHOWN else ""
    return ", ".join(map(str, sizes[:SIZES_SHOWN])) + more


def _field(seen: Effective) -> str:
    found = seen.engine(CAPTURE_SIZES)
    return found.field if found else "spec.rollout.captureSizes"


def _mode(seen: Effective) -> str:
    return str(seen.engine_value(GRAPH_MODE)).upper()


def _captures(seen: Effective) -> bool:
    return seen.engine_value("enforce_eager") is not True and _mode(seen) != NO_GRAPHS


def _graphs_need_more_streams_than_exist(spec: RLJobSpec) -> Iterator[Violation]:
    """Each captured graph takes a stream, and capture fails where there are none left."""
    seen, layers = effective(spec), model_facts(spec).layers
    graphs = _graphs(spec, seen, layers)
    if layers is not None and graphs > STREAMS:
        yield Violation(
            _field(seen),
            f"{len(_sizes(seen))} sizes × ({layers} + 1) pieces of the model = {graphs} graphs, but an Ascend device "
            f"has {STREAMS} streams; use {STREAMS // (layers.value + 1)} sizes or fewer, or {FULL_ONLY}",
        )


FULL_ONLY = (
    "verl.overrides +actor_rollout_ref.rollout.engine_kwargs.vllm.compilation_config.cudagraph_mode: FULL_DECODE_ONLY"
)


def _graphs_may_exhaust_the_streams(spec: RLJobSpec) -> Iterator[Violation]:
    """Communication takes streams as well, in a number that depends on the model's parallelism."""
    seen, layers = effective(spec), model_facts(spec).layers
    sizes, graphs = _sizes(seen), _graphs(spec, seen, layers)
    if layers is not None and STREAMS - STREAMS_SPARE < graphs <= STREAMS:
        yield Violation(
            _field(seen),
            f"{len(sizes)} sizes take {graphs} of the {STREAMS} streams of an Ascend device, which leaves too few for "
            f"communication; use fewer sizes, or {FULL_ONLY}",
        )
    elif layers is None and graphs and len(sizes) > SIZES_OF_UNKNOWN_MODELS:
        yield Violation(
            _field(seen),
            f"{len(sizes)} sizes are captured for every layer, and a large model exhausts the {STREAMS} streams of an "
            f"Ascend device with more than {SIZES_OF_UNKNOWN_MODELS}; state model.architecture to have it computed, or "
            f"use {FULL_ONLY}",
        )


def _graphs(spec: RLJobSpec, seen: Effective, layers: Fact | None) -> int:
    """Return the graphs of the sizes that the job sets: one per size and layer; 0 where streams do not limit them."""
    if not facts_of(spec).is_npu or not _captures(seen) or _mode(seen) not in PIECEWISE:
        return 0
    return len(_sizes(seen)) * ((layers.value if layers else 0) + 1)


def _sizes_are_numbers(spec: RLJobSpec) -> Iterator[Violation]:
    """The engine captures a graph for a number of tokens."""
    seen = effective(spec)
    if wrong := [size for size in _listed(seen) if not _is_size(size) and size is not TOO_LARGE]:
        yield Violation(_field(seen), f"{len(wrong)} of the sizes are no numbers from 1 to {SIZE_MAX}; correct them")


def _sizes_are_set_once(spec: RLJobSpec) -> Iterator[Violation]:
    """The engine refuses its argument beside the same setting of compilation_config (arg_utils.py:2195-2201)."""
    seen = effective(spec)
    found, argument = seen.engine(CAPTURE_SIZES), seen.setting(CAPTURE_SIZES_ARGUMENT)
    if argument is not None and argument.value and found is not None and found is not argument:
        yield Violation(argument.field, f"the sizes are also set by {found.field.removeprefix('spec.')}; remove one")


def _mode_exists(spec: RLJobSpec) -> Iterator[Violation]:
    """The engine does not start with another mode."""
    seen = effective(spec)
    found = seen.engine(GRAPH_MODE)
    if found is not None and found.value is not None and str(found.value).upper() not in MODES:
        yield Violation(found.field, f"{str(found.value)[:32]!r} is no {GRAPH_MODE}; use one of {', '.join(MODES)}")


def _eager_captures_nothing(spec: RLJobSpec) -> Iterator[Violation]:
    """Sizes have no effect without graphs, so one of the two settings is a mistake."""
    seen = effective(spec)
    if _sizes(seen) and not _captures(seen):
        eager = seen.engine("enforce_eager")
        is_eager = eager is not None and eager.value is True
        why = f"{eager.field.removeprefix('spec.')} is on" if eager and is_eager else f"{GRAPH_MODE} is {NO_GRAPHS}"
        yield Violation(_field(seen), f"{why}, so no graphs are captured; remove one of the two")


def _sizes_fit_the_drafts(spec: RLJobSpec) -> Iterator[Violation]:
    """Speculative decoding processes one token and its drafts for every sequence of a pass."""
    seen, draft = effective(spec), spec.rollout.speculative
    unit = draft.tokens + 1
    wrong = [size for size in _sizes(seen) if size % unit]
    if draft.method != "None" and wrong:
        fixed = _shown([next_multiple(size, unit) for size in wrong])
        yield Violation(
            _field(seen),
            f"{_shown(wrong)}: with speculative.tokens {draft.tokens} sizes must be multiples of {draft.tokens} + 1 = "
            f"{unit}; use {fixed}",
        )


def _full_batches_have_a_graph(spec: RLJobSpec) -> Iterator[Violation]:
    """A batch larger than every captured size runs without a graph, several times slower."""
    seen = effective(spec)
    setting = seen.engine("max_num_seqs")
    if setting is None or not isinstance(setting.value, int) or not _captures(seen) or not facts_of(spec).is_npu:
        return
    draft = spec.rollout.speculative
    per_sequence = draft.tokens + 1 if draft.method != "None" else 1
    # With more sequences the engine drafts nothing (rljob_runtime.vllm_plugin.drafts).
    drafted = min(setting.value, draft.max_sequences) * per_sequence
    full, sizes = max(setting.value, drafted), _sizes(seen)
    largest = max(sizes, default=0) or _largest_default(full)
    if largest >= full:
        return
    drafts = f"{drafted // per_sequence} sequences × {per_sequence} tokens"
    tokens = f"{setting.value} sequences" if full == setting.value else drafts
    add = f"add {full}" if sizes else f"list the sizes in rollout.captureSizes, with {full} among them"
    yield Violation(
        _field(seen),
        f"the largest captured size is {largest}, so batches of more, up to {tokens} = {full}, run without a graph and "
        f"several times slower; {add}",
    )


def _largest_default(full: int) -> int:
    """Return the largest size that is captured where the job lists none."""
    limit = min(full, DEFAULT_LARGEST)
    if limit >= WIDE_STEP_FROM:
        return limit - limit % 16
    return limit - limit % 8 if limit >= 8 else max(size for size in (1, 2, 4) if size <= max(limit, 1))


CHECKS: tuple[Check, ...] = (
    _sizes_are_numbers,
    _sizes_are_set_once,
    _mode_exists,
    _graphs_need_more_streams_than_exist,
    _eager_captures_nothing,
    _sizes_fit_the_drafts,
)
WARNINGS: tuple[Check, ...] = (_graphs_may_exhaust_the_streams, _full_batches_have_a_graph)
