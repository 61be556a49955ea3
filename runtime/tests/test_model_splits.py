"""Facts of a config.json, the layout that verl's keys say, and the rules between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.findings import Finding
from rljob_runtime.planning.flattening import plain_keys
from rljob_runtime.planning.model_facts import Fact, ModelFacts, facts_of_config, facts_of_shape
from rljob_runtime.planning.model_splits import judge, judge_trainer
from rljob_runtime.planning.run_layout import EVERYTHING, Layout, critic_layout, read_layout
from rljob_runtime.planning.weights import Cut, model_elements

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config"
MEGATRON = {f"{ACTOR}.strategy": "megatron"}
CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}


def facts(**changed: object) -> ModelFacts:
    return facts_of_config(CONFIG | changed, "config.json")


def of(name: str) -> ModelFacts:
    return facts_of_shape(BUILT_IN[name], name)


def findings(model: ModelFacts, keys: Mapping[str, object]) -> list[Finding]:
    return list(judge(model, read_layout(plain_keys(keys))))


def verdicts(model: ModelFacts, keys: Mapping[str, object]) -> list[tuple[str, str, bool]]:
    return [(one.field, one.fact, one.refused) for one in findings(model, keys)]


def test_a_config_of_a_known_family_gives_every_fact() -> None:
    known = {name: fact.value for name, fact in facts().items()}
    assert known == {
        "layers": 24,
        "heads": 14,
        "kv_heads": 2,
        "experts": 0,
        "width": 4864,
        "vocabulary": 151936,
        "positions": 32768,
        "engine_positions": 32768,
    }
    assert all(fact.sure for _, fact in facts().items())


def test_an_unknown_family_gives_what_every_decoder_has() -> None:
    found = facts(model_type="new", num_local_experts=8)
    sure = {name for name, fact in found.items() if fact.sure}
    assert sure == {"layers", "heads", "positions", "engine_positions"}
    assert {name for name, fact in found.items() if not fact.sure} == {"kv_heads", "experts"}


@pytest.mark.parametrize("broken", [{"hidden_size": None}, {"model_type": ["qwen2"]}, {"intermediate_size": 10**400}])
def test_a_broken_config_gives_the_facts_that_can_be_read(broken: dict[str, object]) -> None:
    found = facts(**broken)
    assert found.heads is not None
    assert found.heads.value == 14
    assert found.width is None


@pytest.mark.parametrize("value", [0, -1, True, "14", 1.5, None, 10**30])
def test_a_number_that_is_no_size_is_not_a_fact(value: object) -> None:
    assert facts(num_attention_heads=value).heads is None


def test_multimodal_models_have_their_facts_below_text_config() -> None:
    found = facts_of_config({"model_type": "other_vl", "text_config": CONFIG}, "config.json")
    assert found.heads == Fact(14, "num_attention_heads", "config.json")


def test_experts_leave_out_the_dense_mlp_where_no_layer_has_one() -> None:
    assert of("Qwen3-30B-A3B").width is None
    deepseek = of("DeepSeek-V3")
    assert (str(deepseek.width), str(deepseek.shared_width)) == (
        "intermediate_size 18432 of DeepSeek-V3",
        "shared experts' intermediate size 2048 of DeepSeek-V3",
    )


@pytest.mark.parametrize(
    ("scaling", "positions"),
    [
        (None, 32768),
        ({"rope_type": "llama3", "factor": 8.0}, 32768),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, 32768),
        ({"rope_type": "yarn", "factor": 4}, 131072),
        ({"rope_type": "linear", "factor": 2.5}, 81920),
        ({"rope_type": "dynamic", "factor": "many"}, 32768),
        ({"rope_type": "linear", "factor": float("nan")}, 32768),
        ({"full_attention": {"rope_type": "linear", "factor": 2}}, 32768),
        ("linear", 32768),
    ],
)
def test_vllm_counts_scaled_positions(scaling: object, positions: int) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        found = facts(**{key: scaling}).engine_positions
        assert found is not None
        assert found.value == positions


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen2-7B", 7.62),
        ("Qwen2.5-1.5B", 1.54),
        ("Qwen2.5-3B", 3.09),
        ("Qwen2.5-7B", 7.61),
        ("Qwen2.5-32B", 32.5),
        ("Qwen3-0.6B", 0.6),
        ("Qwen3-1.7B", 1.7),
        ("Qwen3-4B", 4.0),
        ("Qwen3-8B", 8.2),
        ("Qwen3-14B", 14.8),
        ("Qwen3-Coder-480B-A35B", 480),
        ("Llama-3.1-8B", 8.03),
        ("Llama-3.1-70B", 70.6),
        ("Llama-3.1-405B", 406),
        ("Llama-3.2-3B", 3.21),
        ("DeepSeek-R1", 671),
        ("Kimi-K2", 1026),
        ("Moonlight-16B-A3B", 16),
    ],
)
def test_the_table_has_the_number_of_parameters_on_the_models_card(name: str, billions: float) -> None:
    assert model_elements(BUILT_IN[name], Cut()).total / 1e9 == pytest.approx(billions, rel=0.02)


def test_the_layout_is_read_from_verls_keys() -> None:
    keys = MEGATRON | {
        f"{ACTOR}.megatron.tensor_model_parallel_size": 4,
        f"{ACTOR}.megatron.pipeline_model_parallel_size": 2,
        f"{ACTOR}.megatron.expert_model_parallel_size": 8,
        f"{ROLLOUT}.tensor_model_parallel_size": 2,
        f"+{TRANSFORMER}": {"noop_layers": "0"},
        "data.max_prompt_length": 100,
        f"{ROLLOUT}.max_model_len": "many",
    }
    assert read_layout(plain_keys(keys)) == Layout(
        megatron=True,
        tensor=4,
        pipeline=2,
        expert=8,
        expert_tensor=4,
        rollout_tensor=2,
        stages={"noop_layers": "0"},
        prompt_tokens=100,
    )


SEQUENCE, TENSOR, ROLLED = "trainer.parallelism.sequence", "trainer.parallelism.tensor", "rollout.parallelism.tensor"


@pytest.mark.parametrize("size", range(1, 33))
def test_the_rules_of_heads_are_those_of_upstream(size: int) -> None:
    """Written out as upstream writes them, for 24 heads and 4, 6 or 8 key-value heads."""
    for kv in (4, 6, 8):
        model = facts(
            num_attention_heads=24, num_key_value_heads=kv, intermediate_size=2**5 * 9 * 5 * 7 * 11, vocab_size=1
        )
        # verl 0.9.1, models/transformers/monkey_patch.py:343-346
        ulysses = 24 % size == 0 and (kv % size == 0 or size % kv == 0)
        assert (findings(model, {f"{ACTOR}.ulysses_sequence_parallel_size": size}) == []) == ulysses
        # vllm 0.23.0, model_executor/layers/linear.py:1025-1030; the vocabulary of 1 is padded to 64.
        replicas = size % kv == 0 if size >= kv else kv % size == 0
        engine = 24 % size == 0 and replicas and 64 % size == 0
        assert (findings(model, {f"{ROLLOUT}.tensor_model_parallel_size": size}) == []) == engine


def test_a_size_gets_one_finding_with_sizes_that_meet_every_rule() -> None:
    (one,) = findings(facts(), {f"{ROLLOUT}.tensor_model_parallel_size": 14})
    assert (one.field, one.fact, one.refused) == (ROLLED, "width", True)
    assert one.message == "14 does not divide intermediate_size 4864 of config.json; use one of 1, 2"
    (one,) = findings(facts(), MEGATRON | {f"{ACTOR}.megatron.tensor_model_parallel_size": 7})
    assert one.message == (
        "7 neither divides num_key_value_heads 2 of config.json nor is a multiple of it; use one of 1, 2"
    )


DEVICES: dict[str, object] = {"trainer.nnodes": 2, "trainer.n_gpus_per_node": 8}


@pytest.mark.parametrize(
    ("keys", "devices", "valid"),
    [
        ({f"{ACTOR}.ulysses_sequence_parallel_size": 8}, DEVICES, "1, 2, 4 on 16 devices"),
        ({f"{ACTOR}.ulysses_sequence_parallel_size": 8}, {}, "1, 2, 4, 28"),
        (MEGATRON | {f"{ACTOR}.megatron.tensor_model_parallel_size": 8}, DEVICES, "1, 2, 4 on 16 devices"),
        (
            MEGATRON
            | {f"{ACTOR}.megatron.{name}_parallel_size": 2 for name in ("context", "pipeline_model")}
            | {f"{ACTOR}.megatron.tensor_model_parallel_size": 8},
            {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 8},
            "1, 2 on 8 devices",
        ),
        (
            MEGATRON | {f"{ACTOR}.megatron.{name}_model_parallel_size": 3 for name in ("pipeline", "tensor")},
            DEVICES,
            "1, 2, 4, 28",
        ),
        ({f"{ROLLOUT}.tensor_model_parallel_size": 8}, DEVICES, "1, 2, 4 on 16 devices"),
        (
            {f"{ROLLOUT}.tensor_model_parallel_size": 8},
            {"trainer.nnodes": 14, "trainer.n_gpus_per_node": 2},
            "1, 2, 4, 28 on 28 devices",
        ),
        (
            {f"{ROLLOUT}.tensor_model_parallel_size": 8, f"{ROLLOUT}.data_parallel_size": 2},
            {"trainer.nnodes": 14, "trainer.n_gpus_per_node": 2},
            "1, 2 on 28 devices",
        ),
    ],
)
def test_suggested_sizes_fit_the_devices(keys: dict[str, object], devices: dict[str, object], valid: str) -> None:
    model = ModelFacts(heads=Fact(28, "heads"), kv_heads=Fact(4, "kv_heads"))
    (one,) = findings(model, keys | devices)
    assert one.message.endswith(f"; use one of {valid}")


def test_suggested_expert_sizes_fit_the_devices() -> None:
    model = ModelFacts(experts=Fact(60, "experts"), expert_width=Fact(24, "width"))
    size = f"{ACTOR}.megatron.expert_%sparallel_size"
    (one,) = findings(model, MEGATRON | DEVICES | {size % "model_": 8, size % "tensor_": 4})
    assert one.message == "8 does not divide experts 60; use one of 1, 2, 4 on 16 devices"
    (one,) = findings(model, MEGATRON | DEVICES | {size % "model_": 4, size % "tensor_": 16})
    assert one.message == "16 does not divide width 24; use one of 1, 2, 4 on 16 devices"


def test_suggested_stages_fit_the_devices() -> None:
    keys = {f"{ACTOR}.megatron.{name}_model_parallel_size": size for name, size in (("tensor", 2), ("pipeline", 5))}
    (one,) = findings(ModelFacts(layers=Fact(24, "layers")), MEGATRON | DEVICES | keys)
    assert one.message.startswith("5 stages do not divide layers 24; use one of 1, 2, 4, 8 on 16 devices, or set")


def test_latent_attention_is_split_by_heads_only_except_by_ulysses() -> None:
    model = ModelFacts(heads=Fact(16, "heads"), kv_heads=Fact(3, "kv"), latent=True)
    assert verdicts(model, {f"{ROLLOUT}.tensor_model_parallel_size": 4}) == []
    assert verdicts(model, MEGATRON | {f"{ACTOR}.megatron.tensor_model_parallel_size": 4}) == []
    assert verdicts(model, {f"{ACTOR}.ulysses_sequence_parallel_size": 4}) == [(SEQUENCE, "kv_heads", True)]


def test_what_only_may_fail_is_a_warning() -> None:
    odd = facts(vocab_size=151937)
    keys = MEGATRON | {f"{ACTOR}.megatron.tensor_model_parallel_size": 2, f"{ROLLOUT}.tensor_model_parallel_size": 2}
    assert verdicts(odd, keys) == [(TENSOR, "vocabulary", False)]
    unsure = facts(model_type="new", num_attention_heads=12, num_key_value_heads=5)
    assert verdicts(unsure, {f"{ROLLOUT}.tensor_model_parallel_size": 3}) == [(ROLLED, "kv_heads", False)]
    shared = ModelFacts(shared_width=Fact(5, "shared"))
    assert verdicts(shared, {f"{ROLLOUT}.tensor_model_parallel_size": 2}) == [(ROLLED, "shared_width", False)]
    assert verdicts(shared, MEGATRON | {f"{ACTOR}.megatron.tensor_model_parallel_size": 2}) == [
        (TENSOR, "shared_width", True)
    ]


def test_a_sure_rule_is_reported_before_a_doubtful_one() -> None:
    model = ModelFacts(heads=Fact(4, "heads", sure=False), vocabulary=Fact(64, "vocabulary"))
    assert verdicts(model, {f"{ROLLOUT}.tensor_model_parallel_size": 3}) == [(ROLLED, "vocabulary", True)]


def test_a_vocabulary_that_vllm_pads_is_reported_with_its_padding() -> None:
    (one,) = findings(ModelFacts(vocabulary=Fact(100, "vocab_size")), {f"{ROLLOUT}.tensor_model_parallel_size": 3})
    assert one.message == "3 does not divide vocab_size 100, which vLLM pads to 128; use one of 1, 2, 4, 8, 16, 32, 64"


def test_experts_are_shared_evenly_by_megatron_and_only_preferably_by_the_engine() -> None:
    model, three = of("Qwen3-30B-A3B"), {f"{ACTOR}.megatron.expert_model_parallel_size": 3} | MEGATRON
    assert verdicts(model, three) == [("trainer.parallelism.expert", "experts", True)]
    inner = MEGATRON | {f"{ACTOR}.megatron.expert_tensor_parallel_size": 5}
    assert verdicts(model, inner) == [("trainer.parallelism.expertTensor", "expert_width", True)]
    keys = {f"{ROLLOUT}.data_parallel_size": 5, f"{ROLLOUT}.expert_parallel_size": 5}
    assert verdicts(model, keys) == [("rollout.parallelism.expert", "experts", False)]
    del keys[f"{ROLLOUT}.expert_parallel_size"]
    assert verdicts(model, keys) == [("rollout.parallelism.expert", "expert_width", True)]


def test_a_dense_model_has_no_experts_to_share() -> None:
    for keys in (
        MEGATRON | {f"{ACTOR}.megatron.expert_model_parallel_size": 2},
        {f"{ROLLOUT}.data_parallel_size": 2, f"{ROLLOUT}.expert_parallel_size": 2},
    ):
        (one,) = findings(facts(), keys)
        assert one.refused
        assert one.message.endswith("but the model has num_experts 0 of config.json; use one of 1")
        assert findings(ModelFacts(), keys) == []


def test_layers_over_stages() -> None:
    def stages(pipeline: int, virtual: int = 1, **transformer: object) -> list[str]:
        node = {f"+{TRANSFORMER}.{name}": value for name, value in transformer.items()}
        size = f"{ACTOR}.megatron.%s_model_parallel_size"
        keys = MEGATRON | {size % "pipeline": pipeline, size % "virtual_pipeline": virtual} | node
        return [one.message.split(";")[0] for one in findings(facts(), keys)]

    assert stages(1) == stages(8) == stages(4, 3) == []
    assert stages(25) == ["25 stages are more than num_hidden_layers 24 of config.json"]
    assert stages(5) == ["5 stages do not divide num_hidden_layers 24 of config.json"]
    assert stages(5, account_for_loss_in_pipeline_split=True) == []
    assert stages(8, account_for_embedding_in_pipeline_split=True) == [
        "8 stages do not divide num_hidden_layers 24 of config.json + 1 for embedding and loss"
    ]
    (message,) = stages(4, 4)
    assert message.startswith("4 stages hold 6 of num_hidden_layers 24 of config.json, and virtual_pipeline")
    assert stages(5, noop_layers="0") == stages(5, noop_layers=None, num_layers=25) == []
    ends = {"num_layers_in_first_pipeline_stage": 5, "num_layers_in_last_pipeline_stage": 4}
    assert stages(5, **ends) == []
    assert stages(4, **ends) == ["first and last stage hold 9 of num_hidden_layers 24 of config.json"]


@pytest.mark.parametrize("nested", ["", "model_config."])
def test_what_overrides_replace_is_not_judged_for_the_trainer(nested: str) -> None:
    keys: dict[str, object] = {f"{ACTOR}.ulysses_sequence_parallel_size": 4, f"{ROLLOUT}.tensor_model_parallel_size": 4}
    assert [field for field, _, _ in verdicts(facts(), keys)] == [SEQUENCE, ROLLED]
    replaced = keys | {f"+{MODEL}.override_config.{nested}num_attention_heads": 16}
    assert [field for field, _, _ in verdicts(facts(), replaced)] == [ROLLED]
    elsewhere = keys | {f"{MODEL}.hf_config_path": "/other"}
    assert [field for field, _, _ in verdicts(facts(), elsewhere)] == [ROLLED]
    engine = keys | {f"+{ROLLOUT}.engine_kwargs.vllm.hf_overrides.num_attention_heads": 16}
    assert [field for field, _, _ in verdicts(facts(), engine)] == [SEQUENCE]


def test_megatrons_own_keys_replace_the_models() -> None:
    keys = MEGATRON | {f"{ACTOR}.megatron.tensor_model_parallel_size": 4}
    assert [fact for _, fact, _ in verdicts(facts(), keys)] == ["heads"]
    assert verdicts(facts(), keys | {f"+{TRANSFORMER}.num_attention_heads": 16}) == []


LENGTHS: dict[str, object] = {"data.max_prompt_length": 1024, "data.max_response_length": 4096}
LENGTH = f"{ROLLOUT}.max_model_len"


def test_a_longer_model_length_than_the_models_is_refused() -> None:
    (one,) = findings(facts(), LENGTHS | {LENGTH: 40000})
    assert (one.field, one.refused) == (f"verl.overrides[{LENGTH}]", True)
    assert one.message == "40000 is more than max_position_embeddings 32768 of config.json; set it to 32768 or less"
    assert findings(facts(), LENGTHS | {LENGTH: 32768}) == []
    by_name = facts_of_shape(BUILT_IN["Qwen3-32B"], "a name", family=True)
    assert [one.refused for one in findings(by_name, {LENGTH: 50000})] == [False]


def test_positions_that_only_verl_knows_are_a_warning() -> None:
    keys = LENGTHS | {f"+{MODEL}.override_config.max_position_embeddings": 65536}
    (one,) = findings(facts(), keys)
    assert (one.fact, one.refused) == ("engine_positions", False)
    assert "sequences of 65536 tokens only with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in one.message
    assert findings(facts(rope_scaling={"rope_type": "yarn", "factor": 2.0}), keys) == []
    assert findings(facts(), keys | {f"+{ROLLOUT}.engine_kwargs.vllm.hf_overrides.rope_theta": 1}) == []


@pytest.mark.parametrize(
    ("positions", "effect"), [(4096, "leaves its response 3072 tokens"), (1024, "fails the rollout")]
)
def test_lengths_beyond_the_positions_are_a_warning(positions: int, effect: str) -> None:
    (one,) = findings(facts(max_position_embeddings=positions), LENGTHS)
    assert (one.field, one.refused) == ("data.maxResponseTokens", False)
    assert (
        f"= 5120 exceed max_position_embeddings {positions} of config.json: a prompt of full length {effect}"
        in one.message
    )
    assert findings(facts(max_position_embeddings=5120), LENGTHS) == []
    assert findings(facts(), LENGTHS | {LENGTH: positions}) == []


def test_the_critic_has_sizes_and_changes_of_its_own() -> None:
    keys: dict[str, object] = {
        "critic.strategy": "megatron",
        "critic.megatron.tensor_model_parallel_size": 4,
        "critic.fsdp.ulysses_sequence_parallel_size": 2,
    }
    layout = critic_layout(keys)
    assert layout == Layout(megatron=True, tensor=4, expert_tensor=4, sequence=2)
    assert [one.fact for one in judge_trainer(facts(), layout)] == ["heads"]
    for node in ("critic.model.override_config.a", "critic.model.hf_config_path"):
        assert critic_layout(keys | {node: "x"}).trainer_changes == EVERYTHING


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_architecture_can_be_split_as_it_is_published(name: str) -> None:
    """Sizes of 1 and the powers of two that its heads allow are never refused."""
    for size, key in itertools.product((1, 2), ("tensor_model_parallel_size", "data_parallel_size")):
        assert findings(of(name), {f"{ROLLOUT}.{key}": size}) == []


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from([1, 2, 3, 8, 10**40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
NAMES = [
    *CONFIG,
    "head_dim",
    "num_experts",
    "moe_intermediate_size",
    "num_experts_per_tok",
    "rope_scaling",
    "text_config",
]
OVERRIDES = [
    *(f"{ACTOR}.megatron.{name}_model_parallel_size" for name in ("tensor", "pipeline", "virtual_pipeline", "expert")),
    *(f"{TRANSFORMER}.{name}" for name in ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")),
    *(f"{ROLLOUT}.{name}" for name in ("tensor_model_parallel_size", "data_parallel_size", "max_model_len")),
    *(
        *LENGTHS,
        TRANSFORMER,
        f"{MODEL}.override_config",
        f"{ROLLOUT}.engine_kwargs.vllm",
        f"{ROLLOUT}.expert_parallel_size",
    ),
]


@given(
    changes=st.dictionaries(st.sampled_from(NAMES), VALUES),
    overrides=st.dictionaries(st.sampled_from(OVERRIDES), VALUES),
    megatron=st.booleans(),
)
def test_no_config_and_no_override_fails_a_rule(
    changes: dict[str, object], overrides: dict[str, object], megatron: bool
) -> None:
    keys = overrides | (MEGATRON if megatron else {})
    for one in findings(facts(**changes), keys):
        assert one.field
        assert len(one.message) < 1000
