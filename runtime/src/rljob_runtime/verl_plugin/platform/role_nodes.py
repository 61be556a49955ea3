"""Keeps the processes of trainer, rollout and judge on the nodes of their role.

The nodes of a role offer a Ray resource of their own (contract/job.py). verl 0.9.1 asks for devices only, and spreads
agent loops and reward workers over all nodes: a lost rollout node would take prompts with it that other replicas could
finish.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from verl.single_controller.ray.base import RayResourcePool, ResourcePoolManager

from rljob_runtime.contract import ROLE_RESOURCES, Role

TRAINER, ROLLOUT, JUDGE = (ROLE_RESOURCES[role] for role in (Role.TRAINER, Role.ROLLOUT, Role.JUDGE))
JUDGE_POOL = "reward_pool"
"""verl's name (trainer/ppo/v1/trainer_base.py:830, 0.9.1)."""


class RolePools(ResourcePoolManager):  # type: ignore[misc] # verl ships no types
    """verl's pools of the trainer and of the judge, on nodes of their roles."""

    def create_resource_pool(self) -> None:
        """Create the pools. A bundle of each device asks for a small part of `accelerator_type` (base.py:149)."""
        super().create_resource_pool()
        for name, pool in self.resource_pool_dict.items():
            pool.accelerator_type = JUDGE if name == JUDGE_POOL else TRAINER


def rollout_pool(name: str, devices: list[int]) -> RayResourcePool:
    """Return the pool of one replica, with so many devices of each of its nodes; of any node if none has the role."""
    apart = any(node["Alive"] and node["Resources"].get(ROLLOUT, 0) > 0 for node in ray.nodes())
    return RayResourcePool(
        process_on_nodes=devices,
        use_gpu=True,
        # As verl's own (workers/rollout/replica.py:204).
        max_colocate_count=2,
        name_prefix=name,
        accelerator_type=ROLLOUT if apart else None,
    )


class _TrainerNodes:
    """The module `ray` to a caller that spreads workers over all nodes."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        return getattr(ray, name)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the trainer; all nodes where no roles stand apart."""
        found: list[dict[str, Any]] = ray.nodes()
        return [node for node in found if node["Alive"] and node["Resources"].get(TRAINER, 0) > 0] or found


@contextmanager
def spread_over_trainers(module: Any) -> Iterator[None]:  # noqa: ANN401 - a module of verl
    """Let a module of verl that reads `ray.nodes()` see the nodes of the trainer only.

    Of verl 0.9.1, experimental/agent_loop/agent_loop.py:1212 and experimental/reward_loop/reward_loop.py:327.
    """
    module.ray = _TrainerNodes()
    try:
        yield
    finally:
        module.ray = ray
