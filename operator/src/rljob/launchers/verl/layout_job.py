"""Convert a spec to the facts from which `rljob.planner.layouts` plans: model, die, sizes and batch."""

from __future__ import annotations

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check
from rljob.launchers.node_needs import CORE_BINDING
from rljob.launchers.verl.asynchronous import batches_ahead
from rljob.launchers.verl.memory import memory_parts
from rljob.launchers.verl.optimizations import load_balancer, optimizations, prompt_order, skip_old_log_prob
from rljob.launchers.verl.optimizations.switch import is_enabled
from rljob.launchers.verl.rollout_setup import rollout_setup
from rljob.launchers.verl.rows import ASYNC
from rljob.launchers.verl.sizes import updates
from rljob.planner.layouts import WINDOW, Job, Layout
from rljob.planner.rollout.estimate import ReplicaSize
from rljob.planner.stages import TrainerSize
from rljob.planner.switches import BALANCE, BINDING, DRAFTS, FREEZE, LATE, ORDER, SKIP
from rljob_runtime.planning.shapes import Shape


def layout_job(spec: RLJobSpec, shape: Shape) -> Job | None:
    """Return the facts; None where the memory of a die is unknown."""
    parts = memory_parts(spec, shape)
    if parts is None:
        return None
    die, trainer, rollout = parts
    sizes = spec.trainer.parallelism
    return Job(
        shape=shape,
        die=die,
        trainer=trainer,
        rollout=rollout,
        setup=rollout_setup(spec, shape),
        layout=Layout(
            ReplicaSize(rollout.tensor, rollout.data, rollout.expert),
            TrainerSize(sizes.tensor, sizes.pipeline, sizes.context, sizes.expert),
        ),
        node_devices=spec.rollout_group.devices_per_node,
        trainer_node_devices=spec.trainer_group.devices_per_node,
        updates=updates(spec),
        enabled=_enabled(spec),
        obstacles=_obstacles(spec),
        window=batches_ahead(spec) if ASYNC.holds(spec) else WINDOW,
    )


TRIALS: dict[str, tuple[dict[str, object], Check]] = {
    SKIP: ({"skip_old_log_prob": Switch.ENABLED}, skip_old_log_prob.check),
    LATE: ({"load_balancer": load_balancer.LATE_BINDING}, load_balancer.check),
    ORDER: ({"prompt_order": prompt_order.LENGTH_AWARE}, prompt_order.check),
}
"""Field of a switch -> what enables it, and the check that then refuses it."""


def _obstacles(spec: RLJobSpec) -> dict[str, str]:
    """Return why switches cannot be enabled."""
    found = {}
    for field, (change, check) in TRIALS.items():
        asked = spec.model_copy(update={"optimizations": spec.optimizations.model_copy(update=change)})
        if (violation := next(iter(check(asked)), None)) is not None:
            found[field] = violation.message
    return found


def _enabled(spec: RLJobSpec) -> frozenset[str]:
    chosen = optimizations(spec)
    switches = {
        SKIP: chosen.skip_old_log_prob,
        BALANCE: chosen.batch_balance,
        LATE: chosen.late_binding,
        FREEZE: chosen.gc_freeze,
        ORDER: chosen.length_aware_order,
        BINDING: is_enabled(CORE_BINDING.decide(spec)),
        DRAFTS: spec.rollout.speculative.method != "None",
    }
    return frozenset(field for field, on in switches.items() if on)
