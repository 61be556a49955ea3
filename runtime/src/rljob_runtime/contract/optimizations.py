"""Optimizations of a run, as decided by the operator.

The operator decides them once, from the whole spec, and states value and reason in status.resolved.decisions. The
runtime obeys; every default is what verl does by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob_runtime.contract import codec


@dataclass(frozen=True)
class Optimizations:
    """One member per switch of `spec.optimizations` that the runtime implements."""

    skip_old_log_prob: bool = codec.added(default=False)
    """Whether the loss uses the log-probabilities of its own forward pass as the old ones."""
    batch_balance: bool = codec.added(default=False)
    """Whether samples are distributed over ranks and updates at once, by their cost."""
    late_binding: bool = codec.added(default=False)
    """Whether requests wait in the router until a replica has room."""
    gc_freeze: bool = codec.added(default=False)
    """Whether engines and trainer freeze the objects that live after their start."""
    sleep_level: int = codec.added(default=1)
    """vLLM's level of sleep between rollouts: 1 keeps weights in host memory, 2 discards them."""
    length_aware_order: bool = codec.added(default=False)
    """Whether prompts with responses of similar length share a batch."""
