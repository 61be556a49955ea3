"""Faults on two nodes: a network partition after which the old cluster comes back, and a drain during a long rollout.

Run separately on a local cluster with two nodes (README.md); the latest results are in docs/benchmarks.md. The second
node is a network namespace of this machine, so its link can be cut and its processes can be frozen. Its volumes are the
same folders, as with a cluster file system that an isolated node still reaches.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.network import cut_off, ensure_network
from tests.cluster.nodes import Node
from tests.cluster.paths import state
from tests.e2e import recorded_run, runs
from tests.e2e.recorded_run import Record
from tests.kube import Kube, Manifest, condition, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

NODE = "node-2"
SAVE_EVERY = 5
ROLLOUT_SECONDS = 5
"""Delay after the end of a step. The next step is then in its rollout, which takes several times as long."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# Taint for a node that is permanently down: Kubernetes deletes its pods without waiting for them.
# https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown


@pytest.fixture
def second_node(kube: Kube) -> Iterator[str]:
    """Yield the second node, ready and without jobs, and restore this state after the test."""
    assert kube.get("node", NODE), "two nodes are required: python -m tests.cluster up --nodes 2, then image load"
    yield NODE
    ensure_network(Node(2, state()))
    kube.run("uncordon", NODE)
    if any(taint["key"] == OUT_OF_SERVICE for taint in (kube.get("node", NODE) or {})["spec"].get("taints", ())):
        kube.run("taint", "nodes", NODE, f"{OUT_OF_SERVICE}-")
    _send(kube.find("pods", "ray.io/cluster"), signal.SIGCONT)
    for job in kube.find("rljobs"):
        kube.delete("rljob", job["metadata"]["name"])
    wait_for("the node is ready", lambda: _ready(kube), 120)
    wait_for("there are no Ray pods", lambda: not kube.find("pods", "ray.io/cluster"), 300)


def _ready(kube: Kube) -> bool:
    found = condition(kube.get("node", NODE), "Ready")
    return found is not None and found["status"] == "True"


def _preferring_the_second_node(name: str, **fields: Any) -> Manifest:  # noqa: ANN401 - JSON
    """Return a job whose pods prefer the second node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
    preference = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
    job = runs.variant(
        name,
        checkpoint=runs.saving(name, SAVE_EVERY),
        restart={"maxInfrastructureRestarts": 2, "backoffSeconds": 1},
        **fields,
    )
    for template in (job["spec"]["head"]["template"], job["spec"]["workerGroups"][0]["template"]):
        template["affinity"] = {"nodeAffinity": preference}
    return job


def _until(kube: Kube, record: Record, what: str, reached: Callable[[], bool], seconds: float) -> None:
    """Observe the job until `reached` is true. Fail if the job ends unsuccessfully."""

    def seen() -> bool:
        current = recorded_run.observe(kube, record)
        assert current not in ("Failed", "Invalid"), json.dumps(record.status, indent=1)
        return reached()

    begin = time.monotonic()
    wait_for(what, seen, seconds, every=2)
    print(f"{what}: {time.monotonic() - begin:.0f} s")


def _pods(kube: Kube, record: Record) -> list[Manifest]:
    return kube.find("pods", f"ray.io/cluster={record.status['rayCluster']['name']}")


def _nodes(pods: list[Manifest]) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in pods}


def _send(pods: list[Manifest], number: signal.Signals) -> int:
    """Send a signal to every process of these pods and return the number of processes."""
    sent = 0
    for pid in _processes(pods):
        with contextlib.suppress(ProcessLookupError):  # short-lived processes of a run may have ended
            os.kill(pid, number)
            sent += 1
    return sent


def _processes(pods: list[Manifest]) -> list[int]:
    return [pid for pod in pods for pid in recorded_run.processes(pod["metadata"]["uid"], required=False)]


def _drivers(pods: list[Manifest]) -> list[int]:
    """Return the processes of these pods that run the launcher or verl's trainer."""
    return [
        pid
        for pid in _processes(pods)
        if any(word in recorded_run.command(pid) for word in ("rljob_runtime\0launch", "TaskRunner"))
    ]


