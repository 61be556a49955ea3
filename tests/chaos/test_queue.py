"""Two jobs, quota for one: the more urgent one gets it, and the other saves, waits, and goes on from its step.

With Kueue, which is brought in for this module and taken away after it: `python -m scripts.test queue`. The queue is
what the chart makes of its values; the numbers are what `rljob quota` tells.
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

from tests.e2e import runs, story
from tests.e2e.conftest import NAMESPACE
from tests.e2e.shared import ROOT
from tests.e2e.story import Record
from tests.kube import Kube, Manifest, condition, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.queue, pytest.mark.timeout(1500)]

TEAM, QUEUE, FLAVOR, CARDS = "e2e", "cards", "npu", 2
"""As many cards as one job takes: all that the team has."""
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
"""Enough to be in the middle of it when the other job comes."""
ADDON_SECONDS = 900
RUN_SECONDS = 600


@dataclass
class Look:
    """What was seen at one moment."""

    seconds: float
    patient: str
    urgent: str
    used: float
    running: tuple[str, ...]
    waiting: tuple[str, ...]


@dataclass
class Watched:
    """The whole story."""

    patient: Record
    urgent: Record
    looks: list[Look] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """What the waiting job said of its wait."""
    left: float = -1.0
    """Cards in use when both were done."""

    def during(self, patient: str, urgent: str) -> list[Look]:
        """Give the looks at which the jobs were in these states."""
        return [look for look in self.looks if (look.patient, look.urgent) == (patient, urgent)]


def _cluster(*words: str) -> str:
    command = [sys.executable, "-m", "tests.cluster", *words]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=ADDON_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _queues() -> list[Manifest]:
    """Give what the chart makes of the values."""
    helm = f"{_cluster('path', 'helm')}/helm"
    command = [helm, "template", "x", str(ROOT / "charts/rljob-operator"), "--show-only", "templates/queues.yaml"]
    text = subprocess.run(
        [*command, "--values", "-"], input=json.dumps(VALUES), capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return [document for document in yaml.safe_load_all(text) if document]


@pytest.fixture(scope="module")
def queues(kube: Kube, admin: Kube) -> Iterator[None]:
    """Bring Kueue and the team's queue, and take all of it away."""
    _cluster("addon", "kueue")
    # The operator looks for new kinds every five minutes, and when it starts.
    admin.run("rollout", "restart", "deployment", "-l", "app.kubernetes.io/name=rljob-operator")
    admin.run("rollout", "status", "deployment", "-l", "app.kubernetes.io/name=rljob-operator", seconds=180)
    kube.apply(*_queues())
    wait_for("the queue is open", lambda: _open(kube), 60)
    yield
    for job in kube.find("rljobs"):
        kube.delete("rljob", job["metadata"]["name"])
    wait_for("no RayCluster", lambda: not kube.find("rayclusters"), 180)
    _cluster("addon", "kueue", "--remove")


def _open(kube: Kube) -> bool:
    found = condition(kube.get("localqueue", QUEUE), "Active")
    return found is not None and found["status"] == "True"


def _quota(kube: Kube) -> dict[str, Any]:
    """Give what `rljob quota` says."""
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


def _look(kube: Kube, watched: Watched, begin: float) -> Look:
    """Take down what is seen now."""
    patient, urgent = story.look(kube, watched.patient), story.look(kube, watched.urgent)
    seen = _quota(kube)
    (share,) = seen["shares"]
    assert share["guaranteed"] == CARDS
    jobs = {state: tuple(j["name"] for j in seen["jobs"] if (j["state"] == "Runs") is state) for state in (True, False)}
    look = Look(time.monotonic() - begin, patient, urgent, share["used"], jobs[True], jobs[False])
    watched.looks.append(look)
    admitted = condition(watched.patient.job, "Admitted") or {}
    if admitted.get("status") == "False":
        watched.told.append(f"{admitted['reason']}: {admitted.get('message', '')}")
    before = watched.looks[-2] if len(watched.looks) > 1 else None
    if before is None or (before.patient, before.urgent, before.used) != (look.patient, look.urgent, look.used):
        print(f"{look.seconds:5.0f} s  {look.patient}/{look.urgent}, {look.used:g} of {CARDS} cards")
    return look


