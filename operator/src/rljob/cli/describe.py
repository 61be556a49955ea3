"""`rljob describe`: explain in one paragraph why a job does not run. Pure: takes cluster objects and returns text.

A chain of checks, as in `core.attempts.start_diagnosis`: the first one that knows the cause reports it, with numbers,
names and the fix. The job's status comes first, since the operator reports there what it saw. The checks of queue,
quota, pods and nodes cover what the operator does not read or keep. Objects that the user may not read are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rljob.api.quantity import quantity
from rljob.api.status import State
from rljob.api.v1alpha1 import MANAGER
from rljob.cli.node_state import amount, node_sentences
from rljob.cli.status import has_checkpoints, software
from rljob.core.attempts.start_advice import injected_image
from rljob.core.attempts.start_diagnosis import Diagnosis, Expected, StartReason, diagnose
from rljob.core.manifest_facts import wanted_workers
from rljob.core.observed import Manifest
from rljob.core.reasons import Reason
from rljob.render import labels

WORDS_LIMIT = 600
"""Maximum number of characters quoted from another program."""
QUOTA = re.compile(r"exceeded quota: ([^,\s]+), requested: (\S+), used: (\S+), limited: ([^\s\"]+)")
"""Message of the API server: k8s.io/apiserver, pkg/admission/plugin/resourcequota/controller.go (checkRequest)."""
POD_REFUSED = re.compile(r"Failed(ToCreate|Create)")
"""Event reasons of KubeRay (FailedToCreateHeadPod, FailedToCreateWorkerPod) and of Jobs (FailedCreate)."""
VOLUME_REASONS = frozenset({"FailedMount", "FailedAttachVolume", "ProvisioningFailed", "FailedBinding"})
ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED})


@dataclass(frozen=True)
class World:
    """The objects found for one job. None: the user may not read them, or the cluster has no such kind."""

    job: Manifest
    clusters: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()
    """Warning events of the namespace (events.k8s.io)."""
    workloads: Sequence[Manifest] | None = None
    """Kueue Workloads of the namespace."""
    nodes: Sequence[Manifest] | None = None

    @property
    def status(self) -> Manifest:
        """The job's status, as the operator wrote it."""
        found: Manifest = self.job.get("status") or {}
        return found

    @property
    def cluster_name(self) -> str:
        """Name of the RayCluster that the status refers to."""
        return str((self.status.get("intent") or {}).get("clusterName", ""))

    @property
    def cluster(self) -> Manifest | None:
        """The RayCluster that the status refers to."""
        return next((found for found in self.clusters if found["metadata"]["name"] == self.cluster_name), None)

    @property
    def is_queued(self) -> bool:
        """Return whether the cluster is suspended until a queue admits it."""
        return self.cluster is not None and bool(self.cluster["spec"].get("suspend"))

    @property
    def was_complete(self) -> bool:
        """Return whether all pods were ready before: only then does the operator intend an attempt."""
        return int((self.status.get("intent") or {}).get("attempt", 0)) > 0

    @property
    def unscheduled(self) -> dict[str, str]:
        """Pods without a node, with the scheduler's message for each."""
        return {pod["metadata"]["name"]: said for pod in self.pods if (said := _unscheduled(pod)) is not None}

    @property
    def lacks_devices(self) -> bool:
        """Return whether a pod waits for devices that other jobs may hold."""
        devices = _devices(self.cluster) if self.cluster is not None else ()
        return any(f"Insufficient {name}" in said for name in devices for said in self.unscheduled.values())

    def last_event(self, chosen: Callable[[Manifest], bool]) -> Manifest | None:
        """Return the newest event that matches."""
        return max(filter(chosen, self.events), key=_last_seen, default=None)


Check = Callable[[World], Iterator[str]]


def why(world: World) -> str:
    """Return the paragraph."""
    sentences = next(found for check in CHECKS if (found := list(check(world))))
    return " ".join([_headline(world), *sentences, *_next_step(world), *_software(world)])


