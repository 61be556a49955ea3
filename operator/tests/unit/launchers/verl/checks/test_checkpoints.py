"""Warnings about what a restart loads; the corpus has what is refused."""

from __future__ import annotations

import pytest
from builders import Json, merged, saving, small_spec, validate
from corpus.bad import key

ACTOR, CRITIC = (f"{role}.checkpoint.load_contents" for role in ("actor_rollout_ref.actor", "critic"))
SAVES = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}})
PPO: Json = {"algorithm": {"name": "PPO"}}
MEGATRON: Json = merged(
    {
        "accelerator": {"class": "atlas-a3"},
        "workerGroups": [{"name": "trainer", "nodes": 1, "devicesPerNode": 16}],
        "trainer": {"backend": "Megatron"},
    },
    SAVES,
)


def told(change: Json) -> list[str]:
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
def test_a_restart_without_the_optimizer_is_told(change: Json, name: str, role: str) -> None:
    (line,) = told(change)
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
    assert told(change) == []
