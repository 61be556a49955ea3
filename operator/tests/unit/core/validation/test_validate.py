"""Valid specs, warnings, and names; `corpus` has the invalid specs one by one."""

import pytest
from builders import Json, group, merged, small_spec, validate
from corpus.bad import megatron, override
from corpus.good import GOOD

from rljob.core.validation.violation import Violation


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 41, "41 characters; at most 40"),
        ("1st", "and start with a letter"),
        ("Sums", "lower-case"),
        ("a\n", "DNS-1035"),
    ],
)
def test_a_bad_name_is_refused(name: str, message: str) -> None:
    checked = validate(name, small_spec())
    spec, violations = checked.spec, checked.violations
    assert spec is None
    assert [violation.field for violation in violations] == ["metadata.name"]
    assert message in violations[0].message


def test_all_violations_are_reported_at_once() -> None:
    everything = small_spec(
        merged(
            group({"devicesPerNode": 32}),
            {"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 1, "learningRate": "0"}},
        )
        | {"code": {"type": "ConfigMap"}}
        | override(trainer__nnodes=4)
    )
    checked = validate("Sums", everything)
    violations = checked.violations
    assert [violation.field for violation in violations] == [
        "metadata.name",
        "spec.workerGroups[0].devicesPerNode",
        "spec.trainer.globalBatchSize",
        "spec.trainer.learningRate",
        "spec.verl.overrides[trainer.nnodes]",
        "spec.code",
    ]
    typed = validate("sums", small_spec({"model": None, "reward": None, "madeUp": 1})).violations
    assert len(typed) == 3


def test_a_number_that_json_does_not_know_is_refused() -> None:
    (violation,) = validate("sums", small_spec(override(a=float("nan")))).violations
    assert str(violation) == "spec.verl.overrides: not YAML: line 1, column 4: .nan is not a number in JSON"


def test_half_a_character_is_refused_without_repeating_the_manifest() -> None:
    (violation,) = validate("sums", small_spec({"model": {"path": "/\ud800"}})).violations
    assert str(violation).startswith("spec: cannot be written as JSON: ")
    assert "quick" not in str(violation)
    assert len(str(violation)) < 200


def test_a_violation_reads_as_a_line() -> None:
    assert str(Violation("spec.model", "is required and not set")) == "spec.model: is required and not set"


def test_a_violation_can_be_encoded_whatever_the_manifest_says() -> None:
    assert Violation("spec.a[\ud800]", "'\udfff' × 2") == Violation("spec.a[?]", "'?' × 2")
    assert Violation("spec.a[\x1b]", "\x9b").field == r"spec.a[\u001b]"
    key = "actor_rollout_ref.rollout.engine_kwargs.vllm.compilation_config"
    (violation,) = validate("sums", small_spec({"verl": {"overrides": {key: '{"\\ud800": 1}'}}})).violations
    assert f"{key}.?: verl" in str(violation)


@pytest.mark.parametrize("change", GOOD.values(), ids=GOOD.keys())
def test_a_good_spec_passes(change: Json) -> None:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    assert checked.spec is not None


# The shapes of cann-recipes-train: nodes, training sizes, rollout sizes, batch, tokens.
RECIPES = {
    "DeepSeek-V3 671B": (16, (4, 8, 1, 8, None), (2, 128, 256), 512, None, 4096),
    "DeepSeek-V3 671B, two replicas": (16, (4, 8, 1, 8, None), (2, 64, 128), 512, None, 4096),
    "Qwen3-235B": (8, (4, 4, 4, 32, 1), (4, 32, 128), 512, 8704, 34816),
    "Qwen3-235B, random weights": (8, (4, 4, 8, 32, 1), (4, 32, 128), 512, 4352, 34816),
    "Qwen3-32B": (2, (8, 2, 2, 1, None), (8, 4, 1), 32, 18432, 36864),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_the_shapes_of_the_flagship_recipes_pass(
    recipe: tuple[int, tuple[int, ...], tuple[int, ...], int, int | None, int],
) -> None:
    nodes, (tensor, pipeline, context, expert, expert_tensor), rollout, batch, tokens, length = recipe
    sizes = {"tensor": tensor, "pipeline": pipeline, "context": context, "expert": expert}
    spec = small_spec(
        merged(
            megatron(sizes | ({"expertTensor": expert_tensor} if expert_tensor else {}), nodes=nodes),
            {
                "trainer": {"globalBatchSize": batch, "samplesPerPrompt": 16, "microBatchSizePerDevice": 1},
                "data": {"maxPromptTokens": 2048, "maxResponseTokens": length - 2048},
                "rollout": {"parallelism": dict(zip(("tensor", "data", "expert"), rollout, strict=True))},
            }
            | ({"trainer": {"maxTokensPerDevice": tokens}} if tokens else {}),
        )
    )
    spec["trainer"] |= {"globalBatchSize": batch, "samplesPerPrompt": 16}
    assert validate("sums", spec).violations == ()


HUGE = 2_147_483_647


def test_an_impossible_job_is_refused_at_once_however_large() -> None:
    spec = small_spec(
        merged(
            group({"nodes": HUGE, "devicesPerNode": HUGE, "template": {"cpu": "9" * 32}}),
            {
                "accelerator": {"class": "atlas-a2"},
                "model": {"layers": HUGE, "attentionHeads": HUGE, "experts": HUGE},
                "data": {"maxPromptTokens": HUGE, "maxResponseTokens": HUGE},
                "trainer": {
                    "backend": "MindSpeed", "steps": HUGE, "globalBatchSize": HUGE, "miniBatchSize": HUGE - 1,
                    "samplesPerPrompt": HUGE, "microBatchSizePerDevice": HUGE - 2, "maxTokensPerDevice": 1,
                    "parallelism": dict.fromkeys(("tensor", "pipeline", "context", "expert"), 65_536),
                },
                "rollout": {"parallelism": dict.fromkeys(("tensor", "data", "expert"), 65_536), "maxSequences": HUGE},
            },
        )
    )  # fmt: skip
    fields = [violation.field for violation in validate("sums", spec).violations]
    assert {"spec.workerGroups[0].nodes", "spec.trainer.parallelism", "spec.trainer.maxTokensPerDevice"} <= set(fields)
