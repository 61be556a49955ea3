"""`rljob quota`: shares in cards, the order of waiting jobs, and the calls of kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rljob.cli.main import main
from rljob.cli.verbs.quota import DIES_PER_CARD, Kueue, quota_page, read_jobs, read_shares

NPU = "huawei.com/Ascend910"
MISSING = "insufficient unused quota for huawei.com/Ascend910 in flavor a3, 16 more needed"


def named(name: str, namespace: str = "", **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}}


def team(name: str, *, total: str = "0", borrowed: str = "0", limit: str | None = None) -> dict[str, Any]:
    quota = {"name": NPU, "nominalQuota": "64"} | ({"borrowingLimit": limit} if limit else {})
    none = {"name": NPU, "nominalQuota": "0"}
    used = [{"name": "a3", "resources": [{"name": NPU, "total": total, "borrowed": borrowed}]}]
    resources = {"rest": [{"name": "cpu"}, none], "a3": [{"name": "cpu"}, quota]}
    flavors = [{"name": flavor, "resources": listed} for flavor, listed in resources.items()]
    groups = [{"coveredResources": ["cpu", NPU], "flavors": flavors}]
    return named(name) | {"spec": {"resourceGroups": groups}, "status": {"flavorsReservation": used}}


def workload(name: str, created: str, *told: tuple[str, str, str], **spec: object) -> dict[str, Any]:
    owner = {"kind": "RayCluster", "name": name, "controller": True}
    made = named(f"raycluster-{name}", "vision", creationTimestamp=created, ownerReferences=[owner])
    container = {"resources": {"requests": {"cpu": "1", NPU: "16"}}}
    pods = [{"count": 2, "template": {"spec": {"containers": [container, {}]}}}]
    conditions = [
        {"type": kind, "status": value, "message": message, "lastTransitionTime": "2026-01-02T00:00:00Z"}
        for kind, value, message in told
    ]
    return made | {
        "spec": {"queueName": "cards", "podSets": pods, "priority": 100, **spec},
        "status": {"conditions": conditions},
    }


RUNS = workload("sums-0a1b2-1", "2026-01-01T00:00:00Z", ("QuotaReserved", "True", ""), ("Admitted", "True", ""))
RUNS["status"]["admission"] = {
    "podSetAssignments": [{"flavors": {NPU: "a3", "cpu": "rest"}, "resourceUsage": {NPU: "32", "cpu": "2"}}]
}
OLD = workload("old-0a1b2-3", "2026-01-01T01:00:00Z", ("QuotaReserved", "False", MISSING))
URGENT = workload("urgent-0a1b2-1", "2026-01-01T02:00:00Z", ("QuotaReserved", "False", MISSING), priority=1000)
NEW = workload("by-hand", "2026-01-01T03:00:00Z")
OFF = workload("off-0a1b2-1", "2026-01-01T00:30:00Z", active=False)
ENDED = workload("ended-0a1b2-1", "2026-01-01T00:00:00Z", ("Finished", "True", ""))
STRAY = workload("stray-0a1b2-1", "2026-01-01T00:00:00Z", queueName="nowhere")
SEEN = Kueue(
    cluster_queues=(team("vision", total="96", borrowed="32", limit="1k"), team("language")),
    local_queues=(named("cards", "vision") | {"spec": {"clusterQueue": "vision"}},),
    flavors=(named("a3", annotations={DIES_PER_CARD: "2"}), named("rest")),
    workloads=(NEW, OLD, URGENT, ENDED, OFF, RUNS),
)


def test_shares_are_counted_in_cards() -> None:
    language, vision = read_shares(SEEN)
    assert (vision.team, vision.flavor) == ("vision", "a3")
    assert (vision.used, vision.guaranteed, vision.borrowed, vision.may_borrow) == (48, 32, 16, 500)
    assert (vision.waiting, language.waiting) == (3, 0)
    assert (language.used, language.may_borrow) == (0, None)


def test_what_waits_stands_in_the_order_of_the_queue() -> None:
    jobs = list(read_jobs(SEEN))
    assert [(job.state, job.name) for job in jobs] == [
        ("Runs", "sums"),
        ("Waits 1.", "urgent"),
        ("Waits 2.", "old"),
        ("Waits 3.", "by-hand"),
        ("Off", "off"),
    ]
    assert [job.cards for job in jobs] == [16, 16, 16, 16, 16]
    assert [job.why for job in jobs] == [
        "",
        MISSING,
        MISSING,
        "not evaluated yet",
        "spec.active of Workload raycluster-off-0a1b2-1 is false",
    ]
    assert [job.since for job in jobs[:2]] == ["2026-01-02T00:00:00Z", "2026-01-01T02:00:00Z"]


def test_a_queue_that_does_not_exist_is_no_team() -> None:
    (job,) = read_jobs(Kueue((), (), (), (STRAY,)))
    assert (job.team, job.cards) == ("? (nowhere)", 32)


def test_the_page_is_for_people() -> None:
    shares, jobs = quota_page(SEEN).split("\n\n")
    assert [line.split() for line in shares.splitlines()[1:]] == [
        ["language", "a3", "0", "32", "0", "-", "0"],
        ["vision", "a3", "48", "32", "16", "500", "3"],
    ]
    assert jobs.splitlines()[2].split()[:6] == ["vision", "Waits", "1.", "vision/urgent", "16", "1000"]


def test_an_empty_page_says_so() -> None:
    assert quota_page(Kueue((), (), (), ())) == "no ClusterQueue has a quota of cards"
    assert "JOB " not in quota_page(Kueue((team("vision"),), (), (), ()))


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), "--all-namespaces --output json"),
        (("-n", "vision", "--context", "c"), "--output json --namespace vision --context c"),
    ],
)
def test_kubectl_is_asked_for_all_or_for_one_namespace(
    kubectl: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], asked: str
) -> None:
    (kubectl / "answer").write_text(json.dumps({"items": []}))
    assert main(["quota", "-o", "json", *words]) == 0
    assert json.loads(capsys.readouterr().out) == {"shares": [], "jobs": []}
    assert (kubectl / "words").read_text().strip() == f"get workloads.kueue.x-k8s.io {asked}"


def test_a_cluster_without_kueue_fails_with_the_message_of_kubectl(
    kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kubectl / "error").write_text('error: the server doesn\'t have a resource type "clusterqueues"')
    assert main(["quota"]) == 7
    assert "clusterqueues" in capsys.readouterr().err
