"""The order of prompts in an epoch.

A synchronous step ends with its longest response. Prompts whose responses had similar lengths in earlier epochs
therefore share a batch (rljob_runtime/verl_plugin/trainer/prompt_order.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import Answer
from rljob.core.validation.violation import Violation
from rljob.launchers.verl.asynchronous import with_mode
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.rows import ASYNC

DEFAULT, LENGTH_AWARE = "Default", "LengthAware"
FIELD = "spec.optimizations.promptOrder"
SHUFFLE = "data.shuffle"
"""False keeps the order of the files (verl/trainer/ppo/utils.py, create_rl_sampler, 0.9.1)."""


def decide(spec: RLJobSpec) -> Answer:
    """Return the order."""
    if spec.optimizations.prompt_order == DEFAULT:
        return Answer(DEFAULT, "verl's order")
    if spec.trainer.mode == "Evaluate":
        return Answer(DEFAULT, "trainer.mode Evaluate trains nothing")
    return Answer(LENGTH_AWARE, "set in the spec; the first epoch has verl's order, because no response was measured")


def check(spec: RLJobSpec) -> Iterator[Violation]:
    """Prompts have one order, which pays only where a step waits for its own longest response."""
    if ASYNC.holds(spec) and spec.optimizations.prompt_order == LENGTH_AWARE:
        yield Violation(
            FIELD,
            f"LengthAware puts responses of similar length into one step, and {with_mode(spec)} no step waits for its "
            "own longest response; remove it, or set trainer.mode to Sync",
        )
        return
    seen = effective(spec)
    if decide(spec).value == LENGTH_AWARE and seen.value(SHUFFLE) in (False, None):
        yield Violation(
            FIELD,
            f"LengthAware changes the order of prompts, and {seen.field(SHUFFLE)} keeps that of the files; remove "
            "one of them",
        )
