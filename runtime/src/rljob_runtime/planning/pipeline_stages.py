"""Do the pipeline stages hold all layers of the model? Megatron's own rules, before any model is built.

Sources: megatron-core 0.16.1, transformer/transformer_config.py:1355-1480; MindSpeed core_r0.16.0 for noop_layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob_runtime.planning.arithmetic import dividing, divisors
from rljob_runtime.planning.findings import Finding
from rljob_runtime.planning.model_facts import Fact
from rljob_runtime.planning.run_layout import TRANSFORMER, Layout

PIPELINE = "trainer.parallelism.pipeline"
FIRST, LAST = "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"
KEYS = frozenset({"pipeline_model_parallel_layout", FIRST, LAST, "noop_layers"})
"""Keys of Megatron's transformer configuration that assign layers to stages."""
COUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
"""Keys with which Megatron counts the embedding and the loss as one layer each (transformer_config.py:1441)."""


def judge(layers: Fact, layout: Layout) -> Iterator[Finding]:
    """Yield what is wrong about the stages."""
    stages = layout.pipeline
    if stages == 1:
        return
    given = {name: value for name, value in layout.stages.items() if name in KEYS and value is not None}
    if stages > layers.value:
        yield _finding(layers, PIPELINE, f"{stages} stages are more than {layers}; lower it")
    elif given:
        yield from _uneven(given, layers, stages)
    else:
        yield from _even(layers, layout)


def _even(layers: Fact, layout: Layout) -> Iterator[Finding]:
    stages, parts = layout.pipeline, layout.virtual_pipeline
    extra = sum(layout.stages.get(name) is True for name in COUNTED)
    total = layers.value + extra
    counted = f" + {extra} for embedding and loss" if extra else ""
    if total % stages:
        devices = dividing(layout.devices, layout.tensor * layout.context)
        valid = devices.suggestions(total, lambda candidate: total % candidate == 0)
        yield _finding(
            layers,
            PIPELINE,
            f"{stages} stages do not divide {layers}{counted}; use one of {valid}, or set an uneven layout "
            f"in verl.overrides: +{TRANSFORMER}.{FIRST} and {LAST}",
        )
    elif total // stages % parts:
        yield _finding(
            layers,
            PIPELINE,
            f"{stages} stages hold {total // stages} of {layers}{counted}, and virtual_pipeline_model_parallel_size "
            f"{parts} does not divide {total // stages}; set it to one of {divisors(total // stages)}",
        )


def _uneven(given: Mapping[str, object], layers: Fact, stages: int) -> Iterator[Finding]:
    field = f"verl.overrides[+{TRANSFORMER}"
    if set(given) - {FIRST, LAST}:
        return  # The layout string of Megatron is checked by Megatron.
    ends = [given[name] for name in sorted(given)]
    if not all(_is_count(end) for end in ends):
        return  # verl's schema refuses the type.
    left, inner = layers.value - sum(int(str(end)) for end in ends), stages - len(ends)
    if left < inner or (left % inner if inner > 0 else left):
        yield _finding(
            layers,
            f"{field}.{FIRST}]",
            f"first and last stage hold {layers.value - left} of {layers}; the other {left} do not divide over the "
            f"other {inner} stages",
        )


def _finding(layers: Fact, field: str, message: str) -> Finding:
    return Finding(field, message, "layers", refused=layers.sure)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
