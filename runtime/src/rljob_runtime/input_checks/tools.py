"""The tools of an agent: a file of functions, loaded in a process of its own.

verl loads it in each AgentLoopWorker, after the models (tools/function_tool.py, load_function_tools_from_path, 0.9.1),
and before them in the driver for its data set, which only logs a failure and then counts prompts without the tools'
description (utils/dataset/rl_dataset.py:125-146). Classes that a YAML file configures are not loaded here, because
their constructors may open connections; the trainer looks at whether the data set has them (trainer/agent_tools.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class ToolSettings:
    """The file."""

    PROBE: ClassVar[str] = "rljob_runtime.input_checks.tools_probe"
    FIELD: ClassVar[str] = "rollout.agent.tools"
    REASON: ClassVar[str] = "Tools"

    path: str

    @classmethod
    def of(cls, config: DictConfig) -> ToolSettings | None:
        """Return the settings of a run; None without a file of functions."""
        path = config.actor_rollout_ref.rollout.multi_turn.function_tool_path
        return cls(str(path)) if path else None
