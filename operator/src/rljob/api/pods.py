"""The narrow part of a pod that a user may set: typed, so that the core can reason about it and the CRD stays small.

What Kubernetes itself checks when the RayCluster is made (affinity, containers beside ours) is passed on as it is.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from rljob.api.base import (
    ATOMIC,
    MERGE_KEYS,
    PRESERVE,
    Label,
    Long,
    Model,
    ObjectName,
    Path,
    Quantity,
    Text,
    keyed_by,
)

KubernetesObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object", PRESERVE: True})]
"""A part of a pod as core/v1 writes it; the API server checks it when the RayCluster is made."""
_NAME = {"type": "string", "maxLength": 63, "description": "Its name."}
_NAMED = {"type": "object", "properties": {"name": _NAME}, PRESERVE: True}
Container = Annotated[dict[str, Any], WithJsonSchema(_NAMED)]
ContainerList = Annotated[list[Container], Field(max_length=8, json_schema_extra=keyed_by("name"))]
EnvName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]


class KeySelector(Model):
    """A key of a Secret or ConfigMap of the job's namespace."""

    name: ObjectName
    """Name of the object."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key in its data."""


class FieldSelector(Model):
    """A field of the pod."""

    field_path: Annotated[str, Field(min_length=1, max_length=253)]
    """As in the downward API: status.podIP, metadata.name, spec.nodeName."""


class EnvSource(Model):
    """Where a variable's value comes from; exactly one."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("secretKeyRef", "configMapKeyRef", "fieldRef")

    secret_key_ref: KeySelector | None = None
    """From a Secret."""
    config_map_key_ref: KeySelector | None = None
    """From a ConfigMap."""
    field_ref: FieldSelector | None = None
    """From the pod."""


class EnvVar(Model):
    """An environment variable of the Ray containers."""

    REPLACED_WHOLE: ClassVar[bool] = True
    AT_MOST_ONE_OF: ClassVar[tuple[str, ...]] = ("value", "valueFrom")

    name: EnvName
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value; a secret belongs into valueFrom or secretRefs."""
    value_from: EnvSource | None = None
    """Where the value comes from."""


class ObjectReference(Model):
    """An object of the job's namespace."""

    name: ObjectName
    """Its name."""


class EnvFromSource(Model):
    """All keys of a Secret or ConfigMap as variables."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("secretRef", "configMapRef")

    prefix: Annotated[str, Field(max_length=253)] | None = None
    """Put before each key."""
    secret_ref: ObjectReference | None = None
    """A Secret."""
    config_map_ref: ObjectReference | None = None
    """A ConfigMap."""


class ClaimSource(Model):
    """A PersistentVolumeClaim of the job's namespace."""

    claim_name: ObjectName
    """Name of the claim."""
    read_only: bool = False
    """Mount it read-only."""


class HostPathSource(Model):
    """A folder of the node."""

    path: Path
    """Folder on the node."""
    type: Literal["Directory", "DirectoryOrCreate"] = "Directory"
    """Whether it must be there."""


class EmptyDirSource(Model):
    """Scratch space of the pod."""

    medium: Literal["", "Memory"] = ""
    """Memory: a tmpfs that counts as the container's memory."""
    size_limit: Quantity | None = None
    """Upper bound; beyond it the pod is evicted."""


class NFSSource(Model):
    """An NFS export."""

    server: ObjectName
    """Host name or address."""
    path: Path
    """Exported folder."""
    read_only: bool = False
    """Mount it read-only."""


class Volume(Model):
    """A volume and exactly one source."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("persistentVolumeClaim", "configMap", "hostPath", "emptyDir", "nfs")

    name: Label
    """Name for volumeMounts."""
    persistent_volume_claim: ClaimSource | None = None
    """A claim; ReadWriteMany where several nodes write."""
    config_map: ObjectReference | None = None
    """A ConfigMap, one file a key."""
    host_path: HostPathSource | None = None
    """A folder of each node."""
    empty_dir: EmptyDirSource | None = None
    """Scratch space, gone with the pod."""
    nfs: NFSSource | None = None
    """An NFS export."""


class VolumeMount(Model):
    """Where a volume appears in the containers."""

    REPLACED_WHOLE: ClassVar[bool] = True

    name: Label
    """A volume."""
    mount_path: Path
    """Folder in the containers."""
    sub_path: Text | None = None
    """Folder in the volume."""
    read_only: bool = False
    """Mount it read-only."""


class Toleration(Model):
    """A taint that the pods tolerate."""

    key: Text | None = None
    """Key of the taint; none with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Exists: any value."""
    value: Text | None = None
    """Value of the taint, with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """None: every effect."""
    toleration_seconds: Long | None = None
    """How long a NoExecute taint is tolerated."""


class PodSecurityContext(Model):
    """Who the containers run as."""

    run_as_user: Long | None = None
    """User id."""
    run_as_group: Long | None = None
    """Group id."""
    run_as_non_root: bool | None = None
    """Refuse to start as root."""
    fs_group: Long | None = None
    """Group that owns the volumes."""
    supplemental_groups: Annotated[list[Long], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Further groups, such as that of the NPU's device files."""


StringMap = Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=64)]


class PodTemplate(Model):
    """What a user may set on the pods of the head or of a worker group."""

    cpu: Quantity | None = None
    """CPU request; the limit is left open."""
    memory: Quantity | None = None
    """Memory request and limit."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm: Ray's object store and weight buckets live there; it counts as memory."""
    env: Annotated[list[EnvVar], Field(max_length=128, json_schema_extra=keyed_by("name"))] = []
    """Variables of the Ray container."""
    env_from: Annotated[list[EnvFromSource], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Secrets and ConfigMaps whose keys become variables of the Ray container."""
    volumes: Annotated[list[Volume], Field(max_length=32, json_schema_extra=keyed_by("name"))] = []
    """On the worker group: mounted in the head and the initializers too, since all must see the same paths."""
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=32, json_schema_extra=keyed_by("mountPath"))] = []
    """Where the volumes appear."""
    node_selector: StringMap = {}
    """Labels that a node must have."""
    affinity: KubernetesObject | None = None
    """As core/v1 Affinity."""
    tolerations: Annotated[
        list[Toleration], Field(max_length=32, json_schema_extra=ATOMIC | {MERGE_KEYS: ["key", "effect"]})
    ] = []
    """Taints that the pods tolerate; a recipe's are kept, those of the same key and effect replaced."""
    labels: StringMap = {}
    """Labels of the pods; the operator's own win."""
    annotations: StringMap = {}
    """Annotations of the pods."""
    security_context: PodSecurityContext | None = None
    """Who the containers run as."""
    init_containers: ContainerList = []
    """Containers as in core/v1 that run to their end before Ray starts."""
    sidecars: ContainerList = []
    """Containers as in core/v1 that run beside Ray; they start before it and are restarted when they end."""


class PodSpecPatch(Model):
    """Strategic merge patches of the rendered pods: the way out where no field exists."""

    head: KubernetesObject | None = None
    """Patch of the head pod's spec; its Ray container is named ray-head."""
    workers: KubernetesObject | None = None
    """Patch of every worker pod's spec; the Ray container is named ray-worker."""
