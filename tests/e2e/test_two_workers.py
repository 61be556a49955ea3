"""A run on two worker pods that a stop rule of its recipe ends: both ranks save, and the tracker names the step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e import recorded_run, runs
from tests.kube import Kube, Manifest, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(1200 * runs.SLOWER)]

NAME = "two-workers"
STOP_AFTER = 3
RULE: dict[str, Any] = {
    "name": "enough",
    "metric": "training/global_step",
    "condition": "Above",
    "threshold": str(STOP_AFTER - 1),
    "result": "Succeeded",
}
RECIPE: Manifest = {
    "apiVersion": "rljob.dev/v1alpha1",
    "kind": "RLRecipe",
    "metadata": {"name": NAME},
    "spec": {"description": "For this test.", "template": {"stopRules": [RULE]}},
}


def test_a_stop_rule_ends_a_run_of_two_pods_that_both_save(alone: Kube) -> None:
    job = runs.variant(
        NAME,
        recipeRef={"kind": "RLRecipe", "name": NAME},
        trainer__steps=40,
        checkpoint=runs.saving(NAME, 40),
        workerGroups__0__nodes=2,
        workerGroups__0__devicesPerNode=1,
    )
    alone.apply(RECIPE, job)
    record, workers = recorded_run.Record(NAME), set[str]()

    def ended() -> bool:
        current = recorded_run.observe(alone, record)
        pods = alone.find("pods", f"rljob.dev/job={NAME},ray.io/node-type=worker")
        workers.update(pod["metadata"]["name"] for pod in pods)
        return current in recorded_run.ENDED

    wait_for("the end of the run", ended, 300 * runs.SLOWER)
    status = record.status
    assert (status["state"], status["reason"]) == ("Succeeded", "StopRuleMatched"), json.dumps(status, indent=1)
    assert f"stop rule enough: training/global_step {STOP_AFTER} is above" in status["message"]
    assert len(workers) == 2
    (attempt,) = recorded_run.log_folders(alone, record.job)
    assert [line["step"] for line in recorded_run.read_steps(attempt)] == list(range(1, STOP_AFTER + 1))
    checkpoints = recorded_run.volume(alone) / "checkpoints" / NAME
    ranks = {path.name for path in (checkpoints / f"global_step_{STOP_AFTER}" / "actor").glob("model_world_size_*")}
    assert ranks == {f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)}
    assert (checkpoints / "latest_checkpointed_iteration.txt").read_text() == str(STOP_AFTER)
    alone.delete("rljob", NAME)
    alone.delete("rlrecipe", NAME)
