"""The Pod Security Standards in the chart's policies: the same verdicts as the API server's own checks.

Every case of `pod_security.py` is judged by the API server, in a namespace that enforces the level baseline, and by the
policies, in a namespace with limits. The policies see it in each object in which it can reach a node.
"""

from __future__ import annotations

import json

import pytest
import yaml
from builders import Json, merged, small_spec, typed
from contract.attacks import LIMITED, OPEN, STANDARD
from contract.conftest import KUBECONFIG
from contract.pod_security import BASELINE, CHECKS, RESTRICTED, UPSTREAM, Change
from contract.policy_site import OPERATOR, Site, cluster, identity, refuses

from rljob.render.initializer import build_initializer
from tests.chart.helm import CHART
from tests.cluster import programs

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
TABLE = yaml.safe_load((CHART / "files" / "pod-security.yaml").read_text())["checks"]
OWN = "unknown-fields"
"""The row that upstream does not have."""


def cases(*, refused: bool) -> dict[str, tuple[Change, Json]]:
    """Return every case with its template of a pod."""
    return {
        f"{check_id}: {json.dumps([change.pod, change.container, change.annotations])} in {where}": (change, template)
        for check_id, check in CHECKS.items()
        for change in (check.refused if refused else check.accepted)
        for where, template in change.templates()
    }


def test_every_check_of_the_standards_has_a_row_and_cases() -> None:
    """A new Kubernetes may bring new checks: compare policy/check_*.go of the new version."""
    ids = {row["id"] for row in TABLE}
    # The limit host-paths is the check of paths.
    assert ids - {OWN} == BASELINE - {"hostPathVolumes"}
    assert set(CHECKS) == BASELINE
    assert not BASELINE & set(RESTRICTED)
    assert f"k8s.io/pod-security-admission {UPSTREAM}" in (CHART / "files" / "pod-security.yaml").read_text()
    (kube,) = (program for program in programs.PROGRAM_TABLE if program.name == "kube")
    assert any(value.endswith(f"gitVersion={UPSTREAM.replace('v0', 'v1')}") for value in kube.variables)


def test_the_api_server_itself_gives_these_verdicts(site: Site) -> None:
    for refused in (True, False):
        pods = {key: pod(template) for key, (change, template) in cases(refused=refused).items() if change.is_a_pod}
        answers = site.refused(STANDARD, None, pods)
        assert set(answers) == (set(pods) if refused else set())
        assert all('violates PodSecurity "baseline' in said for said in answers.values())


def pod(template: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", **template}


def raycluster(site: Site, template: Json, where: str) -> Json:
    """Return a RayCluster of the operator whose head or worker has the containers of a template as well."""
    made = cluster(site, {})
    group = made["spec"]["headGroupSpec"] if where == "head" else made["spec"]["workerGroupSpecs"][0]
    own, added = group["template"], template["spec"]
    lists = {
        name: [*own["spec"].get(name, []), *added.get(name, [])] for name in ("containers", "initContainers", "volumes")
    }
    group["template"] = {
        "metadata": merged(own["metadata"], template["metadata"]),
        "spec": {**merged(own["spec"], added), **lists},
    }
    return made


def job(site: Site, template: Json) -> Json:
    spec = typed(small_spec({"initializers": [{"name": "get", "command": ["x"]}]}))
    made = build_initializer(identity(site), spec, spec.initializers[0])
    made["spec"]["template"] = {
        "spec": {**template["spec"], "automountServiceAccountToken": False},
        "metadata": merged(made["spec"]["template"]["metadata"], template["metadata"]),
    }
    return made


@pytest.mark.parametrize("kind", ["head", "worker", "initializer"])
def test_what_the_operator_creates_is_held_to_baseline(site: Site, kind: str) -> None:
    def objects(*, refused: bool) -> dict[str, Json]:
        return {
            key: job(site, template) if kind == "initializer" else raycluster(site, template, kind)
            for key, (change, template) in cases(refused=refused).items()
            if change.is_a_pod or kind != "initializer"
        }

    bad, good = objects(refused=True), objects(refused=False)
    answers = site.refused(LIMITED, OPERATOR, bad)
    for key in bad:
        assert refuses("pods'", answers.get(key, "passed")), (key, answers.get(key))
        assert f"namespace {site.namespace(LIMITED)}" in answers[key]
        assert "limits.rljob.dev/" in answers[key]
    assert site.refused(LIMITED, OPERATOR, good) == {}
    # Where the namespace has no limits, these are the author's own permissions.
    assert site.refused(OPEN, OPERATOR, {k: in_open(site, o) for k, o in bad.items()}) == {}


def in_open(site: Site, made: Json) -> Json:
    return {**made, "metadata": {**made["metadata"], "namespace": site.namespace(OPEN)}}
