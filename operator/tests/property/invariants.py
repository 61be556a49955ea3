"""Invariants that are checked at every write: no second cluster, no second submission, no change of Finished."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from rljob.api.status import RLJobStatus
from rljob.cluster.kinds import POD_GROUP, RAY_CLUSTER, RLJOB, Kind
from rljob.core.observed import Manifest
from rljob.core.transitions.final_conditions import FINAL, Final
from rljob.render.podgroup import GROUP_NAME

if TYPE_CHECKING:
    from property.world import World

    from rljob.core.plan import SubmitJob

STATUS_BYTES = 16_000


class Invariants:
    """The invariants of one world, which raise an AssertionError at the event that violates one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clusters_made: list[str] = []
        self.strays: list[str] = []
        """Clusters created by a former leader: they must be deleted, and nothing may run on them."""
        self.finished: dict[str, Any] | None = None
        world.cluster.watch(self.hear)

    def hear(self, event: str, kind: Kind, manifest: Manifest) -> None:
        """Check a change of the world."""
        if kind == RAY_CLUSTER and event == "ADDED":
            self._check_cluster(manifest)
        if kind == RLJOB and event == "DELETED":
            self.finished = None
        elif kind == RLJOB:
            self._check_status(manifest.get("status") or {})

    def check_submission(self, submitted: SubmitJob) -> None:
        """Check a submission that a head has just accepted."""
        intent = self.world.status.intent
        assert intent is not None
        assert (submitted.submission_id, submitted.pod_uid) == (intent.submission_id, intent.head_pod_uid)
        assert submitted.cluster_name not in self.strays, "a run on a cluster that should not be there"
        made_now = submitted.submission_id
        made = Counter(entry.submission_id for entry in self.world.ray.submissions)
        assert made[made_now] == 1 or self.world.wiped, "submitted twice"
        # An attempt that has ended and is recorded does not count; Kueue and KubeRay handle its pods.
        over = {attempt.submission_id for attempt in self.world.status.attempts if attempt.end_time} | {made_now}
        others = (job for name, job in self.world.ray.heads[submitted.pod_ip].jobs.items() if name not in over)
        assert all(job.state.ended for job in others), "a driver beside another one"

    def forget_deleted(self, name: str) -> None:
        """Record that a cluster was deleted of which the status does not know, so that nothing ran in it."""
        if name in self.clusters_made:
            self.clusters_made.remove(name)

    def _check_cluster(self, manifest: Manifest) -> None:
        name, intent = manifest["metadata"]["name"], self.world.status.intent
        wanted = intent is not None and not intent.ended and (intent.cluster_name, intent.cluster_uid) == (name, None)
        # A job whose start ended before its cluster was observed keeps that intent.
        wanted = wanted and not self.world.is_finished
        if self.world.ex_leader_is_awake and not wanted:
            # While the status is lost, the cluster is indistinguishable from the job's own and is adopted.
            if intent is not None or not self.world.wiped:
                self.strays.append(name)
            return
        clusters = self.world.cluster.objects(RAY_CLUSTER)
        living = [c for c in clusters if "deletionTimestamp" not in c["metadata"]]
        assert len(living) == 1, "two clusters at a time"
        assert intent is not None, "a cluster without an intent"
        assert intent.cluster_name == name, "a cluster without its intent"
        assert intent.cluster_uid is None or self.world.wiped, "a second cluster after the first was recorded"
        assert not intent.ended, "a cluster of a generation that has ended"
        assert name not in self.clusters_made, "a generation with two clusters"
        self.clusters_made.append(name)
        self._check_gang(manifest)

    def _check_gang(self, manifest: Manifest) -> None:
        annotations = manifest["spec"]["headGroupSpec"]["template"]["metadata"]["annotations"]
        name = annotations.get(GROUP_NAME)
        if name is None:
            return
        found = self.world.cluster.find(POD_GROUP, manifest["metadata"]["namespace"], name)
        assert found is not None, "pods before the group that holds them back"
        assert "deletionTimestamp" not in found["metadata"], "a group that goes while its pods come"

    def _check_status(self, status: dict[str, Any]) -> None:
        assert len(json.dumps(status)) <= STATUS_BYTES
        read = RLJobStatus.model_validate(status)
        assert read.progress is None or read.progress.step <= self.world.highest_step, "a step that nobody reported"
        conditions = {entry.type: entry for entry in read.conditions}
        finished = conditions.get("Finished")
        ended = {
            "condition": finished and finished.reason,
            # The user may pause and release a job that has ended.
            "conditions": [entry for entry in read.conditions if entry.type != "Paused"],
            "attempts": status.get("attempts"),
            "time": status.get("finishedTime"),
        }
        assert self.finished in (None, ended), "a finished job changed"
        self.finished = ended if finished else None
        if finished:
            _check_end(read)


def _check_end(read: RLJobStatus) -> None:
    """Check that a finished job announces nothing any more."""
    conditions = {entry.type: entry for entry in read.conditions}
    assert (conditions["Finished"].status, conditions["Finished"].reason) == ("True", read.state), (
        "an end that its state denies"
    )
    assert not read.attempts or read.attempts[-1].end_time, "an attempt that outlives the job"
    assert (read.stop, read.ending, read.initializer, read.next_attempt_time) == (None,) * 4, "something under way"
    reason = read.reason
    for kind, final in FINAL.items():
        entry = conditions.get(kind)
        if entry is None or final is Final.STAYS or (final is Final.STAYS_IF_TRUE and entry.status == "True"):
            continue
        word = "Healthy" if final is Final.HEALS else reason
        assert (entry.status, entry.reason, entry.message) == ("False", word, ""), f"{kind} of a finished job"
