"""Each judge on both sides, and the ids of the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from doubles.played_kubectl import PLAN

from rljob.cli.conformance import cluster_judges, run_judges
from rljob.cli.conformance.claims import CLAIMS, Claim
from rljob.cli.conformance.facts import ClusterFacts, Facts, Fault, ImageFacts, PodFacts, Waited
from rljob.cli.conformance.verdict import Result, Verdict

NPU = replace(PLAN, accelerator="atlas-a3", is_npu=True, devices=16)
FACTS = Facts(NPU, cluster=ClusterFacts(now=1000.0))
Judge = Callable[[Facts], Verdict]


def _check(check: str, *, failed: int = 0, warned: int = 0, seen: str = "") -> dict[str, Any]:
    return {"check": check, "passed": 2, "failed": failed, "warned": warned, "seen": seen}


def _preflight(*checks: dict[str, Any]) -> dict[str, Any]:
    return {"preflight": {"nodes": 2, "seconds": 1.5, "checks": list(checks)}}


def _binding(**found: Any) -> Facts:  # noqa: ANN401 - JSON values
    return _pods(progress={"coreBinding": {"nodes": 1, "plannedNodes": 1, "plans": ["node-1: 16 pools"], **found}})


def _pods(**found: Any) -> Facts:  # noqa: ANN401 - JSON values
    return replace(FACTS, pods=PodFacts(**found))


def _waited(why: str = "", **status: Any) -> Waited:  # noqa: ANN401 - JSON values
    return Waited(status, reached=not why, seconds=10.0, why=why)


def _trained(pods: PodFacts | None = None, **status: Any) -> Facts:  # noqa: ANN401 - JSON values
    return replace(FACTS, trained=_waited(**status), pods=pods)


def _cluster(**found: Any) -> Facts:  # noqa: ANN401 - JSON values
    return replace(FACTS, cluster=ClusterFacts(now=1000.0, **found))


def _deployment(image: str = "x:v1.6.2", args: Sequence[str] = (), **status: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    spec = {"replicas": 1, "template": {"spec": {"containers": [{"image": image, "args": args}]}}}
    good = {"readyReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}
    return {"metadata": {"namespace": "s", "name": "d"}, "spec": spec, "status": good | status}


def _lease(holder: str, renewed: str = "1970-01-01T00:16:35Z") -> dict[str, Any]:
    return {"metadata": {"namespace": "s", "name": "d"}, "spec": {"holderIdentity": holder, "renewTime": renewed}}


def _crd(name: str, *, served: bool = True) -> dict[str, Any]:
    status = {"conditions": [{"type": "Established", "status": "True"}]}
    spec = {"versions": [{"name": "v1alpha1", "served": served}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


SILENT = _deployment(readyReplicas=0, conditions=[{"type": "Available", "status": "False", "message": "no pods"}])
ATTEMPTS = [{"number": 1, "outcome": "Lost", "reason": "PodsGone"}, {"number": 2, "resumedFromStep": 5}]
SAVED: dict[str, Any] = {"checkpoint": {"step": 5, "path": "/data"}}
KILLED = Fault(SAVED, _waited(attempts=ATTEMPTS), target="worker")
SUSPENDED = replace(KILLED, suspended=_waited(**SAVED))
METRICS = {"rljob_tokens_per_second": (3.0,), "rljob_first_dp_idle_ratio": (0.0,), "rljob_cluster_idle_ratio": (1.0,)}
TPS: dict[str, Any] = {"progress": {"step": 3, "totalSteps": 40, "tokensPerSecondPerCard": "3", "reward": "0.5"}}

CASES: tuple[tuple[str, Judge, Facts, Result, str], ...] = (
    (
        "crds",
        cluster_judges.judge_crds,
        _cluster(crds=[_crd(n) for n in cluster_judges.CRDS]),
        Result.CONFIRMED,
        "serve",
    ),
    ("no crds", cluster_judges.judge_crds, _cluster(crds=[]), Result.FAILED, "install the chart"),
    (
        "an old crd",
        cluster_judges.judge_crds,
        _cluster(crds=[_crd(n, served=False) for n in cluster_judges.CRDS]),
        Result.FAILED,
        "does not serve v1alpha1",
    ),
    (
        "no operator",
        cluster_judges.judge_operator,
        _cluster(operators=[]),
        Result.FAILED,
        "no Deployment of the operator",
    ),
    ("a broken operator", cluster_judges.judge_operator, _cluster(operators=[SILENT]), Result.FAILED, "no pods"),
    (
        "an operator whose Lease may not be read",
        cluster_judges.judge_operator,
        _cluster(operators=[_deployment()]),
        Result.CONFIRMED,
        "may not be read",
    ),
    (
        "an operator without its Lease",
        cluster_judges.judge_operator,
        _cluster(operators=[_deployment()], leases=[_lease("")]),
        Result.FAILED,
        "nothing holds the Lease",
    ),
    (
        "an operator that is stuck",
        cluster_judges.judge_operator,
        _cluster(operators=[_deployment()], leases=[_lease("p", "1970-01-01T00:10:00Z")]),
        Result.FAILED,
        "was renewed 400 s ago",
    ),
    (
        "a good operator",
        cluster_judges.judge_operator,
        _cluster(operators=[_deployment()], leases=[_lease("p")]),
        Result.CONFIRMED,
        "p holds its Lease",
    ),
    ("no KubeRay", cluster_judges.judge_kuberay, _cluster(kuberay=[]), Result.FAILED, "install KubeRay 1.5.1"),
    (
        "an old KubeRay",
        cluster_judges.judge_kuberay,
        _cluster(kuberay=[_deployment("k:v1.5.0")]),
        Result.FAILED,
        "upgrade KubeRay to 1.5.1",
    ),
    (
        "the oldest KubeRay",
        cluster_judges.judge_kuberay,
        _cluster(kuberay=[_deployment("k:v1.5.1")]),
        Result.CONFIRMED,
        "v1.5.1",
    ),
    (
        "a KubeRay without a release",
        cluster_judges.judge_kuberay,
        _cluster(kuberay=[_deployment("k@sha256:0")]),
        Result.CONFIRMED,
        "does not name a release",
    ),
    ("a new KubeRay", cluster_judges.judge_kuberay, _cluster(kuberay=[_deployment()]), Result.CONFIRMED, "v1.6.2"),
    (
        "storage of unknown modes",
        cluster_judges.judge_storage,
        _cluster(
            storage_classes=[{"metadata": {"name": "fast", "annotations": {cluster_judges.DEFAULT_CLASS: "true"}}}]
        ),
        Result.CONFIRMED,
        "it does not state whether it has ReadWriteMany, which `initializer` shows",
    ),
    (
        "a KubeRay that takes the pods of Volcano's groups",
        cluster_judges.judge_queue,
        replace(_cluster(kuberay=[_deployment(args=["--batch-scheduler=volcano"])]), plan=replace(NPU, gang="Volcano")),
        Result.FAILED,
        "KubeRay runs with --batch-scheduler=volcano, which takes the pods",
    ),
    ("no default storage", cluster_judges.judge_storage, _cluster(storage_classes=[]), Result.FAILED, "has none"),
    (
        "a small node",
        cluster_judges.judge_devices,
        _cluster(nodes=[{"metadata": {"name": "n"}, "status": {"allocatable": {NPU.resource: "8"}}}]),
        Result.FAILED,
        "pass --devices 8",
    ),
    (
        "a node of another class",
        cluster_judges.judge_devices,
        replace(
            _cluster(
                nodes=[
                    {
                        "metadata": {"name": "n", "labels": {"kind": "a2"}},
                        "status": {"allocatable": {NPU.resource: "16"}},
                    }
                ]
            ),
            plan=replace(NPU, node_labels={"kind": ("a3",)}),
        ),
        Result.FAILED,
        "is not offered",
    ),
    (
        "a cordoned node",
        cluster_judges.judge_devices,
        _cluster(
            nodes=[
                {
                    "metadata": {"name": "n"},
                    "spec": {"unschedulable": True},
                    "status": {"allocatable": {NPU.resource: "16"}},
                }
            ]
        ),
        Result.FAILED,
        "not offered by any schedulable node",
    ),
    (
        "a refused image",
        cluster_judges.judge_image,
        replace(FACTS, image=ImageFacts("refused", "Ray is missing")),
        Result.FAILED,
        "Ray is missing",
    ),
    (
        "a degraded image",
        cluster_judges.judge_image,
        replace(FACTS, image=ImageFacts("degraded", "degraded: no TransferQueue")),
        Result.CONFIRMED,
        "degraded: no TransferQueue",
    ),
    (
        "a job that is not admitted",
        cluster_judges.judge_queue,
        replace(FACTS, plan=replace(NPU, queue="q"), started=_waited("quota is used")),
        Result.FAILED,
        "quota is used",
    ),
    (
        "an admitted job",
        cluster_judges.judge_queue,
        replace(FACTS, plan=replace(NPU, queue="q"), started=replace(_waited(), conditions=frozenset({"Admitted"}))),
        Result.CONFIRMED,
        "admitted by q",
    ),
    (
        "an invalid job",
        run_judges.judge_accepted,
        replace(FACTS, started=_waited("x", conditions=[{"type": "Validated", "status": "False", "message": "bad"}])),
        Result.FAILED,
        "bad",
    ),
    (
        "a job without a status",
        run_judges.judge_accepted,
        replace(FACTS, started=_waited("x")),
        Result.FAILED,
        "not judged",
    ),
    (
        "a failed check",
        run_judges.judge_preflight,
        _pods(progress=_preflight(_check("clock", failed=1, seen="node-1: 90 s"))),
        Result.FAILED,
        "clock: node-1: 90 s",
    ),
    (
        "a warning",
        run_judges.judge_preflight,
        _pods(progress=_preflight(_check("disk", warned=1, seen="9 GiB"))),
        Result.CONFIRMED,
        "warnings: disk: 9 GiB",
    ),
    (
        "checks of a run that is gone",
        run_judges.judge_preflight,
        replace(FACTS, started=_waited("LinkDown: node-3"), pods=PodFacts(problem="no pod")),
        Result.FAILED,
        "LinkDown: node-3",
    ),
    (
        "links that are up",
        run_judges.judge_hccl,
        _pods(progress=_preflight(_check("device links", seen="16 of 16 up")), hccl={"HCCL_IF_BASE_PORT": "50000"}),
        Result.CONFIRMED,
        "device links 16 of 16 up; HCCL_IF_BASE_PORT=50000",
    ),
    (
        "links that were not read",
        run_judges.judge_hccl,
        _pods(progress=_preflight(_check("device links", warned=1, seen="hccn_tool not found"))),
        Result.NOT_RUN,
        "hccn_tool not found",
    ),
    (
        "no check of links",
        run_judges.judge_hccl,
        _pods(progress=_preflight(_check("disk", seen="39 GiB"))),
        Result.NOT_RUN,
        "no row",
    ),
    (
        "a link that is down",
        run_judges.judge_hccl,
        _pods(progress=_preflight(_check("device links", failed=1, seen="NPU 6 DOWN"))),
        Result.FAILED,
        "NPU 6 DOWN",
    ),
    (
        "bound",
        run_judges.judge_binding,
        _binding(boundProcesses=32, strayedProcesses=0),
        Result.CONFIRMED,
        "32 processes",
    ),
    ("strayed", run_judges.judge_binding, _binding(boundProcesses=30, strayedProcesses=2), Result.FAILED, "2 do not"),
    ("not observed", run_judges.judge_binding, _binding(), Result.FAILED, "no process was observed"),
    ("unplanned", run_judges.judge_binding, _binding(plannedNodes=0), Result.FAILED, "0 of 1 nodes have a plan"),
    ("no binding", run_judges.judge_binding, _pods(), Result.FAILED, "reports no core binding"),
    ("no reward", run_judges.judge_trains, _trained(progress={"step": 3, "reward": "nan"}), Result.FAILED, "no reward"),
    ("a reward", run_judges.judge_trains, _trained(**TPS), Result.CONFIRMED, "step 3 of 40, reward 0.5"),
    ("metrics", run_judges.judge_metrics, _trained(PodFacts(metrics=METRICS), **TPS), Result.CONFIRMED, "3 tokens/s"),
    (
        "no throughput in the status",
        run_judges.judge_metrics,
        _trained(PodFacts(metrics=METRICS)),
        Result.FAILED,
        "tokensPerSecondPerCard is None",
    ),
    (
        "throughput 0",
        run_judges.judge_metrics,
        _trained(PodFacts(metrics=METRICS | {"rljob_tokens_per_second": (0.0,)}), **TPS),
        Result.FAILED,
        "rljob_tokens_per_second of the exporter is [0.0]",
    ),
    (
        "more idle than 1",
        run_judges.judge_metrics,
        _trained(PodFacts(metrics=METRICS | {"rljob_cluster_idle_ratio": (1.1,)}), **TPS),
        Result.FAILED,
        "rljob_cluster_idle_ratio is [1.1]",
    ),
    (
        "no exporter",
        run_judges.judge_metrics,
        _trained(PodFacts(problem="refused"), **TPS),
        Result.FAILED,
        "the exporter was not read: refused",
    ),
    (
        "a checkpoint",
        run_judges.judge_checkpoints,
        _trained(PodFacts(checkpoints=(5,), tracker="5"), **SAVED),
        Result.CONFIRMED,
        "step 5",
    ),
    (
        "a checkpoint that is not in the folder",
        run_judges.judge_checkpoints,
        _trained(PodFacts(), **SAVED),
        Result.FAILED,
        "tracker missing",
    ),
    ("no checkpoint", run_judges.judge_checkpoints, _trained(PodFacts()), Result.FAILED, "no checkpoint was saved"),
    ("a survivor", run_judges.judge_killed, replace(FACTS, killed=KILLED), Result.CONFIRMED, "resumed from step 5"),
    (
        "a run that begins again",
        run_judges.judge_killed,
        replace(FACTS, killed=replace(KILLED, before={"checkpoint": {"step": 6}})),
        Result.FAILED,
        "resumed from step 5, and step 6 was saved",
    ),
    (
        "a run that does not come back",
        run_judges.judge_killed,
        replace(FACTS, killed=replace(KILLED, after=_waited("no node"))),
        Result.FAILED,
        "after worker was killed: no node",
    ),
    ("a resumed job", run_judges.judge_suspended, replace(FACTS, suspended=SUSPENDED), Result.CONFIRMED, "from step 5"),
    (
        "pods of a suspended job",
        run_judges.judge_suspended,
        replace(FACTS, suspended=replace(SUSPENDED, pods_left=("p",))),
        Result.FAILED,
        "the suspended job has pods: p",
    ),
    (
        "a job that loses its last step",
        run_judges.judge_suspended,
        replace(FACTS, suspended=replace(SUSPENDED, suspended=_waited(checkpoint={"step": 9}))),
        Result.FAILED,
        "resumed from step 5, and step 9 was saved",
    ),
    (
        "too few steps",
        run_judges.judge_completes,
        replace(FACTS, finished=_waited(progress={"step": 39})),
        Result.FAILED,
        "at step 39 of 40",
    ),
)


@pytest.mark.parametrize(
    ("judge", "facts", "result", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_judge_says_what_was_seen(judge: Judge, facts: Facts, result: Result, told: str) -> None:
    verdict = judge(facts)
    assert (verdict.result, told in verdict.text) == (result, True), verdict.text


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.id for claim in CLAIMS])
def test_a_claim_without_facts_neither_holds_nor_fails(claim: Claim) -> None:
    assert claim.judge(FACTS).result in (Result.NOT_RUN, Result.NOT_APPLICABLE)


def test_ids_are_unique_words() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in ids)
