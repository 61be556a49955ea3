"""A whole world around the real reconciler, in memory and with frozen time: API server, KubeRay, pods, Ray, exporter.

`World` offers one method for each thing that may happen. Whenever the operator writes, the world checks what may never
be: a second cluster, a second submission, an effect without its intent, a Finished that changes.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

from builders import small_spec
from doubles.clock import FrozenClock
from doubles.fake import FakeCluster
from doubles.fake_ray import FakeHead, FakeRay

from rljob.api.status import ConditionType, RLJobStatus
from rljob.build import labels
from rljob.cluster.errors import HeadUnreachable, OutsideError
from rljob.cluster.kinds import CLUSTER_RL_RECIPE, JOB, POD, RAY_CLUSTER, RLJOB, Kind
from rljob.cluster.token import TokenKey
from rljob.control.reconciler import Reconciler
from rljob.control.store import Key
from rljob.core.needs import Head
from rljob.core.observed import Manifest, RayJob, RayJobState
from rljob.core.plan import SubmitJob
from rljob_runtime.contract import Outcome, Phase, Progress

KEY = Key("team", "sums")
PROMISED_ROUNDS = 10
CODE = "code"
"""A ConfigMap of the user."""
Json = dict[str, Any]


class CrashError(Exception):
    """The operator's process ends here."""


