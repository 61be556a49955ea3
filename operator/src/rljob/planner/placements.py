"""The modes of a job side by side: trainer and rollout in turns on all devices, or apart and at the same time.

A job has one of both placements. The other one is planned on as many devices: two groups together if their nodes have
equally many, and one group as two halves. It has the job's settings, and the best layout that fits there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rljob.planner.layouts import Candidate, Job, candidates
from rljob.planner.modes import ModeStep, modes
from rljob.planner.rollout.traces import Trace
from rljob.planner.switches import SKIP


@dataclass(frozen=True)
class Placed:
    """A placement, its layout, and the mean step of each mode that it allows."""

    job: Job
    layout: Candidate
    steps: tuple[ModeStep, ...]


@dataclass(frozen=True)
class Comparison:
    """The placements of a job, that of modes on the same devices first."""

    placed: tuple[Placed, ...]
    missing: str = ""
    """Why there is only that of the job; empty if there are both."""


def compare(job: Job, layout: Candidate, trace: Trace) -> Comparison:
    """Return the modes of a job with its own placement and a layout of it, and with the other placement."""
    own = Placed(job, layout, modes(job, layout, trace))
    other = together(job) if job.apart else halves(job)
    if isinstance(other, str):
        return Comparison((own,), other)
    found = candidates(other, trace)
    if not found:
        return Comparison((own,), f"no layout fits into {devices_text(other)}")
    placed = Placed(other, found[0], modes(other, found[0], trace))
    return Comparison((placed, own) if job.apart else (own, placed))


def devices_text(job: Job) -> str:
    """Return the devices of a placement, those of the trainer first where it stands apart."""
    return f"{job.trainer.devices} + {job.setup.devices} devices" if job.apart else f"{job.setup.devices} devices"


def together(job: Job) -> Job | str:
    """Return a job of two groups on the devices of both; the reason if it cannot be placed there."""
    if job.node_devices != job.trainer_node_devices:
        return f"nodes of {job.trainer_node_devices} and of {job.node_devices} devices cannot be one group"
    return _placed(job, job.devices, job.devices, apart=False)


def halves(job: Job) -> Job | str:
    """Return a job of one group with half of its nodes for the trainer; the reason if they have no halves."""
    if (nodes := job.devices // job.node_devices) % 2:
        return f"{nodes} node{'s' * (nodes != 1)} cannot be halved"
    return _placed(job, job.devices // 2, job.devices // 2, apart=True)


def _placed(job: Job, trains: int, generates: int, *, apart: bool) -> Job:
    """Return a job with other devices; a micro batch and an engine keep their sizes."""
    trainer, setup = job.trainer, job.setup
    return replace(
        job,
        trainer=replace(
            trainer, devices=trains, micro_batches=max(1, trainer.micro_batches * trainer.devices // trains)
        ),
        rollout=replace(job.rollout, apart=apart),
        setup=replace(setup, devices=generates, replicas=max(1, generates // job.layout.rollout.devices)),
        # Responses of older weights need the pass of the old policy.
        enabled=job.enabled - {SKIP} if apart else job.enabled,
    )
