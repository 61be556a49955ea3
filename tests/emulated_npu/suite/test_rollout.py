"""A rollout process: vLLM with vllm-ascend's worker and runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DRAFTS = {"speculative_config": {"method": "suffix", "num_speculative_tokens": 3}}


@pytest.fixture(scope="module")
def generate(run: Any, models: Path) -> Any:
    """Return a function that runs rollout_process.py and returns what it found."""

    def generated(model: str, **wish: Any) -> dict[str, Any]:
        variables = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "RLJOB_DRAFTS": '{"maxSequences":4}'}
        printed = run("rollout_process.py", str(models / model / "model"), json.dumps(wish), environment=variables)
        last: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return last

    return generated


@pytest.fixture(scope="module")
def found(generate: Any) -> dict[str, Any]:
    """Return what a process with drafts found."""
    dense: dict[str, Any] = generate("dense", **DRAFTS)
    return dense


def test_the_worker_and_the_runner_are_those_of_vllm_ascend(found: dict[str, Any]) -> None:
    assert (found["worker"], found["runner"]) == ("NPUWorker", "NPUModelRunner")
    assert "npu::npu_fused_infer_attention_score" in found["operators"]


def test_it_generates_what_the_model_says(found: dict[str, Any]) -> None:
    assert found["greedy"] == found["reference"]


def test_it_generates_the_same_after_a_sleep(found: dict[str, Any]) -> None:
    """With vllm-ascend's own allocator."""
    assert found["after sleep"] == found["after update"] == found["greedy"]


def test_the_sampled_tokens_are_of_the_vocabulary(found: dict[str, Any]) -> None:
    assert {token for response in found["sampled"] for token in response} <= set(range(320))


def test_drafts_go_through_the_gate(found: dict[str, Any]) -> None:
    """With RLJob's store in vllm-ascend's proposer, some drafts were verified, and the tokens are the same."""
    assert found["drafter"] == "AscendSuffixDecodingProposer"
    assert found["drafts"] is not None


@pytest.mark.long
def test_experts_generate_what_the_model_says_and_again_after_an_update(generate: Any) -> None:
    found = generate("experts")
    assert "_C_ascend::moe_gating_top_k" in found["operators"]
    assert (found["greedy"], found["after update"]) == (found["reference"], found["reference"])
