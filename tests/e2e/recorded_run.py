"""Run a job, inject faults into it, and record what can be observed: shared by the tests of whole runs.

`run_with_faults` applies a job, injects each fault at its step and kills the operator right after it. The `Record`
holds what the tests check: status, clusters, submissions, metrics and the run's own records.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any

from rljob_runtime.contract import Port
from tests.e2e import quickstart, runs
from tests.kube import Kube, Manifest, http_get, wait_for

OPERATOR_NAMESPACE = "rljob-system"
OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:rljob-operator"
"""Account of the operator."""
ENGINE = "EngineCore"
"""Part of the title of an engine's process (vLLM 0.23, v1/engine/core.py)."""
GENERATES = re.compile(r"^\S*num_requests_running(?:\{[^}\n]*\})? (?!0(?:\.0)?$)\S+$", re.MULTILINE)
STEP_SECONDS = 5.0
"""Upper bound of a step of the quickstart."""
LOG_TAIL_LINES = 25
"""Lines of a failed attempt's log in the failure message: fewer than half of ERROR_LINES in scripts/stages.py."""
ENDED = ("Succeeded", "Failed", "Stopped", "Invalid")


@dataclass
class Record:
    """What was observed of a run from outside."""

    name: str
    job: Manifest = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    """uids of all RayClusters of the job."""
    heads: set[str] = field(default_factory=set)
    """uids of all head pods of the job."""
    submissions: set[str] = field(default_factory=set)
    """Submission ids that a head pod listed."""
    scrapes: list[str] = field(default_factory=list)
    """Responses of the exporter's /metrics."""
    operator_kills: int = 0
    """How often the operator was killed."""
    undisturbed_kills: list[str] = field(default_factory=list)
    """State and step of the job at each kill of the operator before the first fault."""
    created_undisturbed: tuple[int, int] = (0, 0)
    """Numbers of clusters and submissions when the first fault was injected."""
    printed_state: str = ""
    """The state of the job that was printed last."""
    freed_seconds: float = 0.0
    """Time from the request to suspend until the cluster had no pods."""
    attempts: list[list[dict[str, Any]]] = field(default_factory=list)
    """Contents of steps.jsonl by attempt."""

    @property
    def status(self) -> dict[str, Any]:
        """Return the last observed status of the job."""
        found: dict[str, Any] = self.job.get("status", {})
        return found

    @property
    def step(self) -> int:
        """Return the step in the last observed status."""
        return int(self.status.get("progress", {}).get("step", 0))

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return the records of the steps in the final model: the last record of each repeated step."""
        by_step = {line["step"]: line for lines in self.attempts for line in lines}
        return [by_step[step] for step in sorted(by_step)]


Fault = Callable[[Kube, Record], None]


def run_with_faults(
    kube: Kube,
    job: Manifest,
    faults: tuple[tuple[int, Fault], ...],
    seconds: float,
    undisturbed_kill_steps: tuple[int, ...] = (),
) -> Iterator[Record]:
    """Run the job to its end and yield the record after each observation; the last one is complete.

    In the first attempt the operator is also killed at each of `undisturbed_kill_steps`, while nothing else happens.
    Step 0 is the time before the first step.
    """
    record = Record(job["metadata"]["name"])
    kube.apply(job)
    begin, left, kill_steps, last_kill_step = time.monotonic(), list(faults), sorted(undisturbed_kill_steps), -1
    while (state := observe(kube, record)) not in ENDED:
        assert time.monotonic() - begin < seconds, json.dumps(record.status, indent=1)
        _print_state(record, time.monotonic() - begin)
        yield record
        if kill_steps and record.status.get("rayCluster") and record.step >= max(kill_steps[0], last_kill_step + 1):
            kill_steps.pop(0)
            last_kill_step = record.step
            record.undisturbed_kills.append(f"{state} {record.step}")
            kill_operator(kube, record)
        # Each fault is injected into a new attempt once it has a step of its own. At first the status shows the step
        # from which it resumes, and a rank that freezes before the first step is found after deadlines.startSeconds.
        attempts = record.status.get("attempts", ())
        in_new_attempt = len(attempts) == len(faults) - len(left) + 1 and record.step > attempts[-1].get(
            "resumedFromStep", 0
        )
        if left and not kill_steps and state == "Training" and in_new_attempt and record.step >= left[0][0]:
            if len(left) == len(faults):
                record.created_undisturbed = (len(record.clusters), len(record.submissions))
            _, fault = left.pop(0)
            print(f"{fault.__name__} at step {record.step}, after {time.monotonic() - begin:.0f} s")
            fault(kube, record)
            time.sleep(2)
            kill_operator(kube, record)
        time.sleep(3)
    _print_state(record, time.monotonic() - begin)
    causes = [
        f"{entry.get('reason')} ({entry.get('cause')}): {entry.get('message')}" for entry in record.status["attempts"]
    ]
    assert state == "Succeeded", "\n".join(
        [f"{state}: {record.status.get('message')}", *causes, *_log_tail(log_folders(kube, record.job)[-1])]
    )
    record.attempts = [read_steps(folder) for folder in log_folders(kube, record.job)]
    wait_for("no Ray pod", lambda: not kube.find("pods", f"rljob.dev/job={record.name},ray.io/cluster"), 60)
    yield record


def _print_state(record: Record, seconds: float) -> None:
    """Print each new state with its time, so that the output shows how long each phase took."""
    status = record.status
    state = f"attempt {len(status.get('attempts', ()))}: {status.get('state')} {status.get('reason', '')}"
    if record.printed_state != state:
        record.printed_state = state
        print(f"{seconds:5.0f} s  {state}, step {record.step}")


def observe(kube: Kube, record: Record) -> str:
    """Update the record and return the job's current state."""
    record.job = kube.get("rljob", record.name) or {}
    for cluster in kube.find("rayclusters", f"rljob.dev/job={record.name}"):
        record.clusters.add(cluster["metadata"]["uid"])
    heads = kube.find("pods", f"rljob.dev/job={record.name},ray.io/node-type=head")
    record.heads |= {head["metadata"]["uid"] for head in heads}
    address = heads[0].get("status", {}).get("podIP") if heads else None
    if address and record.status.get("state") == "Training":
        _observe_head(kube, record, address)
    return str(record.status.get("state", ""))


