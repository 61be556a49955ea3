"""Warnings about what a restart loads; the corpus has what is refused."""

from __future__ import annotations

import pytest
from builders import Json, merged, saving, small_spec, validate
from corpus.bad import key

ACTOR, CRITIC = (f"{role}.checkpoint.load_contents" for role in ("actor_rollout_ref.actor", "critic"))
SAVES = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}})
PPO: Json = {"algorithm": {"name": "PPO"}}
MODEL = "actor_rollout_ref.model"
MEGATRON: Json = merged(
    {
        "accelerator": {"class": "atlas-a3"},
        "workerGroups": [{"name": "trainer", "nodes": 1, "devicesPerNode": 16}],
        "trainer": {"backend": "Megatron"},
    },
    SAVES,
)


def warning_lines(change: Json) -> list[str]:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    return [str(warning) for warning in checked.warnings if "_contents" in warning.field]


@pytest.mark.parametrize(
    ("change", "name", "role"),
    [
        (merged(SAVES, key(ACTOR, ["model", "extra"])), ACTOR, "actor_rollout_ref.actor"),
        (merged(SAVES, key(ACTOR, "[model]")), ACTOR, "actor_rollout_ref.actor"),
        (merged(MEGATRON, key(f"+{ACTOR}", ["model"])), f"+{ACTOR}", "actor_rollout_ref.actor"),
        (merged(PPO, SAVES, key(CRITIC, ["model", "extra"])), CRITIC, "critic"),
    ],
)
def test_a_checkpoint_without_the_optimizer_is_a_warning(change: Json, name: str, role: str) -> None:
    (line,) = warning_lines(change)
    assert line == (
        f"spec.verl.overrides[{name}]: lacks optimizer, so every restart begins {role} with a new optimizer; remove it "
        "after the next save"
    )


@pytest.mark.parametrize(
    "change",
    [
        SAVES,
        merged(SAVES, key(ACTOR, None)),
        merged(SAVES, key(ACTOR, ["model", "optimizer", "extra"])),
        merged(SAVES, key(CRITIC, ["model", "extra"])),
        key(ACTOR, ["model"]),
        merged(SAVES, key(ACTOR, ["model"]), {"trainer": {"mode": "Evaluate"}}),
    ],
)
def test_a_restart_that_continues_is_not(change: Json) -> None:
    assert warning_lines(change) == []


WHOLE: Json = {"evaluation": {}, "export": {"to": {"path": "/data/models"}}}
ADAPTER: Json = {"trainer": {"lora": {"rank": 8}}}


def test_an_adapter_is_evaluated_and_exported_as_a_whole_model() -> None:
    checked = validate("sums", small_spec(merged(SAVES, ADAPTER, WHOLE)))
    assert checked.violations == ()
    assert [warning for warning in checked.warnings if warning.field == "spec.export"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (merged(SAVES, key(f"{MODEL}.lora_rank", 8)), "use spec.trainer.lora instead of the override"),
        (merged(MEGATRON, ADAPTER), "saves only the adapter of spec.trainer.lora.rank, without its base model"),
        (merged(SAVES, ADAPTER, key("+actor_rollout_ref.actor.checkpoint.save_lora_only", True)), "only the adapter;"),
    ],
)
def test_an_evaluation_needs_the_adapter_merged(change: Json, message: str) -> None:
    refused = validate("sums", small_spec(merged(change, {"evaluation": {}})))
    (violation,) = refused.violations
    assert violation.field == "spec.evaluation"
    assert message in violation.message


def test_an_export_of_an_adapter_without_its_base_is_a_warning() -> None:
    checked = validate("sums", small_spec(merged(MEGATRON, ADAPTER, {"export": WHOLE["export"]})))
    assert checked.violations == ()
    (warning,) = [warning for warning in checked.warnings if warning.field == "spec.export"]
    assert "each export will fail" in warning.message


@pytest.mark.parametrize("values", [{"lora_rank": 0}, {"lora": {"rank": 0}}, {"lora_adapter_path": None}])
def test_without_an_adapter_evaluations_and_exports_are_whole(values: Json) -> None:
    keys = {f"{MODEL}.{name}": value for name, value in values.items()}
    fields = {"verl": {"overrides": keys}, "evaluation": {}, "export": {"to": {"path": "/data/models"}}}
    checked = validate("sums", small_spec(merged(SAVES, fields)))
    assert checked.violations == ()
    assert [warning for warning in checked.warnings if warning.field == "spec.export"] == []