@pytest.fixture(scope="module")
def watched(kube: Kube, queues: None) -> Watched:  # noqa: ARG001 - the queue that it goes by
    """Play the story, looking all the time."""
    found, begin = Watched(Record("patient"), Record("urgent")), time.monotonic()

    def until(what: str, reached: Callable[[Look], bool]) -> None:
        def so() -> bool:
            look = _look(kube, found, begin)
            assert not {look.patient, look.urgent} & {"Failed", "Invalid", "Stopped"}, (
                found.patient.status,
                found.urgent.status,
            )
            return reached(look)

        wait_for(what, so, RUN_SECONDS, every=2)

    scheduling = {"queueName": QUEUE, "workloadPriorityClassName": "e2e-low"}
    kube.apply(
        runs.variant(
            "patient",
            trainer__steps=STEPS,
            **runs.pace(STEP_SECONDS),
            checkpoint=runs.saving("patient", STEPS - 1),
            stop={"graceSeconds": 240},
            scheduling=scheduling,
        )
    )
    until("the first job trains", lambda _: found.patient.step >= PREEMPTED_AT)
    kube.apply(
        runs.variant(
            "urgent",
            trainer__steps=URGENT_STEPS,
            # The first job has made model and data.
            initializers=[],
            scheduling=scheduling | {"workloadPriorityClassName": "e2e-high"},
        )
    )
    until("the urgent job succeeds", lambda look: look.urgent == "Succeeded")
    until("the first job succeeds", lambda look: look.patient == "Succeeded")
    wait_for("no card is used", lambda: _look(kube, found, begin).used == 0, 120, every=2)
    found.left = found.looks[-1].used
    found.patient.attempts = [story.read_steps(folder) for folder in story.log_folders(kube, found.patient.job)]
    return found


def test_the_first_job_saves_and_goes_on_from_its_step(watched: Watched) -> None:
    status = watched.patient.status
    first, second = status["attempts"]
    print(json.dumps(status["attempts"], indent=1))
    assert (first["outcome"], first["reason"], first["cause"]) == ("Preempted", "Preempted", "Preemption")
    assert "Preempted to accommodate" in first["message"]
    assert second["resumedFromStep"] == first["lastStep"] >= PREEMPTED_AT
    assert status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert [line["step"] for lines in watched.patient.attempts for line in lines] == list(range(1, STEPS + 1))


def test_nothing_of_it_counts_as_a_failure(watched: Watched) -> None:
    assert watched.patient.status["counters"] == {"userFailures": 0, "infrastructureFailures": 0, "preemptions": 1}
    assert len(watched.urgent.status["attempts"]) == 1


def test_one_cluster_serves_both_attempts(watched: Watched) -> None:
    assert len(watched.patient.clusters) == len(watched.urgent.clusters) == 1


def test_the_quota_is_right_at_each_moment(watched: Watched) -> None:
    assert max(look.used for look in watched.looks) == CARDS
    assert max(len(look.running) for look in watched.looks) == 1
    trains = [look for look in watched.during("Training", "") if look.running]
    assert trains
    # The queue is read a moment after the job, which may have come meanwhile.
    nobody_else = [(CARDS, ("patient",), waiting) for waiting in ((), ("urgent",))]
    assert [look for look in trains if (look.used, look.running, look.waiting) not in nobody_else] == []
    swapped = [look for look in watched.looks if look.patient == "Queued" and look.running == ("urgent",)]
    assert swapped
    assert [look for look in swapped if (look.used, look.waiting) != (CARDS, ("patient",))] == []
    # Its Workload may have finished between the look at the job and the look at the queue.
    again = [look for look in watched.during("Training", "Succeeded") if look.running]
    assert again
    assert [look for look in again if (look.used, look.running) != (CARDS, ("patient",))] == []
    assert watched.left == 0


def test_the_wait_says_why(watched: Watched) -> None:
    told = list(dict.fromkeys(watched.told))
    print("\n".join(told))
    assert any(text.startswith("Pending: ") for text in told)
