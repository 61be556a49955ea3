"""`rljob conformance` on the local cluster: everything is confirmed, and each of five broken clusters is named.

`make test` runs the claims up to a checkpoint with the contract driver (tests.e2e.runs); its unit tests play back what
the others recorded. `make acceptance` runs everything with verl.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rljob.api.accelerators import AcceleratorFacts
from rljob.cli import kubectl
from rljob.cli.conformance import image_pod
from rljob.cli.conformance.claims import CLAIMS, Row, Stage
from rljob.cli.conformance.clock import Clock
from rljob.cli.conformance.cluster_judges import DEFAULT_CLASS
from rljob.cli.conformance.facts import ConformancePlan, Facts
from rljob.cli.conformance.manifests import manifests
from rljob.cli.conformance.page import document, text_page
from rljob.cli.conformance.run import Run
from rljob.cli.conformance.verdict import Result
from rljob.render.accelerators import BUILT_IN
from tests.cluster.addons import KUBERAY, KUBERAY_NAMESPACE
from tests.e2e import runs
from tests.e2e.recorded_kubectl import WRITE, Recorder
from tests.e2e.recorded_run import OPERATOR_NAMESPACE
from tests.e2e.shared import ROOT
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800 * runs.SLOWER)]

CLASS = BUILT_IN["cpu"]
NAME = "abc123"
"""The id of every run, as in the unit tests that play back what is recorded here."""
PATIENCE_SECONDS = 15.0
"""With a broken cluster. In a healthy one that is short of CPU, `ray start` may end after 30 s and is then repeated."""
PLAYED_BACK = pytest.mark.skipif(
    not runs.VERL and not os.environ.get(WRITE), reason="takes minutes; the unit tests play back what it recorded"
)
NOT_APPLICABLE = {"hccl", "core-binding", "queue"}


def _objects(plan: ConformancePlan, facts: AcceleratorFacts) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a run, with the contract driver in place of verl."""
    made = manifests(plan, facts)
    if runs.VERL:
        return made
    spec, other = made[-1]["spec"], runs.rljob()["spec"]
    kept = {"volumes": spec["workerGroups"][0]["template"]["volumes"]}
    for field in ("head", "workerGroups", "code", "model", "data", "reward", "verl"):
        spec[field] = other[field]
    spec["workerGroups"][0]["template"] |= kept
    # The driver's image has its inputs; the initializer shows that the volume can be written.
    spec["initializers"] = [{"name": "prepare", "command": ["touch", "/data/prepared"]}]
    return made


@pytest.fixture
def recorder(alone: Kube, tmp_path: Path) -> Recorder:
    """Return a kubectl that records its answers."""
    return Recorder(alone.kubectl, tmp_path)


def _run(kube: Kube, recorder: Recorder, clock: Clock | None = None, **changes: Any) -> Run:  # noqa: ANN401 - fields of ConformancePlan
    plan = ConformancePlan(NAME, "cpu", CLASS.resource, is_npu=False, devices=runs.DEVICES, image=runs.IMAGE)
    place = kubectl.Place(kube.namespace, kubeconfig=Path(kube.kubeconfig), program=recorder.program)
    # The contract driver's image has Ray and no verl, as that of a job whose trainer is a command.
    check = partial(image_pod.check_image, launcher="Verl" if runs.VERL else "Command")
    clock = clock or Clock(patience_seconds=PATIENCE_SECONDS)
    return Run(Facts(replace(plan, **changes)), CLASS, place, clock=clock, make_objects=_objects, check_image=check)


def _failed(rows: Sequence[Row]) -> dict[str, str]:
    return {row.claim.id: row.verdict.text for row in rows if row.verdict.result is Result.FAILED}


def _nothing_is_left(kube: Kube) -> None:
    for kind in ("rljobs", "configmaps", "persistentvolumeclaims", "pods"):
        left = [one["metadata"]["name"] for one in kube.find(kind) if f"conformance-{NAME}" in one["metadata"]["name"]]
        assert left == [], kind


@contextmanager
def _scaled_to_zero(admin: Kube, deployment: str) -> Iterator[None]:
    """Scale a Deployment to 0, and back to 1 at the end."""
    admin.run("scale", "deployment", deployment, "--replicas=0")
    try:
        wait_for("it has no pod", lambda: not _ready(admin, deployment), 120)
        yield
    finally:
        admin.run("scale", "deployment", deployment, "--replicas=1")
        wait_for("it is available again", lambda: _ready(admin, deployment), 180)


def _ready(admin: Kube, deployment: str) -> int:
    found = admin.get("deployment", deployment) or {}
    return int((found.get("status") or {}).get("readyReplicas") or 0)


