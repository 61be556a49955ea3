"""What podSpecPatch may set: a tree of the fields of core/v1, with the reason and the fix for those that it may not.

Only what the tree names is accepted, because a field that nobody looked at may give a pod more than its author may
give. Paths are those of core/v1 PodSpec. No field of the tree names a Secret, an image or a device: these have typed
fields, which policies judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rljob.api.field_path import member
from rljob.core.validation.pods import resource_problem
from rljob.core.validation.violation import Violation
from rljob.render.patch import DIRECTIVE


@dataclass(frozen=True)
class Part:
    """A field that a patch may set. Without `members` its whole value is free, or that of each entry of its list."""

    members: Mapping[str, Part] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    """Members that are not allowed, with the reason and the fix."""
    is_list: bool = False
    are_names: bool = False
    """Whether the value is a list of strings."""
    is_map: bool = False
    """Whether the value is a map although any member is allowed."""


FREE = Part()
_NAMES = Part(are_names=True)
_MAP = Part(is_map=True)


def _free(*names: str) -> dict[str, Part]:
    return dict.fromkeys(names, FREE)


SECRETS = "a patch may name no Secret; use spec.secretRefs, template.env or template.envFrom"
_KEYS = Part(_free("items", "name", "optional", "defaultMode"))
_DOWNWARD = Part(_free("items", "defaultMode"))
_SECCOMP = Part(_free("type", "localhostProfile"))
_NO_LABELS = {
    "seLinuxOptions": "the label decides what the node protects from the pod; no field sets it",
    "appArmorProfile": "the profile protects the node from the pod; no field sets it",
    "windowsOptions": "the nodes run Linux",
}
_NO_HOST = {"host": "the kubelet would call any address of its network; a probe reaches its own pod"}
_PROBE = Part(
    {
        "exec": FREE,
        "httpGet": Part(_free("path", "port", "scheme", "httpHeaders"), _NO_HOST),
        "tcpSocket": Part(_free("port"), _NO_HOST),
        **_free("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold"),
    }
)
_VOLUMES = Part(
    {
        "name": FREE,
        "configMap": _KEYS,
        "downwardAPI": _DOWNWARD,
        "emptyDir": Part(_free("medium", "sizeLimit")),
        "hostPath": Part(_free("path", "type")),
        "nfs": Part(_free("server", "path", "readOnly")),
        "persistentVolumeClaim": Part(_free("claimName", "readOnly")),
        "projected": Part(
            {
                "defaultMode": FREE,
                "sources": Part(
                    {"configMap": _KEYS, "downwardAPI": _DOWNWARD},
                    {
                        "secret": SECRETS,
                        "serviceAccountToken": "the pods run user code and must not get a token for the API server",
                        "clusterTrustBundle": "put the certificates into a ConfigMap",
                        "podCertificate": "the pods run user code and must not get an identity of their own",
                    },
                    is_list=True,
                ),
            }
        ),
    },
    {
        "secret": SECRETS,
        "csi": "a driver runs on the node with the options of the patch; use a PersistentVolumeClaim",
        "ephemeral": "it creates a claim for each pod; use a PersistentVolumeClaim, or emptyDir",
        "image": "it pulls an image that no typed field names; use template.initContainers",
        "gitRepo": "use spec.code.git",
    },
    is_list=True,
)
_DEVICES = "devices are set by workerGroups[].devicesPerNode only"
CONTAINER = Part(
    {
        **_free("name", "workingDir"),
        "env": Part(
            {
                **_free("name", "value"),
                "valueFrom": Part(_free("configMapKeyRef", "fieldRef", "resourceFieldRef"), {"secretKeyRef": SECRETS}),
            },
            is_list=True,
        ),
        "ports": Part(
            _free("containerPort", "name", "protocol"),
            {"hostPort": "use spec.network.mode: Host", "hostIP": "use spec.network.mode: Host"},
            is_list=True,
        ),
        "readinessProbe": _PROBE,
        "resources": Part({"requests": _MAP, "limits": _MAP}, {"claims": _DEVICES}),
        "securityContext": Part(
            {
                **_free("runAsUser", "runAsGroup", "runAsNonRoot", "privileged"),
                **_free("allowPrivilegeEscalation", "readOnlyRootFilesystem"),
                "capabilities": Part({"add": _NAMES, "drop": _NAMES}),
                "seccompProfile": _SECCOMP,
            },
            {"procMount": "it shows the node's kernel settings to the container; no field sets it", **_NO_LABELS},
        ),
        "startupProbe": _PROBE,
        "volumeMounts": Part(
            _free("name", "mountPath", "subPath", "subPathExpr", "readOnly"),
            {"mountPropagation": "a mount would reach other pods of the node"},
            is_list=True,
        ),
    },
    {
        DIRECTIVE: "no pod works without it",
        "command": "KubeRay sets it",
        "args": "KubeRay sets it",
        "image": "use spec.runtime.image",
        "imagePullPolicy": "use spec.runtime.imagePullPolicy",
        "lifecycle": "the operator stops the run through it",
        "envFrom": "use template.envFrom",
        "livenessProbe": "a killed Ray process would end the run; spec.deadlines.progressSeconds finds a stall",
        "restartPolicy": "a restarted Ray process has lost its state, so pods are replaced",
        "terminationMessagePath": "the operator reads it",
        "terminationMessagePolicy": "the operator reads the last lines of a container that failed",
        "volumeDevices": "a raw device bypasses the file system; use a PersistentVolumeClaim with a file system",
        "resizePolicy": "a resized pod no longer has what its job was checked with",
    },
)
"""Fields of each of the operator's own containers."""
POD = Part(
    {
        "containers": FREE,  # Each is one of CONTAINER.
        **_free("dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "hostUsers", "schedulerName"),
        "securityContext": Part(
            {
                **_free("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "fsGroupChangePolicy"),
                **_free("supplementalGroups", "supplementalGroupsPolicy", "sysctls"),
                "seccompProfile": _SECCOMP,
            },
            _NO_LABELS,
        ),
        **_free("shareProcessNamespace", "tolerations", "topologySpreadConstraints"),
        "volumes": _VOLUMES,
    },
    {
        "restartPolicy": "a restarted Ray process has lost its state, so pods are replaced",
        "hostNetwork": "use spec.network.mode: Host",
        "hostPID": "it shows the processes of the node to the pod",
        "hostIPC": "it shows the shared memory of the node to the pod",
        "nodeName": "it bypasses scheduler, queue and gang; use template.nodeSelector or template.affinity",
        "nodeSelector": "use template.nodeSelector",
        "affinity": "use template.affinity",
        "initContainers": "use template.initContainers",
        "imagePullSecrets": "use spec.runtime.imagePullSecrets",
        "serviceAccount": "use spec.runtime.serviceAccountName",
        "serviceAccountName": "use spec.runtime.serviceAccountName",
        "automountServiceAccountToken": "the pods run user code and must not get a token for the API server",
        "runtimeClassName": "use spec.runtime.runtimeClassName",
        "priorityClassName": "use spec.scheduling.priorityClassName",
        "activeDeadlineSeconds": "use spec.deadlines.activeSeconds",
        "terminationGracePeriodSeconds": "it follows from spec.stop.graceSeconds",
        "ephemeralContainers": "they can only be added to running pods, with `kubectl debug`",
        "resourceClaims": _DEVICES,
        "resources": "the operator sets requests and limits per container; use template.cpu and template.memory",
        "schedulingGates": "nothing would remove them",
    },
)
"""Fields of the pod."""


def field_violations(value: object, part: Part, place: str) -> Iterator[Violation]:
    """Return the fields of a patch that no patch may set, and maps that are none: the renderer reads their members.

    Lists that are none, and their entries, are reported by `patches` and `render.patch`.
    """
    if part.are_names:
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            yield Violation(place, "must be a list of strings, as in core/v1")
    elif part.is_list:
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield from _of_map(entry, part, f"{place}[{index}]")
    elif (part.members or part.is_map) and not isinstance(value, Mapping):
        yield Violation(place, "must be a map, as in core/v1")
    else:
        yield from _of_map(value, part, place)


def _of_map(value: object, part: Part, place: str) -> Iterator[Violation]:
    if not part.members or not isinstance(value, Mapping):
        return
    for name, entry in value.items():
        where = member(place, str(name))
        if (why := part.refused.get(name)) is not None:
            yield Violation(where, f"cannot be patched: {why}")
        elif name in part.members:
            yield from field_violations(entry, part.members[name], where)
        elif not str(name).startswith("$"):  # Directives are judged by render.patch.
            yield Violation(where, f"cannot be patched; the fields that can are {', '.join(sorted(part.members))}")


def resource_violations(resources: object, place: str) -> Iterator[Violation]:
    """Return the resources that no container of a patch may ask for: only workers' containers have devices."""
    for kind in ("requests", "limits"):
        amounts = resources.get(kind) if isinstance(resources, Mapping) else None
        for name in amounts if isinstance(amounts, Mapping) else ():
            if (problem := resource_problem(str(name))) is not None:
                yield Violation(member(f"{place}.{kind}", str(name)), f"cannot be patched: {problem}")
