"""A reconciler over fakes whose decisions the test provides, for tests of the control loop and not of decisions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

from builders import small_spec
from doubles.clock import FrozenClock
from doubles.fake import FakeCluster
from doubles.fake_ray import FakeRay

from rljob.cluster.kinds import EVENT, POD, RAY_CLUSTER, RLJOB
from rljob.cluster.token import TokenKey
from rljob.control.execute import Hooks
from rljob.control.observe import Pending
from rljob.control.pure_core import Core
from rljob.control.reconciler import Reconciler
from rljob.control.store import Key
from rljob.core.derived import Derived
from rljob.core.launcher import LauncherOf
from rljob.core.observed import Manifest, Observed, Unseen
from rljob.core.plan import Plan, SubmitJob
from rljob.core.requirements import Head, Requirements
from rljob.core.watched import Watched
from rljob.launchers import LAUNCHER
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN
from rljob.render.labels import CLUSTER_GENERATION, INTENT, JOB, JOB_UID
from rljob_runtime.contract import Progress

KEY = Key("team", "sums")
Json = dict[str, Any]
Decide = Callable[[Observed], Plan]


class Machine:
    """The operator's control loop around `decide` and `wanted`."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.cluster = FakeCluster(self.clock.now)
        self.ray = FakeRay()
        self.written: list[str] = []
        self.seen: list[Observed] = []
        """What each round observed."""
        self.decide: Decide = lambda _: Plan()
        self.wanted = Requirements()
        self.required: Callable[[Watched], Requirements] = lambda _: self.wanted
        self.asks_ray_job = True
        self.after_write: Callable[[str], None] = self.written.append
        self.doubts = 0
        """How often it doubted its leadership."""
        self.reconciler = self.build()

    def build(self, workers: int = 16) -> Reconciler:
        """Create a new operator in the same world, as after a restart."""
        self.reconciler = Reconciler.build(
            self.cluster,
            self.ray,
            self.clock,
            TokenKey(b"k" * 32),
            core=Core(LAUNCHER, BUILT_IN, self._required, self._needs_ray_job, self._reconcile, begins=_begins_at_once),
            hooks=Hooks(after_write=self._wrote, doubt=self._doubt),
            workers=workers,
        )
        return self.reconciler

    def _wrote(self, word: str) -> None:
        # Looked up at each write, because a test may replace the hook of a running machine.
        self.after_write(word)

    def _doubt(self) -> None:
        self.doubts += 1

    async def start(self) -> Manifest:
        """Create the job, fill the store and watch; return the job."""
        if self.cluster.find(RLJOB, *KEY) is None:
            self.cluster.put(rljob())
        await self.reconciler.prime()
        self.cluster.watch(self.reconciler.feed)
        return self.job()

    def job(self) -> Manifest:
        """Return the job as the server stores it."""
        job = self.cluster.find(RLJOB, *KEY)
        assert job is not None
        return job

    def events(self) -> list[str]:
        """Return the reasons of the Kubernetes events."""
        return [item["reason"] for item in self.cluster.objects(EVENT)]

    def _required(self, watched: Watched) -> Requirements:
        return self.required(watched)

    def _needs_ray_job(self, progress: Progress | Unseen, now: datetime) -> bool:
        del progress, now
        return self.asks_ray_job

    def _reconcile(
        self,
        observed: Observed,
        now: datetime,
        launcher: LauncherOf,
        accelerators: AcceleratorTable,
        derived: Derived,
    ) -> Plan:
        del now, launcher, accelerators, derived
        self.seen.append(observed)
        return self.decide(observed)


def _begins_at_once(*_: object) -> Generator[None, None, bool]:
    """Let no job wait for its turn."""
    yield
    return False


def rljob() -> Json:
    """Return the job of these tests."""
    metadata = {"namespace": KEY.namespace, "name": KEY.name}
    return {"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": metadata, "spec": small_spec()}


def owned(owner: Manifest, intent: str = "1", **labels: str) -> Json:
    """Return the metadata of a child named c1."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    return {
        "namespace": owner["metadata"]["namespace"],
        "name": "c1",
        "labels": {JOB: owner["metadata"]["name"], JOB_UID: owner["metadata"]["uid"], **labels},
        "annotations": {INTENT: intent},
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"], "controller": True}],
    }


def left(job: Manifest, name: str, intent: str) -> Json:
    """Return a ConfigMap that an earlier life of a job left, by its intent."""
    made = owned(job, f"{job['metadata']['uid']}/{intent}") | {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": made, "immutable": True}


def cluster_of(job: Manifest, intent: str = "1", generation: int = 1) -> Json:
    """Return the RayCluster c1 of a job, or that of another generation."""
    metadata = {**owned(job, intent, **{CLUSTER_GENERATION: str(generation)}), "name": f"c{generation}"}
    return {"apiVersion": RAY_CLUSTER.api_version, "kind": "RayCluster", "metadata": metadata, "spec": {}}


def head_of(cluster: Manifest, name: str = "c1-head", ip: str = "10.0.0.1") -> Json:
    """Return a head pod of a RayCluster."""
    metadata = owned(cluster) | {"name": name, "labels": {**cluster["metadata"]["labels"], **HEAD_LABELS}}
    return {"apiVersion": "v1", "kind": POD.kind, "metadata": metadata, "status": {"podIP": ip}}


def submission(job: Manifest, pod_uid: str = "p1", ip: str = "10.0.0.1") -> SubmitJob:
    """Return the first submission to c1."""
    return SubmitJob(ip, pod_uid, job["metadata"]["uid"], "c1", "c1-1", "python -m rljob_runtime launch", (), ())


async def observe(machine: Machine) -> Observed:
    """Observe the job."""
    observer = machine.reconciler.observer
    while isinstance(seen := await observer.observe(KEY, machine.clock.now()), Pending):
        await observer.heads.settle()
    assert seen is not None
    return seen


async def start_with_head(machine: Machine) -> tuple[Manifest, Head]:
    """Create a job with its cluster and head; return the head as the requirements refer to it."""
    job = await machine.start()
    machine.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "team", "name": "conf"}})
    cluster = machine.cluster.put(cluster_of(job))
    pod = machine.cluster.put(head_of(cluster))
    uid = pod["metadata"]["uid"]
    intent = {"clusterName": "c1", "clusterUID": cluster["metadata"]["uid"], "headPodUID": uid, "submissionId": "c1-1"}
    machine.cluster.edit(RLJOB, *KEY, lambda item: item.update(status={"intent": intent}))
    machine.ray.start_head("10.0.0.1", uid, job["metadata"]["uid"], "c1")
    return machine.job(), Head("10.0.0.1", uid, job["metadata"]["uid"], "c1")


HEAD_LABELS = {"ray.io/cluster": "c1", "ray.io/node-type": "head"}