def _headline(world: World) -> str:
    metadata, status = world.job["metadata"], world.status
    reason = f" ({status['reason']})" if status.get("reason") else ""
    return (
        f"{metadata.get('namespace', 'default')}/{metadata['name']} is "
        f"{status.get('state', 'not reconciled yet')}{reason}."
    )


def _unmanaged(world: World) -> Iterator[str]:
    annotations = world.job["metadata"].get("annotations") or {}
    manager = (world.job.get("spec") or {}).get("managedBy", MANAGER)
    if manager != MANAGER:
        yield f"spec.managedBy assigns it to {manager}, so this operator ignores it."
    elif annotations.get(labels.PAUSED) == "true":
        yield f"The annotation {labels.PAUSED} pauses it; remove the annotation to continue."
    elif not world.status.get("state"):
        yield "The operator has not written a status yet. Check that it runs and that it watches this namespace."


def _suspended(world: World) -> Iterator[str]:
    if (world.job.get("spec") or {}).get("suspend") and world.status["state"] not in ENDED:
        begins = "resume from the last checkpoint" if has_checkpoints(world.job) else "begin at step 0"
        yield f"spec.suspend is true; set it to false to {begins}."


def _status_message(world: World) -> Iterator[str]:
    """Report what the operator knows best, which is everything except why an existing cluster does not start."""
    if world.status["state"] == State.STARTING and world.cluster is not None:
        return
    progress = world.status.get("progress")
    if world.status["state"] == State.TRAINING and progress:
        yield f"It is running: step {progress.get('summary', progress.get('step'))}."
    if world.status.get("message"):
        yield _sentence(world.status["message"])
    elif not progress:
        yield "The status has no further detail."
    for note in world.status.get("notes") or ():
        yield f"The run reported: {_sentence(note)}"


def _queue(world: World) -> Iterator[str]:
    """Report why Kueue does not admit the cluster, from its Workload (kueue.x-k8s.io/v1beta1 and v1beta2)."""
    cluster = world.cluster
    if cluster is None or not world.is_queued:
        return
    queue = (cluster["metadata"].get("labels") or {}).get(labels.KUEUE_QUEUE, "")
    yield f"Its RayCluster {cluster['metadata']['name']} is waiting in queue {queue or '(none)'}."
    if world.workloads is None:
        yield "Kueue's Workloads cannot be read. Check that Kueue is installed and that you may list them."
        return
    workload = next((found for found in world.workloads if _owns(cluster, found)), None)
    if workload is None:
        yield (
            "Kueue has not created a Workload for it. Check that Kueue runs and that the namespace has a "
            f"LocalQueue {queue}."
        )
        return
    yield from _of_workload(workload)


def _of_workload(workload: Manifest) -> Iterator[str]:
    conditions = {found["type"]: found for found in (workload.get("status") or {}).get("conditions") or ()}
    sentences = [
        conditions[name]
        for name, bad in (("QuotaReserved", "False"), ("Admitted", "False"), ("Evicted", "True"))
        if conditions.get(name, {}).get("status") == bad
    ]
    if (workload.get("spec") or {}).get("active") is False:
        yield f"Its Workload {workload['metadata']['name']} is deactivated (spec.active is false)."
    for found in sentences[:2]:
        words = _sentence(found.get("message") or "no message")
        yield f"Kueue reports {found['type']}={found['status']} ({found.get('reason', 'no reason')}): {words}"
    if not sentences:
        yield "Kueue has not evaluated its Workload yet."
    for check in (workload.get("status") or {}).get("admissionChecks") or ():
        if check.get("state") != "Ready":
            yield _sentence(f"Admission check {check['name']} is {check.get('state')}: {check.get('message', '')}")


