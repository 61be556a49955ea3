"""Two jobs with quota for one: Kueue preempts the first for the more urgent one; it saves, waits and resumes.

Then the first one loses a worker, whose pod is replaced without another admission.

Part of `make queues`. Kueue is installed for this module and removed after it. The chart renders the queues, and
`rljob quota` reports the usage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import recorded_run, runs
from tests.e2e.conftest import NAMESPACE
from tests.e2e.recorded_run import Record
from tests.e2e.shared import ROOT
from tests.kube import Kube, Manifest, condition, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.queue, pytest.mark.timeout(1500)]

TEAM, QUEUE, FLAVOR, CARDS = "e2e", "cards", "npu", 2
"""The team's quota of cards, which is what one job uses."""
VALUES = {
    "queues": {
        "flavors": {FLAVOR: {"class": "cpu"}},
        "teams": {TEAM: {"namespaces": [NAMESPACE], "cards": {FLAVOR: CARDS}}},
        "localQueue": QUEUE,
        "priorities": {"e2e-low": 100, "e2e-high": 1000},
    }
}
STEP_SECONDS = 2.0
STEPS, URGENT_STEPS, PREEMPTED_AT = (20, 5, 3) if runs.VERL else (60, 5, 3)
"""Enough that the first job is still training when the urgent one is created."""
ADDON_SECONDS = 900
RUN_SECONDS = 600


@dataclass
class Observation:
    """What was observed at one time."""

    seconds: float
    low: str
    urgent: str
    used: float
    running: tuple[str, ...]
    waiting: tuple[str, ...]


@dataclass
class Watched:
    """All observations of both jobs."""

    low: Record
    urgent: Record
    observations: list[Observation] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    """Reasons and messages of the first job while it was not admitted."""
    admissions: list[tuple[str, str]] = field(default_factory=list)
    """UID of the first job's Workload and the time of its admission, before and after the loss of a worker."""
    used_at_end: float = -1.0
    """Cards in use after both jobs had ended."""

    def during(self, low: str, urgent: str) -> list[Observation]:
        """Return the observations with these states of the jobs."""
        return [look for look in self.observations if (look.low, look.urgent) == (low, urgent)]


