"""verl's agent-loop workers, which also report the first exception of a rollout or of its reward; see first_failure.py.

Their loop with tools is ours (tool_agent.py).

The manager is verl's extension point (`actor_rollout_ref.rollout.agent.agent_loop_manager_class`). A job that sets its
own manager keeps it, and reports no such exception. `_run_agent_loop` generates a response and awaits the reward
worker, so an exception of either passes through it before verl logs and drops it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from verl.experimental.agent_loop import agent_loop
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, AgentLoopWorkerTQ

from rljob_runtime import first_failure
from rljob_runtime.verl_plugin.platform import role_nodes
from rljob_runtime.verl_plugin.router import late_client, tool_agent


# Decorated, as verl's own class is, so that Ray pickles both by value. If it pickled ours by reference, verl's methods,
# which Ray wraps and pickles by value, would call `super()` of another copy of their class.
@ray.remote
class ReportingWorker(AgentLoopWorkerTQ.__ray_actor_class__):  # type: ignore[misc] # the class behind Ray's wrapper
    """Runs in an actor; many responses are generated concurrently in its event loop."""

    async def _run_agent_loop(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - verl's signature
        tool_agent.register()
        late_client.PROMPT.set(options.get("uid"))
        try:
            return await super()._run_agent_loop(*arguments, **options)
        except Exception as error:
            await asyncio.to_thread(first_failure.note, error)
            raise


class RLJobAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc] # verl ships no types
    """Creates our workers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - verl's signature
        super().__init__(*arguments, **options)
        self.agent_loop_workers_class = ReportingWorker

    async def _init_agent_loop_workers(self) -> None:
        with role_nodes.spread_over_trainers(agent_loop):
            await super()._init_agent_loop_workers()
