"""A run against a kubectl that plays back a healthy cluster, and clusters that are broken in one way each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from doubles.played_kubectl import PLAN, Cluster, Time

from rljob.cli import kubectl
from rljob.cli.conformance.claims import CLAIMS, Row, Stage
from rljob.cli.conformance.clock import Clock
from rljob.cli.conformance.page import document, has_failed, text_page
from rljob.cli.conformance.run import SECONDS, Run
from rljob.cli.conformance.verdict import Result

JOB = "get rljobs.rljob.dev conformance-abc123"
MakeRun = Callable[..., Run]


def _results(rows: list[Row]) -> dict[str, Result]:
    return {row.claim.id: row.verdict.result for row in rows}


def _failed(rows: list[Row]) -> dict[str, str]:
    return {row.claim.id: row.verdict.text for row in rows if row.verdict.result is Result.FAILED}


def _job(cluster: Cluster, *statuses: dict[str, Any]) -> None:
    """Replace what the cluster says about the job."""
    first = cluster.answers[JOB][0]
    cluster.answer(JOB, *(first | {"status": status} for status in statuses))


def test_a_run_that_ends_early_leaves_the_rest_open(cluster: Cluster, make_run: MakeRun) -> None:
    run = make_run()
    run.last = Stage.TRAIN
    results = _results(run.go())
    assert results["checkpoints"] is Result.CONFIRMED
    assert results["survives-killed-worker"] is Result.NOT_RUN
    assert results["cleanup"] is Result.CONFIRMED
    assert _deleted(cluster)


def _starting(**status: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    valid = {"type": "Validated", "status": "True", "reason": "Valid", "message": "All checks passed."}
    return {"state": "Starting", "conditions": [valid], **status}


def _deleted(cluster: Cluster) -> bool:
    return any(
        call.startswith("delete rljobs.rljob.dev --selector rljob.dev/conformance=abc123") for call in cluster.calls
    )


@pytest.mark.usefixtures("cluster")
def test_a_healthy_cluster_confirms_every_claim_that_needs_no_npu(make_run: MakeRun) -> None:
    rows = make_run().go()
    expected = {claim.id: Result.CONFIRMED for claim in CLAIMS} | {
        "hccl": Result.NOT_APPLICABLE,
        "core-binding": Result.NOT_APPLICABLE,
        "queue": Result.NOT_APPLICABLE,
    }
    assert _results(rows) == expected, [row.verdict.text for row in rows]
    assert not has_failed(rows)
    seen = {row.claim.id: row.verdict.seen for row in rows}
    assert "attempt 2 resumed from step 15" in seen["survives-killed-worker"]
    assert "attempt 3 resumed from step 20" in seen["suspend-resume"]


def test_all_that_it_creates_carries_its_label_and_is_deleted(cluster: Cluster, make_run: MakeRun) -> None:
    make_run().go()
    assert [made["kind"] for made in cluster.created][-1] == "RLJob"
    assert {made["metadata"]["labels"]["rljob.dev/conformance"] for made in cluster.created} == {"abc123"}
    assert all("conformance-abc123" in made["metadata"]["name"] for made in cluster.created)
    deletions = [call for call in cluster.calls if call.startswith("delete") and not call.startswith("delete pod ")]
    assert all("--selector rljob.dev/conformance=abc123" in call for call in deletions)
    assert _deleted(cluster)


def test_with_keep_nothing_is_deleted(cluster: Cluster, make_run: MakeRun) -> None:
    rows = make_run(replace(PLAN, keep=True)).go()
    assert _results(rows)["cleanup"] is Result.NOT_APPLICABLE
    assert not _deleted(cluster)


@pytest.mark.usefixtures("cluster")
def test_the_command_that_deletes_what_was_kept_names_namespace_and_context(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(replace(PLAN, keep=True))
    run.place = kubectl.Place("team", "far")
    run.created = True
    run.last = Stage.CLUSTER
    run.go()
    told = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("kept; to delete: "))
    assert " --namespace team --context far --selector rljob.dev/conformance=abc123" in told


def test_ctrl_c_deletes_what_was_created(cluster: Cluster, make_run: MakeRun) -> None:
    time = Time()

    def sleep(seconds: float) -> None:
        if time.seconds == 0.0:
            time.sleep(seconds)
            raise KeyboardInterrupt
        time.sleep(seconds)

    run = make_run(clock=Clock(time.now, sleep))
    rows = run.go()
    assert run.facts.interrupted
    assert _deleted(cluster)
    assert _results(rows)["cleanup"] is Result.CONFIRMED
    completes = next(row for row in rows if row.claim.id == "completes")
    assert completes.verdict.text == "the run was interrupted"


@pytest.mark.parametrize(
    ("cluster", "claim", "told"),
    [
        (
            "kuberay-scaled-to-0",
            "kuberay",
            "kuberay-system/kuberay-operator is scaled to 0; scale KubeRay to 1 with `kubectl scale`",
        ),
        (
            "operator-ready-scaled-to-0",
            "operator-ready",
            "rljob-system/rljob-operator is scaled to 0; scale the operator to 1 with `kubectl scale`",
        ),
        (
            "no-default-storage-class",
            "storage",
            "no StorageClass is the default; the cluster has standard; name one with --storage-class",
        ),
        ("image-without-ray", "image-check", "refused: ray: jobs run as Ray jobs; install Ray 2.52.0 or later"),
        (
            "quota-without-devices",
            "pods-start",
            "exceeded quota: no-devices, requested: requests.huawei.com/Ascend910=2",
        ),
    ],
    indirect=["cluster"],
)
def test_a_recorded_broken_cluster_fails_exactly_the_claim_that_it_breaks(
    cluster: Cluster, make_run: MakeRun, claim: str, told: str
) -> None:
    rows = make_run().go()
    assert list(_failed(rows)) == [claim]
    assert told in _failed(rows)[claim]
    results, stage = _results(rows), next(row.claim.stage for row in rows if row.claim.id == claim)
    assert {results[row.claim.id] for row in rows if row.claim.stage is Stage.FINISH} == {Result.NOT_RUN}
    assert Result.NOT_RUN not in {results[row.claim.id] for row in rows if row.claim.stage is Stage.CLUSTER}
    assert _deleted(cluster) is (stage is not Stage.CLUSTER), "what was created is deleted"
    assert ("RLJob" in [made["kind"] for made in cluster.created]) is (stage is Stage.START)


def test_a_storage_class_that_does_not_exist_fails_with_those_that_do(cluster: Cluster, make_run: MakeRun) -> None:
    rows = make_run(replace(PLAN, storage_class="absent")).go()
    assert _failed(rows) == {
        "storage": "there is no StorageClass absent; the cluster has standard; name one of them with --storage-class"
    }
    assert cluster.created == []


def test_a_missing_device_plug_in_fails_with_the_resource(cluster: Cluster, make_run: MakeRun) -> None:
    (node,) = cluster.items("get nodes")
    cluster.answer("get nodes", {"items": [node | {"status": {"allocatable": {"cpu": "2"}}}]})
    rows = make_run().go()
    assert list(_failed(rows)) == ["devices"]
    assert (
        "huawei.com/Ascend910 is not offered by any schedulable node; install the device plug-in"
        in _failed(rows)["devices"]
    )


def test_a_quota_that_refuses_pods_ends_the_run_early_with_the_quota(cluster: Cluster, make_run: MakeRun) -> None:
    message = 'KubeRay: FailedToCreate: pods "x" is forbidden: exceeded quota: small'
    _job(cluster, _starting(reason="PodsRefused", message=message))
    run = make_run()
    rows = run.go()
    assert list(_failed(rows)) == ["initializer"]
    assert "exceeded quota: small" in _failed(rows)["initializer"]
    assert run.facts.started is not None
    assert run.facts.started.seconds < SECONDS[Stage.START] / 2
    assert _deleted(cluster)


def test_an_image_without_ray_fails_pods_start_with_the_end_of_its_output(cluster: Cluster, make_run: MakeRun) -> None:
    ready = [{"type": kind, "status": "True"} for kind in ("Validated", "Initialized")]
    message = "worker: container ray-worker ended 3 times: exit code 127: ray: command not found"
    _job(
        cluster,
        _starting(),
        {"state": "Failed", "reason": "ContainerCannotStart", "message": message, "conditions": ready},
    )
    rows = make_run().go()
    assert list(_failed(rows)) == ["pods-start"]
    assert "ray: command not found" in _failed(rows)["pods-start"]
    assert _results(rows)["initializer"] is Result.CONFIRMED
    assert _results(rows)["completes"] is Result.NOT_RUN
    assert _deleted(cluster)


def test_a_job_that_hangs_ends_at_the_deadline(cluster: Cluster, make_run: MakeRun) -> None:
    _job(cluster, _starting(message="pod x waits for ray-head"))
    time = Time(speed=20)
    run = make_run(clock=Clock(time.now, time.sleep))
    rows = run.go()
    assert run.facts.started is not None
    assert SECONDS[Stage.START] <= run.facts.started.seconds < SECONDS[Stage.START] + 41
    assert "(after 15" in _failed(rows)["initializer"]


def test_an_error_when_objects_are_created_fails_the_stage(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.answer(
        "create",
        "pod created",
        'Error from server (Forbidden): configmaps is forbidden: User "u" cannot create',
    )
    rows = make_run().go()
    assert list(_failed(rows)) == ["job-accepted"]
    assert "ask an administrator" in _failed(rows)["job-accepted"]
    assert _deleted(cluster), "a part may have been created"


def test_what_is_left_fails_cleanup(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.answer("get persistentvolumeclaims --selector", {"items": [{"metadata": {"name": "conformance-abc123"}}]})
    time = Time(speed=20)
    rows = make_run(clock=Clock(time.now, time.sleep)).go()
    assert _failed(rows)["cleanup"].startswith("left: persistentvolumeclaim/conformance-abc123; delete")


def test_a_cleanup_that_fails_states_its_cause(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.answer("delete", 'Error from server (Forbidden): User "u" cannot delete')
    told = _failed(make_run().go())["cleanup"]
    assert "objects with the label rljob.dev/conformance=abc123 (not looked for: " in told
    assert "cannot delete" in told


def test_what_may_not_be_read_is_not_run_and_blocks_nothing(cluster: Cluster, make_run: MakeRun) -> None:
    forbidden = 'Error from server (Forbidden): User "u" cannot list'
    lists = ("get deployments.apps", "get nodes")
    for command in lists:
        cluster.answer(command, forbidden)
    results = _results(make_run().go())
    assert {results[claim] for claim in ("operator-ready", "kuberay", "devices")} == {Result.NOT_RUN}
    assert results["completes"] is Result.CONFIRMED


@pytest.mark.usefixtures("cluster")
def test_the_document_has_every_claim_and_the_versions(make_run: MakeRun) -> None:
    run = make_run()
    rows = run.go()
    made = document(rows, run.facts, {"rljob": "0.1.0"}, "begin", "end")
    assert made["result"] == "passed"
    assert [claim["id"] for claim in made["claims"]] == [claim.id for claim in CLAIMS]
    wanted = {
        "rljob": "0.1.0",
        "Kubernetes": "v1.36.2",
        "KubeRay image": "rljob.local/kuberay-operator:v1.6.2",
        "CRD": "v1alpha1",
        "operator": "0.1.0",
        "ray": "2.60.0",
        "image": "x.example/runtime:1",
    }
    assert {key: made["versions"].get(key) for key in wanted} == wanted
    assert made["evidence"]["image"] == {"verdict": "fits", "reasons": []}
    assert set(made["evidence"]["stages"]) == {"started", "trained", "killed", "suspended", "finished"}
    assert json.loads(json.dumps(made)) == made
    page = text_page(rows, run.facts, {"rljob": "0.1.0"})
    assert "cpu: 18 confirmed, 3 not applicable" in page
