"""Where the seconds go between two attempts of real verl, by fault: with lost workers replaced, and with a new cluster.

Two worker pods train the quickstart's model. Prints a table for docs/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e import quickstart, recorded_run, shared
from tests.e2e.recorded_run import Record
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.training, pytest.mark.timeout(3600)]

STEPS, SAVE_EVERY = 200, 2
ATTEMPT_SECONDS = 900
"""Bound of one attempt until its first step."""


def delete_worker(kube: Kube, record: Record) -> None:
    """Delete a worker pod by force, as if its node were gone."""
    _delete(kube, recorded_run.pod_of(kube, record, "worker")["metadata"]["name"])


def delete_head(kube: Kube, record: Record) -> None:
    """Delete the head pod by force."""
    _delete(kube, recorded_run.pod_of(kube, record, "head")["metadata"]["name"])


def kill_driver(kube: Kube, record: Record) -> None:
    """Kill the driver's process."""
    head = recorded_run.pod_of(kube, record, "head")["metadata"]["uid"]
    drivers = [pid for pid in recorded_run.processes(head) if "rljob_runtime\0launch" in recorded_run.command(pid)]
    for pid in drivers:
        os.kill(pid, signal.SIGKILL)


def suspend_and_resume(kube: Kube, record: Record) -> None:
    """Suspend the job, and resume it once its NPUs are free."""

    def suspend(value: bool) -> None:
        kube.run("patch", "rljob", record.name, "--type=merge", "-p", json.dumps({"spec": {"suspend": value}}))

    suspend(True)
    wait_for("the job is suspended", lambda: recorded_run.observe(kube, record) == "Suspended", 400)
    suspend(False)


def _delete(kube: Kube, pod: str) -> None:
    kube.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


FAULTS: dict[str, tuple[Callable[[Kube, Record], None], bool]] = {
    "worker lost": (delete_worker, True),
    "driver killed": (kill_driver, True),
    "head lost": (delete_head, False),
    "worker evicted": (recorded_run.evict_worker, True),
    "preempted": (recorded_run.preempt, True),
    "suspended and resumed": (suspend_and_resume, False),
}
"""Each with whether the RayCluster stays, with scope Auto."""
OF_PODS = ("worker lost", "driver killed", "worker evicted")
"""Those for which the scope matters."""


@pytest.fixture(scope="module", params=["Auto", "Cluster"])
def ended(request: pytest.FixtureRequest, kube: Kube) -> Iterator[tuple[str, list[Record]]]:
    """Yield the scope, and the record of the job at the first step after each fault."""
    scope, name = str(request.param), f"recovery-{request.param.lower()}"
    shutil.rmtree(recorded_run.volume(kube) / shared.HASHES, ignore_errors=True)
    template = shared.hashed() | {"cpu": "350m", "memory": "5Gi", "sharedMemory": "1Gi"}
    template["env"] = [entry for entry in template["env"] if entry["name"] != "WEIGHT_HASHES_HOLD"]
    job = quickstart.variant(
        name,
        workerGroups__0__template=template,
        workerGroups__0__nodes=2,
        workerGroups__0__devicesPerNode=1,
        verl__overrides={shared.SAVE_CONTENTS: ["model", "optimizer", "extra", "hf_model"]},
        trainer__steps=STEPS,
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{name}", "everySteps": SAVE_EVERY, "keep": 3},
        restart={"maxRestarts": 3, "maxInfrastructureRestarts": 9, "scope": scope},
    )
    kube.apply(*shared.weight_hashes(), job)
    records = [_trained(kube, name, 1)]
    names = FAULTS if scope == "Auto" else OF_PODS
    for number, fault in enumerate(names, 2):
        FAULTS[fault][0](kube, records[-1])
        records.append(_trained(kube, name, number))
    yield scope, records
    kube.delete("rljob", name)


def _trained(kube: Kube, name: str, number: int) -> Record:
    """Return the record once an attempt has made and saved steps of its own; with its pods by UID."""
    record, begin = Record(name), time.monotonic()

    def saved() -> bool:
        recorded_run.observe(kube, record)
        status = record.status
        attempts = status.get("attempts") or [{"number": 0}]
        last = attempts[-1]
        return bool(
            last["number"] == number
            and status["state"] == "Training"
            and status.get("checkpoint", {}).get("step", 0) > last.get("resumedFromStep", 0)
        )

    wait_for(f"attempt {number} has saved", saved, ATTEMPT_SECONDS, every=1)
    print(f"attempt {number} of {name} trains after {time.monotonic() - begin:.0f} s")
    return record


def test_each_fault_costs_one_attempt_whose_seconds_add_up(ended: tuple[str, list[Record]]) -> None:
    scope, records = ended
    attempts = records[-1].status["attempts"]
    rows = [{part["cause"]: part["seconds"] for part in attempt["recovery"]} for attempt in attempts[1:]]
    causes = list(dict.fromkeys(cause for row in rows for cause in row))
    print(f"| {scope} | total | {' | '.join(causes)} |")
    for name, row in zip(FAULTS if scope == "Auto" else OF_PODS, rows, strict=True):
        print(f"| {name} | {sum(row.values())} | {' | '.join(str(row.get(cause, 0)) for cause in causes)} |")
    for before, attempt, row in zip(attempts, attempts[1:], rows, strict=True):
        assert {"Checks", "Imports", "FirstStep"} <= row.keys(), (before, attempt)


def test_the_pods_that_are_left_stay(ended: tuple[str, list[Record]]) -> None:
    scope, records = ended
    clusters = [record.job["status"]["attempts"][-1]["clusterName"] for record in records]
    kept = [before == after for before, after in pairwise(clusters)]
    expected = [stays and scope == "Auto" for _, stays in FAULTS.values()][: len(kept)]
    assert kept == expected, records[-1].status["attempts"]


def test_every_attempt_resumes_with_exactly_the_saved_weights(kube: Kube, ended: tuple[str, list[Record]]) -> None:
    lines: list[dict[str, Any]] = shared.read_hashes(kube)
    saved = {(line["rank"], line["step"], line["hash"]) for line in lines if line["event"] == "save"}
    loaded = [(line["rank"], line["step"], line["hash"]) for line in lines if line["event"] == "load"]
    assert len(loaded) == 2 * (len(ended[1]) - 1)
    assert set(loaded) <= saved
