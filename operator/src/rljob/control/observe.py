"""Gathers the `Observed` of one job: what watches deliver from the store, the rest by the requests that steps require.

Requests to the API server run side by side. Those that depend on an answer, such as the pods that explain an end,
follow. A head is asked first and outside the round (`head_poller`): without its answer, nothing else is requested.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, replace
from datetime import datetime

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import POD, RAY_CLUSTER
from rljob.control.head_poller import Answer, HeadPoller, Question
from rljob.control.job_memory import JobMemories
from rljob.control.pure_core import Core
from rljob.control.requests import Requests, question_of
from rljob.control.store import Key, Store
from rljob.control.store_reads import (
    clusters_of,
    ended_heads_of,
    heads_of,
    intent_of,
    pod_groups_of,
    unreadable_kinds,
    workload_of,
    write_seconds,
)
from rljob.core.attempts.recovery import Recalled
from rljob.core.manifest_facts import is_deleted
from rljob.core.observed import PARTIAL_SECONDS, UNSEEN, Manifest, Observed, Unseen
from rljob.core.requirements import STOPS_HERE, Requirements
from rljob.core.watched import Watched
from rljob.render.labels import RAY_CLUSTER as RAY_CLUSTER_LABEL


class Pending(enum.Enum):
    """The type of PENDING."""

    PENDING = "pending"


PENDING = Pending.PENDING
"""The head is being asked, and the job's key is queued when it has answered, or has not."""


@dataclass(frozen=True)
class Observer:
    """Reads the world of one job."""

    store: Store
    core: Core
    requests: Requests
    memories: JobMemories
    heads: HeadPoller
    partial_seconds: float = PARTIAL_SECONDS
    closed_namespaces: frozenset[str] = frozenset()

    async def observe(self, key: Key, now: datetime) -> Observed | Pending | None:
        """Return everything that can be seen of a job; None if it is gone, PENDING if its head is still to answer."""
        job = self.store.job(key)
        if job is None:
            return None
        ask, memory, left = self.requests, self.memories.of(job), Recalled()
        uid, namespace, clusters = job["metadata"]["uid"], key.namespace, clusters_of(self.store, job)
        head_pod, former_heads = heads_of(self.store, job, clusters)
        required = self.core.required(watched := Watched(job, clusters, head_pod, now))
        self._expect_visible(job, required)
        if (answer := self._heard(key, question_of(required, job))) is None:
            return PENDING
        latest: Manifest | Unseen | None = UNSEEN
        if required.recall:
            found = await ask.recall(job)
            latest, left = (UNSEEN, Recalled()) if isinstance(found, Unseen) else (found.snapshot, found)
            clusters = clusters_of(self.store, job)
        if clusters:
            memory.forget_config_maps()
        async with asyncio.TaskGroup() as group:
            start = group.create_task
            snapshot = start(ask.snapshot(required.snapshot_name, job))
            config = start(ask.own(required.config_name, job))
            live_cluster = start(ask.get(required.cluster_name, namespace, RAY_CLUSTER))
            pods = start(ask.pods(required, job, now))
            code = start(ask.get(required.code_name, namespace))
            code_copy = start(ask.get(required.code_copy_name, namespace))
            jobs = start(ask.jobs(required, namespace))
            nodes = start(ask.node_list(required))
            allocations = start(ask.allocations(required, uid))
            pod_group_api = start(ask.pod_group_api(required))
        progress, ray_job, seen_pods = answer.progress, answer.ray_job, pods.result()
        unexplained = self.core.needs_evidence(progress, ray_job, watched.status)
        if unexplained and isinstance(seen_pods, Unseen):
            # KubeRay soon replaces a pod that failed, so the pods are listed together with the end that they explain.
            seen_pods = await ask.list_pods(f"{RAY_CLUSTER_LABEL}={intent_of(job).get('clusterName')}", namespace)
        ended = unexplained or (required.held and required.head is None)
        ended_heads = ended_heads_of(self.store, job, clusters)
        cluster_events = await ask.cluster_events(required, job, ended_heads, seen_pods, ended=ended)
        held, looks = await ask.hardware(required, job, now, fresh=ended)
        evidence, seen_pods, warnings = await ask.evidence(required.evidence, namespace, seen_pods)
        return replace(
            self._in_store(job, latest if required.recall else snapshot.result(), siblings=required.siblings),
            status=watched.status,
            clusters=clusters,
            head_pod=head_pod,
            ended_heads=ended_heads,
            former_heads=former_heads,
            live_cluster=live_cluster.result(),
            workload=workload_of(self.store, job, clusters, memory, now),
            pod_groups=pod_groups_of(self.store, job, memory, now),
            pod_group_api=pod_group_api.result(),
            pods=seen_pods,
            config=config.result(),
            base_snapshot=await ask.own(required.base_snapshot_name if snapshot.result() is None else None, job),
            last_generation=left.last_generation,
            attempts=left.attempts,
            final=left.final,
            code=code.result(),
            code_copy=code_copy.result(),
            **jobs.result().facts,
            initializer_events=await ask.initializer_events(required, jobs.result().initializers, seen_pods, now),
            initializer_log=await ask.initializer_log(required, seen_pods, namespace),
            ray_job=ray_job,
            progress=progress,
            silence=memory.hear(now, progress, ray_job, asked=required.progress),
            evidence=evidence,
            warnings=warnings,
            cluster_events=cluster_events,
            nodes=nodes.result(),
            taken=self.store.devices_taken(uid) if required.taken else UNSEEN,
            held=held,
            looks=looks,
            allocations=allocations.result(),
            refusals=memory.refusals(job),
            progress_write_seconds=write_seconds(self.store, job, POD),
            partial_seconds=self.partial_seconds,
        )

    def glance(self, job: Manifest) -> Observed:
        """Return what is seen without a request of a job for which nothing was created."""
        return self._in_store(job, None, siblings=True)

    def _heard(self, key: Key, question: Question | None) -> Answer | None:
        """Return what the head answered; None if it is being asked."""
        if question is not None:
            return self.heads.take(key, question)
        self.heads.drop(key)
        return Answer()

    def _in_store(self, job: Manifest, snapshot: Manifest | Unseen | None, *, siblings: bool) -> Observed:
        return Observed(
            job=job,
            snapshot=snapshot,
            recipes=self.store.recipes(job),
            siblings=self.store.siblings(job) if siblings else {},
            kuberay=self.store.kuberay,
            unreadable=dict(unreadable_kinds(self.store)),
            namespace_is_closed=job["metadata"]["namespace"] in self.closed_namespaces,
        )

    def _expect_visible(self, job: Manifest, required: Requirements) -> None:
        """Refuse to look at a job whose cluster may exist although no LIST can show it.

        The deletion of a job needs nothing that could be out of sight.
        """
        if required == STOPS_HERE and is_deleted(job):
            return
        if intent_of(job).get("clusterUID") and RAY_CLUSTER not in self.store.served:
            raise Unavailable(f"{RAY_CLUSTER.resource} is not served, so nothing is known of this job's cluster")
