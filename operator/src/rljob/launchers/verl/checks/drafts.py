"""Speculative decoding: what its settings need of each other, and of the graphs.

Lines are those of vLLM 0.23.0 (below vllm/) and of vllm-ascend 0.23.0 (below vllm_ascend/).
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import GRAPH_MODE, effective

FIELD = "spec.rollout.speculative"
HISTORY_MINIMUM, HISTORY_MAXIMUM = "64Mi", "64Gi"
"""Less holds no response of a long rollout, and a node has several engine processes."""
ONLY_FULL = "FULL_DECODE_ONLY"


def _history_needs_suffix_trees(spec: RLJobSpec) -> Iterator[Violation]:
    speculative = spec.rollout.speculative
    if speculative.history == "Enabled" and speculative.method != "Suffix":
        yield Violation(
            f"{FIELD}.history",
            f"Enabled, but method {speculative.method} proposes nothing from earlier responses; set method to Suffix, "
            "or remove history",
        )


def _history_has_a_bound(spec: RLJobSpec) -> Iterator[Violation]:
    asked = spec.rollout.speculative.history_memory
    if not quantity(HISTORY_MINIMUM) <= quantity(asked) <= quantity(HISTORY_MAXIMUM):
        yield Violation(
            f"{FIELD}.historyMemory", f"{asked} is not between {HISTORY_MINIMUM} and {HISTORY_MAXIMUM}; use 1Gi"
        )


def _graphs_fit_batches_without_drafts(spec: RLJobSpec) -> Iterator[Violation]:
    """A graph of decoding is captured for sequences that all have a full draft.

    vllm/v1/worker/gpu_model_runner.py:3764 and vllm_ascend/worker/model_runner_v1.py:2956 compare the tokens of the
    longest sequence with 1 + num_speculative_tokens. With more than maxSequences no sequence has a draft, and drafts of
    Suffix differ in length.
    """
    seen, speculative = effective(spec).engine(GRAPH_MODE), spec.rollout.speculative
    if speculative.method != "None" and seen is not None and str(seen.value).upper() == ONLY_FULL:
        yield Violation(
            seen.field,
            f"{ONLY_FULL} with speculative.method {speculative.method}: batches without drafts, or with drafts of "
            "different lengths, run without a graph; use FULL_AND_PIECEWISE",
        )


CHECKS: tuple[Check, ...] = (_history_needs_suffix_trees, _history_has_a_bound)
WARNINGS: tuple[Check, ...] = (_graphs_fit_batches_without_drafts,)
