"""Rejections and warnings about memory that have no row in the corpus."""

from pathlib import Path

import pytest
import yaml
from builders import BUILT_IN_RECIPES, SPECS_OF_EXAMPLES, Json, group, merged, small_spec, validate
from corpus.memory import OFFLOADED, WIDE, on_a3

from rljob.core.spec.model_shape import known_shape
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import facts_of

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
            plan = LAUNCHER.memory_plan(checked.spec, shape)
            assert plan is not None
            assert plan.peak.bytes <= plan.die.memory_bytes