def _observe_head(kube: Kube, record: Record, address: str) -> None:
    secret = record.status["rayCluster"]["name"]
    token = base64.b64decode((kube.get("secret", secret) or {})["data"]["auth_token"]).decode()
    try:
        jobs = json.loads(http_get(f"http://{address}:8265/api/jobs/", token))
        record.scrapes.append(http_get(f"http://{address}:{Port.METRICS.value}/metrics"))
    except (OSError, HTTPException):
        return  # the pod may have been deleted, or may end in the middle of its response
    record.submissions |= {entry["submission_id"] for entry in jobs if entry.get("submission_id")}


def kill_operator(kube: Kube, record: Record) -> None:
    """Delete the operator's pod without a grace period; other tests may do the same at this time."""
    admin = kube.in_namespace(OPERATOR_NAMESPACE)
    pod = operator_pod(admin)["metadata"]["name"]
    admin.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
    record.operator_kills += 1


def operator_pod(admin: Kube) -> Manifest:
    """Return the pod of the operator that is not being deleted."""

    def living() -> Manifest | None:
        pods = admin.find("pods", "app.kubernetes.io/name=rljob-operator")
        return next((pod for pod in pods if "deletionTimestamp" not in pod["metadata"]), None)

    return wait_for("a pod of the operator", living, 120)


# Faults.


def lose_worker(kube: Kube, record: Record) -> None:
    """Kill the worker's main process at a random time within a step, as the kernel does when memory runs out."""
    _kill(pod_of(kube, record, "worker"))


def lose_trainer(kube: Kube, record: Record) -> None:
    """Kill the worker that trains, of a job whose trainer and rollout stand apart."""
    _kill(_pods_of_role(kube, record, "trainer")[0])


def lose_rollout(kube: Kube, record: Record) -> None:
    """Kill one of the workers that generate."""
    _kill(_pods_of_role(kube, record, "rollout")[0])


