"""verl's vLLM replica with a limit on calls that fits the load, and a server whose abort waits for no answer."""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import ray
from verl.single_controller.ray import RayWorkerGroup
from verl.utils.device import get_device_name
from verl.workers.rollout.replica import RolloutMode
from verl.workers.rollout.vllm_rollout import vllm_async_server
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from rljob_runtime.verl_plugin.platform import role_nodes
from rljob_runtime.verl_plugin.router import engine_watch, rank_choice
from rljob_runtime.verl_plugin.router.replica import DISCARD, KEEP, Load, discards_weights
from rljob_runtime.vllm_plugin.drafts import EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Sequence

POLL_SECONDS = 0.01
log = logging.getLogger(__name__)


def count_padding(arguments: argparse.Namespace) -> bool:
    """Let the engines of these arguments count it, and report whether the user asked for vLLM's tables of it."""
    asked = bool(getattr(arguments, "cudagraph_metrics", False))
    arguments.cudagraph_metrics = True
    return asked


class PromptServer(vLLMHttpServer):  # type: ignore[misc] # verl ships no types
    """Runs in the actor that holds the engine.

    verl 0.9.1 counts a request as being admitted until its first token arrives (vllm_async_server.py:676-682), and
    `abort_all_requests` waits, for at most a minute, until none is (:969-977). Requests that wait in vLLM's queue have
    no token yet, so an abort of a full replica waits for the responses that it should end. Admitted is what the engine
    knows: its pause ends all of it.
    """

    async def run_server(self, args: argparse.Namespace) -> None:
        """Start engine and server, end with the engine, choose ranks, and count padding."""
        prints = count_padding(args)
        await super().run_server(args)
        self._engine_watch = engine_watch.attach(self.engine)
        rank_choice.attach(self.engine)
        try:
            from rljob_runtime.verl_plugin.router import padding_counter

            padding_counter.attach(self.engine, prints=prints)
        except Exception:
            log.exception("padding of this replica's batches is not counted")

    async def run_headless(self, args: argparse.Namespace) -> None:
        """Start the engines of another node, whose steps node 0 counts."""
        count_padding(args)
        await super().run_headless(args)

    async def abort_all_requests(
        self,
        reset_prefix_cache: bool = True,  # noqa: FBT001, FBT002 - verl's signature
        reject_request: bool = False,  # noqa: FBT001, FBT002 - verl's signature
    ) -> dict[str, Any]:
        """End all requests as verl does, without waiting for those that the engine has already."""
        if self.node_rank != 0:
            return {"aborted_count": 0, "request_ids": []}
        self._submission_paused = True
        self._rejecting = reject_request
        self._resume_event.clear()
        await self._until_the_engine_has_them()
        names = list(self.engine.output_processor.request_states)
        await self.engine.pause_generation(wait_for_inflight_requests=False, clear_cache=reset_prefix_cache)
        return {"aborted_count": len(names), "request_ids": names}

    async def exchange_drafts(self, records: Sequence[tuple[bytes, bytes]]) -> dict[str, int]:
        """Give responses of the last step to the engine's workers, which draft from them; return a worker's counts."""
        answers: list[dict[str, int]] = await self.engine.collective_rpc(EXCHANGE, args=(records,))
        # Ranks of a tensor group draft alike; stages of a pipeline before the last do not draft.
        return next((answer for answer in answers if answer), {})

    async def _until_the_engine_has_them(self) -> None:
        deadline = time.monotonic() + vllm_async_server._GATE_BARRIER_TIMEOUT_S  # noqa: SLF001 - verl's own bound
        while (count := self._on_their_way()) > 0:
            if time.monotonic() > deadline:
                log.warning("%d requests did not reach the engine in time; they are not aborted", count)
                return
            await asyncio.sleep(POLL_SECONDS)

    def _on_their_way(self) -> int:
        """Return the number of requests that have passed the gate and that the engine does not know yet."""
        states = self.engine.output_processor.request_states.values()
        admitted: int = self._admitting
        return admitted - sum(1 for state in states if state.is_prefilling)


class DiscardingServer(PromptServer):
    """Discards the weights while it sleeps; the next weight sync sends them again.

    verl 0.9.1 keeps them on NPUs (vllm_async_server.py:1295, :1303), which vllm-ascend no longer needs; see
    `replica.discards_weights`. As in verl, weights stay that no sync sends: a drafter's, and those below an adapter.
    """

    def _resolve_sleep_level(self) -> int:
        drafter = getattr(self.config, "mtp", None)
        drafts = drafter is not None and drafter.enable and drafter.enable_rollout
        return KEEP if drafts or self.lora_as_adapter or not discards_weights() else DISCARD


class RoomyReplica(vLLMReplica):  # type: ignore[misc] # verl ships no types
    """Runs in the trainer's process, and creates the actor with the engines."""

    requests = 0
    """Most requests that the trainer sends at once."""
    sleep_level = KEEP

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - verl's signature
        super().__init__(*arguments, **options)
        if not self.is_reward_model:  # A judge's engine is asked by HTTP, and none of its figures are the rollout's.
            self.server_class = ray.remote(DiscardingServer if self.sleep_level == DISCARD else PromptServer)

    async def init_standalone(self) -> None:
        """Start as verl does (workers/rollout/replica.py:189-226, 0.9.1), on nodes of the rollout."""
        if self.is_reward_model or self.is_teacher_model:
            await super().init_standalone()
            return
        self.rollout_mode = RolloutMode.STANDALONE
        devices = [self.gpus_per_replica_node] * self.nnodes
        self.resource_pool = role_nodes.rollout_pool(f"rollout_pool_{self.replica_rank}", devices)
        ranks = RayWorkerGroup(
            resource_pool=self.resource_pool,
            ray_cls_with_init=self.get_ray_class_with_init_args(),
            bin_pack=False,
            name_prefix=f"rollout_standalone_{self.replica_rank}",
            use_gpu=True,
            device_name=get_device_name(),
        )
        self.workers = ranks.workers
        await self.launch_servers()

    @property
    def max_concurrency(self) -> int:
        """Return the number of calls that the actor runs at a time."""
        load = Load(int(self.config.max_num_seqs), int(self.config.data_parallel_size), self.requests)
        base: int = super().max_concurrency
        return max(base, load.concurrency)


def replica_class(requests: int, sleep_level: int = KEEP) -> type[RoomyReplica]:
    """Return the class of replicas for a trainer that sends so many requests at once."""
    return type("RoomyReplica", (RoomyReplica,), {"requests": requests, "sleep_level": sleep_level})
