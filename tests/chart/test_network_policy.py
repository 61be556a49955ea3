"""Allowed connections: the chart's policies applied to golden flows, and tests of the evaluator itself."""

from __future__ import annotations

import pytest

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from rljob.render.network_policy import build_network_policy, isolate
from rljob.render.raycluster import build_raycluster
from rljob.render.shared_services import build_shared_services
from tests.chart.helm import NAMESPACE, Manifest, render
from tests.chart.policies import Pod, is_allowed, matches

TEAM = "team"
SETTINGS = (
    "--set=networkPolicy.enabled=true",
    f"--set=networkPolicy.jobs.namespaces={{{TEAM}}}",
    "--set=networkPolicy.jobs.metricsFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=monitoring",
)

HEAD = Pod(TEAM, {"rljob.dev/job": "a", "ray.io/node-type": "head"}, {"rljob-metrics": 8090, "rljob-api": 8091})
WORKER = Pod(TEAM, {"rljob.dev/job": "a", "ray.io/node-type": "worker"})
OLD = {"rljob.dev/job": "b", "rljob.dev/job-uid": "0b", "rljob.dev/unauthenticated-ray": "true"}
OLD_HEAD = Pod(TEAM, OLD | {"ray.io/node-type": "head"}, {"rljob-metrics": 8090, "rljob-api": 8091})
OLD_WORKER = Pod(TEAM, OLD | {"ray.io/node-type": "worker"})
OTHER_OLD = Pod(TEAM, OLD | {"rljob.dev/job": "c", "rljob.dev/job-uid": "0c"})
OWN = {"rljob.dev/job": "d", "rljob.dev/job-uid": "0d", "rljob.dev/isolated": "true"}
OWN_HEAD = Pod(TEAM, OWN | {"ray.io/node-type": "head"}, {"rljob-metrics": 8090, "rljob-api": 8091})
OWN_WORKER = Pod(TEAM, OWN | {"ray.io/node-type": "worker"})
JUDGE = Pod(TEAM, {"rljob.dev/job": "b", "rljob.dev/job-uid": "0b", "rljob.dev/service": "b-0b-svc-1-judge"})
"""A pod of a shared service of the job without tokens."""
STRANGER = Pod(TEAM, {"app": "notebook"})
ELSEWHERE = Pod("other", {"rljob.dev/job": "a"})
PROMETHEUS = Pod("monitoring", {"app": "prometheus"})

FLOWS = {
    "a worker joins Ray": (WORKER, HEAD, 6379, True),
    "a worker's hook asks the exporter": (WORKER, HEAD, 8091, True),
    "the head starts workers of Ray": (HEAD, WORKER, 10002, True),
    "HCCL exchanges its root information": (WORKER, WORKER, 60001, True),
    "gloo and torch's store": (WORKER, WORKER, 40123, True),
    "the object manager of another node": (HEAD, WORKER, 45678, True),
    "vLLM's metrics by the exporter": (HEAD, WORKER, 41000, True),
    "the operator submits": ("operator", HEAD, 8265, True),
    "the operator asks for progress": ("operator", HEAD, 8091, True),
    "the operator does not use Ray's own port": ("operator", HEAD, 6379, False),
    "nor Ray's client port": ("operator", HEAD, 10001, False),
    "nor Ray's worker ports": ("operator", WORKER, 10002, False),
    "Prometheus reads the exporter": (PROMETHEUS, HEAD, 8090, True),
    "Prometheus reads nothing else": (PROMETHEUS, HEAD, 8265, False),
    "a team's notebook cannot run code in Ray": (STRANGER, HEAD, 10001, False),
    "nor submits": (STRANGER, HEAD, 8265, False),
    "nor read metrics": (STRANGER, HEAD, 8090, False),
    "nor stop a run": (STRANGER, HEAD, 8091, False),
    "nor connect to HCCL": (STRANGER, WORKER, 60001, False),
    "job labels in another namespace give no access": (ELSEWHERE, HEAD, 6379, False),
    "a worker joins a Ray without tokens": (OLD_WORKER, OLD_HEAD, 6379, True),
    "its workers' hooks ask the exporter": (OLD_WORKER, OLD_HEAD, 8091, True),
    "the operator submits to it by the exporter": ("operator", OLD_HEAD, 8091, True),
    "Prometheus reads its exporter": (PROMETHEUS, OLD_HEAD, 8090, True),
    "another job does not reach its job agent": (WORKER, OLD_HEAD, 52365, False),
    "nor that of its workers": (WORKER, OLD_WORKER, 52365, False),
    "nor its GCS": (WORKER, OLD_HEAD, 6379, False),
    "nor does a job that has such a Ray itself": (OTHER_OLD, OLD_HEAD, 10001, False),
    "nor a notebook": (STRANGER, OLD_HEAD, 52365, False),
    "it reaches what other jobs reach": (OLD_HEAD, WORKER, 6379, True),
    "a worker of a closed namespace joins its Ray": (OWN_WORKER, OWN_HEAD, 6379, True),
    "and any port of its trainer": (OWN_HEAD, OWN_WORKER, 40123, True),
    "the operator submits there": ("operator", OWN_HEAD, 8265, True),
    "Prometheus reads there": (PROMETHEUS, OWN_HEAD, 8090, True),
    "another job does not reach its TransferQueue": (WORKER, OWN_WORKER, 40123, False),
    "nor does another one of its kind": (OLD_WORKER, OWN_WORKER, 40123, False),
    "its pods reach its shared service": (OLD_WORKER, JUDGE, 8000, True),
    "and no other port": (OLD_WORKER, JUDGE, 22, False),
    "another job does not reach it": (WORKER, JUDGE, 8000, False),
    "nor does a notebook reach it": (STRANGER, JUDGE, 8000, False),
    "nor the operator": ("operator", JUDGE, 8265, False),
    "nor Prometheus": (PROMETHEUS, JUDGE, 8090, False),
    "the service does not reach a Ray without tokens": (JUDGE, OLD_HEAD, 10001, False),
    "nor the Ray of another job": (JUDGE, HEAD, 6379, False),
    "a pod that belongs to no job is not affected": (ELSEWHERE, STRANGER, 8888, True),
    "the operator's own port for health and metrics": (PROMETHEUS, "operator", 8080, True),
    "and no other": (PROMETHEUS, "operator", 8443, False),
}