def _pods_of_role(kube: Kube, record: Record, role: str) -> list[Manifest]:
    return kube.find("pods", f"rljob.dev/job={record.name},rljob.dev/role={role}")


def _kill(pod: Manifest) -> None:
    seconds = random.uniform(0, STEP_SECONDS)  # noqa: S311 - not cryptographic
    print(f"killing {pod['metadata']['name']} in {seconds:.1f} s")
    time.sleep(seconds)
    os.kill(next(processes(pod["metadata"]["uid"], main=True)), signal.SIGKILL)


def kill_engine(kube: Kube, record: Record) -> None:
    """Kill the process of an engine while it generates, and wait for the end of the attempt."""
    uid, attempts = pod_of(kube, record, "worker")["metadata"]["uid"], len(record.status["attempts"])
    address = pod_of(kube, record, "head")["status"]["podIP"]
    engines = [pid for pid in processes(uid) if ENGINE in command(pid)]

    def generates() -> str | None:
        try:
            found = GENERATES.search(http_get(f"http://{address}:{Port.METRICS.value}/metrics"))
        except (OSError, HTTPException):
            return None  # the exporter refuses more than a few connections at a time
        return found and found.group()

    running = wait_for("a request is generated", generates, 120, every=0.2)
    os.kill(engines[0], signal.SIGKILL)
    begin = time.monotonic()
    print(f"killed one of {len(engines)} engines, of which the exporter says: {running}")

    def noticed() -> bool:
        observe(kube, record)
        return "endTime" in record.status["attempts"][attempts - 1]

    wait_for("the attempt ends", noticed, 300, every=1)
    print(f"the attempt ended {time.monotonic() - begin:.0f} s after its engine")


def delete_head(kube: Kube, record: Record) -> None:
    """Delete the head pod."""
    kube.run("delete", "pod", pod_of(kube, record, "head")["metadata"]["name"], "--wait=false")


def evict_worker(kube: Kube, record: Record) -> None:
    """Evict the worker pod, as a drain does."""
    kube.evict(pod_of(kube, record, "worker")["metadata"]["name"])


def suspend(kube: Kube, record: Record, asked: Callable[[], object] = lambda: None) -> None:
    """Suspend the job, check that no pods hold NPUs, and resume it; the operator is killed while the job stops.

    `asked` is called once the operator asks the run to stop. The resumed run of the contract driver has short steps,
    because its remaining steps test nothing new.
    """
    cluster, begin = record.status["rayCluster"]["name"], time.monotonic()
    _patch(kube, "rljob", record.name, '{"spec":{"suspend":true}}')
    kill_operator(kube, record)

    def is_suspended() -> bool:
        state = observe(kube, record)
        assert state not in ENDED, f"the run ended before it was suspended: {state}, {record.status.get('message')}"
        if state in ("Stopping", "Suspended"):
            asked()
        return state == "Suspended"

    wait_for("the job is suspended", is_suspended, 400, every=2)
    assert not kube.find("pods", f"ray.io/cluster={cluster}")
    record.freed_seconds = time.monotonic() - begin
    _patch(kube, "rljob", record.name, json.dumps({"spec": {"suspend": False, **_short_steps(record)}}))


def shorten_steps(kube: Kube, record: Record) -> None:
    """Give the next attempt of the contract driver short steps."""
    _patch(kube, "rljob", record.name, json.dumps({"spec": _short_steps(record)}))


def _short_steps(record: Record) -> Manifest:
    spec = record.job["spec"]
    paced = spec["runtime"]["image"] == runs.CONTRACT_IMAGE and spec.get("launcher", {}).get("type") != "Command"
    return runs.pace(runs.SHORT_STEP_SECONDS) if paced else {}


def preempt(kube: Kube, record: Record) -> None:
    """Suspend and resume the RayCluster, as Kueue does when it preempts and readmits a workload."""
    cluster = record.status["rayCluster"]["name"]
    _patch(kube, "raycluster", cluster, '{"spec":{"suspend":true}}')
    wait_for("the pods are gone", lambda: not kube.find("pods", f"ray.io/cluster={cluster}"), 300, every=2)
    wait_for("the job waits", lambda: observe(kube, record) == "Queued", 60, every=2)
    _patch(kube, "raycluster", cluster, '{"spec":{"suspend":false}}')


