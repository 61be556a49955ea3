"""Speculative decoding: the configuration of vLLM, and what the runtime adds to it."""

from __future__ import annotations

from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob_runtime.contract import Drafts

METHODS = {"NGram": "ngram", "Suffix": "suffix"}
"""vllm_ascend/spec_decode/__init__.py and vLLM's SpeculativeConfig (0.23.0)."""


def drafts(spec: RLJobSpec) -> Drafts | None:
    """Return the settings of the runtime; None if the rollout drafts no tokens."""
    speculative = spec.rollout.speculative
    if speculative.method == "None":
        return None
    history = int(quantity(speculative.history_memory)) if speculative.history == "Enabled" else 0
    return Drafts(speculative.max_sequences, history, needs_suffix_trees=speculative.method == "Suffix")
