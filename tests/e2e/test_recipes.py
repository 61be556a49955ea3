"""Recipes in a real cluster: edits of a recipe do not change a job that uses it, not even by suspend and resume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import quickstart, runs
from tests.kube import Kube, Manifest, condition, wait_for

pytestmark = pytest.mark.e2e

RECIPE = "e2e-sums"


def recipe(**rollout: Any) -> Manifest:  # noqa: ANN401 - JSON
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "ClusterRLRecipe",
        "metadata": {"name": RECIPE},
        "spec": {"description": "For this test.", "template": {"rollout": rollout}},
    }


def cluster_of(kube: Kube, name: str) -> Manifest | None:
    found = kube.find("rayclusters", f"rljob.dev/job={name}")
    assert len(found) <= 1, "one job has two clusters"
    return found[0] if found else None


@pytest.fixture
def job(alone: Kube) -> Iterator[str]:
    alone.apply(recipe(maxSequences=64))
    alone.apply(runs.variant("with-recipe", **quickstart.WAITING, recipeRef={"name": RECIPE}))
    wait_for("reason PodUnschedulable", lambda: reason(alone) == "PodUnschedulable", 120)
    yield "with-recipe"
    alone.delete("clusterrlrecipe", RECIPE)


def reason(kube: Kube) -> str | None:
    found: str | None = ((kube.get("rljob", "with-recipe") or {}).get("status") or {}).get("reason")
    return found


def wait_for_condition(kube: Kube, kind: str, status: str) -> Manifest:
    def current() -> Manifest | None:
        found = condition(kube.get("rljob", "with-recipe"), kind)
        return found if found is not None and found["status"] == status else None

    return wait_for(f"{kind}={status}", current, 180)


def test_an_edited_recipe_is_reported_as_drift_and_changes_nothing(alone: Kube, job: str) -> None:
    before = cluster_of(alone, job)
    assert before is not None
    frozen = alone.get("configmap", before["metadata"]["name"])
    assert '"actor_rollout_ref.rollout.max_num_seqs":64' in (frozen or {})["data"]["job.json"]
    alone.apply(recipe(maxSequences=128))
    assert RECIPE in wait_for_condition(alone, "RecipeDrift", "True")["message"]
    after = cluster_of(alone, job)
    assert after is not None
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert alone.get("configmap", before["metadata"]["name"]) == frozen

    # Neither suspend nor resume applies the edit.
    alone.run("patch", "rljob", job, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_for_condition(alone, "Suspended", "True")
    wait_for("the cluster is gone", lambda: cluster_of(alone, job) is None, 180)
    alone.run("patch", "rljob", job, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    second = wait_for("the next cluster", lambda: cluster_of(alone, job), 180)
    assert second["metadata"]["name"].endswith("-2")
    again = wait_for("its ConfigMap", lambda: alone.get("configmap", second["metadata"]["name"]), 30)
    assert '"actor_rollout_ref.rollout.max_num_seqs":64' in again["data"]["job.json"]


def test_an_edit_of_the_job_waits_for_the_next_cluster(alone: Kube, job: str) -> None:
    alone.run("patch", "rljob", job, "--type=merge", "-p", '{"spec":{"trainer":{"learningRate":"2e-3"}}}')
    assert "trainer.learningRate" in wait_for_condition(alone, "PendingChanges", "True")["message"]
    alone.run("patch", "rljob", job, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_for_condition(alone, "Suspended", "True")
    alone.run("patch", "rljob", job, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    second = wait_for("the next cluster", lambda: cluster_of(alone, job), 180)
    config = wait_for("its ConfigMap", lambda: alone.get("configmap", second["metadata"]["name"]), 30)
    assert '"actor_rollout_ref.actor.optim.lr":0.002' in config["data"]["job.json"]
    wait_for_condition(alone, "PendingChanges", "False")


def test_a_job_waits_for_its_recipe(alone: Kube) -> None:
    alone.apply(runs.variant("early", **quickstart.WAITING, recipeRef={"name": "e2e-later"}))

    def invalid() -> bool:
        found = condition(alone.get("rljob", "early"), "Validated")
        return found is not None and found["status"] == "False" and "e2e-later" in found["message"]

    wait_for("Validated=False names the recipe", invalid, 60)
    alone.apply(recipe() | {"metadata": {"name": "e2e-later"}})
    wait_for("the RayCluster", lambda: cluster_of(alone, "early"), 60)
    alone.delete("rljob", "early")
    alone.delete("clusterrlrecipe", "e2e-later")
