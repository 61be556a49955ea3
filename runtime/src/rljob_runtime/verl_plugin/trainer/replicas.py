"""The replicas of a rollout that stands apart: a lost one leaves, and another takes its place.

As released, the next weight sync asks the lost replica and ends the run (checkpoint_engine/base.py:484, verl 0.9.1).
Here it leaves the router and the sync. When its devices are back, in the pod that takes the place of the lost one, a
new replica starts in the background, gets the weights in the sync at a step's end, and then requests. The old placement
group is removed first: Ray would restore it on the new node, and leave no devices for another one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayActorError

from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.verl_plugin.trainer.optimized_trainer import ROUTER_SECONDS

ANSWER_SECONDS = 5.0
"""Wait for the answers of all replicas' processes, which takes milliseconds. One that is late counts as alive."""
NOTICE_SECONDS = 60.0
"""Time for Ray to notice that a node is lost: five failed checks, 3 s apart (ray_config_def.h, 2.60), and as much
again for a busy head."""
ALONE_SECONDS = 1800.0
"""How long a run waits without any replica: for a pod to be scheduled, its image to be pulled and a model to be loaded.
"""
START_SECONDS = 1800.0
"""How long a new replica may take to start before its devices are given to another one."""
LOOK_SECONDS = 1.0
RESOURCE = "NPU"


