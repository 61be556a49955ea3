"""The router of a rollout that stands apart, on a node of the trainer: it must not be lost with a replica."""

import ray

from rljob_runtime.contract import ROLE_RESOURCES, Role
from rljob_runtime.verl_plugin.router.router import TimedRouter

TrainerRouter = ray.remote(num_cpus=0, resources={ROLE_RESOURCES[Role.TRAINER]: 1e-4})(TimedRouter)
