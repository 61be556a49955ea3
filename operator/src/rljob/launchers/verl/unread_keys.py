"""Keys of verl's schema that no module of a run reads, so that a value has no effect.

verl keeps keys of its earlier trainers. runtime/tests/upstream/test_unread_keys.py finds them in the installed verl: a
key is read if the last part of its name stands in a module that a run imports, other than the classes of the
configuration. Keys that are passed on as a whole to another package are not judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from rljob.launchers.verl.rows import ACTOR, ROLLOUT

NOTHING = "no key of this release does the same; remove it"
BATCHES = "the critic's forward passes take the sizes of its updates; remove it"

FOUND: Mapping[str, str] = {
    f"{ACTOR}.freeze_vision_tower": NOTHING,
    f"{ACTOR}.grad_clip": "use spec.trainer.gradientClip",
    "critic.grad_clip": "use verl.overrides[critic.optim.clip_grad]",
    "actor_rollout_ref.nccl_timeout": NOTHING,
    "critic.nccl_timeout": NOTHING,
    f"{ACTOR}.megatron.dist_checkpointing_prefix": NOTHING,
    "actor_rollout_ref.ref.megatron.dist_checkpointing_prefix": NOTHING,
    "critic.megatron.dist_checkpointing_prefix": NOTHING,
    f"{ACTOR}.megatron.router_replay.replay_file": NOTHING,
    "actor_rollout_ref.ref.megatron.router_replay.replay_file": NOTHING,
    "critic.megatron.router_replay.replay_file": NOTHING,
    f"{ROLLOUT}.agent.custom_async_server": NOTHING,
    f"{ROLLOUT}.multi_stage_wake_up": NOTHING,
    "reward.reward_model.rollout.multi_stage_wake_up": NOTHING,
    f"{ROLLOUT}.multi_turn.num_repeat_rollouts": NOTHING,
    f"{ROLLOUT}.multi_turn.tokenization_sanity_check_mode": NOTHING,
    f"{ROLLOUT}.multi_turn.use_inference_chat_template": NOTHING,
    f"{ROLLOUT}.over_sample_rate": NOTHING,
    "critic.forward_max_token_len_per_gpu": BATCHES,
    "critic.forward_micro_batch_size": BATCHES,
    "critic.forward_micro_batch_size_per_gpu": BATCHES,
    "data.return_raw_input_ids": NOTHING,
}
"""Keys whose name nothing reads, and what to do instead."""
BY_HAND: Mapping[str, str] = {
    # verl/workers/engine/fsdp/transformer_impl.py:185 reads the engine's own.
    f"{ACTOR}.use_torch_compile": f"the engine reads {ACTOR}.fsdp_config.use_torch_compile",
    "actor_rollout_ref.ref.use_torch_compile": "the engine reads actor_rollout_ref.ref.fsdp_config.use_torch_compile",
    # verl/trainer/ppo/v1/trainer_base.py:582 balances without asking.
    "trainer.balance_batch": "this trainer always balances its batches; remove it",
}
"""Keys whose name another key has, which is read."""
UNREAD: Mapping[str, str] = {**FOUND, **BY_HAND}
PASSED_ON = (
    ".turbo_config.",
    ".override_transformer_config.",
    ".lora.",
    ".external_lib",
    ".tiled_mlp",
    ".warmup_style",
    "distillation.",
    "global_profiler.",
    "ray_kwargs.",
    "transfer_queue.",
)
"""Parts of keys that another package reads, or the classes of the configuration themselves."""
