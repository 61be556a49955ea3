"""examples/command.yaml, a plain Ray program as the trainer: it is killed and suspended, and resumes each time."""

from __future__ import annotations

import copy
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import quickstart, recorded_run, runs
from tests.e2e.recorded_run import Record
from tests.kube import Kube, Manifest

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(1000)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "command.yaml"
NAME = "command"
STEPS = 100
"""Of a second each. A status is some seconds old, and on a busy machine a fault arrives twenty steps after its step."""
SAVE_EVERY = 5
"""Of the example's program."""
RUN_SECONDS = 900


def kill_command(kube: Kube, record: Record) -> None:
    """Kill the program, as the kernel does when memory runs out."""
    head = recorded_run.pod_of(kube, record, "head")["metadata"]["uid"]
    (program,) = (pid for pid in recorded_run.processes(head) if recorded_run.command(pid).startswith("python\0/code/"))
    os.kill(program, signal.SIGKILL)


FAULTS = ((6, kill_command), (17, recorded_run.suspend))


def example() -> tuple[Manifest, list[Manifest]]:
    """Return the job of the example on the claim of these tests, and its other manifests."""
    job, *others = (document for document in yaml.safe_load_all(EXAMPLE.read_text()) if document)
    job = copy.deepcopy(job)
    spec: dict[str, Any] = job["spec"]
    # Its program needs only Ray, which the smaller image has, too.
    spec["runtime"]["image"] = runs.CONTRACT_IMAGE
    # Jobs of other tests run beside it on a node with two CPUs.
    spec["head"]["template"]["cpu"] = spec["workerGroups"][0]["template"]["cpu"] = "100m"
    spec["workerGroups"][0]["template"]["volumes"][0]["persistentVolumeClaim"] = {"claimName": quickstart.CLAIM}
    spec["trainer"]["steps"] = STEPS
    spec["checkpoint"]["path"] = f"{quickstart.MOUNT}/checkpoints/{NAME}"
    spec["observability"] = {"logPath": f"{quickstart.MOUNT}/logs"}
    spec["restart"] |= {"backoffSeconds": 1}
    return job, [manifest for manifest in others if manifest["kind"] == "ConfigMap"]


@pytest.fixture(scope="module")
def run(kube: Kube) -> Iterator[Record]:
    job, others = example()
    kube.apply(*others)
    *_, record = recorded_run.run_with_faults(kube, job, FAULTS, RUN_SECONDS)
    yield record
    kube.delete("rljob", NAME)


def test_it_succeeds_with_every_step(run: Record) -> None:
    status = run.status
    assert status["state"] == "Succeeded", json.dumps(status, indent=1)
    assert status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert float(status["progress"]["reward"]) > run.attempts[0][0]["metrics"]["critic/score/mean"]
    assert [line["step"] for line in run.lines] == list(range(1, STEPS + 1))


def test_each_fault_costs_one_attempt(run: Record) -> None:
    killed, suspended, last = run.status["attempts"]
    assert "killed by SIGKILL" in killed["message"], killed
    assert (suspended["outcome"], suspended["reason"]) == ("Stopped", "Suspended"), suspended
    assert last["outcome"] == "Succeeded"


def test_each_attempt_resumes_from_the_last_saved_step(run: Record) -> None:
    recorded_run.assert_repeats_at_most(run, SAVE_EVERY)
    for before, after, lines in zip(run.status["attempts"], run.status["attempts"][1:], run.attempts[1:], strict=False):
        assert before["lastStep"] - SAVE_EVERY <= after["resumedFromStep"] <= before["lastStep"]
        assert after["resumedFromStep"] % SAVE_EVERY == 0
        assert lines[0]["step"] == after["resumedFromStep"] + 1


def test_attempts_save_to_folders_of_their_own_and_the_newest_steps_stay(kube: Kube, run: Record) -> None:
    saved = recorded_run.volume(kube) / "checkpoints" / NAME
    folders = {f"{attempt['clusterName']}-attempt-{attempt['number']}" for attempt in run.status["attempts"]}
    assert {path.name for path in saved.glob("*-attempt-*")} <= folders
    steps = sorted(int(path.stem.removeprefix("step-")) for path in saved.glob("*-attempt-*/step-*.json"))
    assert steps == [STEPS - 2 * SAVE_EVERY, STEPS - SAVE_EVERY, STEPS], "the example keeps three steps"
    assert run.status["checkpoint"]["step"] == STEPS


def test_the_exporter_shows_its_steps(run: Record) -> None:
    rows = [row for text in run.scrapes for row in text.splitlines()]
    steps = {float(row.rsplit(" ", 1)[1]) for row in rows if row.startswith("rljob_step{")}
    rewards = {row.rsplit(" ", 1)[1] for row in rows if row.startswith("rljob_reward_mean{")}
    assert max(steps) > SAVE_EVERY
    assert len(rewards) > 1, rewards


def test_the_cluster_is_freed(kube: Kube, run: Record) -> None:
    recorded_run.assert_cluster_is_freed(kube, run)
