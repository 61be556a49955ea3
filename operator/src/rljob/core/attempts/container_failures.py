"""Containers that end before their pod is ready, counted over the pods of one cluster.

KubeRay deletes a pod whose Ray container has ended and creates another one, at once and without end (v1.6.2,
ray-operator/controllers/ray/raycluster_controller.go, shouldDeletePod), so no single pod shows that a start cannot
succeed. The ends are found in the pods that exist, in the last state of head pods that are gone, and in KubeRay's
events about the pods that it deleted. The counts are kept in `status.intent.containerFailures`.

Only what another node or another try cannot change counts as hopeless: an image that lacks the program or is built for
another CPU, too little memory, or a command of the user that ends in the same way each time. Ray that ran and gave up,
or a runtime that cannot start a container for another reason, may suffer from its node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rljob.api.status import ContainerFailure
from rljob.core import times
from rljob.core.manifest_facts import pod_is_ready
from rljob.core.observed import Manifest
from rljob.core.status import bounded
from rljob.render import labels, packages
from rljob_runtime.contract import ExitCode

IDENTICAL_ENDS = 3
APART_SECONDS = 10.0
"""An end within this time of the last counted one belongs to it: the pods of many nodes fail together."""
DOUBTFUL_APART_SECONDS = 60.0
"""The same for an end that an outage of minutes may explain, such as that of a mounted file system."""
RAN_SECONDS = 300.0
"""A container that ran for this long was ready, or nearly ready, so its end is no failed start."""
FAILURES_KEPT = 4
MESSAGE_BYTES = 600
"""Bytes kept of the last lines of a container."""
REASON_BYTES = 128
"""Bytes kept of a reason; those of the kubelet and of container runtimes are single words."""

OOM_KILLED = "OOMKilled"
RAY = frozenset({"ray-head", "ray-worker"})
FETCH_CODE = "fetch-code"
USAGE_ERROR = 2
"""Exit code of `ray start` for an option that this Ray does not know (click 8, click/exceptions.py, UsageError)."""
SIGNALS = frozenset({128 + 9, 128 + 15})
"""Exit codes of a container that was killed or asked to stop from outside."""

# kubernetes v1.36.2: pkg/kubelet/images/types.go, pkg/kubelet/kuberuntime/kuberuntime_container.go
NEVER_PULLED = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_NOT_CONFIGURED = "CreateContainerConfigError"
_NOT_CREATED = frozenset({"CreateContainerError", "RunContainerError"})
_RUNTIME_ENDS = frozenset({"StartError", "ContainerCannotRun", *_NOT_CREATED})
"""Reasons of the container runtime (containerd v2.2.0, internal/cri/server/helpers.go: StartError; cri-o:
ContainerCannotRun), not of a process that it started."""
_SHELL_CODES = frozenset({126, 127})
"""The shell cannot execute a program, or does not find it (POSIX.1-2017, Shell Command Language, 2.8.2)."""
_CERTAIN = re.compile(
    r'exec: "[^"]+": (?:stat [^:]+: no such file|executable file not found|permission denied)'
    r"|executable file `[^`]+` not found|exec format error|No module named",
    re.IGNORECASE,
)
"""Messages of runc, crun, the kernel and Python about an image that cannot run its command on any node."""
_NO_ALLOWED_USER = re.compile(r"container has runAsNonRoot and image |container's runAsUser breaks non-root policy")
"""kubernetes v1.36.2: pkg/kubelet/kuberuntime/security_context_others.go, verifyRunAsNonRoot."""
_PACKAGES_REFUSED = re.compile(r"Got [0-9a-f]{64}|no such option: --")
"""The end of pip's message about a wheel with another hash (pip 23.2.1, _internal/exceptions.py, HashMismatch), and
that of a pip before 22.1. Neither the exit code nor a missing release shows whether the index was reached."""
_OTHER_CPU = re.compile("exec format error", re.IGNORECASE)

_DELETED = re.compile(
    r"(?:\(combined from similar events\): )?"
    r"Deleted (head|worker) Pod [^/\s]+/[^;\s]+; Pod status: (\w+);.*?Ray container terminated status: (.*)",
    re.DOTALL,
)
"""KubeRay v1.6.2, raycluster_controller.go, reconcilePods: the events DeletedHeadPod and DeletedWorkerPod. The prefix
is client-go's (tools/record/events_cache.go)."""
_TERMINATED = re.compile(r"ExitCode:(\d{1,10}),Signal:-?\d+,Reason:([^,]*),Message:(.*)", re.DOTALL)
_DATE = r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) \+0000 UTC"
_RAN = re.compile(rf"{_DATE},FinishedAt:{_DATE},ContainerID:[^,\s]*,\}}", re.ASCII)
"""A ContainerStateTerminated as Go prints it (k8s.io/api v0.35.0 of KubeRay v1.6.2, core/v1/generated.pb.go).

The message is text that the container prints, and may itself look like the fields after it."""
_STARTED_AT = ",StartedAt:"


