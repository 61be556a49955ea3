"""A long run that is watched from outside and struck on the way: what the tests of survival share.

`play` applies a job, takes down what can be seen of it, and strikes each blow at its step, the operator's death right
after each. What the run leaves behind, status, metrics and records, is the `Record`.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from rljob_runtime.contract import Port
from tests.e2e import quickstart, runs
from tests.kube import Kube, Manifest, http_get, wait_for

OPERATOR_NAMESPACE = "rljob-system"
STEP_SECONDS = 5.0
"""Of the quickstart, or less."""
LAST_WORDS = 25
"""Lines of a failed attempt's log that a red run shows; fewer than half of what scripts/stages.py repeats."""
ENDED = ("Succeeded", "Failed", "Stopped", "Invalid")


@dataclass
class Record:
    """What was seen of the run, from outside, while it ran."""

    name: str
    job: Manifest = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    """uids of every RayCluster that ever was."""
    submissions: set[str] = field(default_factory=set)
    """Ray jobs that a head pod knew."""
    scrapes: list[str] = field(default_factory=list)
    """Texts of the exporter's /metrics."""
    killed: int = 0
    """How often the operator was."""
    killed_in_peace: list[str] = field(default_factory=list)
    """State and step of the job when the operator was killed before the first blow."""
    made_in_peace: tuple[int, int] = (0, 0)
    """Clusters and submissions that there were when the first blow fell."""
    told: str = ""
    """What was printed last of the job's state."""
    freed_seconds: float = 0.0
    """From the request to suspend until no pod of the cluster was left."""
    attempts: list[list[dict[str, Any]]] = field(default_factory=list)
    """The run's own steps.jsonl, by attempt."""

    @property
    def status(self) -> dict[str, Any]:
        """The job's status as it was seen last."""
        found: dict[str, Any] = self.job.get("status", {})
        return found

    @property
    def step(self) -> int:
        """The last step that the status shows."""
        return int(self.status.get("progress", {}).get("step", 0))

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The steps that made the model: of a repeated step the last record counts."""
        by_step = {line["step"]: line for lines in self.attempts for line in lines}
        return [by_step[step] for step in sorted(by_step)]


Blow = Callable[[Kube, Record], None]


def play(
    kube: Kube, job: Manifest, blows: tuple[tuple[int, Blow], ...], seconds: float, peace: tuple[int, ...] = ()
) -> Iterator[Record]:
    """Run the job to its end, and give the record after each look; the last one is complete.

    In the first attempt the operator is killed at the steps of `peace` too, while nothing else happens; step 0 is the
    time before the first one.
    """
    record = Record(job["metadata"]["name"])
    kube.apply(job)
    begin, left, quiet, struck = time.monotonic(), list(blows), sorted(peace), -1
    while (state := look(kube, record)) not in ENDED:
        assert time.monotonic() - begin < seconds, json.dumps(record.status, indent=1)
        _tell(record, time.monotonic() - begin)
        yield record
        if quiet and record.status.get("rayCluster") and record.step >= max(quiet[0], struck + 1):
            quiet.pop(0)
            struck = record.step
            record.killed_in_peace.append(f"{state} {record.step}")
            kill_operator(kube, record)
        # Each blow strikes an attempt of its own: the step of the one before may still be shown.
        its_own = len(record.status.get("attempts", ())) == len(blows) - len(left) + 1
        if left and not quiet and state == "Training" and its_own and record.step >= left[0][0]:
            if len(left) == len(blows):
                record.made_in_peace = (len(record.clusters), len(record.submissions))
            _, blow = left.pop(0)
            print(f"{blow.__name__} at step {record.step}, after {time.monotonic() - begin:.0f} s")
            blow(kube, record)
            time.sleep(2)
            kill_operator(kube, record)
        time.sleep(3)
    _tell(record, time.monotonic() - begin)
    causes = [
        f"{entry.get('reason')} ({entry.get('cause')}): {entry.get('message')}" for entry in record.status["attempts"]
    ]
    assert state == "Succeeded", "\n".join(
        [f"{state}: {record.status.get('message')}", *causes, *_last_words(log_folders(kube, record.job)[-1])]
    )
    record.attempts = [read_steps(folder) for folder in log_folders(kube, record.job)]
    wait_for("no Ray pod", lambda: not kube.find("pods", f"rljob.dev/job={record.name},ray.io/cluster"), 60)
    yield record


def _tell(record: Record, seconds: float) -> None:
    """Print each new state: where the time of a run went."""
    status = record.status
    state = f"attempt {len(status.get('attempts', ()))}: {status.get('state')} {status.get('reason', '')}"
    if record.told != state:
        record.told = state
        print(f"{seconds:5.0f} s  {state}, step {record.step}")


def look(kube: Kube, record: Record) -> str:
    """Take down what is seen now; give the job's state."""
    record.job = kube.get("rljob", record.name) or {}
    for cluster in kube.find("rayclusters", f"rljob.dev/job={record.name}"):
        record.clusters.add(cluster["metadata"]["uid"])
    heads = kube.find("pods", f"rljob.dev/job={record.name},ray.io/node-type=head")
    address = heads[0].get("status", {}).get("podIP") if heads else None
    if address and record.status.get("state") == "Training":
        _look_into_head(kube, record, address)
    return str(record.status.get("state", ""))