@pytest.fixture(scope="module")
def policies() -> list[Manifest]:
    """Return the chart's, those of a job whose Ray checks no token, with a shared service, and that of another job."""
    raw = {
        "runtime": {"image": "registry.example/old:1", "rayVersion": "2.48.0", "unauthenticatedRay": True},
        "accelerator": {"class": "cpu"},
        "workerGroups": [{"name": "trainer", "nodes": 1, "devicesPerNode": 1}],
        "launcher": {"type": "Command", "command": {"args": ["true"]}},
        "services": [{"name": "judge", "image": "registry.example/judge:1", "port": 8000, "placement": "Shared"}],
    }
    spec = RLJobSpec.model_validate(raw, context=BUILT_IN)
    job = JobIdentity(TEAM, "b", "0b")
    own = build_network_policy(build_raycluster(job, spec, 1, "digest"))
    assert own is not None
    shared, *_ = build_shared_services(job, spec, 1)
    closed = build_raycluster(JobIdentity(TEAM, "d", "0d"), spec.model_copy(update={"services": []}), 1, "digest")
    isolate(closed, spec)
    other = build_network_policy(closed)
    assert other is not None
    return [own, other, shared, *(manifest for manifest in render(*SETTINGS) if manifest["kind"] == "NetworkPolicy")]


@pytest.fixture(scope="module")
def operator() -> Pod:
    (deployment,) = (manifest for manifest in render() if manifest["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    return Pod(NAMESPACE, template["metadata"]["labels"], ports)


@pytest.mark.parametrize(("source", "target", "port", "allowed"), FLOWS.values(), ids=FLOWS)
def test_a_flow(
    policies: list[Manifest], operator: Pod, source: Pod | str, target: Pod | str, port: int, allowed: bool
) -> None:
    ends = [operator if isinstance(end, str) else end for end in (source, target)]
    assert is_allowed(policies, ends[0], ends[1], port) is allowed


def test_an_upgrade_leaves_the_rule_between_pods_in_the_policy_that_had_it(policies: list[Manifest]) -> None:
    (kept,) = (policy for policy in policies if policy["metadata"]["name"].endswith("-jobs"))
    assert is_allowed([kept], WORKER, HEAD, 6379)


def test_without_the_policies_every_flow_is_open(operator: Pod) -> None:
    assert all(is_allowed([], STRANGER, pod, 6379) for pod in (HEAD, WORKER, operator))


@pytest.mark.parametrize(
    ("operator", "taken"), [("In", True), ("NotIn", False), ("Exists", True), ("DoesNotExist", False)]
)
def test_the_evaluator_knows_the_operators_of_selectors(operator: str, taken: bool) -> None:
    entry = {"key": "a", "operator": operator, "values": ["1"]}
    assert matches({"matchExpressions": [entry]}, {"a": "1"}) is taken