def test_the_claims_up_to_a_checkpoint_are_confirmed(alone: Kube, recorder: Recorder) -> None:
    run = _run(alone, recorder, Clock())
    run.last = Stage.TRAIN
    rows = run.go()
    later = {claim.id for claim in CLAIMS if claim.stage in (Stage.KILL, Stage.SUSPEND, Stage.FINISH)}
    _is_green(run, rows, not_run=later)
    _nothing_is_left(alone)


@pytest.mark.lifecycle
@PLAYED_BACK
def test_a_healthy_cluster_confirms_every_claim_that_needs_no_npu(alone: Kube, recorder: Recorder) -> None:
    run = _run(alone, recorder, Clock())
    rows = run.go()
    recorder.write("healthy")
    print(text_page(rows, run.facts, {}))
    folder = ROOT / "build" / "e2e"
    folder.mkdir(parents=True, exist_ok=True)
    made = document(rows, run.facts, {}, "", "")
    (folder / "conformance.json").write_text(json.dumps(made, indent=1))
    _is_green(run, rows)
    assert made["versions"]["Kubernetes"].startswith("v1.")
    _nothing_is_left(alone)


def _is_green(run: Run, rows: Sequence[Row], not_run: Collection[str] = ()) -> None:
    results = {row.claim.id: row.verdict.result for row in rows}
    expected = {claim.id: Result.CONFIRMED for claim in CLAIMS}
    expected |= dict.fromkeys(NOT_APPLICABLE, Result.NOT_APPLICABLE) | dict.fromkeys(not_run, Result.NOT_RUN)
    assert results == expected, text_page(rows, run.facts, {})


@pytest.mark.exclusive
@pytest.mark.lifecycle
@PLAYED_BACK
@pytest.mark.parametrize(
    ("claim", "namespace", "selector"),
    [
        ("kuberay", KUBERAY_NAMESPACE, f"app.kubernetes.io/component={KUBERAY}"),
        ("operator-ready", OPERATOR_NAMESPACE, "app.kubernetes.io/name=rljob-operator"),
    ],
)
def test_a_deployment_that_is_scaled_to_0_is_named_and_nothing_is_created(
    alone: Kube, admin: Kube, recorder: Recorder, claim: str, namespace: str, selector: str
) -> None:
    own = admin.in_namespace(namespace)
    deployment = own.find("deployments", selector)[0]["metadata"]["name"]
    with _scaled_to_zero(own, deployment):
        run = _run(alone, recorder)
        rows = run.go()
    recorder.write(f"{claim}-scaled-to-0")
    assert list(_failed(rows)) == [claim]
    assert f"{namespace}/{deployment} is scaled to 0" in _failed(rows)[claim]
    assert not run.created


@pytest.mark.exclusive
@pytest.mark.lifecycle
@PLAYED_BACK
def test_a_cluster_without_a_default_storage_class_is_named(alone: Kube, admin: Kube, recorder: Recorder) -> None:
    (name,) = (one["metadata"]["name"] for one in admin.find("storageclasses"))
    admin.run("annotate", "--overwrite", "storageclass", name, f"{DEFAULT_CLASS}=false")
    try:
        run = _run(alone, recorder)
        rows = run.go()
    finally:
        admin.run("annotate", "--overwrite", "storageclass", name, f"{DEFAULT_CLASS}=true")
    recorder.write("no-default-storage-class")
    assert list(_failed(rows)) == ["storage"]
    assert f"no StorageClass is the default; the cluster has {name}" in _failed(rows)["storage"]
    assert not run.created


@pytest.mark.lifecycle
@PLAYED_BACK
def test_an_image_without_ray_is_named_with_the_end_of_its_output(alone: Kube, recorder: Recorder) -> None:
    rows = _run(alone, recorder, image="rljob.local/operator:dev").go()
    recorder.write("image-without-ray")
    failed = _failed(rows)
    assert list(failed) == ["image-check"]
    assert "Ray" in failed["image-check"]
    assert "not run" in {row.verdict.result.value for row in rows if row.claim.stage is Stage.FINISH}
    _nothing_is_left(alone)


@pytest.mark.lifecycle
@PLAYED_BACK
def test_a_quota_on_devices_ends_the_run_early_and_is_named(alone: Kube, recorder: Recorder) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-devices"}}
    alone.apply({**quota, "spec": {"hard": {f"requests.{CLASS.resource}": "0"}}})
    try:
        run = _run(alone, recorder)
        rows = run.go()
    finally:
        alone.delete("resourcequota", "no-devices")
    recorder.write("quota-without-devices")
    assert list(_failed(rows)) == ["pods-start"]
    assert "no-devices" in _failed(rows)["pods-start"]
    assert f"(for {PATIENCE_SECONDS:.0f} s)" in _failed(rows)["pods-start"], "it did not wait for the deadline"
    _nothing_is_left(alone)
