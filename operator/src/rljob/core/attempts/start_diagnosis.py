"""Why does a cluster not start? A chain of checks over its pods; the first finding wins.

Each reason is a documented constant of conditions and events; each message names the pod.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rljob.core.attempts.container_failures import has_no_allowed_user
from rljob.core.attempts.scheduler_messages import explained
from rljob.core.attempts.start_advice import USER_ADVICE, pull_advice
from rljob.core.manifest_facts import counted_workers, is_deleted, wanted_workers
from rljob.core.observed import Manifest

MESSAGE_LIMIT = 600
"""Characters kept of a message of the kubelet or the scheduler."""


class StartReason(enum.StrEnum):
    """Why pods do not run yet."""

    IMAGE_PULL_FAILED = "ImagePullFailed"
    """An image cannot be pulled: name, registry or pull secret is wrong."""
    POD_UNSCHEDULABLE = "PodUnschedulable"
    """No node offers what the pod requests."""
    CONTAINER_CONFIG_INVALID = "ContainerConfigInvalid"
    """A ConfigMap, Secret or key that the pod names does not exist, or its command cannot run."""
    CONTAINER_FAILED = "ContainerFailed"
    """A container ended although it should be running."""
    POD_STARTING = "PodStarting"
    """Scheduled, pulling images, or waiting to be ready or to be counted by KubeRay: nothing is wrong so far."""
    NO_PODS = "NoPods"
    """KubeRay has created no pods: it does not run, does not watch the namespace, or has many clusters to create."""
    PODS_REFUSED = "PodsRefused"
    """KubeRay, or for an initializer the controller of Jobs, or for a shared service that of ReplicaSets, could not
    create pods, for example because of the namespace's quota; the message quotes it."""


PROBLEMS = frozenset(StartReason) - {StartReason.POD_STARTING, StartReason.NO_PODS}
"""Reasons that are reported as a warning event immediately."""

# kubernetes v1.36.2: pkg/kubelet/images/types.go, pkg/kubelet/kuberuntime/kuberuntime_container.go
_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_PULL_ADVICE = (
    ("no match for platform in manifest", "the image has no variant for the CPU architecture of the node"),
    ("manifest unknown", "the registry has no such tag; correct the image"),
    ("not found", "the registry has no such image or tag; correct the image"),
)
"""What words of a message mean: containerd v2.2.0 (core/images/image.go) and the error codes of the OCI distribution
specification 1.1. The image may still be pushed, so the deadline decides."""
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


@dataclass(frozen=True)
class Diagnosis:
    """The reason why a cluster does not start."""

    reason: StartReason
    message: str
    since: str | None = None
    """When the pod that is waited for was created; None where it is not one pod."""
    container: str = field(default="", compare=False)
    """The container that the message is about, if it is one."""


@dataclass(frozen=True)
class Expected:
    """What a RayCluster should have, and what KubeRay has counted in it."""

    workers: int
    counted: int
    """Ready workers by KubeRay's status, which follows the pods with a delay."""
    was_complete: bool = False
    """Whether all pods were ready before, so that a missing one is gone and not still to come."""

    @classmethod
    def of(cls, cluster: Manifest, *, was_complete: bool = False) -> Self:
        """Return what a RayCluster expects."""
        return cls(wanted_workers(cluster), counted_workers(cluster), was_complete)

    @property
    def pods(self) -> int:
        """The workers and the head."""
        return self.workers + 1


def diagnose(
    pods: Iterable[Manifest], expected: Expected | None = None, injected_image: str | None = None
) -> Diagnosis:
    """Return the first finding of the chain; `expected` is None for pods that belong to no RayCluster.

    `injected_image` is the operator's image, if the helpers of the pods run it.
    """
    ordered = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    for check in CHECKS:
        for pod in ordered:
            if (found := check(pod)) is not None:
                return _with_pull_advice(found, injected_image)
    if not ordered:
        return Diagnosis(StartReason.NO_PODS, "no pod exists yet" if expected is None else _no_pods(expected))
    staying = [pod for pod in ordered if not is_deleted(pod)]
    message = _all_ready(len(staying), expected or Expected(len(staying) - 1, len(staying) - 1))
    going = ", ".join(_name(pod) for pod in ordered if is_deleted(pod))
    return Diagnosis(StartReason.POD_STARTING, f"{message}; being deleted: {going}" if going else message)


def _with_pull_advice(found: Diagnosis, injected_image: str | None) -> Diagnosis:
    if found.reason is not StartReason.IMAGE_PULL_FAILED:
        return found
    advice = pull_advice(found.container, injected_image)
    return replace(found, message=f"{found.message}; {advice}") if advice else found


