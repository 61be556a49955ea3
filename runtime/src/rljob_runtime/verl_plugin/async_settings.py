"""Settings with which prompts in flight cannot be followed, saved or generated: refused before any device is used.

The operator refuses them by their fields. Here they are looked for in what verl is given, because a job may set verl's
keys itself.
"""

from __future__ import annotations

from collections.abc import Callable

from rljob_runtime.contract import ExitCode, JobConfig, TrainerMode
from rljob_runtime.outcomes import RefusedError

SAMPLER = "trainer.v1.sampler.custom_sampler"
REPLAY = "skip.rollout_tq.enable"
ASYNC_SAVE = "actor_rollout_ref.actor.checkpoint.async_save"
ESTIMATOR = "algorithm.adv_estimator"


def require(job: JobConfig, value: Callable[[str], object]) -> None:
    """Raise RefusedError (exit 64) for a configuration that the job's mode cannot train.

    `value` returns the value of a key of verl, None where there is none.
    """
    if job.mode is not TrainerMode.SYNC and (found := _problems(job, value)):
        text = "; ".join(found)
        raise RefusedError(ExitCode.BAD_CONFIG, "InvalidConfig", f"trainer.mode is {job.mode.value}, but {text}")


def _problems(job: JobConfig, value: Callable[[str], object]) -> list[str]:
    found = []
    if value(f"{SAMPLER}.path"):
        found.append(f"{SAMPLER} samples in a way of its own, in which prompts are not counted; remove it")
    if value(REPLAY):
        found.append(f"{REPLAY} replays responses without their prompts; remove it")
    if value(ASYNC_SAVE):
        found.append(f"{ASYNC_SAVE} ends a save after the prompts have moved on; remove it")
    if value(ESTIMATOR) == "remax":
        found.append("the baselines of ReMax belong to one version of the weights; choose another algorithm")
    switches = job.optimizations
    if switches.late_binding:
        found.append("optimizations.loadBalancer LateBinding takes a pause for the end of a response; use RequestCount")
    if switches.length_aware_order:
        found.append("optimizations.promptOrder LengthAware orders for steps that end with their longest response")
    return found