def _refused_pods(world: World) -> Iterator[str]:
    """Report why the namespace rejects pods: a quota, Pod Security or another policy."""
    wanted = _wanted_pods(world)
    refusal = world.last_event(lambda e: bool(POD_REFUSED.match(e["reason"])) and _regarding(e) == world.cluster_name)
    if refusal is None or len(world.pods) >= wanted:
        return
    yield f"{len(world.pods)} of its {wanted} pods have been created."
    said = str(refusal.get("note", ""))
    if found := QUOTA.search(said):
        yield from _of_quota(*found.groups())
    else:
        yield f"The namespace rejects further pods: {_sentence(_last_words(said))}"


def _of_quota(name: str, *texts: str) -> Iterator[str]:
    requested, used, limited = (dict(item.split("=", 1) for item in text.split(",") if "=" in item) for text in texts)
    asked = [
        f"{resource} {amount} ({used.get(resource, '?')} of {limited.get(resource, '?')} are used)"
        for resource, amount in requested.items()
    ]
    yield f"ResourceQuota {name} is exhausted: a pod requests {' and '.join(asked)}."
    yield "The pods are created when other workloads of the namespace end, or when the quota is raised."


def _broken_pods(world: World) -> Iterator[str]:
    found = _diagnosis(world)
    if found.reason in (StartReason.IMAGE_PULL_FAILED, StartReason.CONTAINER_CONFIG_INVALID):
        fix = {
            StartReason.IMAGE_PULL_FAILED: "Check image, registry and runtime.imagePullSecrets.",
            StartReason.CONTAINER_CONFIG_INVALID: "Check that the referenced objects exist in the namespace.",
        }[found.reason]
        yield _sentence(found.message)
        yield fix
    elif found.reason is StartReason.CONTAINER_FAILED:
        yield _sentence(found.message)


def _unscheduled_pods(world: World) -> Iterator[str]:
    """Report why some pods have no node while the other pods hold theirs."""
    waiting = world.unscheduled
    if not waiting:
        return
    yield f"{len(world.pods) - len(waiting)} of its {_wanted_pods(world)} pods are scheduled."
    # The operator adds what the nodes lack for the class; without its message, the pods are read here in the same way.
    known = world.status.get("reason") == StartReason.POD_UNSCHEDULABLE and world.status.get("message")
    yield _sentence(known or _diagnosis(world).message)
    if world.lacks_devices:
        yield _devices_advice(world)
    if len(waiting) < len(world.pods):
        yield (
            "The scheduled pods hold their nodes meanwhile; with a queue (scheduling.queueName), all pods start "
            "together."
        )
    if world.nodes is not None and world.cluster is not None:
        yield from node_sentences(world.nodes, frozenset(_devices(world.cluster)))


def _devices_advice(world: World) -> str:
    """Say whether waiting can help: a pod with more devices than any node has never gets one."""
    wanted = _devices(world.cluster) if world.cluster is not None else {}
    for name, count in sorted(wanted.items()):
        most = max((amount(node, "capacity", name) for node in world.nodes or ()), default=0)
        if world.nodes is not None and 0 < most < count:
            return f"A pod requests {count} {name}, and no node has more than {most}; lower devicesPerNode."
    return "While other jobs use the devices, the job releases its nodes after a minute or two, waits and tries again."


def _unscheduled(pod: Manifest) -> str | None:
    for found in (pod.get("status") or {}).get("conditions") or ():
        if found["type"] == "PodScheduled" and found["status"] == "False":
            return str(found.get("message") or found.get("reason") or "no reason given")
    return None


def _volumes(world: World) -> Iterator[str]:
    mine = {pod["metadata"]["name"] for pod in world.pods if (pod.get("status") or {}).get("phase") == "Pending"}
    event = world.last_event(lambda e: e["reason"] in VOLUME_REASONS and _regarding(e) in mine)
    if event is not None:
        yield f"Pod {_regarding(event)} is waiting for a volume: {_sentence(_short(str(event.get('note', ''))))}"


