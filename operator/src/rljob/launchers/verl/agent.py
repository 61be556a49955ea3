"""Rows of agents, whose responses contain calls of tools and their results.

Lines are those of verl 0.9.1, below verl/. A dataset may choose another loop by its column agent_name
(experimental/agent_loop/agent_loop.py).
"""

from __future__ import annotations

from pathlib import PurePosixPath

from rljob.api.training import Agent
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import ROLLOUT, OverrideRow, RowCondition

ROLLOUT_YAML = "trainer/config/rollout/rollout.yaml"
TURNS = f"{ROLLOUT}.multi_turn"
AGENT = RowCondition("rollout.agent is set", lambda s: s.rollout.agent is not None)
FUNCTIONS, CONFIGURATION = (".py",), (".yaml", ".yml")
"""Endings of a file of functions, and of one that configures classes (tools/tool_registry.py, load_all_tools)."""
FORMATS = {
    "DeepSeekV4": "deepseek_v4",
    "GLM": "glm",
    "Gemma4": "gemma4",
    "GPTOSS": "gpt-oss",
    "Hermes": "hermes",
    "Kimi": "kimi",
    "MiniMax": "minimax",
    "Qwen3Coder": "qwen3_coder",
    "Seed": "seed",
}
"""experimental/agent_loop/tool_parser.py, ToolParser.register."""


def settings(spec: RLJobSpec) -> Agent:
    """Return the settings of a job with tools."""
    if spec.rollout.agent is None:
        raise AssertionError("the rows of agents are those of jobs with tools")
    return spec.rollout.agent


def _path(spec: RLJobSpec, endings: tuple[str, ...]) -> str | None:
    tools = settings(spec).tools
    return tools if PurePosixPath(tools).suffix in endings else None


ROWS = (
    OverrideRow(
        f"{ROLLOUT}.agent.default_agent_loop",
        "rollout.agent",
        ROLLOUT_YAML,
        lambda _: "tool_agent",
        AGENT,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{TURNS}.function_tool_path",
        "rollout.agent.tools",
        ROLLOUT_YAML,
        lambda s: _path(s, FUNCTIONS),
        AGENT,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{TURNS}.tool_config_path",
        "rollout.agent.tools",
        ROLLOUT_YAML,
        lambda s: _path(s, CONFIGURATION),
        AGENT,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{TURNS}.format",
        "rollout.agent.format",
        ROLLOUT_YAML,
        lambda s: FORMATS[settings(s).format],
        AGENT,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{TURNS}.max_assistant_turns",
        "rollout.agent.maxTurns",
        ROLLOUT_YAML,
        lambda s: settings(s).max_turns,
        AGENT,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{TURNS}.max_parallel_calls",
        "rollout.agent.maxParallelCalls",
        ROLLOUT_YAML,
        lambda s: settings(s).max_parallel_calls,
        AGENT,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{TURNS}.max_tool_response_length",
        "rollout.agent.maxResultCharacters",
        ROLLOUT_YAML,
        lambda s: settings(s).max_result_characters,
        AGENT,
        free_elsewhere=True,
    ),
    OverrideRow(
        f"{TURNS}.tool_response_truncate_side",
        "rollout.agent.truncate",
        ROLLOUT_YAML,
        lambda s: settings(s).truncate.lower(),
        AGENT,
        free_elsewhere=True,
    ),
)
