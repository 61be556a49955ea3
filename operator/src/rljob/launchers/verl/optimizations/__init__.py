"""The switches of `spec.optimizations` that the runtime obeys: one module each, with the decision and its reason."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import Question
from rljob.core.validation.violation import Check
from rljob.launchers.node_needs import CORE_BINDING
from rljob.launchers.verl.optimizations import (
    batch_balance,
    gc_freeze,
    load_balancer,
    prompt_order,
    skip_old_log_prob,
    sleep_level,
)
from rljob.launchers.verl.optimizations.switch import is_enabled
from rljob_runtime.contract import Optimizations

QUESTIONS = (
    Question("optimizations.skipOldLogProb", skip_old_log_prob.decide),
    Question("optimizations.batchBalance", batch_balance.decide),
    CORE_BINDING,
    Question("optimizations.gcFreeze", gc_freeze.decide),
    Question("optimizations.loadBalancer", load_balancer.decide),
    Question("optimizations.sleepLevel", sleep_level.decide),
    Question("optimizations.promptOrder", prompt_order.decide),
)
CHECKS: tuple[Check, ...] = (
    load_balancer.check,
    prompt_order.check,
    skip_old_log_prob.check,
    sleep_level.check,
    *batch_balance.CHECKS,
)
WARNINGS: tuple[Check, ...] = (sleep_level.warn,)


def optimizations(spec: RLJobSpec) -> Optimizations:
    """Return the settings of the runtime."""
    return Optimizations(
        skip_old_log_prob=is_enabled(skip_old_log_prob.decide(spec)),
        batch_balance=is_enabled(batch_balance.decide(spec)),
        late_binding=load_balancer.decide(spec).value == load_balancer.LATE_BINDING,
        gc_freeze=is_enabled(gc_freeze.decide(spec)),
        sleep_level=int(sleep_level.decide(spec).value),
        length_aware_order=prompt_order.decide(spec).value == prompt_order.LENGTH_AWARE,
    )
