"""trainer.lora: the keys of each engine, and what is planned and evaluated."""

from __future__ import annotations

import pytest
from builders import Json, apart, merged, saving, small_spec, typed
from corpus.bad import megatron

from rljob.core.spec.model_shape import known_shape
from rljob.launchers import LAUNCHER
from rljob.launchers.verl.memory import memory_parts
from rljob.launchers.verl.trained import Trained, trained
from rljob.render.evaluation import evaluation_document
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig, RequiredPath

MODEL = "actor_rollout_ref.model"
LORA: Json = {"trainer": {"lora": {"rank": 8, "alpha": 16, "targets": ["q_proj"], "path": "/data/adapter"}}}


def job_of(change: Json) -> JobConfig:
    spec = typed(small_spec(change))
    return LAUNCHER(spec).job_config(JobIdentity("team", "sums", "u"), spec, 1)


def model_keys(change: Json) -> dict[str, object]:
    overrides = job_of(change).overrides
    return {
        name.removeprefix(f"{MODEL}."): value
        for name, value in overrides.items()
        if ".lora" in name or "target" in name
    }


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"trainer": {"lora": {"rank": 8}}}, {"lora_rank": 8, "lora_alpha": 8}),
        (
            LORA,
            {"lora_rank": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "lora_adapter_path": "/data/adapter"},
        ),
        (
            merged(megatron({}), LORA),
            {
                "lora.rank": 8,
                "lora.alpha": 16,
                "lora.target_modules": ["q_proj"],
                "lora.adapter_path": "/data/adapter",
            },
        ),
        (merged(apart(), {"trainer": {"lora": {"rank": 8}}}), {"lora_rank": 8, "lora_alpha": 8, "lora.merge": True}),
        ({"trainer": {"mode": "Sync"}}, {}),
    ],
)
def test_each_engine_gets_its_own_keys(change: Json, keys: dict[str, object]) -> None:
    assert model_keys(change) == keys


def test_the_adapter_is_looked_for_before_devices_compute() -> None:
    assert RequiredPath("trainer.lora.path", "/data/adapter") in job_of(LORA).required_paths


def test_field_and_key_are_one_thing() -> None:
    by_key = {"verl": {"overrides": {f"{MODEL}.lora_rank": 8, f"{MODEL}.lora.merge": True}}}
    assert trained(typed(small_spec(LORA))) == Trained(8, 0, "spec.trainer.lora.rank")
    assert trained(typed(small_spec(by_key))) == Trained(
        8, 0, f"spec.verl.overrides[{MODEL}.lora_rank]", by_override=True, merged=True
    )
    assert trained(typed(small_spec({}))) == Trained()


def test_the_reference_of_an_adapter_is_the_actor_and_its_shards_may_be_halved() -> None:
    change = {
        "accelerator": {"class": "atlas-a2"},
        "model": {"architecture": "Qwen2.5-0.5B"},
        "algorithm": {"klCoefficient": "0.001"},
        "verl": {"overrides": {"actor_rollout_ref.actor.fsdp_config.model_dtype": "bf16"}},
    }
    spec = typed(small_spec(merged(change, LORA)))
    shape = known_shape(spec)
    assert shape is not None
    parts = memory_parts(spec, shape)
    assert parts is not None
    _, trainer, rollout = parts
    assert (trainer.adapter_rank, trainer.reference, trainer.element_bytes, rollout.adapter_rank) == (8, False, 2, 8)


def test_an_evaluation_adds_no_adapter_to_merged_weights() -> None:
    spec = typed(
        merged(small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}})), LORA, {"evaluation": {}})
    )
    assert spec.evaluation is not None
    assert "lora" not in evaluation_document(spec, spec.evaluation, 5)["trainer"]
