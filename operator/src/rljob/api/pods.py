"""The narrow part of a pod that a user may set: typed, so that the core can reason about it and the CRD stays small."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.base import ATOMIC, RULES, Label, Model, ObjectName, Path, Quantity, Text, keyed_by, rule


class EnvVar(Model):
    """An environment variable of the Ray containers."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    value: Annotated[str, Field(max_length=4096)] = ""


class ClaimSource(Model):
    """A PersistentVolumeClaim of the job's namespace."""

    claim_name: ObjectName
    read_only: bool = False


class ConfigMapSource(Model):
    """A ConfigMap of the job's namespace, one file a key."""

    name: ObjectName


class HostPathSource(Model):
    """A folder of the node."""

    path: Path
    type: Literal["Directory", "DirectoryOrCreate"] = "Directory"


class EmptyDirSource(Model):
    """Scratch space of the pod."""

    medium: Literal["", "Memory"] = ""
    size_limit: Quantity | None = None


class NFSSource(Model):
    """An NFS export."""

    server: ObjectName
    path: Path
    read_only: bool = False


class Volume(Model):
    """A volume and exactly one source."""

    model_config = {
        "json_schema_extra": {
            RULES: [
                rule(
                    "[has(self.persistentVolumeClaim), has(self.configMap), has(self.hostPath), has(self.emptyDir),"
                    " has(self.nfs)].filter(present, present).size() == 1",
                    "exactly one of persistentVolumeClaim, configMap, hostPath, emptyDir, nfs",
                )
            ]
        }
    }

    name: Label
    persistent_volume_claim: ClaimSource | None = None
    config_map: ConfigMapSource | None = None
    host_path: HostPathSource | None = None
    empty_dir: EmptyDirSource | None = None
    nfs: NFSSource | None = None


class VolumeMount(Model):
    """Where a volume appears in the containers."""

    name: Label
    mount_path: Path
    sub_path: Text | None = None
    read_only: bool = False


class Toleration(Model):
    """A taint that the pods tolerate."""

    key: Text | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: Text | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


StringMap = Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=64)]


class PodTemplate(Model):
    """What a user may set on the pods of the head or of a worker group."""

    cpu: Quantity | None = None
    """CPU request; the limit is left open."""
    memory: Quantity | None = None
    """Memory request and limit."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm: Ray's object store and weight buckets live there."""
    env: Annotated[list[EnvVar], Field(max_length=128, json_schema_extra=keyed_by("name"))] = []
    volumes: Annotated[list[Volume], Field(max_length=32, json_schema_extra=keyed_by("name"))] = []
    """On the worker group: mounted in the head and the initializers too, since all must see the same paths."""
    volume_mounts: Annotated[list[VolumeMount], Field(max_length=32, json_schema_extra=keyed_by("mountPath"))] = []
    node_selector: StringMap = {}
    tolerations: Annotated[list[Toleration], Field(max_length=32, json_schema_extra=ATOMIC)] = []
    labels: StringMap = {}
    annotations: StringMap = {}
