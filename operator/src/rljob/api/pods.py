"""The subset of a pod that a user may set: typed, so that the core can reason about it and every part has a bound.

Affinity and podSpecPatch, which are as deep as core/v1, are texts (`rljob.api.texts`). The API server validates what
they contain when the RayCluster is created; `core.validation.patches` states what a patch may contain.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rljob.api import forms
from rljob.api.base import (
    ATOMIC,
    MERGE_KEYS,
    Count,
    Label,
    Long,
    MapAsText,
    Model,
    NonNegative,
    ObjectName,
    Path,
    Quantity,
    Text,
    keyed_by,
)

ObjectText = Annotated[dict[str, Any], MapAsText(8192)]
"""Part of a pod as in core/v1, as text in YAML or JSON. The API server validates it when the RayCluster is created."""
EnvName = Annotated[str, Field(min_length=1, max_length=253, pattern=forms.VARIABLE_NAME.pattern)]


class KeySelector(Model):
    """A key of a Secret or ConfigMap in the job's namespace."""

    name: ObjectName
    """Name of the object."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key in the object's data."""


class FieldSelector(Model):
    """A field of the pod."""

    field_path: Annotated[str, Field(min_length=1, max_length=253)]
    """Path of the field as in the downward API, such as status.podIP, metadata.name or spec.nodeName."""


class EnvSource(Model):
    """Source of a variable's value. Exactly one field must be set."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("secretKeyRef", "configMapKeyRef", "fieldRef")

    secret_key_ref: KeySelector | None = None
    """Key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """Key of a ConfigMap."""
    field_ref: FieldSelector | None = None
    """Field of the pod."""


class EnvVar(Model):
    """An environment variable of the Ray containers."""

    REPLACED_WHOLE: ClassVar[bool] = True
    AT_MOST_ONE_OF: ClassVar[tuple[str, ...]] = ("value", "valueFrom")

    name: EnvName
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Value of the variable. Provide secrets with valueFrom or secretRefs instead."""
    value_from: EnvSource | None = None
    """Source of the value."""


class ObjectReference(Model):
    """A reference to an object in the job's namespace."""

    name: ObjectName
    """Name of the object."""


class EnvFromSource(Model):
    """A Secret or ConfigMap whose keys all become variables."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("secretRef", "configMapRef")

    prefix: Annotated[str, Field(max_length=253)] | None = None
    """Prefix added to each key."""
    secret_ref: ObjectReference | None = None
    """Secret to read."""
    config_map_ref: ObjectReference | None = None
    """ConfigMap to read."""


class ClaimSource(Model):
    """A PersistentVolumeClaim in the job's namespace."""

    claim_name: ObjectName
    """Name of the claim."""
    read_only: bool = False
    """Mount the volume read-only. Defaults to false."""


class HostPathSource(Model):
    """A folder of the node."""

    path: Path
    """Path of the folder on the node."""
    type: Literal["Directory", "DirectoryOrCreate"] = "Directory"
    """Directory: the folder must exist. DirectoryOrCreate: it is created if missing. Defaults to Directory."""


class EmptyDirSource(Model):
    """Scratch space of the pod."""

    medium: Literal["", "Memory"] = ""
    """Memory: use a tmpfs, which counts against the container's memory. Defaults to the node's disk."""
    size_limit: Quantity | None = None
    """Maximum size. The pod is evicted when it is exceeded."""


class NFSSource(Model):
    """An NFS export."""

    server: ObjectName
    """Host name or address of the server."""
    path: Path
    """Path of the export."""
    read_only: bool = False
    """Mount the volume read-only. Defaults to false."""


class Volume(Model):
    """A volume with exactly one source."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("persistentVolumeClaim", "configMap", "hostPath", "emptyDir", "nfs")

    name: Label
    """Name that volumeMounts refer to."""
    persistent_volume_claim: ClaimSource | None = None
    """PersistentVolumeClaim. It must be ReadWriteMany if several nodes write to it."""
    config_map: ObjectReference | None = None
    """ConfigMap, mounted as one file per key."""
    host_path: HostPathSource | None = None
    """Folder of each node."""
    empty_dir: EmptyDirSource | None = None
    """Scratch space that is deleted with the pod."""
    nfs: NFSSource | None = None
    """NFS export."""


class VolumeMount(Model):
    """Where a volume is mounted in the containers."""

    REPLACED_WHOLE: ClassVar[bool] = True

    name: Label
    """Name of the volume."""
    mount_path: Path
    """Path in the containers."""
    sub_path: Text | None = None
    """Folder in the volume. Defaults to the volume's root."""
    read_only: bool = False
    """Mount the volume read-only. Defaults to false."""


