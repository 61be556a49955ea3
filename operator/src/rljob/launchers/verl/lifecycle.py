"""Rows of checkpoints and records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from rljob.api.lifecycle import Profile
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import ACTOR, ALWAYS, ATLAS, CPUS, MEGATRON, PPO, OverrideRow, RowCondition, both
from rljob.render.accelerators import facts_of
from rljob_runtime.contract import OverrideValue

PPO_YAML = "trainer/config/ppo_trainer.yaml"
PROFILED = RowCondition("observability.profile is set", lambda s: s.observability.profile is not None)
BY_LAUNCHER = RowCondition("set by the launcher for each attempt", lambda _: True)
"""The launcher knows what was saved so far; the rows only reserve the keys."""


SCHEDULE_PREFIX = "lr_"
"""Names of the settings of Megatron's schedule: trainer/config/optim/megatron.yaml."""


def _has_schedule(role: str) -> RowCondition:
    """Return the condition that a job with checkpoints of its own overrides the learning-rate schedule of a role.

    With `checkpoint.from` the schedule would be that of the other job, whose rate this job may change.
    """

    def holds(spec: RLJobSpec) -> bool:
        if spec.checkpoint is None or spec.checkpoint.from_ is not None:
            return False
        keys = {key.lstrip("+"): value for key, value in spec.verl.overrides.items()}
        inner = keys.get(f"{role}.optim")
        names = [key.removeprefix(f"{role}.optim.") for key in keys if key.startswith(f"{role}.optim.")]
        names += list(map(str, inner)) if isinstance(inner, dict) else []
        return any(name.startswith(SCHEDULE_PREFIX) for name in names)

    return RowCondition("checkpoint, and optim.lr_* is set", holds)


def _schedule_row(role: str, when: RowCondition) -> OverrideRow:
    """Return the row without which Megatron begins its schedule again after a restart.

    utils/checkpoint/megatron_checkpoint_manager.py:753 and 956, verl 0.9.1.
    """
    return OverrideRow(
        f"{role}.optim.use_checkpoint_opt_param_scheduler",
        "checkpoint.path",
        "utils/checkpoint/megatron_checkpoint_manager.py",
        lambda _: True,
        both(when, _has_schedule(role)),
        own=False,
    )


def _keep(spec: RLJobSpec) -> int | None:
    return spec.checkpoint.keep if spec.checkpoint else None


DETAILS = {"Memory": "memory", "Shapes": "shapes", "Stacks": "stack"}
"""verl's names (utils/profiler/config.py, NPUToolConfig and TorchProfilerToolConfig)."""


def _profile_rows() -> Iterator[OverrideRow]:
    """Yield the rows of the profiler. The launcher adds the folder.

    Without `contents`, torch_npu's records nothing of the device. Its raw data is not analysed in the run: that takes
    minutes, in which all devices wait.
    """

    def row(
        key: str, source: str, value: Callable[[Profile, RLJobSpec], OverrideValue], when: RowCondition
    ) -> OverrideRow:
        def of(spec: RLJobSpec) -> OverrideValue:
            profile = spec.observability.profile
            return None if profile is None else value(profile, spec)

        return OverrideRow(key, "observability.profile", source, of, both(when, PROFILED), own=False)

    config = "utils/profiler/config.py"
    tool = {True: "npu", False: "torch"}
    yield row("global_profiler.tool", PPO_YAML, lambda _, s: tool[facts_of(s).is_npu], ALWAYS)
    yield row("global_profiler.steps", PPO_YAML, lambda p, _: list(p.steps), ALWAYS)
    for role, when in ((ACTOR, ALWAYS), ("critic", PPO)):
        of_role = f"{role}.profiler"
        yield row(f"{of_role}.enable", config, lambda *_: True, when)
        yield row(f"{of_role}.ranks", config, lambda p, _: list(p.ranks), when)
        for name, first, on in (("npu", "npu", ATLAS), ("torch", "cpu", CPUS)):
            wanted = both(when, on)
            contents = functools.partial(_contents, first)
            yield row(f"{of_role}.tool_config.{name}.contents", config, contents, wanted)
        yield row(f"{of_role}.tool_config.npu.level", config, lambda p, _: p.level.lower(), both(when, ATLAS))
        yield row(f"{of_role}.tool_config.npu.analysis", config, lambda *_: False, both(when, ATLAS))


def _save_freq(spec: RLJobSpec) -> OverrideValue:
    if spec.checkpoint is None:
        return -1
    # Any positive number lets verl save where the trainer plug-in decides when.
    return spec.checkpoint.every_steps or 1


def _contents(first: str, profile: Profile, _: RLJobSpec) -> OverrideValue:
    return [first, *(DETAILS[name] for name in profile.details)]


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
        _save_freq,
    ),
    # The trainer plug-in enforces the limit instead of verl (rljob_runtime/verl_plugin/trainer/fenced_save.py).
    OverrideRow("trainer.max_actor_ckpt_to_keep", "checkpoint.keep", PPO_YAML, _keep),
    OverrideRow("trainer.max_critic_ckpt_to_keep", "checkpoint.keep", PPO_YAML, _keep, PPO),
    _schedule_row(ACTOR, MEGATRON),
    _schedule_row("critic", both(PPO, MEGATRON)),
    OverrideRow("trainer.resume_mode", "checkpoint.resume", PPO_YAML, lambda _: None, BY_LAUNCHER),
    OverrideRow("trainer.resume_from_path", "checkpoint.from", PPO_YAML, lambda _: None, BY_LAUNCHER),
    OverrideRow(
        "trainer.logger",
        "observability.trackers",
        "utils/tracking.py",
        lambda s: ["console", *s.observability.trackers] if s.observability.trackers else None,
    ),
    OverrideRow(
        "trainer.log_val_generations",
        "observability.samples.perStep",
        PPO_YAML,
        lambda s: s.observability.samples.per_step,
        RowCondition(
            "trackers are set and samples are recorded",
            lambda s: bool(s.observability.trackers) and s.observability.samples.every_steps > 0,
        ),
    ),
    *_profile_rows(),
)
