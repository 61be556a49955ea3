"""The actor's loss without a pass for old log-probabilities.

With one update of a batch the old log-probabilities are those that the update computes itself, so the loss takes them,
detached, where the batch has none. It runs in the ranks; the trainer sends it with verl's `set_loss_fn`
(workers/engine_workers.py:530, 0.9.1) and calls the class `SkippedPass` in place of verl's pass.

verl's pass also reports how far the trainer's probabilities are from the rollout's, and the policy's entropy. The loss
adds the sums behind these figures to its metrics, per micro batch, and the trainer makes the same figures of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.rollout_corr_helper import SAFETY_BOUND
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import response_from_nested

from rljob_runtime import model_check
from rljob_runtime.planning.flattening import flat
from rljob_runtime.planning.on_policy import Obstacle, is_random, obstacles, random_part

if TYPE_CHECKING:
    from tensordict import TensorDict

    from rljob_runtime.training_attempt import TrainingAttempt

OLD, ROLLOUT, MASK = "old_log_probs", "rollout_log_probs", "response_mask"
PREFIX = "rljob_on_policy/"
"""Of the sums in the loss's metrics, to which verl adds `actor/` (trainer_base.py, _update_actor)."""
ENTROPY = "entropy"
OVERRIDE_CONFIG = "actor_rollout_ref.model.override_config"
CORRECTION = "rollout_correction"
TINY = 1e-8
"""verl's, in a mean over an empty response (utils/torch_functional.py:308)."""