class Toleration(Model):
    """A taint that the pods tolerate."""

    key: Text | None = None
    """Key of the taint. Unset with operator Exists, every taint is tolerated, also that of control-plane nodes; the
    chart's policies can forbid that (docs/guides/policies.md)."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """Exists: tolerate any value. Equal: tolerate only value. Defaults to Exists."""
    value: Text | None = None
    """Value of the taint, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Unset, every effect is tolerated."""
    toleration_seconds: Long | None = None
    """Seconds that a NoExecute taint is tolerated. Unset, it is tolerated forever."""


class PodSecurityContext(Model):
    """Users and groups of the pod's containers."""

    run_as_user: Long | None = None
    """User ID of the containers."""
    run_as_group: Long | None = None
    """Group ID of the containers."""
    run_as_non_root: bool | None = None
    """Refuse to start containers that would run as root."""
    fs_group: Long | None = None
    """Group ID that owns the volumes."""
    supplemental_groups: Annotated[list[Long], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Additional group IDs, such as the group of the NPU's device files."""


Word = Annotated[str, Field(max_length=4096)]
PortNumber = Annotated[int, Field(ge=1, le=65_535, json_schema_extra={"format": "int32"})]
Capability = Annotated[str, Field(min_length=1, max_length=63)]


class ContainerPort(Model):
    """A port that the container listens on."""

    container_port: PortNumber
    """Number of the port."""
    host_port: PortNumber | None = None
    """Port of the node. The chart's policies can forbid it (docs/guides/policies.md)."""
    name: Label | None = None
    """Name of the port."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol. Defaults to TCP."""


ResourceMap = Annotated[dict[str, Quantity], Field(max_length=8)]


class ContainerResources(Model):
    """CPU, memory, ephemeral-storage and hugepages-* of a container. Only the Ray container of a worker has NPUs."""

    requests: ResourceMap = {}
    """Amounts that the scheduler reserves."""
    limits: ResourceMap = {}
    """Amounts that the container cannot exceed."""


class SeccompProfile(Model):
    """System calls that the container may use."""

    type: Literal["RuntimeDefault", "Localhost", "Unconfined"]
    """As in core/v1."""
    localhost_profile: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """File of the profile on the node, for type Localhost."""


class Capabilities(Model):
    """Linux capabilities."""

    add: Annotated[list[Capability], Field(max_length=32, json_schema_extra=ATOMIC)] = []
    """Capabilities to add."""
    drop: Annotated[list[Capability], Field(max_length=32, json_schema_extra=ATOMIC)] = []
    """Capabilities to drop, such as ALL."""


class ContainerSecurityContext(Model):
    """Privileges of a container."""

    run_as_user: Long | None = None
    """User ID."""
    run_as_group: Long | None = None
    """Group ID."""
    run_as_non_root: bool | None = None
    """Refuse to start the container as root."""
    privileged: bool | None = None
    """Run the container with the privileges of the node."""
    allow_privilege_escalation: bool | None = None
    """Whether a process may gain more privileges than its parent."""
    read_only_root_filesystem: bool | None = None
    """Mount the root file system read-only."""
    capabilities: Capabilities | None = None
    """Linux capabilities."""
    seccomp_profile: SeccompProfile | None = None
    """System calls that the container may use."""


class ExecAction(Model):
    """A command in the container."""

    command: Annotated[list[Text], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)]
    """Program and arguments. Exit code 0 is success."""


class HTTPHeader(Model):
    """A header of the request."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the header."""
    value: Annotated[str, Field(max_length=256)]
    """Value of the header."""


class HTTPGetAction(Model):
    """An HTTP request to the pod."""

    port: PortNumber
    """Number of the port."""
    path: Annotated[str, Field(max_length=1024)] | None = None
    """Path of the request. Defaults to /."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    """Scheme of the request. Defaults to HTTP."""
    http_headers: Annotated[list[HTTPHeader], Field(max_length=4, json_schema_extra=ATOMIC)] = []
    """Headers of the request."""


class TCPSocketAction(Model):
    """A connection to the pod."""

    port: PortNumber
    """Number of the port."""


class Probe(Model):
    """A check of the container by the kubelet. It reaches the container's own pod only."""

    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("exec", "httpGet", "tcpSocket")
    REPLACED_WHOLE: ClassVar[bool] = True

    exec: ExecAction | None = None
    """Command to run."""
    http_get: HTTPGetAction | None = None
    """Request to make."""
    tcp_socket: TCPSocketAction | None = None
    """Connection to open."""
    initial_delay_seconds: NonNegative | None = None
    """Seconds before the first check."""
    period_seconds: Count | None = None
    """Seconds between two checks."""
    timeout_seconds: Count | None = None
    """Seconds that a check may take."""
    success_threshold: Count | None = None
    """Successes in a row that count as success."""
    failure_threshold: Count | None = None
    """Failures in a row that count as failure."""


