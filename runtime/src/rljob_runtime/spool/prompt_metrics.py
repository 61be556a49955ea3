"""Metrics of prompts that are in flight across steps: how old what was trained is, what waits, what became of the rest.

Pure; called by the trainer of an asynchronous mode. verl records the mean and the largest staleness itself
(`training/off_policy/trajectory_staleness_worst/*`, trainer_base.py, _compute_metrics, 0.9.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rljob_runtime.checkpoints.prompt_ledger import Dropped, PromptLedger
from rljob_runtime.spool.step_metrics import PREFIX

STALENESS_PREFIX = f"{PREFIX}/staleness/"
"""Then a number of weight versions."""
MIXED_VERSIONS = f"{PREFIX}/mixed_versions_ratio"
QUEUE_PREFIX = f"{PREFIX}/queue/"
OLDEST_PROMPT = f"{PREFIX}/oldest_prompt_steps"
PROMPTS_PREFIX = f"{PREFIX}/prompts/"
DROPPED_PREFIX = f"{PREFIX}/prompts_dropped/"
REPLICAS_PREFIX = f"{PREFIX}/replicas/"
REPLICAS_SERVING, REPLICAS_WANTED = f"{REPLICAS_PREFIX}serving", f"{REPLICAS_PREFIX}wanted"
"""Of a rollout that stands apart."""
STATES = ("pending", "running", "finished", "failure")
"""verl's states of a prompt in the queue (replay_buffer.py, 0.9.1)."""

Tag = Mapping[str, Any]


def staleness(tags: Iterable[Tag], step: int) -> dict[str, float]:
    """Return how many of the step's responses were begun by weights of each age, and the share of mixed ones.

    The weights before step k are version k-1: responses that they generated are 0 versions old.
    """
    versions = [
        (int(tag["min_global_steps"]), int(tag["max_global_steps"]))
        for tag in tags
        if not tag.get("is_padding", False) and tag.get("min_global_steps") is not None
    ]
    if not versions:
        return {}
    ages = Counter(step - 1 - first for first, _ in versions)
    mixed = sum(first != last for first, last in versions) / len(versions)
    return {f"{STALENESS_PREFIX}{age}": float(count) for age, count in sorted(ages.items())} | {MIXED_VERSIONS: mixed}


def queue(prompts: Iterable[Tag], step: int) -> dict[str, float]:
    """Return how many prompts are in flight after the step, by state, and for how many steps the oldest is."""
    tags = list(prompts)
    states = Counter(str(tag.get("status")) for tag in tags)
    figures = {f"{QUEUE_PREFIX}{state}": float(states[state]) for state in STATES}
    if tags:
        figures[OLDEST_PROMPT] = float(max(step - int(tag.get("global_steps", step)) for tag in tags))
    return figures


def prompts(ledger: PromptLedger, unaccounted: int) -> dict[str, float]:
    """Return what became of all prompts of the run, over all attempts."""
    counts = {
        "fetched": ledger.fetched,
        "trained": ledger.trained,
        "retried": ledger.retried,
        "unaccounted": unaccounted,
    }
    figures = {f"{PROMPTS_PREFIX}{name}": float(count) for name, count in counts.items()}
    return figures | {f"{DROPPED_PREFIX}{reason}": float(ledger.dropped[reason]) for reason in Dropped}
