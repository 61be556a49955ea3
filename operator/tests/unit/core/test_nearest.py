"""Suggestions: what a misspelt name most likely stands for."""

from __future__ import annotations

import pytest

from rljob.core.nearest import nearest_field, nearest_model
from rljob_runtime.planning.architectures import BUILT_IN

FIELDS = ("microBatchSizePerDevice", "miniBatchSize", "globalBatchSize", "steps", "maxTokensPerDevice", "maxSteps")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("microBatchSize", "microBatchSizePerDevice"),
        ("micro_batch_size", "microBatchSizePerDevice"),
        ("minibatchsize", "miniBatchSize"),
        ("stps", "steps"),
        ("max", "maxSteps"),
        ("mi", None),
        ("---", None),
        ("qqqq", None),
        ("q" * 100_000, None),
    ],
)
def test_a_field_is_found_by_its_beginning_before_similar_ones(name: str, meant: str | None) -> None:
    assert nearest_field(name, FIELDS) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("qwen2.5-7b-instruct", "Qwen2.5-7B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("Qwen3-235B", "Qwen3-235B-A22B"),
        ("Qwin3-8B", "Qwen3-8B"),
        ("Qwen2.5-14B-Instruct", None),
        ("DeepSeek-R1-Distill-Qwen-7B", None),
        ("Llama", None),
        ("", None),
        ("q" * 100_000, None),
    ],
)
def test_a_model_is_found_by_its_family_and_size(name: str, meant: str | None) -> None:
    assert nearest_model(name, BUILT_IN) == meant
