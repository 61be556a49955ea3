"""Room for every request of a step in verl's replicas, and for control calls beside them.

A replica is one Ray actor, and Ray runs at most `max_concurrency` of its calls at a time. verl 0.9.1 sizes it by one
engine's sequences (workers/rollout/replica.py:257-260: at least 1,000), whatever the number of data-parallel engines
behind the actor, so that a replica of 32 engines with 256 sequences each is given an eighth of what it can take. Calls
beyond the limit wait in Ray, where vLLM's scheduler does not see them, and so do `abort_all_requests` and `sleep`: they
are answered when an earlier response ends.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from rljob_runtime.node_checks.versions import older

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from omegaconf import DictConfig
    from verl.workers.rollout.replica import RolloutReplica

    from rljob_runtime.verl_plugin.router.control_calls import Ask

NAME = "vllm"
"""The name of vLLM's replicas in verl's registry (replica.py:388)."""
KEEP, DISCARD = 1, 2
"""vLLM's levels of sleep: weights stay in host memory, or are gone until the next weight sync."""
ASCEND, ASCEND_DISCARDS = "vllm-ascend", "0.18.0"
CONTROL_CALLS = 64
"""Room for control calls: few are made at a time, and each of them must begin at once."""


@dataclass(frozen=True)
class Load:
    """What may be asked of a replica at a time."""

    sequences: int
    """Sequences that each of its engines runs at a time."""
    ranks: int
    """Its data-parallel engines."""
    requests: int
    """Most requests that the trainer sends at once. A router may give all of them to one replica."""

    @property
    def concurrency(self) -> int:
        """Return the number of calls that the replica's actor runs at a time."""
        return max(self.sequences * self.ranks, self.requests) + CONTROL_CALLS


def requests_of(config: DictConfig, validated: int) -> int:
    """Return the most requests of a step or a validation, of which verl's agent loops send all at once.

    `validated` is the number of prompts of the largest batch of a validation. ReMax generates one more response to each
    prompt of a step (trainer/remax_baselines.py).
    """
    rollout = config.actor_rollout_ref.rollout
    trained = int(config.data.train_batch_size) * (int(rollout.n) + 1)
    return max(trained, validated * int(rollout.val_kwargs.n))


def questions(replicas: Iterable[RolloutReplica]) -> list[Ask]:
    """Return, for each replica, a call that costs it nothing: by the actor that gets its requests and aborts."""
    return [functools.partial(_ask, made.server_handle) for made in replicas]


def _ask(server: Any) -> Future[Any]:  # noqa: ANN401 - a handle of Ray
    asked: Future[Any] = server.get_server_address.remote().future()
    return asked


def discards_weights() -> bool:
    """Report whether this image's engine wakes up whole after it has discarded its weights.

    Level 2 saves the buffers, which no weight sync sends: vLLM does (vllm/v1/worker/gpu_worker.py:169, 0.23.0), and
    vllm-ascend since 0.18.0 or earlier (vllm_ascend/worker/worker.py:193; :219 in 0.23.0).
    """
    try:
        installed = metadata.version(ASCEND)
    except metadata.PackageNotFoundError:
        return True
    return not older(installed, ASCEND_DISCARDS)


def possible_level(wanted: int, note: Callable[[str], None]) -> int:
    """Return the level of sleep that is wanted, or the one that this image can do, and say so."""
    if wanted == KEEP or discards_weights():
        return wanted
    note(
        f"the engines keep their weights in host memory: optimizations.sleepLevel {wanted} needs {ASCEND} "
        f"{ASCEND_DISCARDS} or later, and the image has {metadata.version(ASCEND)}"
    )
    return KEEP


def register(requests: Callable[[], int], sleep_level: int = KEEP) -> None:
    """Let verl create replicas that have room for this many requests, in this process; asked when it creates them.

    `sleep_level` is what their engines do with the weights during training: KEEP or DISCARD.
    """
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    def load() -> type[Any]:
        # Here, because the import takes seconds and needs vLLM.
        from rljob_runtime.verl_plugin.router import vllm_replica

        return vllm_replica.replica_class(requests(), sleep_level)

    RolloutReplicaRegistry.register(NAME, load)