@dataclass(frozen=True)
class End:
    """One end of a container, or one look at a container that cannot be created."""

    role: str
    """Node type of the pod: head or worker."""
    container: str
    """Empty if only the pod is known to have failed."""
    exit_code: int | None
    reason: str
    message: str
    time: str


def container_ends(
    pods: Iterable[Manifest],
    events: Iterable[Manifest],
    cluster_uid: str,
    since: datetime,
    now: datetime,
    restarted: frozenset[str] = frozenset(),
) -> list[End]:
    """Return the ends that are seen of the pods of a cluster since its start began, in the order of time.

    `restarted` are the init containers that the kubelet restarts. The operator does not keep the specs of pods.
    """
    by_uid = {pod["metadata"].get("uid", pod["metadata"]["name"]): pod for pod in pods}
    found = [*_of_pods(by_uid.values(), now, restarted), *_of_events(events, cluster_uid, now)]
    return sorted((end for end in found if times.from_text(end.time) >= since), key=lambda end: end.time)


def with_ends(known: Sequence[ContainerFailure], ends: Iterable[End]) -> list[ContainerFailure]:
    """Count ends that are not counted yet; the same ends again change nothing.

    Nothing is counted beyond what decides, so that the status is written a bounded number of times.
    """
    counted = {_key(failure): failure for failure in known}
    for end in ends:
        key = (end.role, end.container, end.exit_code, end.reason)
        before = counted.get(key)
        if before is not None and (before.count >= IDENTICAL_ENDS or not _is_later(end, before)):
            continue
        counted[key] = ContainerFailure(
            role=end.role,
            container=end.container,
            exit_code=end.exit_code,
            reason=end.reason,
            message=end.message or (before.message if before else ""),
            count=before.count + 1 if before else 1,
            time=end.time,
        )
    # What would end the job comes first: among the others, it would be dropped at each look and never reach its count.
    ordered = sorted(counted.values(), key=lambda failure: (_repeats(failure), failure.count, failure.time))
    return ordered[-FAILURES_KEPT:]


def worst(failures: Sequence[ContainerFailure]) -> ContainerFailure | None:
    """Return the most conclusive failure: with a known container, and seen most often."""
    return max(failures, key=lambda each: (bool(each.container), each.count, each.time), default=None)


def hopeless(failures: Sequence[ContainerFailure], pods: Iterable[Manifest]) -> ContainerFailure | None:
    """Return the failure that every further pod would repeat; None while there is none.

    A ready pod of the same role proves the image.
    """
    ready = {_role(pod) for pod in pods if pod_is_ready(pod)}
    return worst(
        [
            failure
            for failure in failures
            if failure.count >= IDENTICAL_ENDS and failure.role not in ready and _repeats(failure)
        ]
    )


def described(failure: ContainerFailure) -> str:
    """Return what was seen, without the names of pods, which differ each time."""
    times_seen = {1: "once", 2: "twice"}.get(failure.count, f"at least {IDENTICAL_ENDS} times")
    if not failure.container:
        return (
            f"{failure.role} pods failed {times_seen} before Ray started in them: an init container ended, or the node "
            "refused the pod"
        )
    last = f": {failure.message}" if failure.message else ""
    place = f"container {failure.container} of the {failure.role} pod"
    if failure.exit_code is None:
        return f"{place} could not be created, seen {times_seen}: {failure.reason}{last}"
    return f"{place} ended {times_seen} before it was ready: {failure.reason}, exit code {failure.exit_code}{last}"