def _cluster(*words: str) -> str:
    command = [sys.executable, "-m", "tests.cluster", *words]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=ADDON_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _queues() -> list[Manifest]:
    """Return the queues that the chart renders from the values."""
    helm = f"{_cluster('path', 'helm')}/helm"
    command = [helm, "template", "x", str(ROOT / "charts/rljob-operator"), "--show-only", "templates/queues.yaml"]
    text = subprocess.run(
        [*command, "--values", "-"], input=json.dumps(VALUES), capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return [document for document in yaml.safe_load_all(text) if document]


@pytest.fixture(scope="module")
def queues(kube: Kube, admin: Kube) -> Iterator[None]:
    """Install Kueue and the team's queue, and remove Kueue after the tests."""
    _cluster("addon", "kueue")
    # The operator observations for new kinds every five minutes and at its start.
    admin.run("rollout", "restart", "deployment", "-l", "app.kubernetes.io/name=rljob-operator")
    admin.run("rollout", "status", "deployment", "-l", "app.kubernetes.io/name=rljob-operator", seconds=180)
    kube.apply(*_queues())
    wait_for("the queue is active", lambda: _active(kube), 60)
    yield
    for job in kube.find("rljobs"):
        kube.delete("rljob", job["metadata"]["name"])
    wait_for("no RayCluster", lambda: not kube.find("rayclusters"), 180)
    _cluster("addon", "kueue", "--remove")


def _active(kube: Kube) -> bool:
    found = condition(kube.get("localqueue", QUEUE), "Active")
    return found is not None and found["status"] == "True"


def _quota(kube: Kube) -> dict[str, Any]:
    """Return the output of `rljob quota`."""
    environment = {
        **os.environ,
        "KUBECONFIG": kube.kubeconfig,
        "PATH": f"{Path(kube.kubectl).parent}:{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "rljob.cli.main", "quota", "-o", "json"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _observe(kube: Kube, watched: Watched, begin: float) -> Observation:
    """Append an observation of both jobs and the quota."""
    low, urgent = recorded_run.observe(kube, watched.low), recorded_run.observe(kube, watched.urgent)
    seen = _quota(kube)
    (share,) = seen["shares"]
    assert share["guaranteed"] == CARDS
    jobs = {state: tuple(j["name"] for j in seen["jobs"] if (j["state"] == "Runs") is state) for state in (True, False)}
    look = Observation(time.monotonic() - begin, low, urgent, share["used"], jobs[True], jobs[False])
    watched.observations.append(look)
    admitted = condition(watched.low.job, "Admitted") or {}
    if admitted.get("status") == "False":
        watched.messages.append(f"{admitted['reason']}: {admitted.get('message', '')}")
    before = watched.observations[-2] if len(watched.observations) > 1 else None
    if before is None or (before.low, before.urgent, before.used) != (look.low, look.urgent, look.used):
        print(f"{look.seconds:5.0f} s  {look.low}/{look.urgent}, {look.used:g} of {CARDS} cards")
    return look


@pytest.fixture(scope="module")
def watched(kube: Kube, queues: None) -> Watched:  # noqa: ARG001 - the jobs use the queue
    """Run both jobs and observe them until both have ended."""
    found, begin = Watched(Record("low"), Record("urgent")), time.monotonic()

    def until(what: str, reached: Callable[[Observation], bool]) -> None:
        def observed() -> bool:
            look = _observe(kube, found, begin)
            assert not {look.low, look.urgent} & {"Failed", "Invalid", "Stopped"}, (
                found.low.status,
                found.urgent.status,
            )
            return reached(look)

        wait_for(what, observed, RUN_SECONDS, every=2)

    scheduling = {"queueName": QUEUE, "workloadPriorityClassName": "e2e-low"}
    kube.apply(
        runs.variant(
            "low",
            trainer__steps=STEPS,
            **runs.pace(STEP_SECONDS),
            checkpoint=runs.saving("low", STEPS - 1),
            stop={"graceSeconds": 240},
            scheduling=scheduling,
        )
    )
    until("the low-priority job trains", lambda _: found.low.step >= PREEMPTED_AT)
    kube.apply(
        runs.variant(
            "urgent",
            trainer__steps=URGENT_STEPS,
            # The first job has created model and data.
            initializers=[],
            scheduling=scheduling | {"workloadPriorityClassName": "e2e-high"},
        )
    )
    until("the urgent job succeeds", lambda look: look.urgent == "Succeeded")
    until("the low-priority job trains again", lambda _: _trains(found.low, 2))
    found.admissions.append(_admission(kube))
    recorded_run.lose_worker(kube, found.low)
    until("its worker is replaced", lambda _: _trains(found.low, 3))
    found.admissions.append(_admission(kube))
    until("the low-priority job succeeds", lambda look: look.low == "Succeeded")
    wait_for("no card is used", lambda: _observe(kube, found, begin).used == 0, 120, every=2)
    found.used_at_end = found.observations[-1].used
    found.low.attempts = [recorded_run.read_steps(folder) for folder in recorded_run.log_folders(kube, found.low.job)]
    return found


def _trains(record: Record, attempt: int) -> bool:
    """Return whether an attempt has made a step of its own."""
    status = record.status
    resumed = status["attempts"][-1].get("resumedFromStep", 0)
    return len(status["attempts"]) == attempt and status["state"] == "Training" and record.step > resumed


def _admission(kube: Kube) -> tuple[str, str]:
    (workload,) = (w for w in kube.find("workloads") if w["metadata"]["ownerReferences"][0]["name"].startswith("low-"))
    admitted = condition(workload, "Admitted")
    assert admitted is not None
    assert admitted["status"] == "True"
    return workload["metadata"]["uid"], admitted["lastTransitionTime"]


def test_the_preempted_job_saves_and_resumes_from_its_step(watched: Watched) -> None:
    status = watched.low.status
    first, second, third = status["attempts"]
    print(json.dumps(status["attempts"], indent=1))
    assert (first["outcome"], first["reason"], first["cause"]) == ("Preempted", "Preempted", "Preemption")
    assert "Preempted to accommodate" in first["message"]
    assert second["resumedFromStep"] == first["lastStep"] >= PREEMPTED_AT
    assert status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert [line["step"] for line in watched.low.lines] == list(range(1, STEPS + 1))
    assert (second["cause"], third["resumedFromStep"]) == ("Infrastructure", first["lastStep"])


def test_a_lost_worker_is_replaced_under_the_same_admission(watched: Watched) -> None:
    before, after = watched.admissions
    assert before == after


def test_a_preemption_does_not_count_as_a_failure(watched: Watched) -> None:
    assert watched.low.status["counters"] == {"userFailures": 0, "infrastructureFailures": 1, "preemptions": 1}
    assert len(watched.urgent.status["attempts"]) == 1


def test_one_cluster_serves_all_attempts(watched: Watched) -> None:
    assert len(watched.low.clusters) == len(watched.urgent.clusters) == 1


def test_the_quota_is_never_exceeded(watched: Watched) -> None:
    assert max(look.used for look in watched.observations) == CARDS
    assert max(len(look.running) for look in watched.observations) == 1
    trains = [look for look in watched.during("Training", "") if look.running]
    assert trains
    # The quota is read shortly after the jobs, so the urgent job may have been created in between.
    only_low = [(CARDS, ("low",), waiting) for waiting in ((), ("urgent",))]
    assert [look for look in trains if (look.used, look.running, look.waiting) not in only_low] == []
    swapped = [look for look in watched.observations if look.low == "Queued" and look.running == ("urgent",)]
    assert swapped
    assert [look for look in swapped if (look.used, look.waiting) != (CARDS, ("low",))] == []
    # Its Workload may have finished between the reads of the job and of the quota.
    again = [look for look in watched.during("Training", "Succeeded") if look.running]
    assert again
    assert [look for look in again if (look.used, look.running) != (CARDS, ("low",))] == []
    assert watched.used_at_end == 0


def test_the_waiting_job_reports_the_reason(watched: Watched) -> None:
    messages = list(dict.fromkeys(watched.messages))
    print("\n".join(messages))
    assert any(text.startswith("Pending: ") for text in messages)
