"""From the typed spec to verl's keys and to job.json."""

import math
from pathlib import PurePosixPath

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.core.validation.violation import Violation
from rljob.launchers.verl.checks.limits import CHECKS as LIMIT_CHECKS
from rljob.launchers.verl.job import job_config
from rljob.launchers.verl.job import overrides as overrides_of
from rljob.launchers.verl.sizes import data_parallel_ranks, micro_batch
from rljob.launchers.verl.table import TABLE, TYPED_KEYS
from rljob.render.accelerator_table import AcceleratorTable, read_table
from rljob.render.accelerators import built_in_document
from rljob_runtime.contract import (
    JobConfig,
    LogRule,
    MinimumVersion,
    Platform,
    ResumeMode,
    ResumeSource,
    RuleCondition,
    StopRule,
)

ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"
VLLM = f"+{ROLLOUT}.engine_kwargs.vllm"
ATLAS = merged(small_spec(group({"nodes": 8, "devicesPerNode": 16})), {"accelerator": {"class": "atlas-a3-superpod"}})
FULL = merged(
    ATLAS,
    {
        "model": {"trustRemoteCode": True},
        "data": {"validation": ["/data/validation.parquet"], "maxPromptTokens": 2048},
        "algorithm": {"klCoefficient": "0.001", "clipRatioLow": "0.1", "entropyCoefficient": "0.01"},
        "trainer": {
            "globalBatchSize": 256,
            "miniBatchSize": 128,
            "microBatchSizePerDevice": 2,
            "learningRate": "2e-6",
            "gradientClip": "0.5",
            "evaluateEverySteps": 5,
            "evaluateBeforeTraining": True,
            "parallelism": {"sequence": 4},
            "offload": {"parameters": True, "optimizer": True, "reference": False},
        },
        "rollout": {
            "parallelism": {"tensor": 4, "data": 32, "expert": 128},
            "maxSequences": 512,
            "maxBatchedTokens": 34816,
            "memoryFraction": "0.85",
            "captureSizes": [128, 512],
            "eager": False,
            "chunkedPrefill": True,
            "temperature": "0.9",
            "topP": "0.95",
            "topK": "-1",
            "speculative": {"method": "Suffix", "tokens": 4},
        },
        "optimizations": {"coreBinding": "Disabled"},
        "checkpoint": {"path": "/ckpt", "everySteps": 10, "keep": 3},
        "observability": {"logPath": "/logs", "trackers": ["tensorboard"]},
        "verl": {"overrides": {"+trainer.extra": [1, "a"]}},
    },
)
MEGATRON = merged(
    FULL,
    {
        "trainer": {
            "backend": "MindSpeed",
            "microBatchSizePerDevice": None,
            "maxTokensPerDevice": 8704,
            "parallelism": {
                "sequence": None,
                "tensor": 4,
                "pipeline": 4,
                "context": 4,
                "expert": 32,
                "expertTensor": 1,
            },
        },
    },
)
PPO = {"algorithm": {"name": "PPO", "discount": "0.99", "gaeLambda": "0.95"}, "critic": {"learningRate": "1e-5"}}


def limits(spec: Json) -> list[Violation]:
    return [violation for check in LIMIT_CHECKS for violation in check(typed(spec))]


def overrides(spec: Json, **change: Json) -> Json:
    return dict(overrides_of(typed(merged(spec, change))))


def test_every_row_names_another_key_a_field_and_a_file_of_verl() -> None:
    keys = [row.key.lstrip("+") for row in TABLE]
    assert len(keys) == len(set(keys))
    assert all(row.field and PurePosixPath(row.source).suffix in (".py", ".yaml") for row in TABLE)