def is_for_other_cpu(failure: ContainerFailure) -> bool:
    """Report whether the image is built for another CPU architecture than that of the node."""
    return _OTHER_CPU.search(failure.message) is not None


def has_no_allowed_user(message: str) -> bool:
    """Report whether the kubelet refuses the user of a container: root, or a name that may be root."""
    return _NO_ALLOWED_USER.search(message) is not None


def lacks_program(failure: ContainerFailure) -> bool:
    """Report whether the image lacks what the container runs."""
    return failure.exit_code in _SHELL_CODES or _CERTAIN.search(failure.message) is not None


def _key(failure: ContainerFailure) -> tuple[str, str, int | None, str]:
    return failure.role, failure.container, failure.exit_code, failure.reason


def _repeats(failure: ContainerFailure) -> bool:
    """Report whether every further pod would end the same way, wherever it runs."""
    if _is_certain(failure) or failure.reason == OOM_KILLED:
        return True
    if not failure.container or failure.reason in _RUNTIME_ENDS:
        return False
    if failure.container in RAY:
        return failure.exit_code == USAGE_ERROR
    # Fetching code and packages depends on the network; the launcher's codes distinguish a wrong commit from that.
    if failure.container == packages.CONTAINER:
        return _PACKAGES_REFUSED.search(failure.message) is not None
    return failure.container != FETCH_CODE or failure.exit_code == ExitCode.BAD_CONFIG


def _is_later(end: End, failure: ContainerFailure) -> bool:
    apart = APART_SECONDS if _is_certain(failure) else DOUBTFUL_APART_SECONDS
    return times.from_text(end.time) >= times.after(failure.time, apart)


def _is_certain(found: ContainerFailure | End) -> bool:
    """Report whether the image alone explains the end."""
    if found.reason == _NOT_CONFIGURED:
        return has_no_allowed_user(found.message)
    return found.exit_code in _SHELL_CODES or found.reason in NEVER_PULLED or _CERTAIN.search(found.message) is not None


def _of_pods(pods: Iterable[Manifest], now: datetime, restarted: frozenset[str]) -> Iterator[End]:
    for pod in pods:
        if not pod_is_ready(pod) and not _is_disrupted(pod):
            yield from _of_pod(pod, now, restarted)


def _of_pod(pod: Manifest, now: datetime, restarted: frozenset[str]) -> Iterator[End]:
    """Yield the ends of containers that are not restarted, and those of restarted ones that the image explains.

    A restarted helper may wait for something by ending; the kubelet's backoff is made for that.
    """
    state: Mapping[str, Any] = pod.get("status") or {}
    requested, role = _deletion_requested(pod), _role(pod)
    for is_init, statuses in ((True, "initContainerStatuses"), (False, "containerStatuses")):
        for found in state.get(statuses) or ():
            final = not is_init or state.get("phase") == "Failed" or found["name"] not in restarted
            end = _waiting(role, found, now) or _terminated(role, found, now, is_init=is_init)
            if end is None or (not final and not _is_certain(end)):
                continue
            if requested is None or times.from_text(end.time) <= requested:
                yield end


def _waiting(role: str, found: Mapping[str, Any], now: datetime) -> End | None:
    waiting = (found.get("state") or {}).get("waiting") or {}
    reason, message = _reason(waiting.get("reason")), _cut(waiting.get("message"))
    refused = reason == _NOT_CONFIGURED and has_no_allowed_user(message)
    if refused or reason in NEVER_PULLED or (reason in _NOT_CREATED and _CERTAIN.search(message)):
        return End(role, str(found["name"]), None, reason, message, times.to_text(now))
    return None


