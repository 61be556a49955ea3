"""verl.overrides: keys of fields, of the launcher, of earlier versions, and harmful settings."""

from builders import saving

from corpus.bad import Bad, key, megatron, merged, override, template

ROLLOUT = "actor_rollout_ref.rollout"
VLLM = f"+{ROLLOUT}.engine_kwargs.vllm"
TRANSFORMER = "+actor_rollout_ref.actor.megatron.override_transformer_config"

KEYS = {
    "a key in two spellings": Bad(
        override(**{"data.seed": 1, "+data.seed": 2}),
        "spec.verl.overrides[+data.seed]",
        "data.seed is also set by spec.verl.overrides[data.seed]; remove one of them",
    ),
    "a list with such an integer": Bad(
        key(f"{VLLM}.compilation_config", '{"cudagraph_capture_sizes": [' + "9" * 4300 + "]}"),
        f"spec.verl.overrides[{VLLM}.compilation_config]",
        "holds an integer of more than 64 bits",
    ),
    "more settings than verl has": Bad(
        key("+ray_kwargs.ray_init", {f"a{number}": 1 for number in range(1001)}),
        "spec.verl.overrides[+ray_kwargs.ray_init]",
        "more than 1000 settings with those of maps; remove some",
    ),
    "a long JSON text": Bad(
        key(f"{VLLM}.hf_overrides", '{"a": "' + "b" * 20_000 + '"}'),
        "spec.verl.overrides",
        "bytes; at most 16384 are allowed",
    ),
    "override of a typed field": Bad(
        key("trainer.nnodes", 4),
        "spec.verl.overrides[trainer.nnodes]",
        "is set by spec.workerGroups[].nodes; set it there",
    ),
    "override by force": Bad(
        key("++trainer.nnodes", 4), "spec.verl.overrides[++trainer.nnodes]", "is set by spec.workerGroups[].nodes"
    ),
    "override of a typed field by the engine's key": Bad(
        key("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", 4),
        "spec.verl.overrides[actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size]",
        "is set by spec.trainer.parallelism.sequence; set it there",
    ),
    "override through a map": Bad(
        override(trainer={"nnodes": 4}), "spec.verl.overrides[trainer]", "is set by spec.workerGroups[].nodes"
    ),
    "override of a section": Bad(
        key("actor_rollout_ref.actor", None),
        "spec.verl.overrides[actor_rollout_ref.actor]",
        "is a section, and fields set some of its keys",
    ),
    "override of depth": Bad(override(a={"b": {"c": 1}}), "spec.verl.overrides[a]", "dict is not a JSON scalar"),
    "override of lists": Bad(override(a=[[1]]), "spec.verl.overrides[a]", "list is not a JSON scalar"),
    "override of nothing": Bad(key("+", 1), "spec.verl.overrides[+]", "is not a key"),
    "override that deletes": Bad(key("~data.shuffle", None), "spec.verl.overrides[~data.shuffle]", "is not a key"),
    "override of the command line": Bad(key("a=1", 1), "spec.verl.overrides[a=1]", "is not a key"),
    "override in brackets": Bad(key("+trainer[nnodes]", 4), "spec.verl.overrides[+trainer[nnodes]]", "is not a key"),
    "override of a group": Bad(
        key("actor@actor_rollout_ref.actor", "veomni_actor"),
        "spec.verl.overrides[actor@actor_rollout_ref.actor]",
        "is not a key",
    ),
    "misspelt override": Bad(
        key("trainer.total_epoch", 3),
        "spec.verl.overrides[trainer.total_epoch]",
        "verl 0.9.1 has no such key; did you mean trainer.total_epochs?",
    ),
    "an override that lacks its plus": Bad(
        key("actor_rollout_ref.rollout.limit_images", 4),
        "spec.verl.overrides[actor_rollout_ref.rollout.limit_images]",
        "verl 0.9.1 has no such key in its schema; a leading + adds it: +actor_rollout_ref.rollout.limit_images",
    ),
    "misspelt override by force": Bad(
        key("+data.shufle", True),
        "spec.verl.overrides[+data.shufle]",
        "nothing in verl 0.9.1 reads shufle; did you mean data.shuffle?",
    ),
    "misspelt override in a map": Bad(
        override(trainer={"total_epoch": 3}), "spec.verl.overrides[trainer]", "trainer.total_epoch: verl 0.9.1 has no"
    ),
    "a misspelt argument of Megatron": Bad(
        merged(megatron({}), key(f"{TRANSFORMER}.recompute_metod", "block")),
        f"spec.verl.overrides[{TRANSFORMER}.recompute_metod]",
        "recompute_metod is not an argument of",
    ),
    "a misspelt argument of Megatron in a map": Bad(
        merged(megatron({}), key(TRANSFORMER, {"recompute_metod": "block", "use_flash_attn": True})),
        f"spec.verl.overrides[{TRANSFORMER}]",
        "did you mean recompute_method?",
    ),
    "a misspelt option of vllm-ascend in JSON text": Bad(
        key(f"{VLLM}.additional_config", '{"enable_flashcom1": true}'),
        f"spec.verl.overrides[{VLLM}.additional_config]",
        "enable_flashcom1 is not an option of vllm-ascend 0.23.0; did you mean enable_flashcomm1?",
    ),
    "a misspelt map of vllm-ascend in JSON text": Bad(
        key(f"{VLLM}.additional_config", '{"eplb_confg": {"dynamic_eplb": false, "num_redundant_experts": 1}}'),
        f"spec.verl.overrides[{VLLM}.additional_config]",
        "eplb_confg is not an option of vllm-ascend 0.23.0; did you mean eplb_config?",
    ),
    "override of the other engine": Bad(
        key("actor_rollout_ref.actor.megatron.use_mbridge", True),
        "spec.verl.overrides[actor_rollout_ref.actor.megatron.use_mbridge]",
        "exists only with trainer.backend Megatron and MindSpeed; remove it",
    ),
    "override of a section by a value": Bad(
        key("actor_rollout_ref.actor.policy_loss", "gspo"),
        "spec.verl.overrides[actor_rollout_ref.actor.policy_loss]",
        "is a section; name a key below it",
    ),
    "a switch in quotes": Bad(
        key("data.shuffle", "false"),
        "spec.verl.overrides[data.shuffle]",
        "'false' is text; write true or false without",
    ),
    "a number in quotes": Bad(
        key("actor_rollout_ref.actor.ppo_epochs", "2"),
        "spec.verl.overrides[actor_rollout_ref.actor.ppo_epochs]",
        "'2' is text; write a number without quotes",
    ),
    "override of the launcher's": Bad(
        key("trainer.v1.trainer_mode", "sync"),
        "spec.verl.overrides[trainer.v1.trainer_mode]",
        "is set by the launcher: it selects the trainer that can stop on request, by spec.trainer.mode; remove it",
    ),
    "metrics without statistics": Bad(
        key(f"{ROLLOUT}.disable_log_stats", True),
        f"spec.verl.overrides[{ROLLOUT}.disable_log_stats]",
        "with true, verl refuses to start because of prometheus.enable",
    ),
}
LEGACY = {
    name: Bad(key(name, value), f"spec.verl.overrides[{name}]", message)
    for name, value, message in (
        ("custom_reward_function.path", "/r.py", "ignores it; use spec.reward"),
        ("reward_model.reward_manager", "dapo", "use reward.reward_manager.name"),
        ("reward_model.reward_kwargs.max_resp_len", 5, "use reward.reward_kwargs"),
        ("actor_rollout_ref.actor.load_weight", True, "verl 0.9.1 has no such key; use"),
        ("actor_rollout_ref.actor.recompute_old_log_prob", False, "use spec.optimizations.skipOldLogProb"),
        ("actor_rollout_ref.actor.megatron.swap_optimizer", True, "override_transformer_config.swap_optimizer"),
        ("actor_rollout_ref.model.gradient_checkpointing_kwargs.a", 1, "recompute_granularity"),
        (f"{ROLLOUT}.trust_remote_code", True, "use spec.model.trustRemoteCode"),
        ("algorithm.rollout_is", True, "use algorithm.rollout_correction.rollout_is, such as token"),
        ("algorithm.rollout_is_threshold", 2.0, "use algorithm.rollout_correction.rollout_is_threshold"),
        ("algorithm.filter_groups.max_num_gen_batches", 10, "use spec.algorithm.groupFilter.maxInflightBatches"),
        ("data.gen_batch_size", 1, "trainer.globalBatchSize decides"),
        (f"{ROLLOUT}.mode", "sync", "sync: verl 0.9.1 supports asynchronous rollout only"),
    )
}
HARM = {
    "a save that is half for a while": Bad(
        key("actor_rollout_ref.actor.checkpoint.async_save", True)
        | saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}}),
        "spec.verl.overrides[actor_rollout_ref.actor.checkpoint.async_save]",
        "an asynchronous checkpoint can look complete while it is not",
    ),
    "experts that move": Bad(
        key(f"{VLLM}.additional_config.eplb_config.dynamic_eplb", True),
        f"spec.verl.overrides[{VLLM}.additional_config.eplb_config.dynamic_eplb]",
        "EPLB moves experts, and the next weight update would load the wrong ones",
    ),
    "experts whose moves are recorded": Bad(
        key(f"{VLLM}.additional_config.eplb_config.expert_map_record_path", "/maps/map.json"),
        f"spec.verl.overrides[{VLLM}.additional_config.eplb_config.expert_map_record_path]",
        "EPLB moves experts, and the next weight update would load the wrong ones",
    ),
    "experts that move by a variable": Bad(
        template({"env": [{"name": "DYNAMIC_EPLB", "value": "true"}]}),
        "spec.workerGroups[0].template.env[0]",
        "DYNAMIC_EPLB: EPLB moves experts",
    ),
    "weights in NZ": Bad(
        template({"env": [{"name": "VLLM_ASCEND_ENABLE_NZ", "value": "1"}]}),
        "spec.workerGroups[0].template.env[0]",
        "VLLM_ASCEND_ENABLE_NZ: weights in NZ layout do not survive a weight update; set it to 0",
    ),
    "weights in NZ by an override": Bad(
        key(f"{VLLM}.additional_config", {"weight_nz_mode": 2}),
        f"spec.verl.overrides[{VLLM}.additional_config]",
        "weights in NZ layout do not survive",
    ),
}
ACTOR_SAVES, ACTOR_LOADS = (f"actor_rollout_ref.actor.checkpoint.{name}_contents" for name in ("save", "load"))
CONTENTS = {
    what: Bad(
        merged(
            key(name, value),
            saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}}),
            {"algorithm": {"name": "PPO" if "critic" in name else "GRPO"}},
        ),
        f"spec.verl.overrides[{name}]",
        message,
    )
    for what, name, value, message in (
        (
            "a save without weights",
            ACTOR_SAVES,
            ["optimizer", "extra"],
            "saves checkpoints without model, so a restart would not continue what was trained; add model, or",
        ),
        ("a save without weights by force", f"++{ACTOR_SAVES}", ["optimizer"], "saves checkpoints without model"),
        ("a save without weights as text", f"+{ACTOR_SAVES}", "['optimizer']", "saves checkpoints without model"),
        ("a save without optimizer", ACTOR_SAVES, ["model", "extra"], "saves checkpoints without optimizer"),
        ("a save of nothing", ACTOR_SAVES, [], "add model and optimizer, or remove"),
        ("a save of a switch", ACTOR_SAVES, True, "saves checkpoints without model and optimizer"),
        (
            "a save of one item",
            f"+{ACTOR_SAVES}.0",
            "extra",
            f"changes a part of {ACTOR_SAVES}; override the whole list",
        ),
        (
            "a save without weights in a map",
            "actor_rollout_ref.actor.checkpoint",
            {"save_contents": "[optimizer]"},
            "saves checkpoints without model",
        ),
        ("a save without the critic's weights", "critic.checkpoint.save_contents", ["extra"], "without model"),
        ("a load without weights", ACTOR_LOADS, ["optimizer", "extra"], "loads checkpoints without model"),
        (
            "a load without the critic's weights",
            "+critic.checkpoint.load_contents",
            "extra",
            "loads checkpoints without",
        ),
    )
}
SAVES = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}})
SCHEDULE = {"actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.1}
RESTARTS = {
    "a part of no checkpoint": Bad(
        merged(override(**{ACTOR_SAVES: ["model", "optimizer", "extras"]}), SAVES),
        f"spec.verl.overrides[{ACTOR_SAVES}]",
        "'extras' is no part of a checkpoint; use model, optimizer, extra, hf_model",
    ),
    "a load of what is not saved": Bad(
        merged(override(**{ACTOR_SAVES: ["model", "optimizer"], ACTOR_LOADS: ["model", "optimizer", "extra"]}), SAVES),
        f"spec.verl.overrides[{ACTOR_LOADS}]",
        f"loads extra, which {ACTOR_SAVES} does not save, so every restart would fail; make both lists the same",
    ),
    "a schedule that is not saved": Bad(
        merged(override(**{ACTOR_SAVES: ["model", "optimizer"], **SCHEDULE}), SAVES),
        f"spec.verl.overrides[{ACTOR_SAVES}]",
        "lacks extra, which has the place in the learning-rate schedule of actor_rollout_ref.actor.optim; a restart",
    ),
    "a schedule that is not loaded": Bad(
        merged(override(**{ACTOR_LOADS: ["model"], "actor_rollout_ref.actor.optim": {"lr_warmup_steps": 4}}), SAVES),
        f"spec.verl.overrides[{ACTOR_LOADS}]",
        "lacks extra",
    ),
    "a schedule of the critic that is not saved": Bad(
        merged(
            {"algorithm": {"name": "PPO"}},
            override(**{"critic.checkpoint.save_contents": ["model", "optimizer"]}),
            override(critic__optim__lr_scheduler_type="cosine"),
            SAVES,
        ),
        "spec.verl.overrides[critic.checkpoint.save_contents]",
        "learning-rate schedule of critic.optim",
    ),
}
BAD = {**KEYS, **LEGACY, **HARM, **CONTENTS, **RESTARTS}
