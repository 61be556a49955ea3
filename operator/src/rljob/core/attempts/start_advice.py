"""What to do about containers that cannot start, by whose image they run.

With `runtime.injection: Auto`, the operator's image runs the helpers beside Ray, and the user cannot correct it in the
job. KubeRay's own init container, `wait-gcs-ready`, runs the image of the Ray container.
"""

from __future__ import annotations

from rljob.api.status import ContainerFailure
from rljob.core.attempts.container_failures import (
    FETCH_CODE,
    NEVER_PULLED,
    OOM_KILLED,
    RAY,
    has_no_allowed_user,
    is_for_other_cpu,
    lacks_program,
)
from rljob.core.observed import Manifest
from rljob.render import injection, labels, packages
from rljob.render.raycluster import EXPORTER
from rljob_runtime.contract import ExitCode

HELPERS = frozenset({EXPORTER, FETCH_CODE, injection.CONTAINER})
"""Containers that run the operator's image if the runtime is injected, otherwise spec.runtime.image."""
OF_RUNTIME_IMAGE = RAY | HELPERS | {"wait-gcs-ready"}
USER_ADVICE = (
    "the image runs as root, or its user has no number: use an image with a numeric user, or set "
    "template.securityContext of spec.head and spec.workerGroups: runAsUser with another user than 0, or, if the "
    "namespace allows root, runAsNonRoot: false"
)
NODES = "choose nodes by the label kubernetes.io/arch in template.nodeSelector"
SETTING = "the operator's --runtime-image (image.registry and image.tag of its chart)"


def injected_image(cluster: Manifest | None) -> str | None:
    """Return the image whose runtime the pods of a RayCluster get; None if they use that of their own image."""
    annotations = ((cluster or {}).get("metadata") or {}).get("annotations") or {}
    found = annotations.get(labels.RUNTIME_IMAGE)
    return None if found is None else str(found)


def pull_advice(container: str, injected: str | None) -> str:
    """Return what to do about an image that cannot be pulled, if it is the operator's."""
    if injected is None or container not in HELPERS:
        return ""
    return (
        f"container {container} runs the operator's image {injected}, not spec.runtime.image: correct {SETTING}, or "
        "give spec.runtime.imagePullSecrets a Secret that can pull it"
    )


def advice(failure: ContainerFailure, injected: str | None = None) -> str:
    """Return what to do about a failure that would repeat; `injected` is the image of an injected runtime."""
    if failure.reason == OOM_KILLED:
        return "raise the memory of the container"
    if failure.container == FETCH_CODE and failure.exit_code == ExitCode.BAD_CONFIG:
        return "correct spec.code.git"
    if has_no_allowed_user(failure.message):
        return USER_ADVICE
    if injected is not None and failure.container in HELPERS:
        return _about_operator_image(failure, injected)
    if is_for_other_cpu(failure):
        return f"the image is built for another CPU architecture than that of the node; use an image for it, or {NODES}"
    if failure.reason in NEVER_PULLED:
        return "correct the name of the image or spec.runtime.imagePullPolicy"
    if lacks_program(failure):
        return f"the image lacks a program; {_needs(failure.container, injected)}"
    at_fault = "spec.runtime.packages" if failure.container == packages.CONTAINER else "the command of the container"
    return f"every further pod would end the same way; correct the image, or {at_fault}"


def _needs(container: str, injected: str | None) -> str:
    if container not in OF_RUNTIME_IMAGE:
        return "correct the image or the command of the container"
    if injected is not None:
        return "spec.runtime.image needs bash, Python and Ray"
    return (
        "spec.runtime.image needs bash, Python, Ray and rljob-runtime; with spec.runtime.injection Auto, it needs no "
        "rljob-runtime"
    )


def _about_operator_image(failure: ContainerFailure, injected: str) -> str:
    image = f"the operator's image {injected}"
    if is_for_other_cpu(failure):
        return (
            f"{image} is built for another CPU architecture than that of the node; set {SETTING} to an image for it, "
            f"or {NODES}"
        )
    if failure.reason in NEVER_PULLED:
        return f"the container runs {image}; correct {SETTING}, or spec.runtime.imagePullPolicy"
    return f"the container runs {image}, which must be that of this release; correct {SETTING}"
