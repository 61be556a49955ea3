"""Two installations in one cluster: each installs its recipes, and no policy refuses those of the other.

ClusterRLRecipes have no namespace, so every installation for all namespaces judges all of them.
"""

from __future__ import annotations

import json

import pytest
from builders import Json, merged
from contract.conftest import KUBECONFIG
from contract.operator_site import OperatorSite
from contract.policy_site import Site, binding, named, role, rule

from rljob.api.v1alpha1 import API_VERSION
from rljob.render.labels import BUILT_IN

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
RECIPE: Json = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "spec": {"template": {}}}
FORGER = "forger"
"""A user who may write recipes for all namespaces and create RayClusters there, but no pods."""


@pytest.fixture(scope="module")
def one(site: Site) -> Site:
    """Return the policies of one release."""
    return site


@pytest.fixture(scope="module")
def other(installation: OperatorSite) -> OperatorSite:
    """Return another release with the account of its operator."""
    return installation


@pytest.fixture(scope="module")
def forger(one: Site) -> str:
    name = f"{one.id}-{FORGER}"
    rules = [rule("rljob.dev", "clusterrlrecipes", "get create patch"), rule("ray.io", "rayclusters", "create")]
    items = [role(one, name, rules), binding(one, name, name)]
    one.do("create", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": items})
    return name


def recipe_of(site: OperatorSite, **spec: Json) -> Json:
    """Return a recipe with the label that the operator of an installation gives those of its release."""
    labels = {"metadata": {"labels": {BUILT_IN: f"{site.release}.{site.id}"}}}
    return merged(named(RECIPE, f"{site.id}-recipe"), labels) | {"spec": {"template": spec}}


def test_each_installs_and_changes_the_recipes_of_its_release(one: Site, other: OperatorSite) -> None:
    assert one.release != other.release
    path = f"/apis/rljob.dev/v1alpha1/clusterrlrecipes/{other.id}-recipe"
    other.do("apply", "--server-side", "-f", "-", user=other.operator, body=recipe_of(other))
    try:
        changed = recipe_of(other, trainer={"steps": 3})
        other.do("apply", "--server-side", "-f", "-", user=other.operator, body=changed)
        assert json.loads(other.do("get", "--raw", path))["spec"] == {"template": {"trainer": {"steps": 3}}}
        assert other.raw("delete", path) == ""
    finally:
        other.do("delete", "clusterrlrecipe", f"{other.id}-recipe")


def test_the_label_gives_nobody_a_permission(one: Site, other: OperatorSite, forger: str) -> None:
    said = one.ask("create", "--dry-run=server", "-f", "-", user=forger, body=recipe_of(other)).stderr
    assert f"{forger} may not create pods in all namespaces" in said


def test_an_operator_may_not_lend_an_account_or_a_secret_to_all(one: Site, other: OperatorSite) -> None:
    for field, says in (
        ({"runtime": {"serviceAccountName": "cluster-backup"}}, "may not use ServiceAccount cluster-backup"),
        ({"secretRefs": [{"name": "admins-token"}]}, "names Secret admins-token"),
    ):
        assert says in other.rejected("create", "-f", "-", body=recipe_of(other, **field)), one.release
