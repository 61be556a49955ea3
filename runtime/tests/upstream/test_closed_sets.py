"""The closed sets of the operator are those of the installed verl and vLLM (launchers/verl/closed_sets.py)."""

from __future__ import annotations

from typing import get_args

import pytest

from rljob.api.training import LORA_RANK_MAX
from rljob.launchers.verl.closed_sets import KL_TYPES, SETS


def of(key: str) -> set[str]:
    (values,) = (row.values for row in SETS if any(name.endswith(key) for name in row.keys))
    return set(values)


def test_loss_modes() -> None:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    assert of("loss_mode") == set(POLICY_LOSS_REGISTRY)


def test_kl_types() -> None:
    import torch
    from verl.trainer.ppo.core_algos import kl_penalty

    probability = torch.tensor([[-1.0, -2.0]])
    for name in of("kl_loss_type"):
        assert kl_penalty(probability, probability, name).shape == probability.shape
    for name in ("full", "k4", "k4+"):
        with pytest.raises(NotImplementedError):
            kl_penalty(probability, probability, name)
    assert of("kl_loss_type") == {*KL_TYPES, *(f"{name}+" for name in KL_TYPES)}


def test_load_formats_and_types() -> None:
    from vllm.config.lora import MaxLoRARanks
    from vllm.config.model import ModelDType
    from vllm.model_executor.model_loader import LoadFormats

    assert of("load_format") == set(get_args(LoadFormats))
    assert of("rollout.dtype") == set(get_args(ModelDType))
    assert max(get_args(MaxLoRARanks)) == LORA_RANK_MAX


def test_precisions() -> None:
    from verl.utils import torch_dtypes

    lists = (torch_dtypes.HALF_LIST, torch_dtypes.FLOAT_LIST, torch_dtypes.BFLOAT_LIST)
    assert of("model_dtype") == {name for found in lists for name in found if isinstance(name, str)}


def test_tool_parsers_and_agent_loops() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.agent_loop.tool_parser import ToolParser

    assert of("multi_turn.format") == set(ToolParser._registry)
    assert of("default_agent_loop") <= set(_agent_loop_registry)
