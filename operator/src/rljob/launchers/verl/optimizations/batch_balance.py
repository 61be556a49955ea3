"""Whether samples are balanced over ranks and updates; the runtime's planning/update_balance.py has the plan."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.optimizations.switch import DISABLED, ENABLED
from rljob.launchers.verl.rows import ACTOR
from rljob.launchers.verl.sizes import data_parallel_ranks, mini_batch

SHUFFLE = f"{ACTOR}.shuffle"
"""Each rank then draws its mini-batches at random from its list, with a seed of its own (verl 0.9.1,
workers/engine_workers.py:277 and utils/tensordict_utils.py:594-605). The critic's key follows the actor's."""


def decide(spec: RLJobSpec) -> Answer:
    """Return whether the runtime balances them."""
    asked, ranks = spec.optimizations.batch_balance, data_parallel_ranks(spec)
    updates = -(-spec.trainer.global_batch_size // mini_batch(spec))
    if asked is Switch.DISABLED:
        return Answer(DISABLED, SET)
    if _shuffles(spec):
        return Answer(DISABLED, f"{SHUFFLE} is true: each rank draws its mini-batches at random")
    if spec.trainer.mode == "Evaluate":
        return Answer(DISABLED, "an evaluation trains nothing")
    if asked is Switch.ENABLED:
        return Answer(ENABLED, SET)
    if ranks == 1:
        return Answer(DISABLED, "one data-parallel rank waits for no other")
    each = "each of the updates" if updates > 1 else "the update"
    return Answer(ENABLED, f"{ranks} data-parallel ranks wait for the slowest at {each}, {updates} per batch")


def _shuffles(spec: RLJobSpec) -> bool:
    return effective(spec).value(SHUFFLE) is True


def _shuffled_ranks_cannot_be_balanced(spec: RLJobSpec) -> Iterator[Violation]:
    """The list of a rank is balanced by update only if the rank trains it in its order."""
    if spec.optimizations.batch_balance is Switch.ENABLED and _shuffles(spec):
        yield Violation(
            "spec.optimizations.batchBalance",
            f"Enabled with {SHUFFLE} true: each rank draws its mini-batches at random, so that no plan holds; "
            f"remove spec.verl.overrides[{SHUFFLE}], or set batchBalance to Auto or Disabled",
        )


CHECKS: tuple[Check, ...] = (_shuffled_ranks_cannot_be_balanced,)
