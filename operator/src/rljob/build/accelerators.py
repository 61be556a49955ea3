"""The accelerator table: what the operator knows of each hardware class.

Sources: `huawei.com/Ascend910` and the devices of a node: device plug-in of MindCluster, ascend-device-plugin
(A2: 8, A3: 16, one per die); two dies a card on A3: Atlas A3 product description. The class `cpu` computes on the
node's processors and takes the same resource, so that a job runs the same path without an NPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob.api.v1alpha1 import AcceleratorClass
from rljob_runtime.contract import Platform


@dataclass(frozen=True)
class AcceleratorFacts:
    """One row."""

    resource: str
    """Extended resource of the device plug-in."""
    devices_per_node: int
    dies_per_card: int
    platform: Platform
    ray_cpus_per_device: int | None
    """Logical CPUs that Ray offers for each device; None: Ray counts the container's own."""


ACCELERATORS = {
    AcceleratorClass.ATLAS_A3_SUPERPOD: AcceleratorFacts("huawei.com/Ascend910", 16, 2, Platform.NPU, None),
    AcceleratorClass.ATLAS_A2: AcceleratorFacts("huawei.com/Ascend910", 8, 1, Platform.NPU, None),
    # verl takes 3 CPUs a device, and agent loops, reward workers and TransferQueue a handful more.
    AcceleratorClass.CPU: AcceleratorFacts("huawei.com/Ascend910", 16, 1, Platform.CPU, 8),
}
