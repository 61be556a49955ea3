"""Warnings about batches and replicas: what verl accepts, with its effect."""

import pytest
from builders import Json, group, merged, small_spec, validate


def warning_lines(change: Json) -> list[str]:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    return [str(warning) for warning in checked.warnings]


FILLED = (
    "spec.trainer.miniBatchSize: 12 does not divide trainer.globalBatchSize 32: verl adds 32 samples of 128 tokens "
    "without effect to each step; use one of 1, 2, 4, 8, 16, 32"
)
ALONE = (
    "spec.trainer.samplesPerPrompt: 1: GRPO compares the responses of a prompt, and the advantage of a single one is"
)
SPANNING = "spec.rollout.parallelism.tensor: 4 spans 2 nodes of 2 devices"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trainer": {"miniBatchSize": 16}}, None),
        ({"trainer": {"miniBatchSize": 12}}, FILLED),
        ({"trainer": {"samplesPerPrompt": 2}}, None),
        ({"trainer": {"samplesPerPrompt": 1}}, ALONE),
        ({"trainer": {"samplesPerPrompt": 1}, "algorithm": {"name": "ReinforcePlusPlus"}}, None),
        ({"trainer": {"samplesPerPrompt": 1, "mode": "Evaluate"}}, None),
        (merged(group({"nodes": 2}), {"rollout": {"parallelism": {"tensor": 2}}}), None),
        (merged(group({"nodes": 2}), {"rollout": {"parallelism": {"tensor": 4}}}), SPANNING),
    ],
)
def test_a_setting_that_verl_accepts_is_a_warning_with_its_effect(change: Json, words: str | None) -> None:
    lines = warning_lines(change)
    assert len(lines) == (words is not None), lines
    assert all(str(words) in line for line in lines)