def _terminated(role: str, found: Mapping[str, Any], now: datetime, *, is_init: bool) -> End | None:
    terminated = (found.get("state") or {}).get("terminated") or (found.get("lastState") or {}).get("terminated")
    if not terminated:
        return None
    code, reason = int(terminated.get("exitCode", 0)), _reason(terminated.get("reason")) or "Error"
    if (is_init and code == 0) or (code in SIGNALS and reason != OOM_KILLED):
        return None
    begun, ended = terminated.get("startedAt"), terminated.get("finishedAt") or times.to_text(now)
    if begun and _ran_long(begun, ended):
        return None
    return End(role, str(found["name"]), code, reason, _cut(terminated.get("message")), str(ended))


def _ran_long(begun: str, ended: str) -> bool:
    # A container that was never started began at the Unix epoch.
    return 0 <= (times.from_text(ended) - times.from_text(begun)).total_seconds() - RAN_SECONDS < 10**9


def _is_disrupted(pod: Manifest) -> bool:
    """Report whether the node or a controller ended the pod."""
    state = pod.get("status") or {}
    return bool(state.get("reason")) or any(
        entry["type"] == "DisruptionTarget" and entry["status"] == "True" for entry in state.get("conditions") or ()
    )


def _deletion_requested(pod: Manifest) -> datetime | None:
    """Return when the deletion of a pod was requested; the timestamp includes its grace period."""
    metadata = pod["metadata"]
    stamp = metadata.get("deletionTimestamp")
    return None if stamp is None else times.after(stamp, -float(metadata.get("deletionGracePeriodSeconds") or 0))


def _of_events(events: Iterable[Manifest], cluster_uid: str, now: datetime) -> Iterator[End]:
    for event in events:
        about = (event.get("regarding") or {}).get("uid", cluster_uid)
        found = _DELETED.match(str(event.get("note", "")))
        if found is None or about != cluster_uid:
            continue
        # From ten similar events on, client-go writes one, with the note of the last (tools/record/events_cache.go).
        first, made = event.get("deprecatedFirstTimestamp"), event["metadata"].get("creationTimestamp")
        for seen in dict.fromkeys((first or made, event.get("deprecatedLastTimestamp") or made)):
            # An event without a time cannot be distinguished from those before the start.
            if seen:
                yield from _of_event(found, str(seen), now)


def _of_event(found: re.Match[str], seen: str, now: datetime) -> Iterator[End]:
    role, phase, rest = found.groups()
    match = _TERMINATED.search(rest)
    if match is None:
        # Ray's container had not begun.
        if phase == "Failed":
            yield End(role, "", None, phase, "", seen)
        return
    code, reason = int(match[1]), _reason(match[2]) or "Error"
    message, _, dates = match[3].rpartition(_STARTED_AT)
    ran = _ran(dates, now)
    if ran is None:
        # The note was cut, so that everything that is left may be the container's own text.
        message, ran = match[3], (seen, seen)
    begun, ended = ran
    if (code not in SIGNALS or reason == OOM_KILLED) and not _ran_long(begun, ended):
        yield End(role, f"ray-{role}", code, reason, _cut(message), ended)


def _ran(dates: str, now: datetime) -> tuple[str, str] | None:
    """Return when a container began and ended; None where the text has no times that can be true."""
    found = _RAN.fullmatch(dates)
    if found is None:
        return None
    begun, ended = f"{found[1]}T{found[2]}Z", f"{found[3]}T{found[4]}Z"
    try:
        possible = times.from_text(begun) <= now and times.from_text(ended) <= now
    except ValueError:
        return None
    return (begun, ended) if possible else None


def _role(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(labels.RAY_NODE_TYPE, ""))


def _reason(text: object) -> str:
    return bounded(str(text or ""), REASON_BYTES)


def _cut(text: object) -> str:
    """Return the last lines of a container as one line: a program that fails says why at the end."""
    flat = " ".join(str(text or "").split())
    data = flat.encode("utf-8", "replace")
    if len(data) <= MESSAGE_BYTES:
        return bounded(flat)
    return "…" + data[-MESSAGE_BYTES:].decode("utf-8", "ignore")