def _starting(world: World) -> Iterator[str]:
    if not world.pods and not world.was_complete:
        yield "KubeRay has not created its pods yet. Check that KubeRay runs."
        return
    yield _sentence(_diagnosis(world).message)
    # An earlier finding about the same pods would contradict what they are now.
    if world.status.get("message") and world.status.get("reason") not in list(StartReason):
        yield _sentence(world.status["message"])


def _diagnosis(world: World) -> Diagnosis:
    expected = Expected.of(world.cluster, was_complete=world.was_complete) if world.cluster is not None else None
    return diagnose(world.pods, expected, injected_image(world.cluster))


CHECKS: tuple[Check, ...] = (
    _unmanaged,
    _suspended,
    _status_message,
    _queue,
    _refused_pods,
    _broken_pods,
    _unscheduled_pods,
    _volumes,
    _starting,
)


def _next_step(world: World) -> Iterator[str]:
    """Report what happens next, and when."""
    status, cluster = world.status, world.cluster
    excluded = [f"{node['name']} ({node['reason']})" for node in status.get("excludedNodes") or ()]
    if status.get("state") in (State.STARTING, State.RESTARTING) and excluded:
        yield f"It avoids {', '.join(excluded)}."
    if status.get("state") == State.RESTARTING and status.get("nextAttemptTime"):
        yield f"The next attempt starts at {status['nextAttemptTime']}."
    elif status.get("reason") == Reason.WAITING_FOR_KUBERAY:
        yield "It waits for KubeRay without a deadline."
    elif status.get("state") == State.STARTING and world.was_complete:
        yield (
            "The attempt is stopped if its first step does not come within deadlines.startSeconds or "
            "deadlines.progressSeconds, whichever is longer, after it has checked the nodes and loaded the model."
        )
    elif status.get("state") == State.STARTING and cluster is not None and not world.is_queued:
        subject = "If too few nodes have them, the attempt" if world.lacks_devices else "The attempt"
        yield f"{subject} fails unless it starts by {status['intent']['startDeadline']} (deadlines.startSeconds)."


def _software(world: World) -> Iterator[str]:
    """Report which injected runtime and which verl the cluster has."""
    found = software(world.status.get("rayCluster") or {})
    if found:
        yield f"Its cluster has {found}."


def _wanted_pods(world: World) -> int:
    return 1 + (wanted_workers(world.cluster) if world.cluster else 0)


def _devices(cluster: Manifest) -> dict[str, int]:
    """Return the extended resources of the workers, with the largest number per pod."""
    most: dict[str, int] = {}
    for group in cluster["spec"].get("workerGroupSpecs") or ():
        for container in group["template"]["spec"]["containers"]:
            for resource, count in ((container.get("resources") or {}).get("limits") or {}).items():
                if "/" in resource:
                    most[resource] = max(most.get(resource, 0), int(quantity(str(count))))
    return most


def _owns(owner: Manifest, child: Manifest) -> bool:
    uid = owner["metadata"]["uid"]
    return any(found.get("uid") == uid for found in child["metadata"].get("ownerReferences") or ())


def _regarding(event: Manifest) -> str:
    return str((event.get("regarding") or {}).get("name", ""))


def _last_seen(event: Manifest) -> str:
    """Return when the event was last seen; clients of the two events APIs set different fields."""
    series = (event.get("series") or {}).get("lastObservedTime")
    return str(series or event.get("deprecatedLastTimestamp") or event.get("eventTime") or "")


def _last_words(text: str) -> str:
    """Return the message without the pod names in front of `is forbidden:`."""
    return _short(text.rpartition("is forbidden: ")[2])


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= WORDS_LIMIT else f"{flat[: WORDS_LIMIT - 1]}…"


def _sentence(text: str) -> str:
    flat = " ".join(text.split())
    return flat if flat.endswith((".", "?", "!", "…")) else f"{flat}."