class Replicas:
    """Follows the replicas of one run. Used by the thread of the training loop only."""

    def __init__(
        self,
        servers: Any,  # noqa: ANN401 - verl's LLMServerManager
        engines: Any,  # noqa: ANN401 - verl's CheckpointEngineManager
        note: Callable[[str], None],
        count: Callable[[int, int], None],
        publish: Callable[[list[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = servers
        self._engines = engines
        self._note = note
        self._count = count
        self._publish = publish
        self._clock = clock
        self.wanted = len(engines.replicas)
        self._next_rank = 1 + max(replica.replica_rank for replica in engines.replicas)
        self._starting: tuple[Any, Future[None], float] | None = None
        self._alone_since: float | None = None
        count(self.wanted, self.wanted)

    @property
    def serving(self) -> int:
        """Return the number of replicas that get requests and weights."""
        return len(self._engines.replicas)

    def leave(self) -> bool:
        """Take lost replicas off the router and the sync. Return whether there were any."""
        lost = lost_among(self._engines.replicas)
        for replica in lost:
            self._note(f"lost a replica at {replica.server_address}; {self.serving - 1} of {self.wanted} are left")
            self._engines.remove_replicas([replica])
            _remove_groups(replica)
        if lost:
            self._list([replica for replica in self._servers.rollout_replicas if replica not in lost])
            self._ask_router("remove_servers", [replica.server_address for replica in lost])
        return bool(lost)

    def leave_soon(self) -> bool:
        """Wait until Ray notices a lost replica. Return whether there is one."""
        end = self._clock() + NOTICE_SECONDS
        while not self.leave():
            if self._clock() > end:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def ready(self, stopping: Callable[[], bool]) -> bool:
        """Take out what is lost and take in what has started; wait while none is left. Return False for a stop.

        Raises RefusedError.
        """
        self.leave()
        self.begin()
        self.take_in()
        while self.look_alone():
            if stopping():
                return False
            time.sleep(LOOK_SECONDS)
            self.begin()
            self.take_in()
        return True

    def begin(self) -> None:
        """Start a replica in the place of a lost one, if its devices are free."""
        if self._starting is None and self.serving < self.wanted and _free_devices() >= self._engine_devices:
            self._start()

    def take_in(self) -> bool:
        """Let a replica that has started get weights. Return whether there is one."""
        if self._starting is None:
            return False
        made, started, begun = self._starting
        if not started.done():
            if self._clock() > begun + START_SECONDS:
                self._give_up(made, f"it has not started in {START_SECONDS:g} s")
            return False
        if (error := started.exception()) is not None:
            self._give_up(made, f"{type(error).__name__}: {error}")
            return False
        self._starting = None
        self._engines.add_replicas([made])
        self._list([*self._servers.rollout_replicas, made])
        self._note(f"a replica at {made.server_address} takes the place of a lost one; {self.serving} are there")
        return True

    def route(self) -> None:
        """Let every replica that has the weights get requests."""
        known = set(self._ask_router("get_all_servers"))
        missing = {
            replica.server_address: replica.server_handle
            for replica in self._engines.replicas
            if replica.server_address not in known
        }
        if missing:
            self._ask_router("add_servers", missing)

    def look_alone(self) -> bool:
        """Return whether no replica is left. Raises RefusedError (exit 65) after ALONE_SECONDS."""
        if self.serving:
            self._alone_since = None
            return False
        self._alone_since = self._clock() if self._alone_since is None else self._alone_since
        if self._clock() > self._alone_since + ALONE_SECONDS:
            raise RefusedError(
                ExitCode.ENVIRONMENT,
                "ReplicasLost",
                f"none of {self.wanted} replicas was left for {ALONE_SECONDS:g} s: the pods of role Rollout were lost, "
                "and no others took their place",
            )
        return True

    @property
    def _engine_devices(self) -> int:
        config = self._servers.rollout_config
        return int(config.tensor_model_parallel_size * config.data_parallel_size * config.pipeline_model_parallel_size)

    def _start(self) -> None:
        """Create a replica in a thread: loading a model takes minutes, in which training continues."""
        manager = self._servers
        made = manager.rollout_replica_class(
            replica_rank=self._next_rank,
            config=manager.rollout_config,
            model_config=manager.model_config,
            gpus_per_node=manager.rollout_config.n_gpus_per_node,
        )
        self._next_rank += 1
        started: Future[None] = Future()

        def start() -> None:
            try:
                asyncio.run(made.init_standalone())
            except BaseException as error:  # noqa: BLE001 - `take_in` tells it
                started.set_exception(error)
            else:
                started.set_result(None)

        threading.Thread(target=start, daemon=True).start()
        self._starting = (made, started, self._clock())

    def _give_up(self, made: Any, reason: str) -> None:  # noqa: ANN401 - verl's replica
        self._starting = None
        _remove_groups(made)
        self._note(f"a replica that was to take the place of a lost one is given up: {reason}")

    def _list(self, replicas: list[Any]) -> None:
        """Let verl's manager, and the exporter, know these replicas."""
        manager = self._servers
        manager.rollout_replicas = replicas
        manager.server_handles = [replica.server_handle for replica in replicas]
        manager.server_addresses = [replica.server_address for replica in replicas]
        self._count(len(replicas), self.wanted)
        # verl's update_prometheus_config waits for a task on each node, and for ever on one that Ray does not know to
        # be lost yet (workers/rollout/utils.py:190-206, 0.9.1).
        self._publish(manager.server_addresses)

    def _ask_router(self, method: str, *arguments: Any) -> Any:  # noqa: ANN401 - of any kind
        router = self._servers.global_load_balancer
        return ray.get(getattr(router, method).remote(*arguments), timeout=ROUTER_SECONDS)


def lost_among(replicas: list[Any]) -> list[Any]:
    """Return the replicas of which a process is gone. A replica of several nodes is lost with one of them."""
    asked = {
        actor.__ray_ready__.remote(): replica for replica in replicas for actor in (*replica.servers, *replica.workers)
    }
    if not asked:
        return []
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_SECONDS)
    gone = [asked[one] for one in answered if _is_gone(one)]
    return [replica for replica in replicas if replica in gone]


def _is_gone(answer: Any) -> bool:  # noqa: ANN401 - Ray's reference
    try:
        ray.get(answer)
    except RayActorError:
        return True
    return False


def _remove_groups(replica: Any) -> None:  # noqa: ANN401 - verl's replica
    pool = replica.resource_pool
    for group in (pool.pgs or ()) if pool is not None else ():
        ray.util.remove_placement_group(group)


def _free_devices() -> float:
    return float(ray.available_resources().get(RESOURCE, 0))