def test_keys_that_only_follow_a_field_are_free_for_overrides() -> None:
    key = f"{REF}.log_prob_micro_batch_size_per_gpu"
    assert key not in TYPED_KEYS
    found = overrides(FULL, verl={"overrides": {key: 8}})
    assert (found[key], found[f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"]) == (8, 2)


def test_an_override_replaces_a_following_key_whether_the_schema_has_it_or_not() -> None:
    key = f"{ROLLOUT}.engine_kwargs.vllm.additional_config.weight_nz_mode"
    assert overrides(ATLAS)[f"+{key}"] == 0
    found = overrides(ATLAS, verl={"overrides": {key: 1}})
    assert (found[key], f"+{key}" in found) == (1, False)


@pytest.mark.parametrize(
    ("key", "small", "full"),
    [
        ("algorithm.adv_estimator", "grpo", "grpo"),
        ("actor_rollout_ref.model.trust_remote_code", None, True),
        (f"{ACTOR}.use_kl_loss", False, True),
        (f"{ACTOR}.clip_ratio_low", None, 0.1),
        (f"{ACTOR}.clip_ratio_high", None, None),
        (f"{ACTOR}.entropy_coeff", None, 0.01),
        ("algorithm.filter_groups.enable", None, None),
        ("data.val_files", ["/data/train.parquet"], ["/data/validation.parquet"]),
        (f"{ACTOR}.strategy", "fsdp2", "fsdp2"),
        (f"{ACTOR}.ppo_mini_batch_size", 32, 128),
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", 128, 2),
        (f"{ACTOR}.use_dynamic_bsz", None, None),
        (f"{ACTOR}.optim.clip_grad", None, 0.5),
        (f"{ACTOR}.ulysses_sequence_parallel_size", 1, 4),
        (f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size", None, 4),
        (f"{REF}.fsdp_config.ulysses_sequence_parallel_size", None, 4),
        (f"{ACTOR}.fsdp_config.param_offload", None, True),
        (f"{ACTOR}.fsdp_config.optimizer_offload", None, True),
        (f"{REF}.fsdp_config.param_offload", None, False),
        (f"{ROLLOUT}.tensor_model_parallel_size", 1, 4),
        (f"{ROLLOUT}.data_parallel_size", 1, 32),
        (f"{ROLLOUT}.expert_parallel_size", 1, 128),
        (f"{ROLLOUT}.max_num_seqs", None, 512),
        (f"{ROLLOUT}.max_num_batched_tokens", None, 34816),
        (f"{ROLLOUT}.gpu_memory_utilization", None, 0.85),
        (f"{ROLLOUT}.cudagraph_capture_sizes", None, [128, 512]),
        (f"{ROLLOUT}.enforce_eager", None, False),
        (f"{ROLLOUT}.enable_chunked_prefill", None, True),
        (f"{ROLLOUT}.temperature", None, 0.9),
        (f"{ROLLOUT}.top_p", None, 0.95),
        (f"{ROLLOUT}.top_k", None, -1),
        (f"{VLLM}.speculative_config.method", None, "suffix"),
        (f"{VLLM}.speculative_config.num_speculative_tokens", None, 4),
        (f"{VLLM}.additional_config.weight_nz_mode", None, 0),
        (f"{VLLM}.additional_config.enable_cpu_binding", None, False),
        ("trainer.device", "cpu", "npu"),
        ("trainer.nnodes", 1, 8),
        ("trainer.test_freq", -1, 5),
        ("trainer.val_before_train", None, True),
        ("trainer.val_only", None, None),
        ("trainer.save_freq", -1, 10),
        ("trainer.max_actor_ckpt_to_keep", None, 3),
        ("trainer.max_critic_ckpt_to_keep", None, None),
        ("trainer.default_local_dir", None, "/ckpt"),
        ("trainer.resume_mode", None, None),
        ("trainer.logger", None, ["console", "tensorboard"]),
        ("critic.model.path", None, None),
        ("+trainer.extra", None, [1, "a"]),
    ],
)
def test_a_field_becomes_its_key(key: str, small: object, full: object) -> None:
    assert overrides_of(typed()).get(key) == small
    assert overrides_of(typed(FULL)).get(key) == full


def test_megatron_and_mindspeed_are_one_engine_of_verl() -> None:
    found = overrides(MEGATRON)
    assert (found["model_engine"], found[f"{ACTOR}.strategy"], found[f"{REF}.strategy"]) == ("megatron",) * 3
    assert found["actor_rollout_ref.model.use_remove_padding"] is True
    sizes = {key.rpartition(".")[2]: value for key, value in found.items() if key.startswith(f"{ACTOR}.megatron.")}
    assert sizes == {
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel_size": 4,
        "context_parallel_size": 4,
        "expert_model_parallel_size": 32,
        "expert_tensor_parallel_size": 1,
        "sequence_parallel": True,
        "vanilla_mbridge": True,
        "param_offload": True,
        "optimizer_offload": True,
    }
    assert found[f"{REF}.megatron.param_offload"] is False
    assert not [key for key in found if "fsdp" in key or "ulysses" in key]


def test_a_bound_on_tokens_turns_dynamic_micro_batches_on() -> None:
    found = overrides(MEGATRON)
    assert (found[f"{ACTOR}.use_dynamic_bsz"], found[f"{ACTOR}.ppo_max_token_len_per_gpu"]) == (True, 8704)


@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        ("GRPO", "grpo"),
        ("DAPO", "grpo"),
        ("PPO", "gae"),
        ("ReinforcePlusPlus", "reinforce_plus_plus"),
        ("RLOO", "rloo"),
        ("ReMax", "remax"),
    ],
)
def test_every_algorithm_has_an_estimator_of_verl(name: str, estimator: str) -> None:
    assert overrides(small_spec(), algorithm={"name": name})["algorithm.adv_estimator"] == estimator


def test_dapo_filters_groups_clips_higher_and_counts_tokens() -> None:
    found = overrides(small_spec(), algorithm={"name": "DAPO"})
    assert found["algorithm.filter_groups.enable"] is True
    assert found["algorithm.filter_groups.metric"] == "acc"
    assert "algorithm.filter_groups.max_inflight_gen_batches" not in found
    assert found[f"{ACTOR}.clip_ratio_high"] == 0.28
    assert found[f"{ACTOR}.loss_agg_mode"] == "token-mean"
    assert found["reward.reward_manager.name"] == "dapo"


def test_dapo_takes_what_the_spec_says() -> None:
    chosen = {"name": "DAPO", "clipRatioHigh": "0.3", "groupFilter": {"metric": "score", "maxInflightBatches": 4}}
    found = overrides(small_spec(), algorithm=chosen, verl={"overrides": {"reward.reward_manager.name": "prime"}})
    assert found[f"{ACTOR}.clip_ratio_high"] == 0.3
    assert found["algorithm.filter_groups.metric"] == "score"
    assert found["algorithm.filter_groups.max_inflight_gen_batches"] == 4
    assert found["reward.reward_manager.name"] == "prime"


def test_ppo_brings_a_critic_with_the_actors_engine() -> None:
    found = overrides(FULL, **PPO)
    assert (found["algorithm.gamma"], found["algorithm.lam"]) == (0.99, 0.95)
    critic = {key: value for key, value in found.items() if key.lstrip("+").startswith("critic.")}
    assert critic == {
        "critic.model.path": "/data/model",
        "critic.model.trust_remote_code": True,
        "critic.strategy": "fsdp2",
        "critic.optim.lr": 1e-5,
        "critic.optim.clip_grad": 0.5,
        "critic.ppo_micro_batch_size_per_gpu": 2,
        "critic.fsdp.ulysses_sequence_parallel_size": 4,
        "+critic.fsdp.use_dynamic_bsz": False,
        "+critic.fsdp.micro_batch_size_per_gpu": 2,
        "+critic.fsdp.infer_micro_batch_size_per_gpu": 2,
        "critic.fsdp.param_offload": True,
        "critic.fsdp.optimizer_offload": True,
        "critic.fsdp.use_torch_compile": False,
    }
    assert found["trainer.max_critic_ckpt_to_keep"] == 3


def test_the_critic_of_megatron_has_the_actors_sizes_and_dynamic_batches() -> None:
    found = overrides(MEGATRON, **merged(PPO, {"critic": {"path": "/data/critic", "microBatchSizePerDevice": 1}}))
    assert (found["critic.strategy"], found["critic.model.path"]) == ("megatron", "/data/critic")
    assert (found["critic.megatron.pipeline_model_parallel_size"], found["critic.ppo_max_token_len_per_gpu"]) == (
        4,
        8704,
    )
    assert found["+critic.ppo_infer_max_token_len_per_gpu"] == 8704
    assert "+critic.megatron.use_dynamic_bsz" not in found


def test_ppo_without_a_critic_section_trains_a_copy_of_the_model() -> None:
    found = overrides(small_spec(), algorithm={"name": "PPO"})
    assert (found["critic.model.path"], "critic.optim.lr" in found) == ("/data/model", False)


PROFILE = {"steps": [5, 9], "ranks": [0, 3], "level": "Level1", "details": ["Memory", "Stacks"]}


@pytest.mark.parametrize(
    ("spec", "tool", "config"),
    [
        (ATLAS, "npu", {"npu.contents": ["npu", "memory", "stack"], "npu.level": "level1", "npu.analysis": False}),
        (small_spec(), "torch", {"torch.contents": ["cpu", "memory", "stack"]}),
    ],
)
def test_a_profile_is_taken_by_the_platforms_profiler(spec: Json, tool: str, config: Json) -> None:
    profiled = merged(spec, {"observability": {"logPath": "/data/logs", "profile": PROFILE}})
    found = overrides(profiled, algorithm={"name": "PPO"})
    expected = {"enable": True, "ranks": [0, 3]} | {f"tool_config.{name}": value for name, value in config.items()}
    for role in (ACTOR, "critic"):
        keys = {key: value for key, value in found.items() if key.startswith(f"{role}.profiler.")}
        assert keys == {f"{role}.profiler.{name}": value for name, value in expected.items()}
    assert (found["global_profiler.tool"], found["global_profiler.steps"]) == (tool, [5, 9])
    assert not [key for key in overrides(profiled) if key.startswith("critic.")]
    assert not [key for key in overrides(spec) if "profiler" in key]


def test_an_override_of_the_profiler_is_the_users() -> None:
    chosen = {"actor_rollout_ref.actor.profiler.tool_config.npu.analysis": True}
    profiled = merged(ATLAS, {"observability": {"logPath": "/data/logs", "profile": PROFILE}})
    assert overrides(profiled, verl={"overrides": chosen}).items() >= chosen.items()


def test_an_evaluation_validates_and_trains_nothing() -> None:
    found = overrides(small_spec(), trainer={"mode": "Evaluate"})
    assert (found["trainer.val_only"], found["trainer.val_before_train"]) == (True, True)


@pytest.mark.parametrize(
    ("backend", "sizes", "ranks", "micro"),
    [
        ("FSDP2", {}, 128, 2),
        ("FSDP2", {"sequence": 4}, 32, 8),
        ("Megatron", {"tensor": 4, "pipeline": 4, "context": 4}, 2, 128),
        ("MindSpeed", {"tensor": 8, "pipeline": 4, "context": 8}, 1, 256),
    ],
)
def test_a_mini_batch_is_shared_by_the_data_parallel_ranks(backend: str, sizes: Json, ranks: int, micro: int) -> None:
    spec = typed(merged(ATLAS, {"trainer": {"backend": backend, "parallelism": sizes}}))
    assert (data_parallel_ranks(spec), micro_batch(spec)) == (ranks, micro)


def test_a_share_of_less_than_a_sample_is_one() -> None:
    spec = typed(small_spec(merged(group({"nodes": 64, "devicesPerNode": 16}), {"trainer": {"samplesPerPrompt": 2}})))
    assert micro_batch(spec) == 1


@pytest.mark.parametrize(
    ("change", "field", "word"),
    [
        ({"trainer": {"offload": {"gradients": True}}}, "spec.trainer.offload.gradients", "together with the weights"),
        (
            {
                "trainer": {"backend": "Megatron"},
                "model": {"config": {"layer_types": ["linear_attention", "full_attention"]}},
                "verl": {"overrides": {"actor_rollout_ref.model": {"use_remove_padding": True}}},
            },
            "spec.verl.overrides[actor_rollout_ref.model]",
            "cannot pack sequences for the model's gated delta layers",
        ),
        (
            {
                "trainer": {"backend": "Megatron"},
                "model": {"config": {"layer_types": ["linear_attention", "full_attention"]}},
            },
            "spec.verl.overrides[actor_rollout_ref.model.use_remove_padding]",
            "set it to false",
        ),
        (
            {
                "trainer": {"backend": "MindSpeed"},
                "verl": {"overrides": {"+critic.megatron.override_transformer_config.moe_zero_memry": "level1"}},
            },
            "spec.verl.overrides[+critic.megatron.override_transformer_config.moe_zero_memry]",
            "did you mean moe_zero_memory?",
        ),
    ],
)
def test_what_verl_does_not_do_is_said_with_a_way_out(change: Json, field: str, word: str) -> None:
    [found] = limits(small_spec(change))
    assert (found.field, word in found.message) == (field, True)


def test_gradients_that_go_with_the_weights_are_fine() -> None:
    assert limits(small_spec({"trainer": {"offload": {"parameters": True, "gradients": True}}})) == []


def test_job_json_contains_the_whole_job_and_reads_back() -> None:
    config = job_config(IDENTITY, typed(FULL), 3)
    assert (config.platform, config.nodes, config.devices, config.cards) == (Platform.NPU, 8, 128, 64)
    assert (config.cluster_name, config.cluster_generation, config.total_steps) == ("sums-0a1b2-3", 3, 40)
    assert (config.checkpoint_path, config.log_path) == ("/ckpt", "/logs")
    assert (config.resume, config.resume_from, config.stop_rules) == (ResumeMode.AUTO, None, ())
    assert JobConfig.from_json(config.to_json()) == config


def test_stop_rules_reach_the_launcher() -> None:
    rules = [
        {"name": "broken", "metric": "critic/score/mean", "condition": "IsNaN"},
        {
            "name": "good",
            "metric": "critic/score/mean",
            "condition": "Above",
            "threshold": "0.9",
            "forSteps": 3,
            "result": "Succeeded",
        },
    ]
    assert job_config(IDENTITY, typed(small_spec({"stopRules": rules})), 1).stop_rules == (
        StopRule("broken", "critic/score/mean", RuleCondition.IS_NAN),
        StopRule("good", "critic/score/mean", RuleCondition.ABOVE, 0.9, 3, succeeds=True),
    )


def test_restart_rules_about_the_log_reach_the_launcher_in_their_order() -> None:
    rules = [
        {"name": "late", "onLogPattern": "HCCL.*timeout", "action": "Restart"},
        {"name": "code", "onExitCodes": [137], "action": "Restart"},
        {"name": "broken", "onLogPattern": "assert", "action": "Fail"},
    ]
    assert job_config(IDENTITY, typed(small_spec({"restart": {"rules": rules}})), 1).log_rules == (
        LogRule("late", "HCCL.*timeout"),
        LogRule("broken", "assert"),
    )


@pytest.mark.parametrize(
    ("source", "earlier", "expected"),
    [
        (None, "/elsewhere", None),
        ({"path": "/old", "step": 7}, None, ResumeSource("/old", 7)),
        ({"job": "first"}, "/ckpt/first", ResumeSource("/ckpt/first")),
        ({"job": "first"}, None, None),
    ],
)
def test_a_run_begins_from_the_named_checkpoint(
    source: Json | None, earlier: str | None, expected: ResumeSource | None
) -> None:
    checkpoint = {"path": "/ckpt", "everySteps": 1, "resume": "Required"} | ({"from": source} if source else {})
    config = job_config(IDENTITY, typed(small_spec({"checkpoint": checkpoint})), 1, earlier)
    assert (config.resume, config.resume_from) == (ResumeMode.REQUIRED, expected)


def test_paths_that_must_exist_are_named_by_their_field() -> None:
    spec = merged(merged(FULL, PPO), {"critic": {"path": "/data/critic"}})
    paths = job_config(IDENTITY, typed(spec), 1).required_paths
    assert {path.field: path.path for path in paths} == {
        "model.path": "/data/model",
        "reward.path": "/code/reward.py",
        "critic.path": "/data/critic",
        "data.train[0]": "/data/train.parquet",
        "data.validation[0]": "/data/validation.parquet",
    }


@pytest.mark.parametrize("spec", [small_spec(), FULL, MEGATRON])
def test_the_same_spec_always_has_the_same_digest(spec: Json) -> None:
    assert job_config(IDENTITY, typed(spec), 1).digest() == job_config(IDENTITY, typed(spec), 1).digest()
    assert not math.isnan(job_config(IDENTITY, typed(spec), 1).cards)


@pytest.mark.parametrize(
    ("template", "cpus", "shared_memory"),
    [
        ({"cpu": "160", "memory": "1400Gi", "sharedMemory": "512Gi"}, 160, 512 << 30),
        ({"cpu": "2500m", "memory": "1T", "sharedMemory": "1.5G"}, None, 1_500_000_000),
        ({"cpu": "1.5", "memory": "1T"}, 1, None),
        # What the manifest leaves open is the class's size, as in the pod.
        ({}, 184, 256 << 30),
    ],
)
def test_what_a_node_must_offer_is_what_its_pod_asks_for(
    template: Json, cpus: int | None, shared_memory: int | None
) -> None:
    spec = small_spec(
        {
            "accelerator": {"class": "atlas-a2"},
            "workerGroups": [{"name": "trainer", "nodes": 2, "devicesPerNode": 8, "template": template}],
        }
    )
    needs = job_config(IDENTITY, typed(spec), 1).needs
    assert (needs.cpus, needs.shared_memory_bytes) == (cpus, shared_memory)
    assert (needs.whole_node, needs.chips, needs.versions) == (True, ("910B",), ())


def test_what_a_class_requires_of_its_nodes_is_checked_there() -> None:
    least = {"atlas-a2": {"minimum": {"driver": "25.5.0", "cann": "9.0.0"}}}
    spec = typed(
        merged(small_spec(group({"nodes": 2, "devicesPerNode": 8})), {"accelerator": {"class": "atlas-a2"}}),
        AcceleratorTable(read_table(built_in_document(), least)),
    )
    versions = job_config(IDENTITY, spec, 1).needs.versions
    assert versions == (MinimumVersion("driver", "25.5.0"), MinimumVersion("cann", "9.0.0"))


def test_a_pod_without_npus_is_not_alone_on_its_node() -> None:
    needs = job_config(IDENTITY, typed(small_spec()), 1).needs
    assert (needs.whole_node, needs.chips) == (False, ())
