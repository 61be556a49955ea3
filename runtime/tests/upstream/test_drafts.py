"""Drafts in vLLM's engine on CPUs: they change the number of steps and nothing else."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rljob_runtime.contract import Drafts
from rljob_runtime.verl_plugin.platform import cpu_defaults
from rljob_runtime.vllm_plugin import cpu_sampler, drafts
from rljob_runtime.vllm_plugin.draft_store import Source

PROCESS = Path(__file__).parent / "drafts_process.py"
SECONDS = 600.0
REQUESTS = 16
PLAIN_STEPS = 190
"""Tokens of the longest response: without drafts, each step of the engine generates one of them."""
DRAWS = 60_000
DEVIATIONS = 5.0
"""Standard deviations that a frequency may be off; one test in a million fails by chance."""
SAME_PASS = 1e-6
"""Mean difference of log-probabilities in nats that batches of other shapes cause, with room: 1e-9 was seen."""


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return vLLM's rejection sampler with the kernels that the runner on CPUs gives it, repaired."""
    from vllm.utils import cpu_triton_utils
    from vllm.v1.sample import rejection_sampler

    cpu_sampler.install()
    for name in ("expand_kernel", "sample_recovered_tokens_kernel", "rejection_random_sample_kernel"):
        monkeypatch.setattr(rejection_sampler, name, getattr(cpu_triton_utils, name))
    return rejection_sampler


def metadata(**settings: Any) -> SimpleNamespace:
    nothing: dict[str, Any] = {"top_k": None, "top_p": None, "generators": {}}
    return SimpleNamespace(**{"all_greedy": False, "all_random": True, **nothing, **settings})


def test_each_drafted_token_is_judged_at_its_requests_temperature_and_top_p(sampler: Any) -> None:
    logits, ends = torch.randn(5, 8), torch.tensor([2, 2, 5], dtype=torch.int32)
    asked = metadata(temperature=torch.tensor([0.5, 1.0, 2.0]), top_p=torch.tensor([1.0, 1.0, 0.6]))
    seen = sampler.apply_sampling_constraints(logits.clone(), ends, asked)
    torch.testing.assert_close(seen[:2], logits[:2] / 0.5)
    for row, expected in zip(seen[2:], logits[2:] / 2.0, strict=True):
        kept = torch.isfinite(row)
        torch.testing.assert_close(row[kept], expected[kept])
        mass = expected.softmax(-1)[kept].sum()
        assert 0.6 <= mass < 0.6 + expected.softmax(-1)[kept].min() + 1e-6


@pytest.mark.parametrize("draft", [[0, 1], [7, 7]], ids=["likely", "unlikely"])
def test_drafts_keep_the_distribution_of_sampled_tokens(sampler: Any, draft: list[int]) -> None:
    """With probability p of a drafted token, it is accepted; otherwise another one is drawn from the rest."""
    torch.manual_seed(0)
    first, second = torch.linspace(2.0, -2.0, 8), torch.linspace(-1.0, 1.0, 8)
    logits = torch.stack([first, second]).repeat(DRAWS, 1)
    tokens = sampler.rejection_sample(
        torch.tensor(draft * DRAWS, dtype=torch.int32),
        [2] * DRAWS,
        2,
        torch.arange(2, 2 * DRAWS + 1, 2, dtype=torch.int32),
        None,
        logits,
        torch.zeros(DRAWS, 1, dtype=torch.int32),
        metadata(temperature=torch.ones(DRAWS)),
    )
    close_to(tokens[:, 0], first.softmax(-1))
    # The second is judged where the first draft was accepted.
    close_to(tokens[tokens[:, 0] == draft[0], 1], second.softmax(-1))
    assert (tokens[tokens[:, 0] != draft[0], 1] == -1).all()


def close_to(tokens: torch.Tensor, expected: torch.Tensor) -> None:
    count = len(tokens)
    seen = torch.bincount(tokens.long(), minlength=len(expected)) / count
    deviation = (expected * (1 - expected) / count).sqrt()
    assert ((seen - expected).abs() <= DEVIATIONS * deviation).all(), (seen, expected)


