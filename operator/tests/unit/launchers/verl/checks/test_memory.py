"""Rejections and warnings about memory that have no row in the corpus."""

from pathlib import Path

import pytest
import yaml
from builders import (
    BUILT_IN_RECIPES,
    SPECS_OF_EXAMPLES,
    Json,
    apart,
    group,
    merged,
    saving,
    small_spec,
    typed,
    validate,
)
from corpus.memory import OFFLOADED, SWAPPED, WIDE, on_a3

from rljob.core.spec.model_shape import known_shape
from rljob.launchers.verl.checks.memory_fixes import fixes
from rljob.launchers.verl.memory import memory_plan
from rljob.render.accelerators import facts_of
from rljob_runtime.planning.memory import PhaseName

TOO_MUCH = merged(on_a3({"tensor": 2}, {"architecture": "Qwen3-32B"}, WIDE, OFFLOADED), {})
A2 = merged(
    group({"devicesPerNode": 8}),
    {
        "accelerator": {"class": "atlas-a2"},
        "model": {"architecture": "Qwen2.5-0.5B"},
        "trainer": {"microBatchSizePerDevice": 1, "offload": {"parameters": True, "optimizer": True}},
    },
)


def fields(change: Json) -> tuple[list[str], list[str]]:
    checked = validate("sums", small_spec(change))
    return [v.field for v in checked.violations], [w.field for w in checked.warnings]


def test_the_refusal_names_phase_parts_and_fixes() -> None:
    (violation,) = validate("sums", small_spec(TOO_MUCH)).violations
    assert "of a die's 64 GiB" in violation.message
    assert "swap_optimizer" in violation.message
    assert violation.message.endswith("`rljob plan memory` shows every part; or set model.memoryCheck to Warn")


def test_memory_check_warn_lets_pass_what_does_not_fit() -> None:
    assert fields(merged(TOO_MUCH, {"model": {"memoryCheck": "Warn"}})) == ([], ["spec.trainer.parallelism"])


def test_a_cache_that_fills_nearly_all_is_a_warning() -> None:
    def with_fraction(text: str) -> Json:
        return merged(A2, {"rollout": {"memoryFraction": text}})

    assert fields(with_fraction("0.9")) == ([], [])
    assert fields(with_fraction("0.95")) == ([], ["spec.rollout.memoryFraction"])
    assert fields(with_fraction("1.0")) == (["spec.rollout.memoryFraction"], [])


def test_without_a_known_model_nothing_is_judged() -> None:
    assert fields(merged(TOO_MUCH, {"model": {"architecture": None}})) == ([], [])


def test_processors_are_not_judged() -> None:
    assert fields({"model": {"architecture": "Qwen2.5-0.5B"}}) == ([], [])


WORKER = "spec.workerGroups[0].template.env[0]"


def with_buffer(text: str) -> Json:
    return merged(A2, group({"devicesPerNode": 8, "template": {"env": [{"name": "HCCL_BUFFSIZE", "value": text}]}}))


@pytest.mark.parametrize("text", ["9" * 400, "0", "many", "65537"])
def test_a_buffer_of_no_possible_size_is_refused(text: str) -> None:
    (violation,) = validate("sums", small_spec(with_buffer(text))).violations
    assert violation.field == WORKER
    assert "HCCL_BUFFSIZE is a size in MB from 1 to 65536" in violation.message
    assert "set such a number or remove it" in violation.message


@pytest.mark.parametrize("text", ["", "1", "300"])
def test_a_buffer_of_a_possible_size_passes(text: str) -> None:
    assert fields(with_buffer(text))[0] == []


def test_the_refusal_of_a_buffer_names_the_place_that_applies() -> None:
    key = "+ray_kwargs.ray_init.runtime_env.env_vars.HCCL_BUFFSIZE"
    change = merged(with_buffer("300"), {"verl": {"overrides": {key: "many"}}})
    assert fields(change)[0] == [f"spec.verl.overrides[{key}]"]
    repaired = merged(with_buffer("many"), {"verl": {"overrides": {key: "300"}}})
    assert fields(repaired)[0] == []


def test_a_buffer_of_processors_is_not_judged() -> None:
    env = [{"name": "HCCL_BUFFSIZE", "value": "many"}]
    assert fields(group({"template": {"env": env}})) == ([], [])


