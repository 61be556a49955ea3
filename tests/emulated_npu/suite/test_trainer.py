"""Trainer processes with verl's engines: MindSpeed's Megatron and FSDP2 train, save, load and train on."""

from __future__ import annotations

from typing import Any

import pytest


def assert_resumed(ranks: list[dict[str, Any]]) -> None:
    """Check that a fresh engine that loaded what was saved has the same weights, and trains on the same way."""
    for rank in ranks:
        assert rank["loaded"] == rank["saved"]
        assert rank["after loading"] == rank["after saving"]
        assert rank["same"]
    assert any(norm is not None and norm > 0 for rank in ranks for norm in rank["after saving"])


@pytest.mark.usefixtures("mindspeed")
def test_mindspeed_resumes_what_it_saved(train: Any) -> None:
    ranks = train("dense", strategy="megatron")
    assert (ranks[0]["engine"], ranks[0]["device"]) == ("MindspeedEngineWithLMHead", "npu")
    assert "npu::npu_fusion_attention" in ranks[0]["operators"]
    assert ranks[0]["weights"] == 27
    # MindSpeed's patcher has not imported them by asking transformers' aliases.
    assert ranks[0]["image processors"] == []
    assert_resumed(ranks)


@pytest.mark.long
@pytest.mark.usefixtures("mindspeed")
@pytest.mark.parametrize(
    ("model", "processes", "wish"),
    [
        ("dense", 2, {"tensor": 2}),
        ("dense", 2, {"pipeline": 2}),
        ("experts", 1, {}),
        ("experts", 2, {"expert": 2}),
    ],
    ids=["tensor-2", "pipeline-2", "experts", "experts-2"],
)
def test_mindspeed_resumes_in_parallel(train: Any, model: str, processes: int, wish: dict[str, Any]) -> None:
    assert_resumed(train(model, processes, strategy="megatron", **wish))


@pytest.mark.long
@pytest.mark.parametrize("model", ["dense", "experts"])
def test_fsdp2_resumes_what_it_saved(train: Any, model: str) -> None:
    ranks = train(model, strategy="fsdp2")
    assert ranks[0]["device"] == "npu"
    assert_resumed(ranks)
