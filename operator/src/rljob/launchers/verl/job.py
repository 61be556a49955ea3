"""job.json of a run of verl."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.job_config import common_config
from rljob.launchers.verl import background_saves, drafts, optimizations
from rljob.launchers.verl.algorithms import has_critic
from rljob.launchers.verl.asynchronous import trainer_mode
from rljob.launchers.verl.effective import baseline_of
from rljob.launchers.verl.table import TABLE
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig, OverrideValue, RequiredPath


def overrides(spec: RLJobSpec) -> dict[str, OverrideValue]:
    """Return every override: the class's baseline, those of the fields, then the user's own."""
    values = {row.key: row.value(spec) for row in TABLE if row.when.holds(spec)}
    taken = {key.lstrip("+") for key in spec.verl.overrides}
    ours: dict[str, OverrideValue] = {
        key: value for key, value in values.items() if value is not None and key.lstrip("+") not in taken
    }
    return {row.key: value for row, value in baseline_of(spec)} | ours | spec.verl.overrides


def job_config(job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None) -> JobConfig:
    """Return job.json of a cluster generation.

    `earlier_path` is the checkpoint folder of the job that `checkpoint.from.job` names. Without it such a job begins at
    step 0.
    """
    common = common_config(job, spec, generation, earlier_path)
    return replace(
        common,
        overrides=overrides(spec),
        required_paths=_required_paths(spec),
        optimizations=optimizations.optimizations(spec),
        mode=trainer_mode(spec),
        auto_saves=spec.auto_saves,
        background_saves=background_saves.decide(spec).value == background_saves.ON,
        drafts=drafts.drafts(spec),
    )


def _required_paths(spec: RLJobSpec) -> tuple[RequiredPath, ...]:
    paths = [RequiredPath("model.path", spec.model.path)]
    if spec.reward.path is not None:
        paths.append(RequiredPath("reward.path", spec.reward.path))
    if spec.reward.judge is not None:
        paths.append(RequiredPath("reward.judge.path", spec.reward.judge.path))
    if spec.rollout.agent is not None:
        paths.append(RequiredPath("rollout.agent.tools", spec.rollout.agent.tools))
    if has_critic(spec) and spec.critic and spec.critic.path:
        paths.append(RequiredPath("critic.path", spec.critic.path))
    if spec.trainer.lora is not None and spec.trainer.lora.path is not None:
        paths.append(RequiredPath("trainer.lora.path", spec.trainer.lora.path))
    paths += [RequiredPath(f"data.train[{index}]", path) for index, path in enumerate(spec.data.train)]
    paths += [RequiredPath(f"data.validation[{index}]", path) for index, path in enumerate(spec.data.validation)]
    return tuple(paths)