def _saved(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of every file in the checkpoints."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent != folder]
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def _step_of(saved: str) -> int:
    return int(saved.partition("/")[0].removeprefix("global_step_"))


def _log_tail(kube: Kube, record: Record) -> str:
    """Return the end of the first attempt's log, which is the same file on the isolated node."""
    lines = (recorded_run.log_folders(kube, record.job)[0] / "driver.log").read_text(errors="replace").splitlines()
    return " / ".join(lines[-3:])


def test_a_cluster_that_comes_back_from_a_partition_writes_nothing(kube: Kube, second_node: str) -> None:
    record = Record("partitioned")
    kube.apply(_preferring_the_second_node(record.name))
    _until(kube, record, "a checkpoint and another step", lambda: record.step > SAVE_EVERY, 600)
    old = _pods(kube, record)
    assert _nodes(old) == {second_node}
    folder = recorded_run.volume(kube) / "checkpoints" / record.name

    _send(old, signal.SIGSTOP)
    frozen = _send(old, signal.SIGSTOP)  # also stops processes that were started during the first round
    assert frozen
    cut_off(Node(2, state()))
    tracker = folder / "latest_checkpointed_iteration.txt"
    saved = int(tracker.read_text())  # the status is some steps behind
    print(f"frozen: {frozen} processes; drivers {len(_drivers(old))}; step {saved} is saved")
    wait_for("the node is not ready", lambda: not _ready(kube), 120)
    kube.run("taint", "nodes", second_node, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")
    _until(kube, record, "a second attempt", lambda: len(record.status.get("attempts", ())) == 2, 600)
    _until(
        kube,
        record,
        "the first checkpoint of the second attempt",
        lambda: record.status["checkpoint"]["step"] > saved,
        600,
    )
    new = _pods(kube, record)
    assert not _nodes(new) & {second_node}
    assert record.status["attempts"][1]["resumedFromStep"] == saved

    before = _saved(folder)
    assert _drivers(old), "the frozen driver has ended"
    _send(old, signal.SIGCONT)
    begin = time.monotonic()
    wait_for("the old driver ends", lambda: not _drivers(old), 240)
    print(f"the resumed old driver ended after {time.monotonic() - begin:.0f} s")
    assert '"reason":"Fenced"' in _log_tail(kube, record)
    after = _saved(folder)
    assert {name: after[name] for name in before if name in after} == before, "the old driver changed a checkpoint"
    newest = max(map(_step_of, before))
    assert all(_step_of(name) > newest for name in after.keys() - before.keys()), (
        "the old driver wrote a checkpoint of an older step"
    )

    ensure_network(Node(2, state()))
    kube.run("taint", "nodes", second_node, f"{OUT_OF_SERVICE}-")
    wait_for("the old cluster has no processes", lambda: not _processes(old), 240)
    _until(kube, record, "the job succeeds", lambda: record.status["state"] == "Succeeded", 900)
    assert record.status["progress"]["summary"] == "40/40"
    assert tracker.read_text() == "40"
    assert len(record.status["attempts"]) == 2
    records = recorded_run.read_steps(recorded_run.log_folders(kube, record.job)[1])
    assert [line["step"] for line in records] == list(range(saved + 1, 41))


def _wait_for_next_step(kube: Kube, record: Record, attempt: int) -> int:
    """Wait until the attempt records its next step, and return the step."""
    spool = recorded_run.log_folders(kube, record.job)[attempt] / "steps.jsonl"

    def lines() -> int:
        return len(spool.read_text().splitlines()) if spool.exists() else 0

    before = lines()
    wait_for("the next step", lambda: lines() > before, 300, every=0.2)
    return int(recorded_run.read_steps(spool.parent)[-1]["step"])


def test_an_aborted_rollout_and_a_drain_lose_no_step(kube: Kube, second_node: str) -> None:
    record = Record("slow")
    # One sequence at a time and four times as many samples: steps are long, and consist mostly of rollout.
    slow = {"rollout": {"maxSequences": 1}, "trainer__samplesPerPrompt": 32, "trainer__steps": 40}
    kube.apply(_preferring_the_second_node(record.name, stop={"mode": "AbortRollout", "graceSeconds": 240}, **slow))
    _until(kube, record, "the first step", lambda: record.step >= 1, 600)
    old = _pods(kube, record)
    assert _nodes(old) == {second_node}

    done = _wait_for_next_step(kube, record, 0)
    time.sleep(ROLLOUT_SECONDS)
    begin = time.monotonic()
    kube.run(
        "drain", second_node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=300s", seconds=330
    )
    print(f"drained after {time.monotonic() - begin:.0f} s, {done} steps done when it began")
    _until(kube, record, "a second attempt trains", lambda: _training(record, 2), 600)
    assert not _nodes(_pods(kube, record)) & {second_node}
    assert record.status["attempts"][0]["cause"] == "Preemption"
    _assert_rollout_abandoned_after(done, record.status["attempts"][0])
    assert record.status["attempts"][1]["resumedFromStep"] == done

    done = _wait_for_next_step(kube, record, 1)
    time.sleep(ROLLOUT_SECONDS)
    begin = time.monotonic()
    kube.run("patch", "rljob", record.name, "--type", "merge", "-p", '{"spec":{"suspend":true}}')
    _until(kube, record, "the job is suspended", lambda: record.status["state"] == "Suspended", 300)
    print(f"suspended after {time.monotonic() - begin:.0f} s, {done} steps done when it began")
    assert not kube.find("pods", f"rljob.dev/job={record.name},ray.io/cluster")
    kube.run("patch", "rljob", record.name, "--type", "merge", "-p", '{"spec":{"suspend":false}}')
    _until(kube, record, "a third attempt trains", lambda: _training(record, 3), 600)
    _assert_rollout_abandoned_after(done, record.status["attempts"][1])
    assert record.status["attempts"][2]["resumedFromStep"] == done


def _assert_rollout_abandoned_after(step: int, attempt: Manifest) -> None:
    """Check that the run reports that the stop abandoned the rollout of the next step."""
    print(f"attempt {attempt['number']}: {attempt['message']}")
    assert f"the rollout of step {step + 1} was abandoned; step {step} is saved" in attempt["message"]


def _training(record: Record, attempts: int) -> bool:
    """Report whether there are that many attempts and the last one has completed a step."""
    rows = record.status.get("attempts", ())
    return len(rows) == attempts and record.status["state"] == "Training" and "resumedFromStep" in rows[-1]
