"""A Guaranteed worker gets exclusive CPUs from a kubelet with the static policy, and its run stays on them.

Part of `make chaos-cluster`; its latest results are in docs/benchmarks.md. The kubelet is restarted with the policy,
and without it at the end. One of the two CPUs is shared, so one can be exclusive: enough to train on, but too few for a
binding plan, which the runtime must report.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rljob_runtime.contract import Port
from rljob_runtime.node.affinity import cpu_text, parse_cpus
from tests.cluster.network import CGROUP_MOUNTS
from tests.cluster.nodes import RESERVED_CPU, STATIC_CPU_MANAGER, Node
from tests.cluster.paths import state
from tests.e2e import recorded_run, runs
from tests.e2e.conftest import cluster
from tests.e2e.recorded_run import ENDED, Record
from tests.kube import Kube, Manifest, http_get, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

NAME = "exclusive"
NODE = Node(1, state())
STEPS = 4
RUN_SECONDS = 900
RAY_WORKER = "ray-worker"
Cpus = frozenset[int]


@dataclass
class Seen:
    """What was observed while the run trained."""

    worker: Manifest = field(default_factory=dict)
    exclusive: Cpus = frozenset()
    """Exclusive CPUs of the worker's Ray container, from the state of the kubelet."""
    shared: Cpus = frozenset()
    """CPUs for pods without exclusive CPUs."""
    cgroups: set[Cpus] = field(default_factory=set)
    """Cpusets of the worker's processes."""
    masks: set[Cpus] = field(default_factory=set)
    """Affinity masks of all threads of the worker."""
    threads: int = 0
    head_masks: set[Cpus] = field(default_factory=set)
    binding: Manifest = field(default_factory=dict)
    """The core binding that the runtime reports."""
    status: Manifest = field(default_factory=dict)


@pytest.fixture(scope="module")
def static_policy(kube: Kube) -> Iterator[None]:
    """Restart the kubelet with the policy, and without it after the tests."""
    assert (os.cpu_count() or 1) > 1, "at least two CPUs are required: one is shared"
    cluster("up", "--cpu-manager", STATIC_CPU_MANAGER)
    allocatable = f"{1000 * (os.cpu_count() or 1) - int(RESERVED_CPU.removesuffix('m'))}m"

    def ready() -> bool:
        offered: dict[str, str] = (kube.get("node", NODE.name) or {})["status"]["allocatable"]
        # The device plug-in registers again after the kubelet has started.
        return offered["cpu"] == allocatable and offered.get("huawei.com/Ascend910", "0") != "0"

    wait_for("the kubelet has restarted", ready, 120)
    yield
    for job in kube.find("rljobs"):
        kube.delete("rljob", job["metadata"]["name"])
    cluster("up", "--cpu-manager", "none")


@pytest.fixture(scope="module")
def seen(kube: Kube, static_policy: None) -> Seen:
    del static_policy
    limit = {"name": RAY_WORKER, "resources": {"limits": {"cpu": "1"}}}
    job = runs.variant(
        NAME,
        head__template__cpu="200m",
        workerGroups__0__devicesPerNode=1,
        workerGroups__0__template__nodeSelector={"kubernetes.io/hostname": NODE.name},
        workerGroups__0__template__cpu="1",
        workerGroups__0__template__memory="6Gi",
        workerGroups__0__template__sharedMemory="1Gi",
        trainer__steps=STEPS,
        optimizations={"coreBinding": "Enabled"},
        # The accelerator class cpu sets no CPU limit; classes with NPUs do.
        podSpecPatch={"workers": {"containers": [limit]}},
    )
    kube.apply(job)
    record, found = Record(NAME), Seen()

    def ended() -> bool:
        current = recorded_run.observe(kube, record)
        if current == "Training" and record.step >= 1:
            _observe(kube, record, found)
        return current in ENDED

    wait_for("the end of the run", ended, RUN_SECONDS, every=2)
    found.status = record.status
    print(
        f"exclusive {cpu_text(found.exclusive)}, shared {cpu_text(found.shared)}; masks of {found.threads} threads: "
        f"{sorted(map(cpu_text, found.masks))}; head {sorted(map(cpu_text, found.head_masks))}; {found.binding}"
    )
    return found