class World:
    """One RLJob and everything around it."""

    def __init__(self, spec: Json | None = None) -> None:
        self.clock = FrozenClock()
        self.cluster = FakeCluster(self.clock.now)
        self.ray = _Ray(self)
        self.loop = asyncio.Runner()
        self.crash_in: int | None = None
        """Writes until the operator's process ends; None: it lives on."""
        self.crashes: list[str] = []
        self.words: list[str] = []
        """What the operator wrote, in order."""
        self.wiped = False
        self.disturbed = False
        """The last round failed, and the next one is still to come."""
        self.finished: Json | None = None
        self.highest_step = 0
        self.saved_step = 0
        """What the checkpoint folder holds; it outlives every cluster."""
        self.pods_made = 0
        self.held = False
        self.clusters_made: list[str] = []
        self.late: list[tuple[str, Kind, Manifest]] = []
        self.operator: Reconciler | None = None
        self.cluster.watch(self._judge)
        self.cluster.watch(self._tell)
        self.cluster.put(
            {
                "apiVersion": RLJOB.api_version,
                "kind": "RLJob",
                "metadata": {"namespace": KEY.namespace, "name": KEY.name},
                "spec": spec or small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]}),
            }
        )

        self.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": KEY.namespace, "name": CODE},
                "data": {"reward.py": "1"},
            }
        )

    def close(self) -> None:
        """End the event loop."""
        self.loop.close()

    # The operator.

    def start_operator(self) -> Reconciler:
        """Start it with empty memory."""
        key = TokenKey(b"k" * 32)
        operator = Reconciler.build(self.cluster, self.ray, self.clock, key, after_write=self._after_write)
        self.late.clear()
        self.loop.run(operator.prime())
        self.operator = operator
        return operator

    def stop_operator(self) -> None:
        """Lose it with all that it had in memory."""
        self.operator = None

    def settle(self, limit: int = PROMISED_ROUNDS + 2) -> None:
        """Let the operator work until it rests; a crash on the way restarts it."""
        rounds = 0
        while True:
            operator = self.operator or self.start_operator()
            try:
                while (key := operator.queue.get_nowait()) is not None:
                    rounds += 1
                    assert rounds <= limit, f"does not rest: {self.words[-limit:]}"
                    self._round(operator, key)
            except CrashError:
                self.stop_operator()
                limit += PROMISED_ROUNDS + 2
            else:
                return

    def _round(self, operator: Reconciler, key: Key) -> None:
        try:
            self.loop.run(operator.round(key))
        except OutsideError:
            self.disturbed = True
            operator.queue.add_failed(key)
        else:
            self.disturbed = False
        finally:
            operator.queue.done(key)

    def _after_write(self, word: str) -> None:
        self.words.append(word)
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in == 0:
                self.crash_in = None
                self.crashes.append(word)
                raise CrashError(word)

    # What is there.

    @property
    def job(self) -> Manifest | None:
        """The RLJob."""
        return self.cluster.find(RLJOB, *KEY)

    @property
    def status(self) -> RLJobStatus:
        """Its status."""
        return RLJobStatus.model_validate((self.job or {}).get("status") or {})

    @property
    def is_finished(self) -> bool:
        """Whether the condition Finished is True."""
        return any(c.type == ConditionType.FINISHED and c.status == "True" for c in self.status.conditions)

    @property
    def ray_cluster(self) -> Manifest | None:
        """The RayCluster."""
        return next(iter(self.cluster.objects(RAY_CLUSTER)), None)

    @property
    def head_pod(self) -> Manifest | None:
        """The head pod."""
        return next((p for p in self.cluster.objects(POD) if _label(p, labels.RAY_NODE_TYPE) == "head"), None)

    @property
    def head(self) -> FakeHead | None:
        """Ray on the head pod."""
        pod = self.head_pod
        return next((h for h in self.ray.heads.values() if pod and h.pod_uid == pod["metadata"]["uid"]), None)

    @property
    def submission(self) -> RayJob | None:
        """The latest Ray job of the head."""
        return next(reversed(self.head.jobs.values()), None) if self.head else None

    # What the user does.

    def edit_spec(self, spec: Json) -> None:
        """Change the spec."""
        if self.job is not None:
            self.cluster.edit(RLJOB, *KEY, lambda job: job.update(spec=spec))

    def suspend(self, *, suspended: bool = True) -> None:
        """Set spec.suspend."""
        if self.job is not None:
            self.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=suspended))

    def force_deletion(self) -> None:
        """Say that the deletion is to wait for nothing."""
        if self.job is not None:
            note = {labels.FORCE_DELETE: "true"}
            self.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(annotations=note))

    def put_recipe(self, template: Json) -> None:
        """Make the ClusterRLRecipe `base`, or edit it."""
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
        """Ask for the recipes to be read anew."""
        if self.job is not None:
            note = {labels.REFRESH: value}
            self.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(annotations=note))

    def delete_job(self) -> None:
        """Delete the RLJob."""
        if self.job is not None:
            self.cluster.remove(RLJOB, *KEY)
            self._sync_heads()

    def delete_cluster(self) -> None:
        """Delete the RayCluster by hand."""
        if (found := self.ray_cluster) is not None:
            self.cluster.remove(RAY_CLUSTER, KEY.namespace, found["metadata"]["name"])
            self._sync_heads()

    def wipe_status(self) -> None:
        """Lose the status, as a restored backup does."""
        if self.job is not None:
            self.wiped, self.finished = True, None
            self.cluster.edit(RLJOB, *KEY, lambda job: job.pop("status", None))

    # What Kubernetes and KubeRay do.

    def end_initializers(self, *, well: bool = True) -> None:
        """Let every initializer Job end."""
        kind = "Complete" if well else "Failed"
        state = {"conditions": [{"type": kind, "status": "True", "reason": kind, "message": "the end"}]}
        for found in self.cluster.objects(JOB):
            if "status" not in found:
                self.cluster.edit(JOB, KEY.namespace, found["metadata"]["name"], lambda job: job.update(status=state))

    def make_pods(self, **status: object) -> None:
        """Let KubeRay make the head pod, with a status."""
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
                    "ownerReferences": [
                        {"kind": "RayCluster", "name": name, "uid": owner["metadata"]["uid"], "controller": True}
                    ],
                },
                "spec": {"nodeName": "node-1"},
                "status": status,
            }
        )

    def admit(self) -> None:
        """Let Kueue admit the cluster."""
        if (owner := self.ray_cluster) is not None and owner["spec"].get("suspend"):
            name = owner["metadata"]["name"]
            self.cluster.edit(RAY_CLUSTER, KEY.namespace, name, lambda c: c["spec"].update(suspend=False))

    def suspend_cluster(self) -> None:
        """Let Kueue take the pods away: it suspends the cluster, and KubeRay deletes them."""
        if (owner := self.ray_cluster) is not None:
            name = owner["metadata"]["name"]
            self.cluster.edit(RAY_CLUSTER, KEY.namespace, name, lambda c: c["spec"].update(suspend=True))
            self.cluster.edit(RAY_CLUSTER, KEY.namespace, name, lambda c: c.pop("status", None))

    def hold_events(self) -> None:
        """Let watches fall silent."""
        self.held = True

    def release_events(self, *, doubled: bool = False) -> None:
        """Let watches tell what they held back, each event twice if so wished."""
        self.held = False
        events, self.late = self.late, []
        for event in events:
            for _ in range(2 if doubled else 1):
                if self.operator is not None:
                    self.operator.feed(*event)

    def make_ready(self) -> None:
        """Let all pods become ready."""
        self.make_pods()
        pod, owner = self.head_pod, self.ray_cluster
        if pod is None or owner is None:
            return
        address = f"10.0.0.{self.pods_made}"
        ready = {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
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
        """Let the pods have trouble."""
        self.make_pods()
        if (pod := self.head_pod) is not None and self.head is None:
            self.cluster.edit(POD, KEY.namespace, pod["metadata"]["name"], lambda p: p.update(status=status))

    def lose_head(self) -> None:
        """Lose the head pod."""
        if (pod := self.head_pod) is not None:
            self.cluster.remove(POD, KEY.namespace, pod["metadata"]["name"])
            self._sync_heads()

    def _sync_heads(self) -> None:
        alive = {pod["metadata"]["uid"] for pod in self.cluster.objects(POD)}
        for address, head in list(self.ray.heads.items()):
            if head.pod_uid not in alive:
                self.ray.stop_head(address)

    # What the driver does.

    def run_driver(self, steps: int = 0, *, saves: bool = False) -> None:
        """Let the driver run, some steps further from its checkpoint, and save the last of them if so wished."""
        head, ray_job = self.head, self.submission
        if head is None or ray_job is None or ray_job.state.ended:
            return
        head.run(ray_job.submission_id)
        old = head.progress if head.progress and head.progress.submission_id == ray_job.submission_id else None
        resumed = old.resumed_from_step if old else self.saved_step
        step = min((old.step if old else self.saved_step) + steps, 40)
        self.saved_step = step if saves else self.saved_step
        self.highest_step = max(self.highest_step, step)
        head.progress = Progress(
            pod_uid=head.pod_uid,
            phase=self._phase(old, step),
            attempt=int(ray_job.submission_id.rpartition("-")[2]),
            submission_id=ray_job.submission_id,
            step=step,
            total_steps=40,
            observed_time=self.clock.now().timestamp() if steps or old is None else old.observed_time,
            start_time=self.clock.now().timestamp() if old is None else old.start_time,
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

    def end_driver(self, code: int, *, told: bool = True, reason: str = "Ended") -> None:
        """Let the driver end with an exit code, with or without a last word in the spool."""
        self.run_driver()
        head, ray_job = self.head, self.submission
        if head is None or ray_job is None or head.progress is None or ray_job.state.ended:
            return
        head.end(ray_job.submission_id, RayJobState.FAILED if code else RayJobState.SUCCEEDED, exit_code=code)
        outcome = Outcome(exit_code=code, reason=reason, message=f"code {code}", last_step=head.progress.step)
        if told:
            head.progress = replace(head.progress, phase=Phase.ENDED, outcome=outcome)

    def forget_submission(self) -> None:
        """Let Ray forget a submission that it once reported."""
        if self.head is not None and self.status.attempts:
            self.head.jobs.clear()

    def _tell(self, event: str, kind: Kind, manifest: Manifest) -> None:
        if self.held:
            self.late.append((event, kind, manifest))
        elif self.operator is not None:
            self.operator.feed(event, kind, manifest)

    # What may never be.

    def _judge(self, event: str, kind: Kind, manifest: Manifest) -> None:
        if kind == RAY_CLUSTER and event == "ADDED":
            living = [c for c in self.cluster.objects(RAY_CLUSTER) if "deletionTimestamp" not in c["metadata"]]
            assert len(living) == 1, "two clusters at a time"
            intent = self.status.intent
            assert intent is not None, "a cluster without an intent"
            assert intent.cluster_name == manifest["metadata"]["name"], "a cluster without its intent"
            assert intent.cluster_uid is None or self.wiped, "a second cluster after the first was recorded"
            assert not intent.ended, "a cluster of a generation that has ended"
            assert manifest["metadata"]["name"] not in self.clusters_made, "a generation with two clusters"
            self.clusters_made.append(manifest["metadata"]["name"])
        if kind == POD and event == "DELETED":
            self._sync_heads()
        if kind == RLJOB and event != "DELETED":
            self._judge_status(manifest.get("status") or {})

    def _judge_status(self, status: Json) -> None:
        assert len(json.dumps(status)) <= 16_000
        read = RLJobStatus.model_validate(status)
        assert read.progress is None or read.progress.step <= self.highest_step, "a step that nobody reported"
        ended = {
            "condition": next((c for c in status.get("conditions", ()) if c["type"] == "Finished"), None),
            "attempts": status.get("attempts"),
            "time": status.get("finishedTime"),
        }
        assert self.finished in (None, ended), "Finished changed"
        self.finished = ended if ended["condition"] else None

    def judge_submission(self, submitted: SubmitJob) -> None:
        """Check a submission before it has an effect."""
        intent = self.status.intent
        assert intent is not None
        assert (submitted.submission_id, submitted.pod_uid) == (intent.submission_id, intent.head_pod_uid)
        made = Counter(entry.submission_id for entry in self.ray.submissions)
        assert made[submitted.submission_id] == 0 or self.wiped or submitted.submission_id in self.ray.known()


class _Ray(FakeRay):
    """The heads, with an exporter and a job API that can each be silent."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.exporter_silent = False
        self.api_silent = False

    def known(self) -> set[str]:
        """Give every submission that a head has."""
        return {submission for head in self.heads.values() for submission in head.jobs}

    async def progress(self, head: Head) -> Progress:
        """Answer, unless the exporter is silent."""
        if self.exporter_silent:
            raise HeadUnreachable("the exporter does not answer")
        return await super().progress(head)

    async def job(self, head: Head, submission_id: str) -> RayJob | None:
        """Answer, unless the job API is silent."""
        if self.api_silent:
            raise HeadUnreachable("the job API does not answer")
        return await super().job(head, submission_id)

    async def submit(self, job: SubmitJob) -> None:
        """Take a job, after the world has judged it."""
        if self.api_silent:
            raise HeadUnreachable("the job API does not answer")
        self.world.judge_submission(job)
        await super().submit(job)


def _label(manifest: Manifest, name: str) -> str | None:
    labels_of: dict[str, str] = manifest["metadata"].get("labels") or {}
    return labels_of.get(name)