@pytest.mark.parametrize("path", SPECS_OF_EXAMPLES, ids=lambda path: path.stem)
def test_an_example_for_ascend_states_its_model_and_fits(path: Path) -> None:
    for job in (document for document in yaml.safe_load_all(path.read_text()) if document["kind"] == "RLJob"):
        checked = validate(job["metadata"]["name"], job["spec"], BUILT_IN_RECIPES)
        assert checked.spec is not None, checked.violations
        if facts_of(checked.spec).is_npu:
            shape = known_shape(checked.spec)
            assert shape is not None, "set model.architecture, so that `rljob validate` checks its memory"
            plan = memory_plan(checked.spec, shape)
            assert plan is not None
            assert plan.peak.bytes <= plan.die.memory_bytes


FSDP: Json = {
    "accelerator": {"class": "atlas-a3"},
    "workerGroups": [{"name": "trainer", "nodes": 1, "devicesPerNode": 16}],
    "model": {"architecture": "Qwen2.5-7B"},
    "data": {"maxPromptTokens": 512, "maxResponseTokens": 1024},
    "trainer": {"globalBatchSize": 256, "samplesPerPrompt": 8},
}
KL: Json = {"algorithm": {"klCoefficient": "0.001"}}
MOE: Json = on_a3({}, {"architecture": "Qwen3-30B-A3B"}, OFFLOADED)
OFFLOAD = "set trainer.offload.parameters, set trainer.offload.optimizer"


def trainer(**values: object) -> Json:
    return {"trainer": values}


@pytest.mark.parametrize(
    ("phase", "change", "told"),
    [
        (
            PhaseName.UPDATE,
            FSDP,
            "set trainer.microBatchSizePerDevice (else a pass is a device's whole share of a batch), or add nodes",
        ),
        (
            PhaseName.UPDATE,
            merged(FSDP, trainer(microBatchSizePerDevice=8)),
            "lower trainer.microBatchSizePerDevice, raise trainer.parallelism.sequence, or add nodes",
        ),
        (
            PhaseName.UPDATE,
            merged(FSDP, trainer(microBatchSizePerDevice=1), KL),
            "raise trainer.parallelism.sequence, or add nodes",
        ),
        (
            PhaseName.UPDATE,
            merged(FSDP, trainer(maxTokensPerDevice=16384)),
            "lower trainer.maxTokensPerDevice, or add nodes",
        ),
        (
            PhaseName.UPDATE,
            merged(FSDP, trainer(maxTokensPerDevice=1536, microBatchSizePerDevice=4)),
            "raise trainer.parallelism.sequence and lower trainer.maxTokensPerDevice, or add nodes",
        ),
        (
            PhaseName.LOG_PROBABILITIES,
            merged(FSDP, trainer(maxTokensPerDevice=16384, offload={"parameters": True})),
            "lower trainer.maxTokensPerDevice, set trainer.offload.optimizer, or add nodes",
        ),
        (
            PhaseName.UPDATE,
            merged(FSDP, trainer(maxTokensPerDevice=16384), {"algorithm": {"name": "PPO"}}),
            f"lower trainer.maxTokensPerDevice, {OFFLOAD}, or add nodes",
        ),
        (PhaseName.GENERATE, FSDP, f"lower it, {OFFLOAD}, or raise rollout.parallelism.tensor"),
        (PhaseName.TRANSFER, FSDP, f"raise tensor, {OFFLOAD.replace(', ', ', or ')}"),
        (
            PhaseName.UPDATE,
            merged(on_a3({"tensor": 2}, {"architecture": "Qwen3-32B"}), trainer(maxTokensPerDevice=32768), KL),
            (
                "lower trainer.maxTokensPerDevice, raise tensor, pipeline or context, set trainer.offload.reference, "
                "recompute layers (recompute_granularity), or keep the optimizer on the host (swap_optimizer with "
                "use_distributed_optimizer)"
            ),
        ),
        (PhaseName.UPDATE, merged(MOE, SWAPPED), "raise tensor, pipeline, context or expert"),
        (PhaseName.LOG_PROBABILITIES, MOE, "raise tensor, pipeline, context or expert"),
        (PhaseName.TRANSFER, MOE, "raise tensor or expert"),
        (
            PhaseName.GENERATE,
            merged(MOE, {"rollout": {"memoryFraction": "0.1"}}),
            "raise rollout.parallelism.tensor or expert",
        ),
    ],
)
def test_a_fix_is_one_that_the_job_can_apply(phase: PhaseName, change: Json, told: str) -> None:
    spec = typed(small_spec(change))
    shape = known_shape(spec)
    assert shape is not None
    plan = memory_plan(spec, shape)
    assert plan is not None
    assert fixes(phase, spec, plan) == told


