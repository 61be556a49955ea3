"""Decisions about the trainer and the rollout where the spec says Auto."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer, Question
from rljob.launchers.verl import background_saves, optimizations
from rljob.launchers.verl.sizes import micro_batch


def _micro_batch(spec: RLJobSpec) -> Answer:
    size = str(micro_batch(spec))
    if spec.trainer.micro_batch_size_per_device is not None:
        return Answer(size, SET)
    if spec.trainer.max_tokens_per_device is not None:
        return Answer(size, "a device's share of a mini batch; trainer.maxTokensPerDevice splits it by tokens instead")
    return Answer(size, "a device's share of a mini batch")


QUESTIONS = (
    Question("trainer.microBatchSizePerDevice", _micro_batch),
    background_saves.QUESTION,
    *optimizations.QUESTIONS,
)
