"""Rows of checkpoints and records."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import PPO, OverrideRow, RowCondition

PPO_YAML = "trainer/config/ppo_trainer.yaml"
BY_LAUNCHER = RowCondition("set by the launcher for each attempt", lambda _: True)
"""The launcher knows what was saved so far; the rows only reserve the keys."""


def _keep(spec: RLJobSpec) -> int | None:
    return spec.checkpoint.keep if spec.checkpoint else None


ROWS = (
    OverrideRow(
        "trainer.default_local_dir",
        "checkpoint.path",
        PPO_YAML,
        lambda s: s.checkpoint.path if s.checkpoint else None,
    ),
    OverrideRow(
        "trainer.save_freq",
        "checkpoint.everySteps",
        PPO_YAML,
        lambda s: s.checkpoint.every_steps if s.checkpoint else -1,
    ),
    # The trainer plug-in enforces the limit instead of verl (rljob_runtime/verl_plugin/fenced_save.py).
    OverrideRow("trainer.max_actor_ckpt_to_keep", "checkpoint.keep", PPO_YAML, _keep),
    OverrideRow("trainer.max_critic_ckpt_to_keep", "checkpoint.keep", PPO_YAML, _keep, PPO),
    OverrideRow("trainer.resume_mode", "checkpoint.resume", PPO_YAML, lambda _: None, BY_LAUNCHER),
    OverrideRow("trainer.resume_from_path", "checkpoint.from", PPO_YAML, lambda _: None, BY_LAUNCHER),
    OverrideRow(
        "trainer.logger",
        "observability.trackers",
        "utils/tracking.py",
        lambda s: ["console", *s.observability.trackers] if s.observability.trackers else None,
    ),
)
