"""checkpoint.async: whether the ranks of FSDP2 write checkpoints while the run continues."""

from __future__ import annotations

from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer, Question
from rljob.core.spec.model_shape import checkpoint_size
from rljob.launchers.verl.sizes import uses_megatron
from rljob.render.accelerators import facts_of
from rljob.render.hardware import sized
from rljob_runtime.contract import TrainerMode

MEMORY_SHARE = 4
"""A copy of a node's part of a checkpoint may take this fraction of its memory."""
ON, OFF = "Auto", "Off"


def decide(spec: RLJobSpec) -> Answer:
    """Return Auto where checkpoints are written behind, else Off, with the reason."""
    if spec.checkpoint is None:
        return Answer(OFF, "nothing is saved without checkpoint.path")
    if spec.checkpoint.async_ == OFF:
        return Answer(OFF, SET)
    if uses_megatron(spec):
        return Answer(OFF, "ranks of FSDP2 only can write behind")
    if spec.trainer.mode != TrainerMode.SYNC.value:
        return Answer(OFF, f"not proved with trainer.mode {spec.trainer.mode}")
    if facts_of(spec).is_npu:
        return Answer(OFF, "not proved on NPUs")
    size, group = checkpoint_size(spec), spec.trainer_group
    memory = sized(spec, group).memory
    if size is None or memory is None:
        return Answer(OFF, "how much memory a copy takes is not known without model.architecture and template.memory")
    copied = size / group.nodes
    if copied * MEMORY_SHARE > quantity(memory):
        return Answer(OFF, f"a copy of {copied / 1e9:.1f} GB would take more than a quarter of template.memory")
    return Answer(ON, "each rank copies its part into host memory, and writes it while the run continues")


QUESTION = Question("checkpoint.async", decide)
