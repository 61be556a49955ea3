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

    async def _handle_generating_state(self, agent_data: Any, sampling_params: Any, **options: Any) -> Any:  # noqa: ANN401 - verl's types
        """Let a turn have what the turns before have left: verl's asynchronous client gives each a whole response."""
        left = max(1, self.response_length - len(agent_data.response_mask))
        bounded = {**sampling_params, "max_tokens": min(left, sampling_params.get("max_tokens", left))}
        return await super()._handle_generating_state(agent_data, bounded, **options)

    async def _call_tool(self, tool_call: Any, tools_kwargs: Any, agent_data: Any) -> Any:  # noqa: ANN401 - verl's types
        answer = await super()._call_tool(tool_call, tools_kwargs, agent_data)
        counts = agent_data.extra_fields.setdefault(FIELD, dict.fromkeys(ToolOutcome, 0))
        counts[outcome_of(answer[0].text, tool_call.name)] += 1
        return answer


def register() -> None:
    """Take the place of verl's loop in this process, but not that of a loop of the user's with the same name."""
    known = agent_loop._agent_loop_registry  # noqa: SLF001 - it has no other access
    if known[NAME]["_target_"] == _path(ToolAgentLoop):
        known[NAME] = {"_target_": _path(CountingToolAgent)}


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