WHOLE: Json = {"devicesPerNode": 16}
BUCKET = "verl.overrides[actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes]"
APART: Json = merged(apart(WHOLE, WHOLE), {
    "accelerator": {"class": "atlas-a3"},
    "model": {"architecture": "Qwen2.5-7B"},
    "trainer": {"globalBatchSize": 256, "microBatchSizePerDevice": 1},
})  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "change", "told"),
    [
        (PhaseName.GENERATE, {}, "lower it, or raise rollout.parallelism.tensor"),
        (PhaseName.RECEIVE, {}, f"lower {BUCKET}, or raise rollout.parallelism.tensor"),
        (PhaseName.TRANSFER, {}, f"lower {BUCKET}, {OFFLOAD.replace(', ', ', or ')}"),
        (
            PhaseName.RECEIVE,
            {"model": {"architecture": "Qwen3-30B-A3B"}},
            f"lower {BUCKET}, or raise rollout.parallelism.tensor or expert",
        ),
    ],
)
def test_a_fix_of_one_role_is_of_its_own_dies(phase: PhaseName, change: Json, told: str) -> None:
    spec = typed(small_spec(merged(APART, change)))
    shape = known_shape(spec)
    assert shape is not None
    plan = memory_plan(spec, shape)
    assert plan is not None
    assert fixes(phase, spec, plan) == told


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        # Both roles on the same dies would not leave as much.
        ({"rollout": {"memoryFraction": "0.9"}}, None, ""),
        (
            {"rollout": {"memoryFraction": "1"}},
            "spec.rollout.memoryFraction",
            "generate takes 64.0 of a die's 64 GiB of the rollout",
        ),
        (
            {"verl": {"overrides": {BUCKET[15:-1]: 20_000}}},
            "spec.rollout.parallelism",
            "weight reception takes",
        ),
        (
            {"trainer": {"backend": "Megatron"}, "verl": {"overrides": {BUCKET[15:-1]: 8_000}}},
            "spec.trainer.parallelism",
            "weight transfer takes",
        ),
    ],
)
def test_each_role_has_the_memory_of_its_own_dies(change: Json, field: str | None, words: str) -> None:
    checked = validate("sums", small_spec(merged(APART, change)))
    found = [(violation.field, violation.message) for violation in (*checked.violations, *checked.warnings)]
    assert not [message for place, message in found if field is None]
    assert field is None or any(place == field and words in message for place, message in found), found


def test_a_buffer_of_either_role_is_judged() -> None:
    env = {"template": {"env": [{"name": "HCCL_BUFFSIZE", "value": "many"}]}}
    for groups, number in ((apart(merged(WHOLE, env), WHOLE), 0), (apart(WHOLE, merged(WHOLE, env)), 1)):
        (found,) = fields(merged(APART, groups))[0]
        assert found == f"spec.workerGroups[{number}].template.env[0]"


def test_probabilities_are_many() -> None:
    violations = validate("sums", small_spec(FSDP)).violations
    assert [violation.message.split(" of a die's")[0].rsplit(" ", 1)[0] for violation in violations] == [
        "log probabilities take",
        "update takes",
    ]


def test_a_phase_without_room_for_a_cache_is_one_finding() -> None:
    change = merged(
        on_a3({"tensor": 2}, {"architecture": "Qwen3-32B"}, {"rollout": {"memoryFraction": "0.5"}}),
        trainer(maxTokensPerDevice=4096),
    )
    messages = [
        violation.message
        for violation in validate("sums", small_spec(change)).violations
        if violation.field == "spec.rollout.memoryFraction"
    ]
    assert len(messages) == 1
    assert "generate takes" in messages[0]
    assert "lower it" not in messages[0]
    assert "raise it" not in messages[0]


def test_an_evaluation_needs_no_memory_of_training() -> None:
    """On fewer devices: PyTorch makes gradients and moments when they are used, and nothing is updated."""
    change: Json = {"model": {"architecture": "Qwen2.5-7B"}, "trainer": {"lora": {"rank": 16}}}
    saves = {"checkpoint": {"path": "/data/checkpoints", "everySteps": 1}, "evaluation": {"devicesPerNode": 2}}
    trained = merged(A2, change, saves)
    trained["workerGroups"] = [merged(saving({})["workerGroups"][0], A2["workerGroups"][0])]
    assert fields(trained) == ([], [])
    evaluated = {"trainer": {"mode": "Evaluate", "lora": None}, "evaluation": None, "checkpoint": None}
    spec = typed(small_spec(merged(A2, change, evaluated)))
    shape = known_shape(spec)
    assert shape is not None
    plan = memory_plan(spec, shape)
    assert plan is not None
    assert {phase.name for phase in plan.phases} == {PhaseName.GENERATE, PhaseName.TRANSFER}
    assert not {part.name for phase in plan.phases for part in phase.parts} & {"gradients", "optimizer state"}