def _observe(kube: Kube, record: Record, found: Seen) -> None:
    found.worker = recorded_run.pod_of(kube, record, "worker")
    uid = found.worker["metadata"]["uid"]
    kubelet_state = json.loads(NODE.cpu_state.read_text())
    found.exclusive = parse_cpus(kubelet_state.get("entries", {}).get(uid, {}).get(RAY_WORKER, ""))
    found.shared = parse_cpus(kubelet_state["defaultCpuSet"])
    masks = {pid: _masks(pid) for pid in recorded_run.processes(uid)}
    found.threads = max(found.threads, sum(map(len, masks.values())))
    found.masks |= {mask for each in masks.values() for mask in each}
    found.cgroups |= {cpus for pid in masks if (cpus := _cpuset(pid, uid))}
    head = recorded_run.pod_of(kube, record, "head")
    found.head_masks |= {mask for pid in recorded_run.processes(head["metadata"]["uid"]) for mask in _masks(pid)}
    secret = kube.get("secret", record.status["rayCluster"]["name"]) or {}
    token = base64.b64decode(secret["data"]["auth_token"]).decode()
    try:
        progress = json.loads(http_get(f"http://{head['status']['podIP']}:{Port.API.value}/v1/progress", token))
    except OSError:
        # The run ended during this observation; the binding of an earlier one is kubelet_state.
        return
    found.binding = progress.get("coreBinding") or found.binding


def _masks(pid: int) -> list[Cpus]:
    """Return the affinity mask of each thread of a process; none for threads that have ended."""
    found = []
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            rows = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        found.append(parse_cpus(rows["Cpus_allowed_list"]))
    return found


def _cpuset(pid: int, pod_uid: str) -> Cpus:
    """Return the cpuset of a process's cgroup, of version 1 or 2.

    The result is empty if the process has ended, or belongs to a probe and has not joined all cgroups of its container.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        groups = {controllers: group for _, controllers, group in (line.split(":", 2) for line in lines)}
        if pod_uid not in groups.get("cpuset", groups.get("", "")).replace("_", "-"):
            return frozenset()
        if "cpuset" in groups:
            return parse_cpus((CGROUP_MOUNTS / f"cpuset{groups['cpuset']}" / "cpuset.cpus").read_text())
        return parse_cpus((CGROUP_MOUNTS / groups[""].lstrip("/") / "cpuset.cpus.effective").read_text())
    except OSError:
        return frozenset()


def test_the_run_succeeds(seen: Seen) -> None:
    assert (seen.status["state"], seen.status["progress"]["summary"]) == ("Succeeded", f"{STEPS}/{STEPS}"), seen.status


def test_the_worker_is_guaranteed_and_has_an_exclusive_cpu(seen: Seen) -> None:
    assert seen.worker["status"]["qosClass"] == "Guaranteed"
    assert len(seen.exclusive) == 1
    assert not seen.exclusive & seen.shared


def test_every_thread_of_the_run_stays_on_it(seen: Seen) -> None:
    assert seen.cgroups == {seen.exclusive}
    assert seen.masks == {seen.exclusive}
    assert seen.threads > 1


def test_the_head_does_not_run_on_it(seen: Seen) -> None:
    assert seen.head_masks
    assert not any(mask & seen.exclusive for mask in seen.head_masks)


def test_the_runtime_reports_that_the_cpus_are_too_few_to_bind(seen: Seen) -> None:
    assert (seen.binding["nodes"], seen.binding["plannedNodes"]) == (1, 0)
    (note,) = seen.binding["notes"]
    assert "nothing is bound: 1 CPUs (1 cores) in this container's cpuset are too few" in note
