"""A driver that fails ends the job with its cause: one attempt, Finished=Failed, the NPUs free again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import quickstart
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.training]

CASES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "no-reward-file": ({"reward__path": "/code/rewrd.py"}, "PathMissing", ("reward.path", "/code/rewrd.py")),
    "unknown-override": (
        {"verl": {"overrides": {"actor_rollout_ref.actor.optim.weight_dcay": 0.1}}},
        "UnknownOverride",
        ("weight_dcay", "actor_rollout_ref.actor.optim.weight_decay"),
    ),
}


@pytest.mark.parametrize(("name", "fields", "reason", "parts"), [(k, *v) for k, v in CASES.items()], ids=CASES)
def test_the_cause_stands_in_the_status(
    kube: Kube, name: str, fields: dict[str, Any], reason: str, parts: tuple[str, ...]
) -> None:
    kube.apply(quickstart.variant(name, **fields))
    kube.run("wait", f"rljob/{name}", "--for=condition=Finished", "--timeout=600s", seconds=630)
    status = (kube.get("rljob", name) or {})["status"]
    assert status["state"] == "Failed"
    assert status["reason"] == reason, status
    assert all(part in status["message"] for part in parts), status["message"]
    assert len(status["attempts"]) == 1
    assert status["attempts"][0]["outcome"] == "Failed"
    wait_for("an event", lambda: [e for e in kube.events(name) if e.get("reason") == reason], 30)
    wait_for("the cluster is freed", lambda: not kube.find("rayclusters", f"rljob.dev/job={name}"), 60)
    kube.delete("rljob", name)
