"""Whether the policy that a step updates is the one that its batch is compared with, so that their ratio is 1.

verl computes the log-probabilities of a batch before the update ("old"), and divides those of the update by them. With
one update of a batch both come from the same weights: the ratio is 1, its gradient is that of the log-probability, and
a pass of its own for the old ones computes what the update computes anyway. The table below has what makes the ratio
differ, or reads the old log-probabilities in between. The operator decides by it from the spec, and the trainer asks it
again about the composed configuration. Lines are those of verl 0.9.1, below verl/.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Value = Callable[[str], object]
"""Returns the value of a key of verl; anything that is neither number, text nor switch where there is none."""
Below = Callable[[str], Iterable[tuple[str, object]]]
"""Yields the keys that are set below a section, with their values."""

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
CORRECTION = "algorithm.rollout_correction"
REPLAY = f"{ACTOR}.megatron.router_replay.mode"
TRUE = ("true", "1", "yes", "on")
"""What OmegaConf converts to true, in lower case."""
SYNCHRONOUS = ("sync", "rljob_sync")
"""verl's synchronous mode, and the name of the runtime's trainer, which extends it (launcher_overrides.py)."""
NEED_OLD = ("optimal_token_baseline", "tir_optimal_token_baseline")
"""Advantage estimators that weigh tokens by their old probability (trainer/ppo/core_algos.py:876, :995)."""
RANDOM_PARTS = ("drop", "jitter")
"""Words in the names of settings that make a pass with gradients random, while the pass before it is not: dropout of
every kind (attention_dropout, resid_pdrop, lora.dropout, drop_path_rate), and jitter of a router's inputs."""
RANDOM_NOT = ("token_drop", "drop_policy", "drop_last", "dropout_position", "classifier", "summary")
"""Words in names of settings that contain one of RANDOM_PARTS and do not make a pass random, or only in heads that a
policy lacks."""
RANDOM_SECTIONS = (
    f"{MODEL}.override_config",
    f"{MODEL}.lora",
    f"{ACTOR}.megatron.override_transformer_config",
)


@dataclass(frozen=True)
class Obstacle:
    """One setting with which the pass for old log-probabilities is needed."""

    key: str
    """verl's key."""
    reason: str
    fix: str
    """What to do to skip the pass, as the end of a sentence."""


@dataclass(frozen=True)
class Row:
    """One kind of obstacle."""

    key: str
    holds: Callable[[object], bool]
    reason: str
    fix: str


def is_on(value: object) -> bool:
    """Report whether a value is a switch that is on."""
    return value.lower() in TRUE if isinstance(value, str) else value is True or value == 1


def number(value: object) -> float | None:
    """Return a finite number; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.lower() not in ("", "null", "none")


def _is_asynchronous(value: object) -> bool:
    return isinstance(value, str) and value not in SYNCHRONOUS


def _above_one(value: object) -> bool:
    return (number(value) or 1) > 1


ROWS = (
    Row(
        "trainer.v1.trainer_mode",
        _is_asynchronous,
        "an asynchronous trainer updates with responses of older weights",
        "train synchronously",
    ),
    Row(
        f"{ACTOR}.ppo_epochs",
        _above_one,
        "a batch is trained more than once: the ratio is not 1 after the first",
        "set it to 1",
    ),
    Row(
        f"{CORRECTION}.bypass_mode",
        is_on,
        "the rollout's log-probabilities replace the old ones, and there is no pass to skip",
        "set it to false",
    ),
    # Both compare the old log-probabilities with the rollout's (trainer_base.py:1771).
    Row(
        f"{CORRECTION}.rollout_is",
        _is_text,
        "rollout importance sampling weighs by the old log-probabilities",
        "set it to null",
    ),
    Row(
        f"{CORRECTION}.rollout_rs",
        _is_text,
        "rollout rejection sampling judges by the old log-probabilities",
        "set it to null",
    ),
    # trainer_base.py:1754, apply_kl_penalty.
    Row(
        "algorithm.use_kl_in_reward",
        is_on,
        "the KL penalty in the reward reads the old log-probabilities",
        "set it to false",
    ),
    Row(
        "algorithm.adv_estimator",
        lambda value: value in NEED_OLD,
        "the advantage estimator reads the old log-probabilities",
        "use another estimator",
    ),
    # R2 records the routes in this pass, and the update replays them (engine/megatron/transformer_impl.py:923-958).
    Row(
        REPLAY,
        lambda value: _is_text(value) and value != "disabled",
        "the pass for old log-probabilities takes part in router replay",
        "set it to disabled",
    ),
    # The workers' loss is another one (workers/engine_workers.py:642-645).
    Row("distillation.enabled", is_on, "distillation has a loss of its own", "set it to false"),
)


def obstacles(value: Value, below: Below) -> Iterator[Obstacle]:
    """Yield everything that makes the pass for old log-probabilities necessary."""
    yield from _several_updates(value)
    yield from (Obstacle(row.key, row.reason, row.fix) for row in ROWS if row.holds(value(row.key)))
    yield from _observed_activations(value)
    yield from (
        random_part(key, found) for section in RANDOM_SECTIONS for key, found in below(section) if is_random(key, found)
    )


def _several_updates(value: Value) -> Iterator[Obstacle]:
    batch, key = number(value("data.train_batch_size")), f"{ACTOR}.ppo_mini_batch_size"
    mini = number(value(key))
    if batch is not None and mini is not None and 0 < mini < batch:
        count = math.ceil(batch / mini)
        reason = f"{count} updates of a batch: the ratio is not 1 after the first"
        yield Obstacle(key, reason, f"raise it to {batch:.0f} prompts, one update of a batch")


def _observed_activations(value: Value) -> Iterator[Obstacle]:
    """Quantization-aware training of activations moves their scales in the update (utils/qat/linear.py:356)."""
    key = f"{ACTOR}.qat"
    if is_on(value(f"{key}.enable")) and value(f"{key}.mode") == "w4a4":
        yield Obstacle(f"{key}.mode", "quantized activations change their scales in the update", "use w4a16")


def is_random(key: str, value: object) -> bool:
    """Report whether a setting of a model makes its passes with gradients differ from those without."""
    name = key.rpartition(".")[2].lower()
    if not any(word in name for word in RANDOM_PARTS) or any(word in name for word in RANDOM_NOT):
        return False
    return (number(value) or 0) > 0


def random_part(key: str, value: object) -> Obstacle:
    """Return the obstacle that such a setting is."""
    name = key.rpartition(".")[2]
    return Obstacle(key, f"{name} {value} makes the update's log-probabilities random", "set it to 0")


__all__ = ["Obstacle", "is_random", "obstacles", "random_part"]
