"""Checks before anything is spent: is this the intended pod and job.json, and do the needed paths exist.

Each failure says whether a retry can help: 64 when it never can, 65 when this place is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract import (
    AttemptVariable,
    ContractError,
    ExitCode,
    JobConfig,
    PodVariable,
    RequiredPath,
    head_paths,
)
from rljob_runtime.outcomes import RefusedError


@dataclass(frozen=True)
class Attempt:
    """What the submission and the pod say about this attempt."""

    number: int
    submission_id: str
    pod_uid: str
    spool: Path


def read_attempt(environ: Mapping[str, str]) -> Attempt:
    """Read and check the attempt's environment; raises RefusedError (exit 65)."""
    number = _variable(environ, AttemptVariable.ATTEMPT)
    if not number.isdigit() or int(number) < 1:
        raise RefusedError(
            ExitCode.ENVIRONMENT, "BadSubmission", f"{AttemptVariable.ATTEMPT}={number!r}: expected a number from 1"
        )
    attempt = Attempt(
        number=int(number),
        submission_id=_variable(environ, AttemptVariable.SUBMISSION_ID),
        pod_uid=_variable(environ, PodVariable.POD_UID),
        spool=Path(environ.get(PodVariable.SPOOL) or head_paths().spool),
    )
    intended = _variable(environ, AttemptVariable.HEAD_POD_UID)
    if intended != attempt.pod_uid:
        raise RefusedError(
            ExitCode.ENVIRONMENT,
            "WrongPod",
            f"submission {attempt.submission_id} is for pod {intended}, but this is pod {attempt.pod_uid}: "
            "the head was replaced between intent and submission",
        )
    return attempt


def read_job(environ: Mapping[str, str]) -> JobConfig:
    """Read job.json and compare it with what the submission names; raises RefusedError."""
    path = Path(environ.get(PodVariable.CONFIG) or head_paths().config)
    try:
        job = JobConfig.from_json(path.read_bytes())
    except OSError as error:
        raise RefusedError(ExitCode.ENVIRONMENT, "ConfigUnreadable", f"{path}: {error.strerror}") from error
    except ContractError as error:
        raise RefusedError(ExitCode.BAD_CONFIG, "ConfigInvalid", f"{path}: {error}") from error
    wanted = _variable(environ, AttemptVariable.JOB_DIGEST)
    if job.digest() != wanted:
        raise RefusedError(
            ExitCode.ENVIRONMENT,
            "WrongConfig",
            f"{path} has digest {job.digest()[:12]}, the submission names {wanted[:12]}: "
            "the mounted ConfigMap is of another cluster generation",
        )
    return job


def check_paths(job: JobConfig, missing_elsewhere: Callable[[list[str]], Mapping[str, list[str]]]) -> None:
    """Refuse paths that are missing on the head.

    `missing_elsewhere` gives, for each path, the other nodes that lack it too: a path absent everywhere is a mistake in
    the manifest (64), one that some nodes have is a mount that failed here (65). It is asked only when it matters.
    """
    absent = [required for required in job.required_paths if not Path(required.path).exists()]
    if not absent:
        return
    lacking = missing_elsewhere([required.path for required in absent])
    nowhere = [r for r in absent if len(lacking.get(r.path, [])) >= job.nodes]
    if nowhere:
        raise RefusedError(ExitCode.BAD_CONFIG, "PathMissing", _path_message(nowhere, "does not exist in any pod"))
    raise RefusedError(
        ExitCode.ENVIRONMENT,
        "PathMissing",
        _path_message(absent, "is missing in the head pod, but some workers have it"),
    )


def missing_here(paths: list[str]) -> list[str]:
    """List the paths that this node lacks; runs as a Ray task on each node."""
    return [path for path in paths if not os.path.exists(path)]  # noqa: PTH110 - one import less on each node


def _path_message(paths: list[RequiredPath], what: str) -> str:
    named = ", ".join(f"{required.field}: {required.path}" for required in paths)
    return f"{named} {what}; check the path and the volume that should hold it"


def _variable(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise RefusedError(
            ExitCode.ENVIRONMENT, "BadSubmission", f"{name} is not set: the operator's submission or pod spec lacks it"
        )
    return value
