"""Decisions about the trainer and the rollout where the spec says Auto."""

from __future__ import annotations

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer, Question
from rljob.launchers.node_needs import CORE_BINDING
from rljob.launchers.verl.sizes import micro_batch, mini_batch


def _micro_batch(spec: RLJobSpec) -> Answer:
    size = str(micro_batch(spec))
    if spec.trainer.micro_batch_size_per_device is not None:
        return Answer(size, SET)
    if spec.trainer.max_tokens_per_device is not None:
        return Answer(size, "a device's share of a mini batch; trainer.maxTokensPerDevice splits it by tokens instead")
    return Answer(size, "a device's share of a mini batch")


def _skip_old_log_prob(spec: RLJobSpec) -> Answer:
    asked, updates = spec.optimizations.skip_old_log_prob, -(-spec.trainer.global_batch_size // mini_batch(spec))
    if asked is Switch.DISABLED:
        return Answer("Disabled", SET)
    if updates > 1:
        return Answer("Disabled", f"{updates} updates of a batch: the ratio is not 1 after the first")
    return Answer("Disabled", "one update of a batch makes the ratio 1, but the runtime cannot skip the pass yet")


def _gc_freeze(spec: RLJobSpec) -> Answer:
    if spec.optimizations.gc_freeze is Switch.DISABLED:
        return Answer("Disabled", SET)
    return Answer("Disabled", "the runtime has no hook for it in vLLM's engine yet")


def _load_balancer(spec: RLJobSpec) -> Answer:
    if spec.optimizations.load_balancer == "RequestCount":
        return Answer("RequestCount", SET)
    return Answer("RequestCount", "the runtime's router counts requests; it cannot count their tokens yet")


QUESTIONS = (
    Question("trainer.microBatchSizePerDevice", _micro_batch),
    Question("optimizations.skipOldLogProb", _skip_old_log_prob),
    CORE_BINDING,
    Question("optimizations.gcFreeze", _gc_freeze),
    Question("optimizations.loadBalancer", _load_balancer),
)
