"""Rows of the accelerator table: what an admin may say of a hardware class, in the chart value `accelerators`."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from rljob.api.base import Count, Model, ObjectName, Path, Quantity, Text
from rljob.api.pods import StringMap
from rljob_runtime.contract import Platform


class DriverMounts(enum.StrEnum):
    """How the driver of the node comes into a pod."""

    HOST_PATH = "HostPath"
    """The pod mounts the node's driver: works with every container runtime, and beside Ascend's own too."""
    RUNTIME_CLASS = "RuntimeClass"
    """Ascend Docker Runtime, chosen by a RuntimeClass, mounts it; the pod adds only what that leaves out."""
    NONE = "None"
    """Nothing is mounted: for namespaces that forbid hostPath, with a runtime that does it all."""


class HostPathUse(enum.StrEnum):
    """In which pods a path of the node is mounted."""

    ALWAYS = "Always"
    WITHOUT_RUNTIME = "WithoutRuntime"
    """Only with HostPath: Ascend Docker Runtime mounts it by itself."""
    SEVERAL_NODES = "SeveralNodes"
    """Only in jobs of more than one node."""


class HostPath(Model):
    """A path of the node that worker pods mount read-only at the same place."""

    path: Path
    """On the node and in the pod."""
    type: Annotated[str, Field(pattern=r"^(Directory|File|FileOrCreate)$")]
    """As core/v1 has it: what must be there before the pod starts."""
    use: HostPathUse = HostPathUse.ALWAYS
    """In which pods."""


class PodSize(Model):
    """What a worker pod asks for where its template says nothing."""

    cpu: Quantity
    """Cores; a whole number and a multiple of the devices."""
    memory: Quantity
    """With /dev/shm."""
    shared_memory: Quantity
    """Size of /dev/shm."""


class Minimum(Model):
    """The oldest software of the node that works; compared in each pod before a run begins."""

    driver: Text | None = None
    firmware: Text | None = None
    cann: Text | None = None


LabelName = Annotated[str, Field(min_length=1, max_length=316)]
Labels = Annotated[dict[str, list[Annotated[str, Field(max_length=63)]]], Field(max_length=16)]


class AcceleratorFacts(Model):
    """One row."""

    description: Text
    """Which hardware."""
    platform: Platform
    """npu: torch_npu and HCCL; cpu: gloo on the processors, with the same Ray resource."""
    resource: Annotated[str, Field(max_length=317)]
    """Extended resource of the device plug-in."""
    devices_per_node: Count
    """Devices (dies) that the plug-in offers on a node."""
    dies_per_card: Count = 1
    """Dies of a card; the plug-in gives out whole cards, or one die."""
    ray_cpus_per_device: Annotated[Count | None, Field(alias="rayCPUsPerDevice")] = None
    """Logical CPUs that Ray offers for each device; none: Ray counts the container's own."""
    schedule_policy: Text | None = None
    """Ascend-for-Volcano's policy, as annotation huawei.com/schedule_policy."""
    labels: StringMap = {}
    """Labels of every Ray pod."""
    annotations: StringMap = {}
    """Annotations of every Ray pod and of the RayCluster, from which KubeRay makes the PodGroup."""
    head_annotations: StringMap = {}
    """Further ones of the head pod, which holds no NPU."""
    node_labels: Labels = {}
    """Labels of the nodes of this class: one of the values, or with none any value."""
    super_pod_label: LabelName | None = None
    """Label whose value nodes of one super-pod share: what scheduling.topology.nodesPerSuperPodBlock counts by."""
    topology_levels: Annotated[list[LabelName], Field(max_length=16)] = []
    """Labels from the widest domain to the node, by which Kueue places pods; the chart writes those of queues.flavors.
    None: Kueue counts cards and leaves places to the scheduler."""
    driver_mounts: DriverMounts = DriverMounts.HOST_PATH
    """Where accelerator.driverMounts of the job is Auto."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of worker pods with driverMounts RuntimeClass."""
    host_paths: Annotated[list[HostPath], Field(max_length=16)] = []
    """What of the node's driver the pods mount."""
    image_suffix: Annotated[str, Field(max_length=32)] | None = None
    """Word by which tags of images name this hardware."""
    env: StringMap = {}
    """Variables of every Ray pod; those of the job win."""
    pod: PodSize | None = None
    """Size of a worker pod; none: what the template says, and nothing else."""
    minimum: Minimum = Minimum()
    """Software of the node."""
    hbm_gib_per_die: Annotated[Count | None, Field(alias="hbmGiBPerDie")] = None
    """Device memory of a die in GiB."""
    sources: StringMap = {}
    """Field of this row -> where its value comes from."""

    @property
    def is_npu(self) -> bool:
        """Whether a job of this class computes on NPUs."""
        return self.platform is Platform.NPU