def _no_pods(expected: Expected) -> str:
    return f"none of the {expected.pods} pods is left" if expected.was_complete else "no pod exists yet"


def _all_ready(existing: int, expected: Expected) -> str:
    """Return what keeps a cluster of ready pods from being complete, if anything does."""
    verb = "is" if existing == 1 else "are"
    if existing < expected.pods:
        ready = f"{existing} of {expected.pods} pods {verb} ready"
        return (
            f"{ready}; the others are gone"
            if expected.was_complete
            else f"{ready}; KubeRay has not created the rest yet"
        )
    ready = "the only pod is ready" if existing == 1 else f"all {existing} pods are ready"
    if expected.was_complete or expected.counted >= expected.workers:
        return ready
    return f"{ready}; KubeRay has counted {expected.counted} of {expected.workers} workers so far"


def refusal(owner: Manifest, controller: str = "KubeRay") -> Diagnosis | None:
    """Return the error about creating pods of a RayCluster or Deployment: a condition that is removed on success."""
    for condition in (owner.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            said = _short(str(condition.get("message") or "no message"))
            return Diagnosis(
                StartReason.PODS_REFUSED, f"{controller}: {condition.get('reason', 'ReplicaFailure')}: {said}"
            )
    return None


def creation_failure(events: Iterable[Manifest]) -> Diagnosis | None:
    """Return the error of the controller of Jobs about creating a pod, from its latest event."""
    ordered = sorted(events, key=lambda event: str(event["metadata"].get("creationTimestamp", "")))
    return (
        Diagnosis(StartReason.PODS_REFUSED, _short(str(ordered[-1].get("note") or "no message"))) if ordered else None
    )


def _image(pod: Manifest) -> Diagnosis | None:
    found = _waiting(pod, _IMAGE_REASONS, StartReason.IMAGE_PULL_FAILED)
    if found is None:
        return None
    advice = next((text for words, text in _PULL_ADVICE if words in found.message), "")
    return replace(found, message=f"{found.message}; {advice}") if advice else found


def _config(pod: Manifest) -> Diagnosis | None:
    found = _waiting(pod, _CONFIG_REASONS, StartReason.CONTAINER_CONFIG_INVALID)
    if found is None or not has_no_allowed_user(found.message):
        return found
    return replace(found, message=f"{found.message}; {USER_ADVICE}")


def _waiting(pod: Manifest, reasons: frozenset[str], reason: StartReason) -> Diagnosis | None:
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in reasons:
            detail = _short(waiting.get("message", ""))
            text = f"pod {_name(pod)}, container {status['name']}: {waiting['reason']}: {detail}"
            return Diagnosis(reason, text, container=str(status["name"]))
    return None


def _unschedulable(pod: Manifest) -> Diagnosis | None:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            said = _short(str(condition.get("message") or condition.get("reason") or ""))
            return Diagnosis(StartReason.POD_UNSCHEDULABLE, f"pod {_name(pod)}: {explained(said)}")
    return None


def _failed(pod: Manifest) -> Diagnosis | None:
    for status in _containers(pod):
        ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
        if ended.get("exitCode", 0) != 0:
            detail = _end_of(ended.get("message") or "")
            text = f"pod {_name(pod)}, container {status['name']}: {ended.get('reason', 'Error')}, exit code "
            text = f"{text}{ended['exitCode']}: {detail}".rstrip(": ")
            return Diagnosis(StartReason.CONTAINER_FAILED, text, container=str(status["name"]))
    return None


def _starting(pod: Manifest) -> Diagnosis | None:
    if _is_ready(pod):
        return None
    waiting = [s for s in _containers(pod) if not s.get("ready", False)]
    names = ", ".join(status["name"] for status in waiting) or "its containers"
    made = pod["metadata"].get("creationTimestamp")
    return Diagnosis(StartReason.POD_STARTING, f"pod {_name(pod)} waits for {names}", made)


CHECKS: tuple[Callable[[Manifest], Diagnosis | None], ...] = (_image, _config, _unschedulable, _failed, _starting)


def _containers(pod: Manifest) -> Iterator[dict[str, Any]]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MESSAGE_LIMIT else flat[: MESSAGE_LIMIT - 1] + "…"


def _end_of(text: str) -> str:
    """Return the end of a text: a program that fails says why in its last lines."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MESSAGE_LIMIT else "…" + flat[1 - MESSAGE_LIMIT :]
