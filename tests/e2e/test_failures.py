"""A failed driver ends the job and reports the cause: one attempt, Finished=Failed, and the NPUs are free."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import runs
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle]

MISSPELT: tuple[dict[str, Any], tuple[str, ...]] = (
    (
        {"verl": {"overrides": {"actor_rollout_ref.actor.optim.weight_dcay": 0.1}}},
        ("weight_dcay", "actor_rollout_ref.actor.optim.weight_decay"),
    )
    if runs.VERL
    else (
        {"verl": {"overrides": {"+contract.rollout_second": 0.1}}},
        ("rollout_second:", "+contract.rollout_seconds"),
    )
)
CASES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "no-reward-file": ({"reward__path": "/code/rewrd.py"}, "PathMissing", ("reward.path", "/code/rewrd.py")),
    "unknown-override": (MISSPELT[0], "UnknownOverride", MISSPELT[1]),
}
if not runs.VERL:
    CASES["raises"] = (
        {**runs.pace(0.1, fail_at_step=2), "restart": {"maxRestarts": 0}},
        "RunFailed",
        ("PlannedError: rank 1 fails in step 2",),
    )


@pytest.mark.parametrize(("name", "fields", "reason", "parts"), [(k, *v) for k, v in CASES.items()], ids=CASES)
def test_the_cause_is_in_the_status(
    kube: Kube, name: str, fields: dict[str, Any], reason: str, parts: tuple[str, ...]
) -> None:
    kube.apply(runs.variant(name, **fields))
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
