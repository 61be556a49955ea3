"""Tools of an agent in the trainer: whether its data set describes them to the model, and how their calls ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import transfer_queue as tq

from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool import tool_metrics

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta


def path_of(config: DictConfig) -> str | None:
    """Return the file of tools; None without one."""
    turns = config.actor_rollout_ref.rollout.multi_turn
    path: str | None = turns.function_tool_path or turns.tool_config_path
    return path


def require_description(config: DictConfig, dataset: Any) -> None:  # noqa: ANN401 - verl's, or the user's
    """Refuse tools that verl's data set could not load, which it only logs (utils/dataset/rl_dataset.py:139-146)."""
    path = path_of(config)
    if path is not None and getattr(dataset, "tool_schemas", path) is None:
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "ToolsInvalid",
            f"rollout.agent.tools {path}: verl cannot load it on the head; the driver's log has the exception after "
            '"Failed to initialize tools"',
        )


def calls(config: DictConfig, batch: KVBatchMeta) -> dict[str, float]:
    """Return the calls of a step by outcome; nothing without tools."""
    if path_of(config) is None:
        return {}
    trained = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
    read = tq.kv_batch_get(keys=trained, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return tool_metrics.tool_calls(read.pop("extra_fields").tolist())
