"""Who creates pods: the two models of a site, each with the users that it is made for.

With `RLJobsOnly`, authors may write jobs and nothing else, and what the operator creates for them is held to Pod
Security baseline. With `MayCreatePods`, authors may create pods as well; `test_tenants.py` has the limits of those.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import Json, merged, small_spec
from contract.attacks import ADMINS, LIMITED, OPEN, OPENED, User, from_secret, sidecar
from contract.conftest import KUBECONFIG
from contract.policy_site import BOUND, EDITOR, OPERATOR, Site, chart, cluster, policy_site, refuses, rljob
from contract.test_pod_security import cases, pod, raycluster
from contract.test_tenants import raw
from corpus.bad import template
from corpus.good import GOOD

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
HOST_PATH = template({"volumes": [{"name": "m", "hostPath": {"path": "/srv/models"}}]})
OPENINGS: dict[str, tuple[Json, str]] = {
    "the network of the node": ({"network": {"mode": "Host"}}, "limits.rljob.dev/host-network"),
    "a folder of the node": (HOST_PATH, "allows no hostPath (limits.rljob.dev/host-paths)"),
    "a Ray without tokens": (
        {"runtime": {"rayVersion": "2.48.0", "unauthenticatedRay": True}},
        "limits.rljob.dev/unauthenticated-ray",
    ),
    "a privileged container": (sidecar(securityContext={"privileged": True}), "limits.rljob.dev/privileged"),
}
"""What a namespace opens by an annotation."""


@pytest.fixture(scope="module")
def only() -> Iterator[Site]:
    with policy_site("policies.authors=RLJobsOnly") as made:
        yield made


@pytest.fixture(scope="module")
def both(site: Site) -> Site:
    return site


@pytest.mark.parametrize("user", [User.BARE, BOUND])
def test_whoever_may_only_write_jobs_writes_jobs(only: Site, user: str) -> None:
    good = {key: rljob(small_spec(change)) for key, change in GOOD.items()}
    answers = only.refused(OPEN, user, good)
    secrets = {
        *("a secret from a Secret", "secrets as variables", "a container with all that it may have"),
        "exports to a hub",
    }
    assert set(answers) == {"tolerations", "checkpoints of another job"} | secrets
    assert all("may not get in namespace" in answers[key] for key in secrets)
    assert "tolerations of every taint" in answers["tolerations"]
    assert "allows no hostPath" in answers["checkpoints of another job"]
    assert set(only.refused(OPEN, user, {"a pod": raw()})) == {"a pod"}


def test_without_limits_jobs_are_held_to_baseline(only: Site) -> None:
    for key, (change, said) in OPENINGS.items():
        asked = only.refused(OPEN, User.BARE, {key: rljob(small_spec(change))}).get(key, "passed")
        assert refuses("limits'", asked), (key, asked)
        assert said in asked, key
        made = only.refused(OPEN, OPERATOR, {key: here(only, cluster(only, change), OPEN)}).get(key, "passed")
        assert refuses("pods'", made), (key, made)
        assert said in made, key
    for refused in (True, False):
        made_ = {
            key: here(only, raycluster(only, template_, "worker"), OPEN)
            for key, (_, template_) in cases(refused=refused).items()
        }
        assert set(only.refused(OPEN, OPERATOR, made_)) == (set(made_) if refused else set())


def here(site: Site, made: Json, namespace: str) -> Json:
    return {**made, "metadata": {**made["metadata"], "namespace": site.namespace(namespace)}}


def test_a_namespace_opens_what_it_needs(only: Site) -> None:
    changes = {key: change for key, (change, _) in OPENINGS.items()}
    assert only.refused(OPENED, User.BARE, {key: rljob(small_spec(change)) for key, change in changes.items()}) == {}
    made = {key: here(only, cluster(only, change), OPENED) for key, change in changes.items()}
    assert only.refused(OPENED, OPERATOR, made) == {}
    other = merged(template({"volumes": [{"name": "m", "hostPath": {"path": "/etc"}}]}))
    assert "hostPath /etc" in only.refused(OPENED, User.BARE, {"": rljob(small_spec(other))}).get("", "passed")


def test_secrets_and_accounts_are_asked_for_in_both_models(only: Site, both: Site) -> None:
    stolen = {
        "a Secret": rljob(small_spec(template({"env": [from_secret(ADMINS)]}))),
        "an account": rljob(small_spec({"runtime": {"serviceAccountName": "cluster-backup"}})),
    }
    for site, user in ((only, User.BARE), (both, User.AUTHOR)):
        answers = site.refused(OPEN, user, stolen)
        assert "may not get" in answers.get("a Secret", "passed")
        assert "may not use ServiceAccount" in answers.get("an account", "passed")


def test_the_role_for_authors_suffices_in_both_models(only: Site, both: Site) -> None:
    for site in (only, both):
        assert site.refused(OPEN, BOUND, {"a job": rljob(small_spec())}) == {}
    assert set(only.refused(OPEN, BOUND, {"a pod": raw()})) == {"a pod"}
    assert both.refused(OPEN, BOUND, {"a pod": raw()}) == {}


def test_editors_of_workloads_get_no_rayclusters_unless_the_site_wants_it(both: Site) -> None:
    said = both.refused(OPEN, EDITOR, {"a job": rljob(small_spec())}).get("a job", "passed")
    assert f"may not create rayclusters.ray.io in namespace {both.namespace(OPEN)}" in said
    assert f"ask for the role {both.release}-author" in said


def test_pods_of_others_are_judged_only_where_authors_create_pods(only: Site, both: Site) -> None:
    def names(site: Site) -> set[str]:
        found = chart(site, "ValidatingAdmissionPolicy")
        return {m["metadata"]["name"].removeprefix(f"{site.release}-") for m in found}

    assert names(both) - names(only) == {"tenants", "templates"}
    hostile = {"": pod({"spec": {**raw()["spec"], "hostPID": True}})}
    assert refuses("tenants'", both.refused(LIMITED, User.AUTHOR, hostile)[""])
    assert only.refused(LIMITED, User.AUTHOR, hostile) == {}
