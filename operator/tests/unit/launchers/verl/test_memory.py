"""The layout of a job for the memory estimate: verl's keys count, whether a field or an override sets them."""

import pytest
from builders import Json, apart, group, merged, small_spec, typed

from rljob.core.spec.model_shape import known_shape
from rljob.launchers.verl.memory import _keys, _rollout, _stages, _trainer, buffer_megabytes, memory_plan
from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.memory import Engine, Recompute, Trainer
from rljob_runtime.planning.weights import Cut

ROLLOUT = "actor_rollout_ref.rollout"
NODE = "actor_rollout_ref.actor.megatron.override_transformer_config"
SMALL = BUILT_IN["Qwen2.5-0.5B"]
FSDP = merged(
    small_spec(group({"nodes": 1, "devicesPerNode": 8})),
    {"accelerator": {"class": "atlas-a2"}, "model": {"architecture": "Qwen2.5-0.5B"}},
)
MEGATRON = merged(
    FSDP,
    {
        "trainer": {
            "backend": "MindSpeed",
            "parallelism": {"tensor": 2, "pipeline": 2, "context": 2},
            "offload": {"parameters": True},
        },
        "algorithm": {"klCoefficient": "0.001"},
    },
)


def trainer(spec: Json, **overrides: object) -> Trainer:
    job = typed(merged(spec, {"verl": {"overrides": overrides}}))
    return _trainer(job, SMALL, _keys(job))


def of_node(**values: object) -> dict[str, object]:
    return {f"+{NODE}.{name}": value for name, value in values.items()}


def test_fsdp_spreads_all_layers_and_recomputes_them() -> None:
    found = trainer(FSDP)
    assert (found.engine, found.stage_layers, found.cut, found.recompute) == (
        Engine.FSDP2,
        (24,),
        Cut(),
        Recompute.UNIFORM,
    )
    assert not found.reference


def test_a_micro_batch_has_prompt_and_response_of_full_length() -> None:
    # 32 prompts × 8 responses over 8 devices are 32 samples per device.
    assert (trainer(FSDP).tokens, trainer(FSDP).micro_batches) == (32 * 2048, 1)
    smaller = trainer(merged(FSDP, {"trainer": {"microBatchSizePerDevice": 4}}))
    assert (smaller.tokens, smaller.micro_batches) == (4 * 2048, 8)
    shared = trainer(merged(FSDP, {"trainer": {"microBatchSizePerDevice": 4, "parallelism": {"sequence": 2}}}))
    assert shared.tokens == 4 * 1024


def test_a_bound_on_tokens_is_one_of_a_device() -> None:
    found = trainer(merged(MEGATRON, {"trainer": {"maxTokensPerDevice": 4096}}))
    # One rank has 256 samples of 2,048 tokens; two devices of context parallelism take 8,192 at a time.
    assert (found.tokens, found.micro_batches) == (4096, 64)


def test_fsdp_keeps_the_reference_on_the_host_whatever_is_asked() -> None:
    assert trainer(merged(FSDP, {"trainer": {"offload": {"reference": False}}})).offload_reference


def test_megatron_takes_its_sizes_and_the_reference_follows_the_actor() -> None:
    found = trainer(MEGATRON)
    assert (found.engine, found.stage_layers, found.cut, found.context) == (
        Engine.MEGATRON,
        (12, 12),
        Cut(2, 1, 2),
        2,
    )
    assert (found.recompute, found.kept_experts, found.host_optimizer) == (Recompute.NONE, 1.0, False)
    assert (found.reference, found.offload_weights, found.offload_reference) == (True, True, True)
    assert not trainer(merged(MEGATRON, {"trainer": {"offload": {"reference": False}}})).offload_reference


@pytest.mark.parametrize(
    "overrides",
    [
        of_node(swap_optimizer=True),
        {f"+{NODE}": {"swap_optimizer": True}},
        {"+actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload": True},
    ],
)
def test_the_optimizer_may_stay_on_the_host(overrides: dict[str, object]) -> None:
    assert trainer(MEGATRON, **overrides).host_optimizer


def test_mindspeed_keeps_a_part_of_the_experts_activations() -> None:
    assert trainer(MEGATRON, **of_node(moe_zero_memory="level1")).kept_experts == 0.1


def test_recomputation_is_read_from_the_overrides() -> None:
    block = of_node(recompute_granularity="full", recompute_method="block", recompute_num_layers=8)
    assert (trainer(MEGATRON, **block).recompute, trainer(MEGATRON, **block).recompute_layers) == (Recompute.BLOCK, 8)
    uniform = of_node(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=True)
    found = trainer(MEGATRON, **uniform)
    assert (found.recompute, found.recompute_layers) == (Recompute.UNIFORM, 1)


def test_rewards_with_a_penalty_need_the_reference() -> None:
    assert trainer(FSDP, **{"algorithm.use_kl_in_reward": True}).reference


def test_ppo_has_a_critic() -> None:
    assert trainer(merged(FSDP, {"algorithm": {"name": "PPO"}})).critic