class Container(Model):
    """A container beside Ray: the fields of core/v1 that it may have."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the container, unique in the pod."""
    image: ObjectName
    """Image to run."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled."""
    command: Annotated[list[Word], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Program to run. Defaults to the image's."""
    args: Annotated[list[Word], Field(max_length=32, json_schema_extra=ATOMIC)] = []
    """Arguments of the program."""
    working_dir: Path | None = None
    """Working directory. Defaults to the image's."""
    env: Annotated[list[EnvVar], Field(max_length=24, json_schema_extra=keyed_by("name"))] = []
    """Environment variables."""
    env_from: Annotated[list[EnvFromSource], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Secrets and ConfigMaps whose keys become environment variables."""
    ports: Annotated[list[ContainerPort], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Ports that the container listens on."""
    resources: ContainerResources = ContainerResources()
    """CPU and memory of the container. It has no NPUs."""
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=16, json_schema_extra=keyed_by("mountPath"))] = []
    """Mount paths of the template's volumes."""
    security_context: ContainerSecurityContext | None = None
    """Privileges of the container."""
    startup_probe: Probe | None = None
    """Check that the container has started."""
    readiness_probe: Probe | None = None
    """Check that the container can be used."""
    liveness_probe: Probe | None = None
    """Check that the container still works; it is restarted otherwise."""


ContainerList = Annotated[list[Container], Field(max_length=4, json_schema_extra=keyed_by("name"))]


StringMap = Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=64)]


class PodTemplate(Model):
    """Settings of the head pod or of a worker group's pods."""

    cpu: Quantity | None = None
    """CPU request. The limit is the same, but at least 4. Defaults to the class's size, else to 100m."""
    memory: Quantity | None = None
    """Memory request and limit. Defaults to the class's size, else to a request of 256Mi and a limit of 64Gi."""
    ephemeral_storage: Quantity | None = None
    """Request for space on the node's disk: logs of Ray, caches and objects that Ray spills. It is no limit; a node
    whose disk is full evicts pods beyond their request first. Unset, nothing is requested."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, which holds Ray's object store and weight buckets. Counts as memory of the container."""
    env: Annotated[list[EnvVar], Field(max_length=128, json_schema_extra=keyed_by("name"))] = []
    """Environment variables of the Ray container."""
    env_from: Annotated[list[EnvFromSource], Field(max_length=16, json_schema_extra=ATOMIC)] = []
    """Secrets and ConfigMaps whose keys become environment variables of the Ray container."""
    volumes: Annotated[list[Volume], Field(max_length=32, json_schema_extra=keyed_by("name"))] = []
    """Volumes of the pods. Volumes of the worker group are also mounted in the head and the initializers, because all
    of them must see the same paths."""
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=32, json_schema_extra=keyed_by("mountPath"))] = []
    """Mount paths of the volumes."""
    node_selector: StringMap = {}
    """Labels that a node must have."""
    affinity: ObjectText | None = None
    """Affinity as in core/v1, as text in YAML or JSON. Recipe and job are merged field by field."""
    tolerations: Annotated[
        list[Toleration], Field(max_length=32, json_schema_extra=ATOMIC | {MERGE_KEYS: ["key", "effect"]})
    ] = []
    """Taints that the pods tolerate. A recipe's tolerations are kept, except those with the same key and effect."""
    labels: StringMap = {}
    """Labels of the pods. Names that begin with rljob.dev/ are reserved, here and in annotations."""
    annotations: StringMap = {}
    """Annotations of the pods."""
    security_context: PodSecurityContext | None = None
    """Users and groups of the pod's containers."""
    init_containers: ContainerList = []
    """Containers that run to completion before Ray starts."""
    sidecars: ContainerList = []
    """Containers that run beside Ray. They start before Ray and are restarted when they exit."""


class PodSpecPatch(Model):
    """Strategic merge patches of the rendered pods, for settings that have no field.

    docs/guides/code-and-data.md lists the fields that a patch may set. It may name no Secret.
    """

    head: ObjectText | None = None
    """Patch of the head pod's spec, as text in YAML or JSON. Its Ray container is named ray-head."""
    workers: ObjectText | None = None
    """Patch of every worker pod's spec, as text in YAML or JSON. Its Ray container is named ray-worker."""
