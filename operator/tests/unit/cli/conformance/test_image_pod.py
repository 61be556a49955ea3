"""The pod that checks the image: what it runs, and each way in which the check ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from doubles.played_kubectl import PLAN, Cluster, Time

from rljob.cli.conformance.claims import Row
from rljob.cli.conformance.clock import PATIENCE_SECONDS, Clock
from rljob.cli.conformance.image_pod import CHECK, SECONDS, check_image, pod_manifest, read_answer
from rljob.cli.conformance.run import Run
from rljob.cli.conformance.verdict import Result

MakeRun = Callable[..., Run]
POD = "get pods conformance-abc123-image"
LOG = "logs conformance-abc123-image"


def _verdict(rows: list[Row]) -> tuple[Result, str]:
    return next((row.verdict.result, row.verdict.text) for row in rows if row.claim.id == "image-check")


def _pod(cluster: Cluster, **status: Any) -> None:  # noqa: ANN401 - JSON values
    cluster.answer(POD, {"metadata": {"name": "conformance-abc123-image"}, "status": status})


def _container(name: str, **state: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {"name": name, "ready": False, "state": state}


def test_the_pod_gets_the_runtime_from_the_operators_image_and_runs_the_check_in_the_users() -> None:
    spec = pod_manifest(replace(PLAN, node="node-7", pull_secrets=("key",)), "operator:1", [])["spec"]
    (copy,), (check,) = spec["initContainers"], spec["containers"]
    assert (copy["image"], copy["command"][-2:]) == ("operator:1", ["copy-runtime", "/rljob"])
    assert (check["image"], check["name"]) == (PLAN.image, CHECK)
    assert 'PYTHONPATH="/rljob/code${PYTHONPATH:+:$PYTHONPATH}"' in check["command"][-1], "the image's own is kept"
    assert "/rljob/code/rljob_runtime/cann_environment.sh" in check["command"][-1], "as in the pods of a job"
    assert "tolerations" not in spec
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "node-7"}
    assert spec["imagePullSecrets"] == [{"name": "key"}]
    assert not any(PLAN.resource in one["resources"]["requests"] for one in (copy, check)), "it holds no device"


def test_on_npus_it_tolerates_the_taint_that_keeps_other_pods_away() -> None:
    spec = pod_manifest(replace(PLAN, is_npu=True), "operator:1", [])["spec"]
    assert spec["tolerations"] == [{"key": PLAN.resource, "operator": "Exists"}]


def test_without_a_node_the_scheduler_chooses_among_those_with_the_devices(cluster: Cluster, make_run: MakeRun) -> None:
    (node,) = cluster.items("get nodes")
    other = {"metadata": {"name": "without-devices"}, "status": {"allocatable": {"cpu": "64"}}}
    cluster.answer("get nodes", {"items": [node, other]})
    make_run().go()
    spec = cluster.created[0]["spec"]
    assert "nodeSelector" not in spec
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == [node["metadata"]["name"]]


def test_without_knowledge_of_the_nodes_the_scheduler_chooses_among_all() -> None:
    spec = pod_manifest(PLAN, "operator:1", [])["spec"]
    assert {"nodeSelector", "affinity"}.isdisjoint(spec)


def test_an_image_that_cannot_be_pulled_fails_after_a_while_with_the_kubelets_words(
    cluster: Cluster, make_run: MakeRun
) -> None:
    waiting = _container(CHECK, waiting={"reason": "ImagePullBackOff", "message": "manifest unknown"})
    _pod(cluster, phase="Pending", containerStatuses=[waiting])
    time = Time()
    result, text = _verdict(make_run(clock=Clock(time.now, time.sleep)).go())
    assert result is Result.FAILED
    assert "ImagePullBackOff: manifest unknown; the registry has no such tag" in text
    assert PATIENCE_SECONDS <= time.seconds < PATIENCE_SECONDS + 10
    assert [made["kind"] for made in cluster.created] == ["Pod"], "no job is created"
    assert any(call.startswith("delete pods --selector rljob.dev/conformance=abc123") for call in cluster.calls)


def test_a_pod_that_the_kubelet_fails_ends_the_check_at_once(cluster: Cluster, make_run: MakeRun) -> None:
    ended = _container("rljob-runtime", terminated={"exitCode": 1, "reason": "Error", "message": "no runtime here"})
    _pod(cluster, phase="Failed", initContainerStatuses=[ended])
    time = Time()
    result, text = _verdict(make_run(clock=Clock(time.now, time.sleep)).go())
    assert (result, "no runtime here" in text) == (Result.FAILED, True)
    assert time.seconds < PATIENCE_SECONDS / 2


def test_a_pod_that_does_not_start_ends_the_check_at_the_deadline(cluster: Cluster, make_run: MakeRun) -> None:
    _pod(cluster, phase="Pending", containerStatuses=[_container(CHECK)])
    time = Time(speed=20)
    result, text = _verdict(make_run(clock=Clock(time.now, time.sleep)).go())
    assert (result, text.partition(" (")[0]) == (
        Result.FAILED,
        "pod conformance-abc123-image waits for check-image",
    )
    assert time.seconds < 2 * SECONDS


def test_a_user_who_may_not_create_pods_trains_without_the_check(cluster: Cluster, make_run: MakeRun) -> None:
    said = 'Error from server (Forbidden): pods is forbidden: User "u" cannot create resource "pods"'
    cluster.answer("create", said, "")
    rows = make_run().go()
    assert _verdict(rows)[0] is Result.NOT_RUN
    assert rows[-2].verdict.result is Result.CONFIRMED


def test_a_quota_that_refuses_the_pod_fails_the_check(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.answer("create", 'Error from server (Forbidden): pods "x" is forbidden: exceeded quota: small')
    result, text = _verdict(make_run().go())
    assert (result, "exceeded quota: small" in text) == (Result.FAILED, True)


def test_an_operator_that_may_not_be_read_leaves_the_check_out(cluster: Cluster, make_run: MakeRun) -> None:
    (key,) = (key for key in cluster.answers if "part-of=rljob" in key)
    cluster.answer(key, 'Error from server (Forbidden): User "u" cannot list')
    result, text = _verdict(make_run().go())
    assert (result, text) == (Result.NOT_RUN, "the operator's image, which brings the check, could not be read")


@pytest.mark.parametrize(
    ("verdict", "reasons", "seen"),
    [
        ("fits", [], "fits"),
        ("degraded", ["no x"], "degraded: no x"),
        ("refused", [str(number) for number in range(8)], "refused: 0; 1; 2 and 5 more"),
    ],
)
def test_verdict_and_reasons_are_those_of_the_launcher(verdict: str, reasons: list[str], seen: str) -> None:
    other = {"verdict": "fits", "headline": "fits", "reasons": []}
    text = json.dumps(
        {
            "rows": [],
            "launchers": {
                "Command": other,
                "Verl": other
                | {
                    "verdict": verdict,
                    "headline": verdict,
                    "reasons": reasons,
                },
            },
        }
    )
    found = read_answer(text, "Verl")
    assert (found.verdict, found.seen, found.reasons) == (verdict, seen, tuple(reasons))


@pytest.mark.parametrize(("subjects", "verdict"), [((), "refused"), (("cann",), "fits")])
def test_on_a_class_with_npus_an_image_that_has_none_of_their_packages_is_refused(
    subjects: tuple[str, ...], verdict: str
) -> None:
    fits = {"verdict": "fits", "headline": "fits", "reasons": []}
    rows = [{"subject": name, "seen": "1", "message": "", "verdicts": {"Verl": "fits"}} for name in subjects]
    log = "ERROR: ld.so: object cannot be preloaded\n" + json.dumps(
        {"rows": rows, "launchers": {"Verl": fits, "Command": fits}}
    )
    found = read_answer(log, "Verl", "atlas-a3")
    assert found.verdict == verdict
    assert ("class atlas-a3: has NPUs, but the image has none" in found.seen) is (verdict == "refused")
    assert read_answer(log, "Verl").verdict == "fits", "nodes without NPUs need none"


@pytest.mark.parametrize(("code", "told"), [(97, "there is no program python on PATH"), (98, "needs Python 3.11")])
def test_an_image_without_a_usable_python_is_refused_with_what_it_lacks(
    cluster: Cluster, make_run: MakeRun, code: int, told: str
) -> None:
    _pod(cluster, phase="Failed", containerStatuses=[_container(CHECK, terminated={"exitCode": code})])
    cluster.answer(f"{LOG} --container {CHECK}", "")
    result, text = _verdict(make_run().go())
    assert (result, told in text) == (Result.FAILED, True), text


def test_the_check_knows_whether_the_class_has_npus(cluster: Cluster, make_run: MakeRun) -> None:
    fits = {"verdict": "fits", "headline": "fits", "reasons": []}
    cluster.answer(f"{LOG} --container {CHECK}", json.dumps({"rows": [], "launchers": {"Verl": fits, "Command": fits}}))
    run = make_run(replace(PLAN, is_npu=True, accelerator="atlas-a3"))
    run.check_image = check_image
    assert "the image has none of torch_npu" in _verdict(run.go())[1]


@pytest.mark.parametrize(("text", "told"), [("", "no output"), ("sh: python: not found\n", "python: not found")])
def test_an_image_in_which_the_runtime_does_not_start_is_refused(text: str, told: str) -> None:
    found = read_answer(text, "Verl")
    assert (found.verdict, told in found.seen) == ("refused", True)
