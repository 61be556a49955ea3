"""A whole world around the real reconciler, in memory and with frozen time: API server, KubeRay, pods, Ray, exporter.

`World` has one method for each thing that may happen; `operators.Operators` runs the operator in it. Whenever the
operator writes, the `Invariants` are checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import methodcaller
from typing import Any

from builders import merged, small_spec
from doubles.fake_ray import FakeHead
from property.deployments import serve
from property.invariants import Invariants
from property.operators import Operators

from rljob.api.status import ConditionType, RLJobStatus
from rljob.cluster.kinds import CLUSTER_RL_RECIPE, JOB, NODE, POD, POD_GROUP, RAY_CLUSTER, RLJOB, WORKLOAD, Kind
from rljob.control.store import Key
from rljob.core import times
from rljob.core.observed import Manifest, RayJob, RayJobState
from rljob.core.plan import SubmitJob
from rljob.core.step import guarded
from rljob.render import labels
from rljob.render.podgroup import GROUP_NAME
from rljob_runtime.contract import Outcome, Phase, Progress, StartProgress, StartStage

KEY = Key("team", "sums")
CODE = "code"
"""A ConfigMap of the user."""
Json = dict[str, Any]


class World(Operators):
    """One RLJob and everything around it."""

    def __init__(self, spec: Json | None = None) -> None:
        super().__init__()
        self.invariants = Invariants(self)
        self.cluster.watch(self._take_along)
        self.highest_step = 0
        self.saved_step = 0
        """Last step in the checkpoint folder, which outlives every cluster."""
        self.pods_made = 0
        self._read = ("", RLJobStatus())
        """The status as it was read last, with its version."""
        self.jobs_made = 0
        self.taken: set[str] = set()
        """Nodes whose devices are in use by others, until the job has released those that it had."""
        self.queue_is_open = True
        """Whether Kueue admits waiting workloads."""
        self.kuberay_is_up = True
        """Whether KubeRay reconciles RayClusters."""
        self.volcano_is_open = True
        """Whether Volcano finds nodes for all pods of a gang."""
        self.spec = spec or small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
        self.create_job()
        metadata = {"namespace": KEY.namespace, "name": CODE}
        self.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"reward.py": "1"}})

    def accepted(self, submitted: SubmitJob) -> None:
        """Check a new submission."""
        self.invariants.check_submission(submitted)

    def until(self, reached: Callable[[World], bool], within_seconds: float = 40_000.0) -> None:
        """Run the operator and Kubernetes until a state is reached and no retry is pending."""
        end = self.clock.monotonic() + within_seconds
        while True:
            self.settle()
            if not self.retry_pending and not self.watch.is_cut and reached(self):
                return
            if self.ex_leader_sleeps == 0:
                self.wake_ex_leader()
            assert self.clock.monotonic() < end, f"not reached: {self.status}"
            self.behave()
            self.settle()
            self.pass_time()

    # State.

    @property
    def job(self) -> Manifest | None:
        """The RLJob."""
        return self.cluster.find(RLJOB, *KEY)

    @property
    def status(self) -> RLJobStatus:
        """Its status."""
        job = self.job
        version = job["metadata"]["resourceVersion"] if job else ""
        if self._read[0] != version:
            self._read = version, RLJobStatus.model_validate((job or {}).get("status") or {})
        return self._read[1]

    @property
    def is_finished(self) -> bool:
        """Return whether the condition Finished is True."""
        return self.condition(ConditionType.FINISHED) == "True"

    def condition(self, kind: ConditionType) -> str | None:
        """Return the status of a condition."""
        return next((c.status.value for c in self.status.conditions if c.type == kind), None)

    @property
    def ray_cluster(self) -> Manifest | None:
        """The RayCluster; if there are several, the intended one."""
        return self._intended(self.cluster.objects(RAY_CLUSTER), lambda cluster: cluster["metadata"]["name"])

    @property
    def head_pod(self) -> Manifest | None:
        """The head pod; if there are several, that of the intended cluster."""
        heads = [pod for pod in self.cluster.objects(POD) if _label(pod, labels.RAY_NODE_TYPE) == "head"]
        return self._intended(heads, lambda pod: _label(pod, labels.RAY_CLUSTER))

    def _intended(self, found: Iterable[Manifest], cluster_of: Callable[[Manifest], str | None]) -> Manifest | None:
        intent = self.status.intent
        return max(found, key=lambda item: intent is not None and cluster_of(item) == intent.cluster_name, default=None)

    @property
    def head(self) -> FakeHead | None:
        """Ray on the head pod."""
        pod = self.head_pod
        return next((h for h in self.ray.heads.values() if pod and h.pod_uid == pod["metadata"]["uid"]), None)

    @property
    def submission(self) -> RayJob | None:
        """The intended Ray job of the head, or else its latest; an older one of that name may have returned."""
        if self.head is None:
            return None
        wanted = self.status.intent.submission_id if self.status.intent is not None else None
        return self.head.jobs.get(wanted or "") or next(reversed(self.head.jobs.values()), None)

    # Actions of the user.

    def create_job(self) -> None:
        """Create the RLJob, or another one of its name."""
        head = {"apiVersion": RLJOB.api_version, "kind": "RLJob"}
        metadata = {"namespace": KEY.namespace, "name": KEY.name}
        # Names contain the UID, which must not depend on the number of objects created before.
        uid = f"{self.jobs_made:05x}000-0000-4000-8000-{self.jobs_made:012x}"
        self.cluster.put({**head, "metadata": metadata, "spec": self.spec}, uid=uid)
        self.jobs_made += 1

    def edit_spec(self, spec: Json) -> None:
        """Change the spec."""
        if self.job is not None:
            self.cluster.edit(RLJOB, *KEY, lambda job: job.update(spec=spec))

    def suspend(self, *, suspended: bool = True) -> None:
        """Set spec.suspend."""
        if self.job is not None:
            self.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=suspended))

    def request_stop(self, *, requested: bool = True) -> None:
        """Set spec.stop.requested."""
        if self.job is not None:
            wanted = merged(self.job["spec"], {"stop": {"requested": requested}})
            self.cluster.edit(RLJOB, *KEY, lambda job: job.update(spec=wanted))

    def request_restart(self, value: str) -> None:
        """Request a new cluster."""
        if self.job is not None:
            note = {labels.RESTART: value}
            self.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(annotations=note))

    def force_deletion(self) -> None:
        """Request that the deletion waits for nothing."""
        if self.job is not None:
            note = {labels.FORCE_DELETE: "true"}
            self.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(annotations=note))

    def put_recipe(self, template: Json) -> None:
        """Create the ClusterRLRecipe `base`, or edit it."""
        if self.cluster.find(CLUSTER_RL_RECIPE, "", "base") is not None:
            self.cluster.edit(CLUSTER_RL_RECIPE, "", "base", lambda found: found.update(spec={"template": template}))
            return
        head = {"apiVersion": RLJOB.api_version, "kind": "ClusterRLRecipe", "metadata": {"name": "base"}}
        self.cluster.put({**head, "spec": {"template": template}})

    def delete_recipe(self) -> None:
        """Delete it."""
        if self.cluster.find(CLUSTER_RL_RECIPE, "", "base") is not None:
            self.cluster.remove(CLUSTER_RL_RECIPE, "", "base")

    def refresh(self, value: str) -> None:
        """Request to read the recipes again."""
        if self.job is not None:
            note = {labels.REFRESH: value}
            self.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(annotations=note))

    def pause(self, *, paused: bool = True) -> None:
        """Pause or unpause the job."""
        if self.job is not None:
            note = {labels.PAUSED: "true"} if paused else {}
            self.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(annotations=note))

    def delete_job(self) -> None:
        """Delete the RLJob."""
        if self.job is not None:
            self.cluster.remove(RLJOB, *KEY)
            self._sync_heads()

    def delete_cluster(self) -> None:
        """Delete the RayCluster by hand."""
        if (found := self.ray_cluster) is not None:
            name = found["metadata"]["name"]
            self.cluster.remove(RAY_CLUSTER, KEY.namespace, name)
            self._sync_heads()
            if self.status.intent is not None and self.status.intent.cluster_uid is None:
                self.invariants.forget_deleted(name)

    def wipe_status(self) -> None:
        """Lose the status, as after restoring a backup."""
        if self.job is not None:
            self.wiped, self.invariants.finished = True, None
            self.cluster.edit(RLJOB, *KEY, lambda job: job.pop("status", None))

    # Actions of Kubernetes and KubeRay.

    def end_initializers(self, *, well: bool = True) -> None:
        """Complete every initializer Job."""
        kind = "Complete" if well else "Failed"
        state = {"conditions": [{"type": kind, "status": "True", "reason": kind, "message": "the end"}]}
        for found in self.cluster.objects(JOB):
            if "status" not in found:
                self.cluster.edit(JOB, KEY.namespace, found["metadata"]["name"], lambda job: job.update(status=state))

    def make_pods(self, **status: object) -> None:
        """Create the head pod as KubeRay does, with a status."""
        owner = self.ray_cluster
        if owner is None or self.head_pod is not None or owner["spec"].get("suspend"):
            return
        self.pods_made += 1
        name, template = owner["metadata"]["name"], owner["spec"]["headGroupSpec"]["template"]
        marks = {labels.RAY_CLUSTER: name, labels.RAY_NODE_TYPE: "head"}
        self.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "namespace": KEY.namespace,
                    "name": f"{name}-head-{self.pods_made}",
                    "labels": template["metadata"]["labels"] | marks,
                    "annotations": template["metadata"]["annotations"],
                    "ownerReferences": [
                        {"kind": "RayCluster", "name": name, "uid": owner["metadata"]["uid"], "controller": True}
                    ],
                },
                "spec": {"nodeName": "node-1"},
                "status": status,
            }
        )

    def make_nodes(self, *names: str) -> None:
        """Give the cluster nodes that offer exactly what a worker needs, and one without NPUs for the head."""
        for name in ("node-1", *names):
            offer = {"huawei.com/Ascend910": "2"} if name in names else {}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
            self.cluster.put({**node, "status": {"allocatable": offer, "capacity": offer}})

    def set_devices(self, node: str, count: int) -> None:
        """Set the number of healthy devices of a node."""
        offer = {"huawei.com/Ascend910": str(count)}
        self.cluster.edit(NODE, "", node, lambda n: n["status"].update(allocatable=offer))

    @property
    def worker_pod(self) -> Manifest | None:
        """Return a worker pod of the intended cluster; there is none if there are no nodes."""
        return self._intended(self.worker_pods, lambda pod: _label(pod, labels.RAY_CLUSTER))

    @property
    def worker_pods(self) -> list[Manifest]:
        """Return all worker pods."""
        return [pod for pod in self.cluster.objects(POD) if _label(pod, labels.RAY_NODE_TYPE) == "worker"]

    def lose_worker(self) -> str:
        """Delete a worker pod, which KubeRay notices at once; return its node."""
        owner, pod = guarded(self.ray_cluster), guarded(self.worker_pod)
        self.cluster.remove(POD, KEY.namespace, pod["metadata"]["name"])
        left = {**owner["status"], "readyWorkerReplicas": owner["status"]["readyWorkerReplicas"] - 1}
        self.cluster.edit(RAY_CLUSTER, KEY.namespace, owner["metadata"]["name"], lambda c: c.update(status=left))
        return str(pod["spec"]["nodeName"])

    def place_workers(self) -> None:
        """Schedule the workers of the cluster without making them ready."""
        if self.ray_cluster is not None:
            self._make_workers(self.ray_cluster)

    def _make_workers(self, owner: Manifest) -> bool:
        """Schedule the worker pods one after another; return whether all have a node, or nodes are not simulated."""
        found = self.cluster.objects(NODE)
        nodes = [node["metadata"]["name"] for node in found if node["status"]["allocatable"]]
        group = owner["spec"]["workerGroupSpecs"][0] if nodes else {"replicas": 0}
        placed = [self._make_worker(owner, number, nodes) for number in range(group["replicas"])]
        return all(placed)

    def _make_worker(self, owner: Manifest, number: int, nodes: list[str]) -> bool:
        name, template = owner["metadata"]["name"], owner["spec"]["workerGroupSpecs"][0]["template"]
        mine = f"{name}-worker-{number}"
        if (pod := self.cluster.find(POD, KEY.namespace, mine)) is not None and "nodeName" in pod["spec"]:
            return True
        held = {other["spec"].get("nodeName") for other in self.cluster.objects(POD)} | self.taken
        avoided = json.dumps(template["spec"].get("affinity", {}))
        node = next((node for node in nodes if f'"{node}"' not in avoided and node not in held), None)
        condition = {"type": "PodScheduled", "status": "True" if node else "False"}
        if node is None:
            condition["message"] = f"0/{len(nodes)} nodes are available: {len(held)} Insufficient huawei.com/Ascend910."
        condition["lastTransitionTime"] = times.to_text(self.clock.now())
        new = {"spec": {"nodeName": node} if node else {}, "status": {"conditions": [condition]}}
        if pod is not None:
            if node:
                self.cluster.edit(POD, KEY.namespace, mine, lambda item: item.update(new))
            return bool(node)
        marks = {labels.RAY_CLUSTER: name, labels.RAY_NODE_TYPE: "worker"}
        owners = [{"kind": "RayCluster", "name": name, "uid": owner["metadata"]["uid"], "controller": True}]
        metadata = {"namespace": KEY.namespace, "name": mine, "ownerReferences": owners}
        metadata["labels"] = template["metadata"]["labels"] | marks
        self.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **new})
        return bool(node)

    def say_of_queue(self, **conditions: tuple[str, str]) -> None:
        """Write conditions, each with status and reason, to the cluster's Workload as Kueue does."""
        owner = self.ray_cluster
        if owner is None:
            return
        name = owner["metadata"]["name"]
        found = [{"type": kind, "status": value, "reason": why} for kind, (value, why) in conditions.items()]
        if self.cluster.find(WORKLOAD, KEY.namespace, name) is None:
            reference = {"kind": "RayCluster", "name": name, "uid": owner["metadata"]["uid"], "controller": True}
            metadata = {"namespace": KEY.namespace, "name": name, "ownerReferences": [reference]}
            made = {"apiVersion": WORKLOAD.api_version, "kind": "Workload", "metadata": metadata, "spec": {}}
            self.cluster.put(made)
        self.cluster.edit(WORKLOAD, KEY.namespace, name, lambda item: item.update(status={"conditions": found}))

    def admit(self) -> None:
        """Admit the cluster as Kueue does."""
        if (owner := self.ray_cluster) is not None and owner["spec"].get("suspend"):
            name = owner["metadata"]["name"]
            self.say_of_queue(QuotaReserved=("True", "QuotaReserved"), Admitted=("True", "Admitted"))
            self.cluster.edit(RAY_CLUSTER, KEY.namespace, name, lambda c: c["spec"].update(suspend=False))

    def suspend_cluster(self) -> None:
        """Preempt the pods as Kueue does: it suspends the cluster, and KubeRay deletes them."""
        if (owner := self.ray_cluster) is not None:
            name = owner["metadata"]["name"]
            self.say_of_queue(Evicted=("True", "Preempted"), QuotaReserved=("False", "Pending"))
            self.cluster.edit(RAY_CLUSTER, KEY.namespace, name, lambda c: c["spec"].update(suspend=True))
            self.cluster.edit(RAY_CLUSTER, KEY.namespace, name, lambda c: c.pop("status", None))

    def _gang_goes(self, owner: Manifest) -> bool:
        """Evaluate the gang of a cluster as Volcano does; return whether its pods may have nodes."""
        name = gang_of(owner)
        if name is None:
            return True
        if self.cluster.find(POD_GROUP, KEY.namespace, name) is None:
            return False
        status = {"phase": "Running" if self.volcano_is_open else "Inqueue"}
        self.cluster.edit(POD_GROUP, KEY.namespace, name, lambda group: group.update(status=status))
        return self.volcano_is_open

    def behave(self) -> None:
        """Do what Kubernetes, Kueue, Volcano and KubeRay do when nothing is wrong."""
        self.end_initializers()
        serve(self.cluster)
        if self.queue_is_open:
            self.admit()
        if self.kuberay_is_up:
            self.make_ready()

    def make_ready(self) -> None:
        """Make all pods ready."""
        self.make_pods()
        pod, owner = self.head_pod, self.ray_cluster
        if pod is None or owner is None or not self._gang_goes(owner) or not self._make_workers(owner):
            return
        address, runs = f"10.0.0.{self.pods_made}", {"name": "ray-worker", "state": {"running": {}}}
        ready = {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
        for worker in self.worker_pods:
            scheduled = worker["status"]["conditions"][:1]
            whole = {**ready, "conditions": [*scheduled, *ready["conditions"]], "containerStatuses": [runs]}
            self.cluster.edit(POD, KEY.namespace, worker["metadata"]["name"], methodcaller("update", status=whole))
        self.cluster.edit(POD, KEY.namespace, pod["metadata"]["name"], lambda p: p.update(status=ready))
        workers = sum(group["replicas"] for group in owner["spec"]["workerGroupSpecs"])
        self.cluster.edit(
            RAY_CLUSTER,
            KEY.namespace,
            owner["metadata"]["name"],
            lambda c: c.update(status={"state": "ready", "readyWorkerReplicas": workers}),
        )
        if address not in self.ray.heads:
            uid = pod["metadata"]["labels"][labels.JOB_UID]
            self.ray.start_head(address, pod["metadata"]["uid"], uid, owner["metadata"]["name"])

    def hold_up(self, **status: object) -> None:
        """Set a problem of the pods."""
        self.make_pods()
        if (pod := self.head_pod) is not None and self.head is None:
            self.cluster.edit(POD, KEY.namespace, pod["metadata"]["name"], lambda p: p.update(status=status))

    def fail_head(self, code: int, message: str, **more: object) -> None:
        """End Ray in the head before it is ready; KubeRay deletes such a pod at once."""
        when = times.to_text(self.clock.now())
        terminated = {"exitCode": code, "reason": "Error", "message": message, "finishedAt": when}
        ended = {"name": "ray-head", "state": {"terminated": terminated | more}}
        self.hold_up(phase="Failed", containerStatuses=[ended])
        self.lose_head()

    def lose_head(self) -> None:
        """Delete the head pod."""
        if (pod := self.head_pod) is not None:
            self.cluster.remove(POD, KEY.namespace, pod["metadata"]["name"])
            self._sync_heads()

    def _take_along(self, event: str, kind: Kind, _: Manifest) -> None:
        if kind == POD and event == "DELETED":
            self._sync_heads()
        if kind == RAY_CLUSTER and event == "DELETED":
            self.taken = set()

    def _sync_heads(self) -> None:
        alive = {pod["metadata"]["uid"] for pod in self.cluster.objects(POD)}
        for address, head in list(self.ray.heads.items()):
            if head.pod_uid not in alive:
                self.ray.stop_head(address)

    # Actions of the driver.

    def run_driver(self, steps: int = 0, *, saves: bool = False) -> None:
        """Run the driver for some steps from its checkpoint, and save the last of them if requested."""
        head, ray_job = self.head, self.submission
        if head is None or ray_job is None or ray_job.state.ended:
            return
        head.run(ray_job.submission_id)
        old = head.progress if head.progress and head.progress.submission_id == ray_job.submission_id else None
        resumed = old.resumed_from_step if old else self.saved_step
        step = min((old.step if old else self.saved_step) + steps, 40)
        self.saved_step = step if saves else self.saved_step
        self.highest_step = max(self.highest_step, step)
        phase, now = self._phase(old, step), self.clock.now().timestamp()
        loading = StartProgress(StartStage.LOADING_MODEL, now if old is None else old.start_time, 1, 2)
        head.progress = Progress(
            pod_uid=head.pod_uid,
            phase=phase,
            start=loading if phase is Phase.STARTING else None,
            attempt=int(ray_job.submission_id.rpartition("-")[2]),
            submission_id=ray_job.submission_id,
            step=step,
            total_steps=40,
            observed_time=now if steps or old is None else old.observed_time,
            step_time=now if steps or old is None else old.step_time,
            start_time=now if old is None else old.start_time,
            reward=0.5,
            step_seconds=4.0,
            median_step_seconds=4.0,
            resumed_from_step=resumed,
            checkpoint_step=self.saved_step or None,
        )

    @staticmethod
    def _phase(old: Progress | None, step: int) -> Phase:
        if old is not None and old.phase is Phase.STOPPING:
            return Phase.STOPPING
        return Phase.TRAINING if step else Phase.STARTING

    def end_driver(self, code: int, *, reported: bool = True, reason: str = "Ended", **blamed: Any) -> None:  # noqa: ANN401 - of Outcome
        """End the driver with an exit code, with or without an outcome in the spool."""
        self.run_driver()
        head, ray_job = self.head, self.submission
        if head is None or ray_job is None or head.progress is None or ray_job.state.ended:
            return
        head.end(ray_job.submission_id, RayJobState.FAILED if code else RayJobState.SUCCEEDED, exit_code=code)
        outcome = Outcome(exit_code=code, reason=reason, message=f"code {code}", last_step=head.progress.step, **blamed)
        if reported:
            now = self.clock.now().timestamp()
            head.progress = replace(head.progress, phase=Phase.ENDED, outcome=outcome, observed_time=now)

    def forget_submission(self) -> None:
        """Make Ray forget a submission that it has reported."""
        if self.head is not None and self.status.attempts:
            self.head.jobs.clear()


def gang_of(cluster: Manifest) -> str | None:
    """Return the name of the PodGroup of a RayCluster's pods."""
    metadata = cluster["spec"]["headGroupSpec"]["template"]["metadata"]
    return (metadata.get("annotations") or {}).get(GROUP_NAME)


def _label(manifest: Manifest, name: str) -> str | None:
    labels_of: dict[str, str] = manifest["metadata"].get("labels") or {}
    return labels_of.get(name)