@pytest.mark.parametrize(
    ("layers", "stages", "keys", "held"),
    [
        (94, 4, {}, (24, 24, 24, 24)),
        (
            94,
            4,
            {"num_layers_in_first_pipeline_stage": 23, "num_layers_in_last_pipeline_stage": 23},
            (23, 24, 24, 23),
        ),
        (5, 2, {"num_layers_in_first_pipeline_stage": 2}, (2, 3)),
        (5, 2, {"num_layers_in_last_pipeline_stage": 2}, (3, 2)),
        (2, 1, {"num_layers_in_first_pipeline_stage": 9}, (9,)),
        (2, 3, {"num_layers_in_first_pipeline_stage": 9}, (9, 0, 0)),
        (61, 8, {"pipeline_model_parallel_layout": "Et*7|t*7|t*8|t*8|t*8|t*8|t*8|t*7L"}, (7, 7, 8, 8, 8, 8, 8, 7)),
        (6, 2, {"pipeline_model_parallel_layout": "Et|tt|(t|)*2tL"}, (3, 3)),
    ],
)
def test_layers_fall_to_stages_as_megatron_deals_them(
    layers: int, stages: int, keys: dict[str, object], held: tuple[int, ...]
) -> None:
    assert _stages(layers, stages, {f"{NODE}.{name}": value for name, value in keys.items()}) == held


def test_buffers_of_hccl_are_those_of_the_workers_environment() -> None:
    def communicator(env: list[Json]) -> int:
        found = memory_plan(typed(merged(FSDP, group({"devicesPerNode": 8, "template": {"env": env}}))), SMALL)
        assert found is not None
        return found.die.communicator_bytes >> 20

    assert communicator([]) == 400
    assert communicator([{"name": "OTHER", "value": "1"}, {"name": "HCCL_BUFFSIZE", "value": "300"}]) == 600
    assert communicator([{"name": "HCCL_BUFFSIZE", "value": "many"}]) == 400


def test_a_buffer_is_counted_from_the_place_that_applies() -> None:
    def communicator(change: Json) -> int:
        found = memory_plan(typed(merged(FSDP, change)), SMALL)
        assert found is not None
        return found.die.communicator_bytes >> 20

    def of_patch(**entry: str) -> Json:
        container = {"name": "ray-worker", "env": [{"name": "HCCL_BUFFSIZE", **entry}]}
        return {"podSpecPatch": {"workers": {"containers": [container]}}}

    env = [{"name": "HCCL_BUFFSIZE", "value": "300"}]
    template = group({"devicesPerNode": 8, "template": {"env": env}})
    ray: Json = {"verl": {"overrides": {"+ray_kwargs.ray_init.runtime_env.env_vars.HCCL_BUFFSIZE": 500}}}
    assert communicator(of_patch(value="400")) == 800
    assert communicator(merged(template, of_patch(value="400"))) == 800
    assert communicator(merged(template, of_patch(**{"$patch": "delete"}))) == 400
    assert communicator(merged(merged(template, of_patch(value="400")), ray)) == 1000


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("1", 1), ("65536", 65536), ("0", None), ("65537", None), ("9" * 400, None), ("-1", None), ("\u0663", None)],
)
def test_a_buffer_has_a_size_that_a_die_could_hold(text: str, megabytes: int | None) -> None:
    assert buffer_megabytes(text) == megabytes


def test_the_shape_is_the_jobs_config_json_then_a_known_model_then_nothing() -> None:
    config = {
        "model_type": "qwen3",
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 3,
        "vocab_size": 16,
    }
    both = known_shape(typed(merged(FSDP, {"model": {"config": config}})))
    assert both is not None
    assert both.layers == 3
    assert known_shape(typed(FSDP)) is SMALL
    assert known_shape(typed()) is None


def test_a_rollout_apart_counts_its_own_group_and_keeps_its_cache_if_it_never_sleeps() -> None:
    whole = {"devicesPerNode": 8}
    both = small_spec(merged(apart(whole, whole | {"nodes": 2}), {"accelerator": {"class": "atlas-a2"}}))
    assert trainer(both).devices == 8
    shared = typed(FSDP)
    assert not _rollout(shared, _keys(shared)).apart
    for key, value in (
        (f"{ROLLOUT}.free_cache_engine", False),
        (f"{ROLLOUT}.free_cache_engine", True),
        (f"+{ROLLOUT}.engine_kwargs.vllm.enable_sleep_mode", False),
    ):
        job = typed(merged(both, {"verl": {"overrides": {key: value}}}))
        found = _rollout(job, _keys(job))
        assert (found.apart, found.keeps_cache) == (True, not value)


def test_processors_have_no_memory_of_their_own() -> None:
    assert memory_plan(typed(), SMALL) is None


VLLM = "+actor_rollout_ref.rollout.engine_kwargs.vllm"


@pytest.mark.parametrize(
    "change",
    [
        {"rollout": {"memoryFraction": "0.8", "maxSequences": 64, "maxBatchedTokens": 4096}},
        {
            "verl": {
                "overrides": {
                    VLLM: {"gpu_memory_utilization": 0.8, "max_num_seqs": 64},
                    f"{VLLM}.max_num_batched_tokens": 4096,
                }
            }
        },
    ],
)
def test_an_engine_is_the_same_whichever_way_it_is_written(change: Json) -> None:
    found = _rollout(typed(merged(FSDP, change)), {})
    assert (found.memory_fraction, found.sequences, found.batched_tokens) == (0.8, 64, 4096)


@pytest.mark.parametrize("fraction", ["much", 0, 1.5])
def test_a_fraction_that_vllm_refuses_is_not_counted(fraction: object) -> None:
    job = typed(merged(FSDP, {"verl": {"overrides": {f"{VLLM}.gpu_memory_utilization": fraction}}}))
    assert _rollout(job, {}).memory_fraction == 0.5
