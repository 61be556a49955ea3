"""verl's agent loop with tools, which also counts the calls of each response by their outcome.

verl turns a failed call into a text for the model and only logs it (experimental/agent_loop/tool_agent_loop.py,
_call_tool, 0.9.1): a sandbox that is down would look like a model that does not learn. The counts travel in a field of
the response, which verl stores beside it.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from rljob_runtime.spool.tool_metrics import FIELD, ToolOutcome, outcome_of

NAME = "tool_agent"
"""verl's name of its loop."""


class CountingToolAgent(ToolAgentLoop):  # type: ignore[misc] # verl ships no types
    """Runs one response."""

    async def _call_tool(self, tool_call: Any, tools_kwargs: Any, agent_data: Any) -> Any:  # noqa: ANN401 - verl's types
        answer = await super()._call_tool(tool_call, tools_kwargs, agent_data)
        counts = agent_data.extra_fields.setdefault(FIELD, dict.fromkeys(ToolOutcome, 0))
        counts[outcome_of(answer[0].text, tool_call.name)] += 1
        return answer


def register() -> None:
    """Take the place of verl's loop in this process."""
    path = f"{CountingToolAgent.__module__}.{CountingToolAgent.__qualname__}"
    agent_loop._agent_loop_registry[NAME] = {"_target_": path}  # noqa: SLF001