def _look_into_head(kube: Kube, record: Record, address: str) -> None:
    secret = record.status["rayCluster"]["name"]
    token = base64.b64decode((kube.get("secret", secret) or {})["data"]["auth_token"]).decode()
    try:
        jobs = json.loads(http_get(f"http://{address}:8265/api/jobs/", token))
        record.scrapes.append(http_get(f"http://{address}:{Port.METRICS.value}/metrics"))
    except (OSError, HTTPException):
        return  # the pod may be gone by now, or be cut off in the middle of its answer
    record.submissions |= {entry["submission_id"] for entry in jobs if entry.get("submission_id")}


def kill_operator(kube: Kube, record: Record) -> None:
    """Kill the operator's pod without any warning."""
    admin = kube.in_namespace(OPERATOR_NAMESPACE)
    pod = admin.find("pods", "app.kubernetes.io/name=rljob-operator")[0]["metadata"]["name"]
    admin.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
    record.killed += 1


# Blows.


def lose_worker(kube: Kube, record: Record) -> None:
    """Kill the worker's main process, as the kernel does when memory runs out, in any stage of a step."""
    seconds = random.uniform(0, STEP_SECONDS)  # noqa: S311 - any moment
    print(f"{seconds:.1f} s into it")
    time.sleep(seconds)
    os.kill(next(processes(pod_of(kube, record, "worker")["metadata"]["uid"], main=True)), signal.SIGKILL)


def delete_head(kube: Kube, record: Record) -> None:
    """Delete the head pod."""
    kube.run("delete", "pod", pod_of(kube, record, "head")["metadata"]["name"], "--wait=false")


def evict_worker(kube: Kube, record: Record) -> None:
    """Evict the worker, as a drain does."""
    kube.evict(pod_of(kube, record, "worker")["metadata"]["name"])


def suspend(kube: Kube, record: Record) -> None:
    """Suspend, see that the NPUs are free, and resume; the operator is killed on the way there too.

    Steps of the contract driver are short from then on: what the last attempt still has to do shows nothing new.
    """
    cluster, begin = record.status["rayCluster"]["name"], time.monotonic()
    _patch(kube, "rljob", record.name, '{"spec":{"suspend":true}}')
    kill_operator(kube, record)
    wait_for("the job is suspended", lambda: look(kube, record) == "Suspended", 400, every=2)
    assert not kube.find("pods", f"ray.io/cluster={cluster}")
    record.freed_seconds = time.monotonic() - begin
    hurry = runs.pace(runs.HURRIED_SECONDS) if record.job["spec"]["runtime"]["image"] == runs.CONTRACT_IMAGE else {}
    _patch(kube, "rljob", record.name, json.dumps({"spec": {"suspend": False, **hurry}}))


def preempt(kube: Kube, record: Record) -> None:
    """Take the pods away and give them back, as Kueue does: by the suspend of the RayCluster."""
    cluster = record.status["rayCluster"]["name"]
    _patch(kube, "raycluster", cluster, '{"spec":{"suspend":true}}')
    wait_for("the pods are gone", lambda: not kube.find("pods", f"ray.io/cluster={cluster}"), 300, every=2)
    wait_for("the job waits", lambda: look(kube, record) == "Queued", 60, every=2)
    _patch(kube, "raycluster", cluster, '{"spec":{"suspend":false}}')


def freeze_rank(kube: Kube, record: Record) -> None:
    """Stop one rank in its tracks: the others wait for it in their next collective."""
    uid = pod_of(kube, record, "worker")["metadata"]["uid"]
    ranks = [pid for pid in processes(uid) if runs.RANK in command(pid)]
    assert len(ranks) >= 2, ranks
    os.kill(ranks[-1], signal.SIGSTOP)


def pod_of(kube: Kube, record: Record, kind: str) -> Manifest:
    """Give the head or the first worker of the run's cluster."""
    cluster = record.status["rayCluster"]["name"]
    return kube.find("pods", f"ray.io/cluster={cluster},ray.io/node-type={kind}")[0]


def _patch(kube: Kube, kind: str, name: str, change: str) -> None:
    kube.run("patch", kind, name, "--type", "merge", "-p", change)


def processes(pod_uid: str, *, main: bool = False, some: bool = True) -> Iterator[int]:
    """Give the pod's processes as this machine counts them; with `main`, those that are number 1 of a container.

    With `some` there have to be any.
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
    assert found or not some, f"no process of pod {pod_uid} on this machine"


def command(pid: int) -> str:
    """Give the words of a process, each ended by a NUL; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


# What the run left on its volume.


def volume(kube: Kube) -> Path:
    """Give the quickstart's volume; the local cluster's volumes are folders of this machine."""
    claim = (kube.get("pvc", quickstart.CLAIM) or {})["spec"]["volumeName"]
    found = (kube.get("pv", claim) or {})["spec"]
    return Path(found.get("hostPath", found.get("local", {}))["path"])


def log_folders(kube: Kube, job: Manifest) -> list[Path]:
    """Give the folder of each attempt."""
    logs = volume(kube) / Path(job["spec"]["observability"]["logPath"]).relative_to(quickstart.MOUNT)
    return [logs / attempt["clusterName"] / f"attempt-{attempt['number']}" for attempt in job["status"]["attempts"]]


def _last_words(folder: Path) -> list[str]:
    """Give the end of an attempt's log: the volume is gone before anybody reads of a red run."""
    log = folder / "driver.log"
    return log.read_text(errors="replace").splitlines()[-LAST_WORDS:] if log.exists() else [f"no {log}"]


def read_steps(folder: Path) -> list[dict[str, Any]]:
    """Read the records of an attempt."""
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
