"""Ray head pods in memory: what `RayApi` talks to in tests, scripted by the test and faithful about idempotency.

ray = FakeRay()
head = ray.start_head(pod_ip="10.0.0.1", pod_uid="p1", job_uid="j1", cluster_name="c1")
head.progress = Progress(pod_uid="p1", phase=Phase.TRAINING, submission_id="c1-1", step=3)
head.end("c1-1", RayJobState.SUCCEEDED, exit_code=0)
ray.faults.append(errors.HeadUnreachable("lost"))       # the next call fails before it has an effect
ray.lost_answers.append(errors.HeadUnreachable("lost")) # the next submission is accepted, its answer lost
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rljob.cluster import errors
from rljob.core.observed import RayJob, RayJobState
from rljob.core.requirements import Head
from rljob_runtime.contract import Phase, Progress

if TYPE_CHECKING:
    from rljob.core.plan import StopRun, SubmitJob


@dataclass
class FakeHead:
    """One head pod."""

    pod_ip: str
    pod_uid: str
    job_uid: str
    cluster_name: str
    reachable: bool = True
    jobs: dict[str, RayJob] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    """Environment of each POST, by submission ID."""
    progress: Progress | None = None
    """Answer of the exporter; None: as of an exporter that has seen no attempt."""

    def run(self, submission_id: str) -> None:
        """Start the driver of a submission."""
        self.jobs[submission_id] = replace(self.jobs[submission_id], state=RayJobState.RUNNING)

    def end(self, submission_id: str, state: RayJobState, exit_code: int | None = None, message: str = "") -> None:
        """End the driver of a submission."""
        job = self.jobs[submission_id]
        self.jobs[submission_id] = replace(job, state=state, driver_exit_code=exit_code, message=message)


class FakeRay:
    """`RayApi` for all heads of a fake world."""

    def __init__(self) -> None:
        self.heads: dict[str, FakeHead] = {}
        """By pod IP; addresses are reused by later pods, as in reality."""
        self.submissions: list[SubmitJob] = []
        """Every job that a head accepted, in order; repeated submissions are not listed again."""
        self.stops: list[StopRun] = []
        """Every stop request that a head accepted."""
        self.faults: deque[errors.RayError] = deque()
        self.lost_answers: deque[errors.RayError] = deque()

    def start_head(self, pod_ip: str, pod_uid: str, job_uid: str, cluster_name: str) -> FakeHead:
        """Start a head pod at an address."""
        self.heads[pod_ip] = FakeHead(pod_ip, pod_uid, job_uid, cluster_name)
        return self.heads[pod_ip]

    def stop_head(self, pod_ip: str) -> None:
        """Remove a head pod with its state."""
        self.heads.pop(pod_ip, None)

    async def progress(self, head: Head) -> Progress:
        """See `RayApi.progress`."""
        found = await self._reach(head)
        return found.progress or Progress(pod_uid=found.pod_uid, phase=Phase.IDLE)

    async def job(self, head: Head, submission_id: str) -> RayJob | None:
        """See `RayApi.job`."""
        return (await self._reach(head)).jobs.get(submission_id)

    async def submit(self, job: SubmitJob) -> None:
        """See `RayApi.submit`."""
        head = await self._reach(Head(job.pod_ip, job.pod_uid, job.job_uid, job.cluster_name))
        if job.submission_id in head.jobs:
            return
        head.jobs[job.submission_id] = RayJob(job.submission_id, RayJobState.PENDING)
        head.environments[job.submission_id] = dict(job.environment)
        self.submissions.append(job)
        if self.lost_answers:
            raise self.lost_answers.popleft()

    async def stop(self, run: StopRun) -> None:
        """See `RayApi.stop`."""
        head = await self._reach(Head(run.pod_ip, run.pod_uid, run.job_uid, run.cluster_name))
        if head.progress is None or head.progress.attempt != run.attempt:
            raise errors.HeadBusy(f"attempt {run.attempt} does not run here")
        self.stops.append(run)
        if head.progress.phase is not Phase.ENDED:
            head.progress = replace(head.progress, phase=Phase.STOPPING)

    async def _reach(self, wanted: Head) -> FakeHead:
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.popleft()
        found = self.heads.get(wanted.pod_ip)
        if found is None or not found.reachable:
            raise errors.HeadUnreachable(f"no answer from {wanted.pod_ip}")
        if (found.job_uid, found.cluster_name) != (wanted.job_uid, wanted.cluster_name):
            raise errors.HeadRefused(f"{wanted.pod_ip} has the token of another cluster")
        return found