def on_policy_loss(
    config: Any,  # noqa: ANN401 - verl's ActorConfig
    model_output: Mapping[str, Any],
    data: TensorDict,
    dp_group: Any = None,  # noqa: ANN401 - torch's process group
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return verl's loss of a micro batch, with the update's own log-probabilities where the batch has no old ones."""
    if OLD in data.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
        loss, metrics = ppo_loss(config, model_output, data, dp_group)
        return loss, metrics
    data[OLD] = response_from_nested(model_output["log_probs"].detach(), data[MASK])
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    return loss, {**metrics, **_figures(config, data)}


def _figures(config: Any, data: TensorDict) -> dict[str, Metric]:  # noqa: ANN401 - verl's ActorConfig
    """Return the sums of a micro batch as metrics that verl adds up over micro batches and ranks."""
    has_rollout = ROLLOUT in data.keys()  # noqa: SIM118 - a TensorDict iterates over its rows
    fields = [OLD, MASK, *([ROLLOUT] if has_rollout else [])]
    padded = data.select(*fields).to_padded_tensor()
    old, mask = padded[OLD], padded[MASK].bool()
    # ppo_loss has just written what it divides by into the configuration.
    entropy = agg_loss(loss_mat=-old, loss_mask=mask, loss_agg_mode=config.loss_agg_mode, **config.global_batch_info)
    made = {ENTROPY: Metric(AggregationType.SUM, entropy)}
    if has_rollout:
        sums, largest, smallest = _divergence(old.float(), padded[ROLLOUT].float(), mask)
        # verl averages sums over the data-parallel ranks (utils/metric/utils.py, aggregate_dp).
        ranks = int(data["dp_size"])
        made |= {name: Metric(AggregationType.SUM, value * ranks) for name, value in _floats(sums).items()}
        made |= {name: Metric(AggregationType.MAX, value) for name, value in _floats(largest).items()}
        made |= {name: Metric(AggregationType.MIN, value) for name, value in _floats(smallest).items()}
    return {PREFIX + name: value for name, value in made.items()}


Tensors = dict[str, torch.Tensor]


def _floats(values: Tensors) -> dict[str, float]:
    """Return scalars of the device, in one transfer."""
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))


def _divergence(old: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor) -> tuple[Tensors, Tensors, Tensors]:
    """Return sums, maxima and minima behind verl's figures of mismatch; the arguments have rows × response tokens.

    The figures are those of utils/debug/metrics.py (calculate_debug_metrics) and of trainer/ppo/rollout_corr_helper.py
    (compute_offpolicy_metrics).
    """
    zero = torch.zeros((), dtype=old.dtype, device=old.device)
    log_ratio = torch.where(mask, old - rollout, zero)
    bounded = torch.where(mask, torch.exp(2 * log_ratio.clamp(-SAFETY_BOUND, SAFETY_BOUND)), zero)
    ours, theirs = (torch.where(mask, torch.exp(one), zero) for one in (old, rollout))
    apart = (ours - theirs).abs()
    lengths = mask.sum(-1)
    mean_ours, mean_theirs = (torch.where(mask, one, zero).sum(-1) / (lengths + TINY) for one in (old, rollout))
    apart_by_row = mean_theirs - mean_ours
    whole = log_ratio.sum(-1).clamp(-SAFETY_BOUND, SAFETY_BOUND)
    sums = {
        "tokens": lengths.sum().to(old.dtype),
        "apart": apart.sum(),
        "apart_squared": apart.square().sum(),
        "ours": ours.sum(),
        "theirs": theirs.sum(),
        "ours_squared": ours.square().sum(),
        "theirs_squared": theirs.square().sum(),
        "product": (ours * theirs).sum(),
        "log_ratio": log_ratio.sum(),
        "k3": (torch.exp(log_ratio) - log_ratio - 1).sum(),
        "ratio_squared": bounded.sum(),
        "rows": torch.full((), float(len(mask)), dtype=old.dtype, device=old.device),
        "training_ppl": torch.exp(-mean_ours).sum(),
        "training_log_ppl": -mean_ours.sum(),
        "rollout_ppl": torch.exp(-mean_theirs).sum(),
        "rollout_log_ppl": -mean_theirs.sum(),
        "log_ppl_diff": apart_by_row.sum(),
        "log_ppl_abs_diff": apart_by_row.abs().sum(),
        "ppl_ratio": torch.exp(apart_by_row).sum(),
        "chi2_seq": torch.exp(2 * whole).sum(),
    }
    return (
        sums,
        {"apart_max": apart.max(), "log_ppl_diff_max": apart_by_row.max()},
        {"log_ppl_diff_min": apart_by_row.min()},
    )


MEANS_OF_ROWS = (
    "training_ppl",
    "training_log_ppl",
    "rollout_ppl",
    "rollout_log_ppl",
    "log_ppl_diff",
    "log_ppl_abs_diff",
    "ppl_ratio",
)


def _obstacles(config: DictConfig) -> Iterator[Obstacle]:
    """Yield what makes the pass necessary in the composed configuration and in the model's config.json."""

    def below(section: str) -> Iterator[tuple[str, object]]:
        node = OmegaConf.select(config, section)
        if isinstance(node, DictConfig):
            yield from flat(section, OmegaConf.to_container(node, resolve=True))

    yield from obstacles(lambda key: OmegaConf.select(config, key), below)
    folder = Path(str(config.actor_rollout_ref.model.path))
    changed = dict(below(OVERRIDE_CONFIG))
    for key, value in flat(f"{folder}/config.json", model_check.read_config("model.path", folder) or {}):
        name = key.rpartition(".")[2]
        if f"{OVERRIDE_CONFIG}.{name}" not in changed and is_random(name, value):
            yield random_part(key, value)


def mismatch_metrics(seen: Mapping[str, float]) -> dict[str, float]:
    """Return verl's figures of mismatch, under verl's names, from the sums of a batch."""
    tokens, rows = seen["tokens"], seen["rows"]
    if tokens == 0:
        return {"training/rollout_probs_diff_valid": 0.0}
    apart = seen["apart"] / tokens
    variance = (seen["apart_squared"] - tokens * apart**2) / (tokens - 1) if tokens > 1 else math.nan
    figures = {f"rollout_corr/{name}": seen[name] / rows for name in MEANS_OF_ROWS}
    return figures | {
        "training/rollout_probs_diff_valid": 1.0,
        "training/rollout_probs_diff_max": seen["apart_max"],
        "training/rollout_probs_diff_mean": apart,
        "training/rollout_probs_diff_std": math.sqrt(max(variance, 0.0)) if tokens > 1 else math.nan,
        "training/rollout_actor_probs_pearson_corr": _correlation(seen),
        "rollout_corr/kl": -seen["log_ratio"] / tokens,
        "rollout_corr/k3_kl": seen["k3"] / tokens,
        "rollout_corr/log_ppl_diff_max": seen["log_ppl_diff_max"],
        "rollout_corr/log_ppl_diff_min": seen["log_ppl_diff_min"],
        "rollout_corr/chi2_token": seen["ratio_squared"] / tokens - 1,
        "rollout_corr/chi2_seq": seen["chi2_seq"] / rows - 1,
    }


def _correlation(seen: Mapping[str, float]) -> float:
    """Return Pearson's correlation of the probabilities; NaN if one side does not vary."""
    count = seen["tokens"]
    together = seen["product"] - seen["ours"] * seen["theirs"] / count
    spread = [seen[f"{name}_squared"] - seen[name] ** 2 / count for name in ("ours", "theirs")]
    return together / math.sqrt(spread[0] * spread[1]) if min(spread) > 0 else math.nan


class SkippedPass:
    """Decides in the trainer, step by step, whether verl's pass for old log-probabilities runs."""

    def __init__(self, config: DictConfig, run: TrainingAttempt) -> None:
        self._config = config
        self._wanted = run.job.optimizations.skip_old_log_prob
        self._skipped = False
        actor = config.actor_rollout_ref.actor
        self._rows = int(actor.ppo_mini_batch_size) * int(config.actor_rollout_ref.rollout.n)
        if self._wanted and (found := next(_obstacles(config), None)) is not None:
            # The operator knows the spec, but not what an image adds or what the model's own config.json says.
            run.note(f"the pass for old log-probabilities is not skipped: {found.reason} ({found.key})")
            self._wanted = False

    def install(self, ranks: Any) -> None:  # noqa: ANN401 - verl's worker group
        """Send the loss to the ranks, which have verl's own until then."""
        if self._wanted:
            actor = omega_conf_to_dataclass(self._config.actor_rollout_ref.actor)
            ranks.set_loss_fn(functools.partial(on_policy_loss, config=actor))

    def skips(self, rows: int) -> bool:
        """Return whether the pass of a batch with this many rows is skipped.

        An agent loop may return several rows for a sample, of which verl makes several updates (trainer_base.py,
        _get_required_batch_multiple and _update_actor): then the pass runs.
        """
        self._skipped = self._wanted and rows <= self._rows
        return self._skipped

    @contextlib.contextmanager
    def uncorrected(self) -> Iterator[None]:
        """Let verl compute advantages without old log-probabilities, which it would compare with the rollout's.

        Where a pass is skipped, the comparison has no weights, and its figures come from the loss.
        """
        if not self._skipped:
            yield
            return
        algorithm = self._config.algorithm
        kept = algorithm[CORRECTION]
        with open_dict(algorithm):
            algorithm[CORRECTION] = None
        try:
            yield
        finally:
            with open_dict(algorithm):
                algorithm[CORRECTION] = kept

    def report(self, metrics: dict[str, Any]) -> None:
        """Replace the sums in a step's metrics by the figures that verl's pass reports."""
        prefix = f"actor/{PREFIX}"
        seen = {key.removeprefix(prefix): float(metrics.pop(key)) for key in list(metrics) if key.startswith(prefix)}
        if not seen:
            return
        # verl's exact entropy, where the update computes it for its own sake (losses.py, entropy_loss).
        metrics["actor/entropy"] = metrics.get("actor/entropy_loss", seen[ENTROPY])
        if "tokens" in seen:
            metrics.update(mismatch_metrics(seen))
