"""The claims that `rljob conformance` checks, in order. Pure.

The documentation names a claim's id wherever it says that something is not confirmed on real hardware yet.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from rljob.cli.conformance import cluster_judges as before
from rljob.cli.conformance import run_judges as during
from rljob.cli.conformance.facts import Facts
from rljob.cli.conformance.verdict import Result, Verdict, not_applicable, not_run


class Stage(enum.StrEnum):
    """What has to be done before a claim can be judged, in order."""

    CLUSTER = "cluster"
    """Objects that exist already are read."""
    IMAGE = "image"
    """The image is checked in a pod."""
    START = "start"
    """The job is created and completes its first step."""
    TRAIN = "train"
    """It saves its first checkpoint."""
    KILL = "kill"
    """Its worker pod is killed, and it trains again."""
    SUSPEND = "suspend"
    """It is suspended, and trains again."""
    FINISH = "finish"
    """It completes its last step."""
    CLEANUP = "cleanup"
    """Everything is deleted."""


@dataclass(frozen=True)
class Claim:
    """One row."""

    id: str
    confirms: str
    stage: Stage
    judge: Callable[[Facts], Verdict]
    needs_npu: bool = False
    blocks: bool = True
    """Whether later claims cannot be judged if this one fails."""
    always: bool = False
    """Whether the claim is judged although an earlier one failed."""


CLAIMS: tuple[Claim, ...] = (
    Claim("api-and-crds", "the API server serves the kinds of this release", Stage.CLUSTER, before.judge_crds),
    Claim("operator-ready", "one operator is available and holds its Lease", Stage.CLUSTER, before.judge_operator),
    Claim("kuberay", "KubeRay runs, in a release that the operator supports", Stage.CLUSTER, before.judge_kuberay),
    Claim(
        "storage",
        "there is a StorageClass for the volume of model and checkpoints",
        Stage.CLUSTER,
        before.judge_storage,
    ),
    Claim("devices", "a node offers the devices of the class", Stage.CLUSTER, before.judge_devices),
    Claim("image-check", "the image has what the runtime needs", Stage.IMAGE, before.judge_image),
    Claim("job-accepted", "the operator accepts the job", Stage.START, during.judge_accepted),
    Claim("initializer", "an initializer makes the model on the volume", Stage.START, during.judge_initializer),
    Claim("queue", "queue and gang let all pods start together", Stage.START, before.judge_queue),
    Claim("pods-start", "head and worker start with their devices", Stage.START, during.judge_pods),
    Claim("preflight", "every node passes the checks before the run", Stage.START, during.judge_preflight),
    Claim("first-step", "the first step completes", Stage.START, during.judge_first_step),
    Claim(
        "hccl", "HCCL has an interface, ports and links", Stage.TRAIN, during.judge_hccl, needs_npu=True, blocks=False
    ),
    Claim(
        "core-binding",
        "processes run on the CPUs that are planned for them",
        Stage.TRAIN,
        during.judge_binding,
        needs_npu=True,
        blocks=False,
    ),
    Claim("trains", "steps are recorded with a reward", Stage.TRAIN, during.judge_trains),
    Claim(
        "metrics",
        "status and exporter report throughput above 0 and idle ratios within 0 to 1",
        Stage.TRAIN,
        during.judge_metrics,
        blocks=False,
    ),
    Claim("checkpoints", "a complete checkpoint is on the volume", Stage.TRAIN, during.judge_checkpoints),
    Claim(
        "survives-killed-worker",
        "after the worker pod is killed, the next attempt resumes at the saved step",
        Stage.KILL,
        during.judge_killed,
    ),
    Claim(
        "suspend-resume",
        "a suspended job holds no pods, and resumes from the step that it saved",
        Stage.SUSPEND,
        during.judge_suspended,
    ),
    Claim("completes", "the job succeeds with every step", Stage.FINISH, during.judge_completes),
    Claim("cleanup", "everything that the run created is deleted", Stage.CLEANUP, during.judge_cleanup, always=True),
)


@dataclass(frozen=True)
class Row:
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict


def judge_all(facts: Facts, done: frozenset[Stage]) -> list[Row]:
    """Return every claim with its verdict; `done` are the stages whose facts were gathered."""
    rows: list[Row] = []
    blocker: Row | None = None
    for claim in CLAIMS:
        row = Row(claim, _verdict(claim, facts, done, blocker))
        rows.append(row)
        if blocker is None and claim.blocks and row.verdict.result is Result.FAILED:
            blocker = row
    return rows


def _verdict(claim: Claim, facts: Facts, done: frozenset[Stage], blocker: Row | None) -> Verdict:
    if claim.needs_npu and not facts.plan.is_npu:
        return not_applicable(f"class {facts.plan.accelerator} has no NPUs")
    # What exists already is judged completely, so that all that is missing is known at once.
    independent = claim.always or (claim.stage is Stage.CLUSTER and claim.stage in done)
    if blocker is not None and not independent:
        return not_run(f"{blocker.claim.id} failed")
    if error := facts.errors.get(claim.stage):
        return Verdict(Result.FAILED, error)
    if claim.stage not in done:
        return not_run("the run was interrupted" if facts.interrupted else "the stage was not reached")
    return claim.judge(facts)


def first_blocker(rows: list[Row]) -> Row | None:
    """Return the first failed claim that keeps later stages from running."""
    return next((row for row in rows if row.claim.blocks and row.verdict.result is Result.FAILED), None)
