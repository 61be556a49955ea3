"""verl 0.9.1: from the typed spec to Hydra overrides, by one table with a row a key.

What only wires verl to the pods (router, spool, ports, settings of the CPU platform) is the launcher's own business in
`rljob_runtime`; here stand the user's decisions. Keys are those of verl/trainer/config/ppo_trainer.yaml of v0.9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.build.accelerators import ACCELERATORS
from rljob.build.names import JobIdentity, cluster_name
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, OverrideValue, RequiredPath

ENTRYPOINT = "python -m rljob_runtime launch"


@dataclass(frozen=True)
class Row:
    """One Hydra key: which field decides it, and how."""

    key: str
    field: str
    """Path of the manifest's field, for messages."""
    value: Callable[[RLJobSpec], OverrideValue]


def devices(spec: RLJobSpec) -> int:
    """NPU devices of the job."""
    return sum(group.nodes * group.devices_per_node for group in spec.worker_groups)


def mini_batch(spec: RLJobSpec) -> int:
    """Prompts of an optimizer update."""
    return spec.trainer.mini_batch_size or spec.trainer.global_batch_size


def micro_batch(spec: RLJobSpec) -> int:
    """Samples of one pass on a device."""
    share = mini_batch(spec) * spec.trainer.samples_per_prompt // devices(spec)
    return spec.trainer.micro_batch_size_per_device or max(share, 1)


def _uses_kl(spec: RLJobSpec) -> bool:
    return float(spec.algorithm.kl_coefficient) > 0


TABLE: tuple[Row, ...] = (
    Row("algorithm.adv_estimator", "algorithm.name", lambda s: s.algorithm.name.value.lower()),
    Row("actor_rollout_ref.actor.use_kl_loss", "algorithm.klCoefficient", _uses_kl),
    Row("actor_rollout_ref.actor.kl_loss_coef", "algorithm.klCoefficient", lambda s: float(s.algorithm.kl_coefficient)),
    Row("data.train_files", "data.train", lambda s: list(s.data.train)),
    Row("data.val_files", "data.validation", lambda s: list(s.data.validation or s.data.train)),
    Row("data.max_prompt_length", "data.maxPromptTokens", lambda s: s.data.max_prompt_tokens),
    Row("data.max_response_length", "data.maxResponseTokens", lambda s: s.data.max_response_tokens),
    Row("data.train_batch_size", "trainer.globalBatchSize", lambda s: s.trainer.global_batch_size),
    Row("reward.custom_reward_function.path", "reward.path", lambda s: s.reward.path),
    Row("reward.custom_reward_function.name", "reward.function", lambda s: s.reward.function),
    Row("actor_rollout_ref.model.path", "model.path", lambda s: s.model.path),
    Row("actor_rollout_ref.actor.strategy", "trainer.backend", lambda s: s.trainer.backend.lower()),
    Row("actor_rollout_ref.ref.strategy", "trainer.backend", lambda s: s.trainer.backend.lower()),
    Row("actor_rollout_ref.actor.optim.lr", "trainer.learningRate", lambda s: float(s.trainer.learning_rate)),
    Row("actor_rollout_ref.actor.ppo_mini_batch_size", "trainer.miniBatchSize", mini_batch),
    Row("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "trainer.microBatchSizePerDevice", micro_batch),
    Row("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", "trainer.microBatchSizePerDevice", micro_batch),
    Row("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", "trainer.microBatchSizePerDevice", micro_batch),
    Row("actor_rollout_ref.rollout.n", "trainer.samplesPerPrompt", lambda s: s.trainer.samples_per_prompt),
    Row("actor_rollout_ref.rollout.name", "rollout.engine", lambda s: s.rollout.engine.lower()),
    Row(
        "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "rollout.parallelism.tensor",
        lambda s: s.rollout.parallelism.tensor,
    ),
    Row("trainer.nnodes", "workerGroups[0].nodes", lambda s: s.worker_groups[0].nodes),
    Row("trainer.n_gpus_per_node", "workerGroups[0].devicesPerNode", lambda s: s.worker_groups[0].devices_per_node),
    Row("trainer.device", "accelerator.class", lambda s: ACCELERATORS[s.accelerator.class_].platform.value),
    Row("trainer.total_training_steps", "trainer.steps", lambda s: s.trainer.steps),
    # The step bound ends the run; an epoch has at least one step, so this many epochs always suffice.
    Row("trainer.total_epochs", "trainer.steps", lambda s: s.trainer.steps),
    Row("trainer.save_freq", "checkpoint.everySteps", lambda s: s.checkpoint.every_steps if s.checkpoint else -1),
)
TYPED_KEYS = {row.key: row.field for row in TABLE} | {
    "actor_rollout_ref.rollout.max_num_seqs": "rollout.maxSequences",
    "trainer.default_local_dir": "checkpoint.path",
}


def overrides(spec: RLJobSpec) -> dict[str, OverrideValue]:
    """Give every override: the table's, then the user's own."""
    result: dict[str, OverrideValue] = {row.key: row.value(spec) for row in TABLE}
    if spec.rollout.max_sequences is not None:
        result["actor_rollout_ref.rollout.max_num_seqs"] = spec.rollout.max_sequences
    return result | spec.verl.overrides


def job_config(job: JobIdentity, spec: RLJobSpec, generation: int) -> JobConfig:
    """Give job.json of a cluster generation."""
    facts = ACCELERATORS[spec.accelerator.class_]
    paths = [RequiredPath("model.path", spec.model.path), RequiredPath("reward.path", spec.reward.path)]
    paths += [RequiredPath(f"data.train[{index}]", path) for index, path in enumerate(spec.data.train)]
    paths += [RequiredPath(f"data.validation[{index}]", path) for index, path in enumerate(spec.data.validation)]
    return JobConfig(
        version=CONTRACT_VERSION,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        cluster_name=cluster_name(job, generation),
        cluster_generation=generation,
        platform=facts.platform,
        nodes=sum(group.nodes for group in spec.worker_groups),
        devices=devices(spec),
        dies_per_card=facts.dies_per_card,
        total_steps=spec.trainer.steps,
        overrides=overrides(spec),
        required_paths=tuple(paths),
        checkpoint_path=spec.checkpoint.path if spec.checkpoint else None,
        log_path=spec.observability.log_path,
    )
