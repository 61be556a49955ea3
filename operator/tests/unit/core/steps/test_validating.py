"""An invalid spec is refused, and a recipe that cannot be read is waited for."""

from __future__ import annotations

import pytest
from builders import (
    Json,
    decide,
    job,
    reasons,
    seen,
    small_spec,
    wrote,
)

from rljob.api.status import State
from rljob.api.v1alpha1 import RecipeKind
from rljob.core.observed import Observed, RecipeId
from rljob.core.plan import Plan

WRONG = small_spec({"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 7}})


def test_a_wrong_spec_is_refused_with_every_violation_and_an_event() -> None:
    plan = decide(Observed(job(WRONG, None) | {"metadata": job()["metadata"] | {"name": "1"}}, snapshot=None))
    assert wrote(plan).state is State.INVALID
    assert [note.type for note in plan.events] == ["Warning"]
    assert "metadata.name: " in str(wrote(plan).message)
    assert "do not divide over 2 devices" in str(wrote(plan).message)


def test_a_refusal_is_written_once() -> None:
    status = decide(Observed(job(WRONG), snapshot=None)).status
    assert decide(Observed(job(WRONG, status), snapshot=None), seconds=100) == Plan()


@pytest.mark.parametrize("of_recipe", [False, True])
def test_a_ray_without_tokens_is_refused_where_no_policy_closes_its_ports(*, of_recipe: bool) -> None:
    own: Json = {"runtime": {"rayVersion": "2.48.0", "unauthenticatedRay": True}}
    manifest = {"kind": "ClusterRLRecipe", "metadata": {"name": "old", "uid": "uid"}, "spec": {"template": own}}
    recipes = {RecipeId(RecipeKind.CLUSTER_RL_RECIPE, "old"): manifest}
    job_ = job(small_spec({"recipeRef": {"name": "old"}} if of_recipe else own))
    refused = wrote(decide(Observed(job_, snapshot=None, recipes=recipes)))
    assert (refused.state, refused.reason) == (State.INVALID, "InvalidSpec")
    assert str(refused.message).startswith("spec.runtime.unauthenticatedRay: no NetworkPolicy closes the ports")
    assert "add team to networkPolicy.jobs.namespaces of the chart, with policies.enabled" in str(refused.message)
    assert wrote(decide(Observed(job_, snapshot=None, recipes=recipes, namespace_is_closed=True))).intent is not None


def test_a_recipe_that_cannot_be_read_is_waited_for() -> None:
    on_recipe = job(small_spec({"recipeRef": {"name": "base"}}))
    why = {RecipeKind.CLUSTER_RL_RECIPE: "the operator may not list it"}
    plan = decide(Observed(on_recipe, snapshot=None, unreadable=why))
    assert reasons(plan)["Validated"] == ("False", "RecipeUnreadable")
    assert "ClusterRLRecipe base cannot be read: the operator may not list it" in str(wrote(plan).message)
    other = {RecipeKind.RL_RECIPE: "its CRD is not there"}
    assert wrote(decide(Observed(on_recipe, snapshot=None, unreadable=other))).reason == "InvalidSpec"
    began = seen(on_recipe, unreadable=why)
    assert wrote(decide(began)).intent is not None