def freeze_rank(kube: Kube, record: Record) -> None:
    """Stop the process of one rank, so that the other ranks wait for it in their next collective."""
    uid = pod_of(kube, record, "worker")["metadata"]["uid"]
    ranks = [pid for pid in processes(uid) if runs.RANK in command(pid)]
    assert len(ranks) >= 2, ranks
    os.kill(ranks[-1], signal.SIGSTOP)


def pod_of(kube: Kube, record: Record, kind: str) -> Manifest:
    """Return the head pod or the first worker pod of the run's cluster."""
    cluster = record.status["rayCluster"]["name"]
    return kube.find("pods", f"ray.io/cluster={cluster},ray.io/node-type={kind}")[0]


def _patch(kube: Kube, kind: str, name: str, change: str) -> None:
    kube.run("patch", kind, name, "--type", "merge", "-p", change)


def processes(pod_uid: str, *, main: bool = False, required: bool = True) -> Iterator[int]:
    """Yield the pod's processes by their ids on this machine; with `main`, only process 1 of each container.

    Raise AssertionError if `required` and there are none.
    """
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = pod_uid in (folder / "cgroup").read_text().replace("_", "-")
            rows = (folder / "status").read_text().splitlines()
            ids = next(row for row in rows if row.startswith("NSpid:")).split()
            if mine and command(int(folder.name)) != "/pause\0" and (not main or ids[2:] == ["1"]):
                found += 1
                yield int(folder.name)
        except (OSError, StopIteration):
            continue
    assert found or not required, f"no process of pod {pod_uid} on this machine"


def command(pid: int) -> str:
    """Return the command line of a process with a NUL after each argument, or an empty string if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


# Files of the run on its volume.


def volume(kube: Kube) -> Path:
    """Return the folder of the quickstart's volume: volumes of the local cluster are folders on this machine."""
    claim = (kube.get("pvc", quickstart.CLAIM) or {})["spec"]["volumeName"]
    found = (kube.get("pv", claim) or {})["spec"]
    return Path(found.get("hostPath", found.get("local", {}))["path"])


def log_folders(kube: Kube, job: Manifest) -> list[Path]:
    """Return the log folder of each attempt."""
    logs = volume(kube) / Path(job["spec"]["observability"]["logPath"]).relative_to(quickstart.MOUNT)
    return [logs / attempt["clusterName"] / f"attempt-{attempt['number']}" for attempt in job["status"]["attempts"]]


def _log_tail(folder: Path) -> list[str]:
    """Return the end of an attempt's log for the failure message: the volume is deleted after the tests."""
    log = folder / "driver.log"
    return log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:] if log.exists() else [f"no {log}"]


def read_steps(folder: Path) -> list[dict[str, Any]]:
    """Read the records of an attempt."""
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def assert_repeats_at_most(run: Record, steps: int) -> None:
    """Assert that each attempt repeats at most so many steps of the one before, and leaves none out."""
    for before, after in pairwise(run.attempts):
        assert before[-1]["step"] - after[0]["step"] <= steps
        numbers = [line["step"] for line in after]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))


def assert_suspension_saved_in_time(run: Record, limit_seconds: float) -> None:
    """Assert that the attempt before the last, which was suspended, saved its last step and freed its NPUs in time."""
    suspended, last = run.status["attempts"][-2:]
    print(f"suspended: NPUs free after {run.freed_seconds:.0f} s")
    # The limit is what the product guarantees; 20 to 40 s are usual.
    assert run.freed_seconds <= limit_seconds
    assert last["resumedFromStep"] >= suspended["lastStep"]
    assert run.attempts[-1][0]["step"] == last["resumedFromStep"] + 1


def assert_cluster_is_freed(kube: Kube, run: Record) -> None:
    """Assert that the run had a RayCluster, and that neither it nor a pod of it is left."""
    assert run.clusters
    wait_for("no RayCluster", lambda: not kube.find("rayclusters", f"rljob.dev/job={run.name}"), 60)
    assert not kube.find("pods", f"rljob.dev/job={run.name},ray.io/cluster")
