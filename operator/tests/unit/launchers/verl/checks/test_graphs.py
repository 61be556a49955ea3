"""Captured graphs: what is warned of, and what is nobody's business."""

from __future__ import annotations

import pytest
from builders import Json, merged, small_spec, typed

from rljob.launchers.verl.checks.graphs import CHECKS, WARNINGS
from rljob.launchers.verl.effective import VLLM

NPU = {"accelerator": {"class": "atlas-a3-superpod"}, "trainer": {"globalBatchSize": 64}}
NINE = {"captureSizes": [8, 16, 32, 48, 64, 80, 96, 112, 128]}
PIECES = merged(NPU, {"verl": {"overrides": {f"+{VLLM}.compilation_config.cudagraph_mode": "FULL_AND_PIECEWISE"}}})
DEFAULT = merged(NPU, {"verl": {"overrides": {"actor_rollout_ref.rollout.cudagraph_capture_sizes": []}}})
"""The sizes of the engine instead of those of the class."""
FULL = {"verl": {"overrides": {f"+{VLLM}.compilation_config.cudagraph_mode": "FULL_DECODE_ONLY"}}}


def said(change: Json) -> list[str]:
    spec = typed(small_spec(change))
    return [str(found) for check in (*CHECKS, *WARNINGS) for found in check(spec)]


@pytest.mark.parametrize(
    "change",
    [
        {"rollout": NINE},
        merged(NPU, FULL, {"rollout": NINE}),
        merged(NPU, FULL, {"rollout": NINE, "model": {"layers": 400}}),
        merged(NPU, {"rollout": NINE, "model": {"layers": 64}}),
        merged(NPU, {"rollout": {"captureSizes": [8, 16, 32, 64]}}),
        merged(DEFAULT, {"rollout": {"maxSequences": 64}}),
        merged(DEFAULT, {"rollout": {"maxSequences": 512}}),
        merged(DEFAULT, {"rollout": {"maxSequences": 4}}),
        merged(NPU, {"rollout": {"maxSequences": 600}}),
        merged(PIECES, {"rollout": NINE, "model": {"layers": 64}}),
        merged(NPU, {"rollout": {"maxSequences": 20, "captureSizes": [8, 24]}}),
        merged(NPU, {"rollout": {"maxSequences": 20, "eager": True}}),
        # With more than maxSequences nothing is drafted.
        merged(
            NPU,
            {"rollout": {"maxSequences": 256, "captureSizes": [64, 256]}},
            {"rollout": {"speculative": {"method": "NGram", "maxSequences": 64}}},
        ),
        {"rollout": {"maxSequences": 20}},
        merged(NPU, {"verl": {"overrides": {f"+{VLLM}.max_num_seqs": "many"}}}),
    ],
)
def test_what_is_fine_is_not_mentioned(change: Json) -> None:
    assert said(change) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            merged(PIECES, {"rollout": NINE}),
            "spec.rollout.captureSizes: 9 sizes are captured for every layer, and a large model exhausts the 2048",
        ),
        (merged(PIECES, {"rollout": NINE, "model": {"layers": 220}}), "9 sizes take 1989 of the 2048 streams"),
        (
            merged(
                PIECES, {"rollout": {"captureSizes": list(range(1, 17))}, "model": {"architecture": "Llama-3.1-405B"}}
            ),
            "16 sizes take 2032 of the 2048 streams of an Ascend device",
        ),
        (
            merged(DEFAULT, {"rollout": {"maxSequences": 20}}),
            "the largest captured size is 16, so batches of more, up to 20 sequences = 20, run without a graph",
        ),
        (
            merged(DEFAULT, {"rollout": {"maxSequences": 600}}),
            "the largest captured size is 512, so batches of more, up to 600",
        ),
        (merged(DEFAULT, {"rollout": {"maxSequences": 300}}), "the largest captured size is 288"),
        (merged(DEFAULT, {"rollout": {"maxSequences": 3}}), "the largest captured size is 2"),
        (merged(NPU, {"rollout": {"maxSequences": 256, "captureSizes": [32, 64]}}), "add 256"),
        (
            merged(
                NPU,
                {"rollout": {"maxSequences": 32, "captureSizes": [8]}},
                {"rollout": {"speculative": {"method": "NGram", "maxSequences": 8}}},
            ),
            "up to 32 sequences = 32",
        ),
        (
            merged(NPU, {"rollout": {"maxSequences": 8, "speculative": {"method": "NGram"}, "captureSizes": [8]}}),
            "up to 8 sequences × 4 tokens = 32",
        ),
    ],
)
def test_what_is_slow_or_doubtful_is_a_warning(change: Json, text: str) -> None:
    (found,) = said(change)
    assert text in found
    spec = typed(small_spec(change))
    assert not [violation for check in CHECKS for violation in check(spec)]