def test_vllm_still_needs_the_repairs() -> None:
    """If one of these fails, vLLM is repaired: remove cpu_sampler.py."""
    from vllm.utils import cpu_triton_utils as kernels

    assert "USE_FP64_GUMBEL" not in inspect.signature(kernels._sample_recovered_tokens_kernel_impl).parameters
    written = torch.full((2,), -1.0)
    kernels._expand_kernel_impl(written, torch.tensor([0.5]), torch.tensor([2]), 0, 1)
    assert written.tolist() == [-1.0, -1.0]


def test_the_noise_in_double_precision_is_refused() -> None:
    kernel = cpu_sampler.without_double_precision(lambda: None)
    with pytest.raises(NotImplementedError, match="use_fp64_gumbel"):
        kernel(USE_FP64_GUMBEL=True)


def test_the_gate_of_the_ngram_proposer_asks_for_no_request_above_the_limit() -> None:
    asked: list[list[int]] = []

    def batch_propose(
        _self: object, _requests: int, valid: list[int], _counts: object, _tokens: object
    ) -> list[object]:
        asked.append(valid)
        return []

    gated = drafts._ngram(batch_propose, Drafts(2))
    gated(None, 2, [0, 1], None, None)
    gated(None, 3, [0, 2], None, None)
    assert asked == [[0, 1], []]


def generated(folder: Path, model: str, *settings: Drafts) -> Any:
    """Return what one engine generated."""
    words = [sys.executable, str(PROCESS), str(folder), model, *(each.to_variable() for each in settings)]
    environment = {**os.environ, **cpu_defaults.ENVIRONMENT}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def accepted(epoch: dict[str, Any]) -> float:
    """Return the share of generated tokens that were drafted."""
    return float(sum(epoch[f"accepted_{source}"] for source in Source) / epoch["tokens"])


def show(name: str, epochs: list[dict[str, Any]]) -> None:
    """Print what docs/benchmarks.md has."""
    shares = [f"{accepted(epoch):.3f}, {epoch['tokens'] / epoch['steps']:.1f} tokens a step" for epoch in epochs]
    print(f"{name}: share of tokens from drafts in each epoch: {'; '.join(shares)}")


@pytest.mark.long
def test_epochs_with_a_history_and_without(tmp_path: Path) -> None:
    plain = generated(tmp_path, "topics", Drafts(1_000))
    kept = generated(tmp_path, "topics", Drafts(1_000, history_bytes=1 << 26))
    show("without history", plain)
    show("with history", kept)
    assert accepted(kept[1]) > accepted(plain[1])


@pytest.mark.long  # test_real_training.py asks the same of a run that trains.
def test_a_second_epoch_drafts_from_the_rewarded_responses_of_the_first(tmp_path: Path) -> None:
    first, second = generated(tmp_path, "topics", Drafts(1_000, history_bytes=1 << 26))
    assert first["drafted_history"] == 0 < second["accepted_history"]
    assert accepted(second) > accepted(first)
    assert first["history_bytes"] > 0


def test_drafts_save_steps_and_change_no_greedy_token(tmp_path: Path) -> None:
    always, tail = generated(tmp_path, "letters", Drafts(1_000), Drafts(4))
    for name, run in {"drafts": always, "drafts for four sequences or fewer": tail}.items():
        print(f"{name}: {run['greedy']['steps']} steps greedily, {run['sampled']['steps']} by sampling")
        assert run["greedy"]["first"] == run["greedy"]["tokens"]
        assert run["sampled"]["first"] < run["sampled"]["tokens"]
        assert run["sampled"]["difference"] <= SAME_PASS
        assert run["left"] <= REQUESTS
    assert always["greedy"]["steps"] < tail["greedy"]["steps"] < PLAIN_STEPS
    assert always["sampled"]["steps"] < PLAIN_STEPS
    assert (
        always["counts"]["closed_steps"] == 0 < always["counts"]["accepted_own"] + always["counts"]["accepted_shared"]
    )
    # With four or fewer of sixteen requests: those with the longest responses.
    assert tail["counts"]["closed_steps"] > tail["counts"]["open_steps"] > 0
