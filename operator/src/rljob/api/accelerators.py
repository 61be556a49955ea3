"""Rows of the accelerator table: what an administrator sets per hardware class in the chart value `accelerators`."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from rljob.api import forms
from rljob.api.base import Count, Model, ObjectName, Path, Quantity, Text
from rljob.api.pods import StringMap
from rljob_runtime.contract import Platform


class DriverMounts(enum.StrEnum):
    """How the node's driver is made available in a pod."""

    HOST_PATH = "HostPath"
    """The pod mounts the node's driver. Works with every container runtime, including Ascend's own."""
    RUNTIME_CLASS = "RuntimeClass"
    """Ascend Docker Runtime, selected by a RuntimeClass, mounts the driver; the pod mounts only what the runtime leaves
    out."""
    NONE = "None"
    """The pod mounts nothing. For namespaces that forbid hostPath, with a container runtime that mounts everything."""


class HostPathUse(enum.StrEnum):
    """Which pods mount a path of the node."""

    ALWAYS = "Always"
    WITHOUT_RUNTIME = "WithoutRuntime"
    """Mounted only with HostPath, because Ascend Docker Runtime mounts it itself."""
    SEVERAL_NODES = "SeveralNodes"
    """Mounted only in jobs with more than one node."""


class HostPath(Model):
    """A path of the node that worker pods mount read-only at the same path."""

    path: Path
    """Path on the node and in the pod."""
    type: Annotated[str, Field(pattern=forms.HOST_PATH_TYPE.pattern)]
    """Type of the hostPath volume as in core/v1: what must exist before the pod starts."""
    use: HostPathUse = HostPathUse.ALWAYS
    """Which pods mount the path."""


class PodSize(Model):
    """Resources of a worker pod whose template does not set them."""

    cpu: Quantity
    """CPU cores: a whole number and a multiple of the number of devices."""
    memory: Quantity
    """Memory, including /dev/shm."""
    shared_memory: Quantity
    """Size of /dev/shm."""


class Minimum(Model):
    """The oldest software that nodes of the class may have; the built-in classes set none.

    An older driver that a node's label shows is a warning before pods exist. Before a run starts, each pod compares
    what is installed, and an older release ends the attempt. What others run together is a table of the runtime.
    """

    driver: Text | None = None
    firmware: Text | None = None
    cann: Text | None = None


LabelName = Annotated[str, Field(min_length=1, max_length=316)]
Labels = Annotated[dict[str, list[Annotated[str, Field(max_length=63)]]], Field(max_length=16)]


class AcceleratorFacts(Model):
    """One row of the table."""

    description: Text
    """Hardware that the class stands for."""
    platform: Platform
    """npu: torch_npu and HCCL. cpu: gloo on the processors, with the same Ray resource."""
    resource: Annotated[str, Field(max_length=317)]
    """Extended resource that the device plug-in advertises."""
    devices_per_node: Count
    """Number of devices (dies) that the plug-in advertises per node."""
    dies_per_card: Count = 1
    """Number of dies per card. The plug-in allocates whole cards, or single dies."""
    ray_cpus_per_device: Annotated[Count | None, Field(alias="rayCPUsPerDevice")] = None
    """Logical CPUs that Ray offers per device. Unset, Ray counts the container's CPUs."""
    schedule_policy: Text | None = None
    """Policy of Ascend-for-Volcano, set as the annotation huawei.com/schedule_policy."""
    labels: StringMap = {}
    """Labels of every Ray pod."""
    annotations: StringMap = {}
    """Annotations of every Ray pod and of the RayCluster, from which KubeRay creates the PodGroup."""
    head_annotations: StringMap = {}
    """Additional annotations of the head pod, which holds no NPU."""
    node_labels: Labels = {}
    """Labels of the nodes of this class, each with its accepted values. An empty list accepts any value."""
    super_pod_label: LabelName | None = None
    """Label whose value is shared by the nodes of one super-pod; scheduling.topology.nodesPerSuperPodBlock counts by
    it."""
    topology_levels: Annotated[list[LabelName], Field(max_length=16)] = []
    """Node labels from the widest domain down to the node, by which Kueue places pods. The chart writes those of
    queues.flavors. If empty, Kueue counts cards and leaves placement to the scheduler."""
    driver_mounts: DriverMounts = DriverMounts.HOST_PATH
    """Value used when accelerator.driverMounts of the job is Auto."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of worker pods with driverMounts RuntimeClass."""
    host_paths: Annotated[list[HostPath], Field(max_length=16)] = []
    """Paths of the node's driver that the pods mount."""
    image_suffix: Annotated[str, Field(max_length=32)] | None = None
    """Part of an image tag that identifies this hardware."""
    env: StringMap = {}
    """Environment variables of every Ray pod. Variables of the job take precedence."""
    pod: PodSize | None = None
    """Default size of a worker pod. Unset, only the template applies."""
    minimum: Minimum = Minimum()
    """Oldest supported software of the node."""
    hbm_gib_per_die: Annotated[Count | None, Field(alias="hbmGiBPerDie")] = None
    """Device memory per die, in GiB."""
    sources: StringMap = {}
    """Source of each value: field of this row -> where its value comes from."""

    @property
    def is_npu(self) -> bool:
        """Return whether a job of this class computes on NPUs."""
        return self.platform is Platform.NPU
