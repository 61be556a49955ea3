"""Check the identity of an attempt before any resource is used: is this the intended pod and the intended job.json?

node_checks/preflight.py later checks what every node must offer. Each failure shows whether a retry can help: 64 means
never, 65 that this environment is wrong.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract import (
    RAY_WITHOUT_TOKENS,
    RUNTIME_VERSION,
    UNAUTHENTICATED_RAY_MINIMUM,
    AttemptVariable,
    ContractError,
    ExitCode,
    JobConfig,
    PodVariable,
    head_paths,
)
from rljob_runtime.image_check.requirements import RAY_MINIMUM
from rljob_runtime.node_checks.versions import older
from rljob_runtime.outcomes import RefusedError

RAY_AUTH_MODE = "RAY_AUTH_MODE"
"""Set by KubeRay with authOptions.mode token (v1.6.2, ray-operator/controllers/ray/common/pod.go)."""


@dataclass(frozen=True)
class Attempt:
    """Facts about this attempt from the submission and the pod."""

    number: int
    submission_id: str
    pod_uid: str
    spool: Path
    checkpoint_step: int | None = None
    """The last step that earlier attempts saved to the checkpoint folder, as far as the operator knows."""


def read_attempt(environ: Mapping[str, str]) -> Attempt:
    """Read and check the attempt's environment. Raises RefusedError (exit 65)."""
    number = _variable(environ, AttemptVariable.ATTEMPT)
    if not number.isdigit() or int(number) < 1:
        raise RefusedError(
            ExitCode.ENVIRONMENT,
            "BadSubmission",
            f"{AttemptVariable.ATTEMPT}={number!r}: expected an integer of at least 1",
        )
    attempt = Attempt(
        number=int(number),
        submission_id=_variable(environ, AttemptVariable.SUBMISSION_ID),
        pod_uid=_variable(environ, PodVariable.POD_UID),
        spool=Path(environ.get(PodVariable.SPOOL) or head_paths().spool),
        checkpoint_step=_checkpoint_step(environ),
    )
    intended = _variable(environ, AttemptVariable.HEAD_POD_UID)
    if intended != attempt.pod_uid:
        raise RefusedError(
            ExitCode.ENVIRONMENT,
            "WrongPod",
            f"submission {attempt.submission_id} is for pod {intended}, but this is pod {attempt.pod_uid}: "
            "the head was replaced after the attempt was planned",
        )
    return attempt


def read_job(environ: Mapping[str, str]) -> JobConfig:
    """Read job.json and compare it with the submission's digest. Raises RefusedError."""
    path = Path(environ.get(PodVariable.CONFIG) or head_paths().config)
    try:
        job = JobConfig.from_json(path.read_bytes())
    except OSError as error:
        raise RefusedError(ExitCode.ENVIRONMENT, "ConfigUnreadable", f"{path}: {error.strerror}") from error
    except ContractError as error:
        message = f"{path}: {error}; this runtime is rljob-runtime {RUNTIME_VERSION}"
        raise RefusedError(ExitCode.BAD_CONFIG, "ConfigInvalid", message) from error
    wanted = _variable(environ, AttemptVariable.JOB_DIGEST)
    if job.digest() != wanted:
        raise RefusedError(
            ExitCode.ENVIRONMENT,
            "WrongConfig",
            f"{path} has digest {job.digest()[:12]}, but the submission expects {wanted[:12]}: "
            "the mounted ConfigMap belongs to another cluster generation",
        )
    return job


def require_tokens(environ: Mapping[str, str], installed: Callable[[str], str] = importlib.metadata.version) -> None:
    """Refuse a Ray that ignores the cluster's token, so that everybody could run code in it (exit 64)."""
    if environ.get(RAY_AUTH_MODE) == "token" and older(version := installed("ray"), RAY_MINIMUM):
        problem = f"the image has Ray {version}, which cannot check the cluster's token; use {RAY_MINIMUM} or later"
        if not older(version, UNAUTHENTICATED_RAY_MINIMUM):
            problem += (
                ", or set runtime.rayVersion to it and runtime.unauthenticatedRay to true, where the namespace allows "
                "it and network.mode is Pod"
            )
        raise RefusedError(ExitCode.BAD_CONFIG, RAY_WITHOUT_TOKENS, problem)


def missing_here(paths: list[str]) -> list[str]:
    """Return the paths that do not exist on this node."""
    return [path for path in paths if not Path(path).exists()]


def _checkpoint_step(environ: Mapping[str, str]) -> int | None:
    text = environ.get(AttemptVariable.CHECKPOINT_STEP)
    if not text:
        return None
    if not text.isdigit():
        name = AttemptVariable.CHECKPOINT_STEP
        raise RefusedError(ExitCode.ENVIRONMENT, "BadSubmission", f"{name}={text!r}: expected a step")
    return int(text)


def _variable(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise RefusedError(
            ExitCode.ENVIRONMENT, "BadSubmission", f"{name} is not set: the operator's submission or pod spec lacks it"
        )
    return value
