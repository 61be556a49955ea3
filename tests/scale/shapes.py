"""Clusters of Ascend nodes as their kubelets present them, and jobs of the shapes that users have.

Node properties are repeated here from the vendors' documentation instead of the operator's own table: a row of that
table with a label or size that no such node has leaves its pods pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.scale.client import Manifest
from tests.scale.objects import NAMESPACE, registered

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MC = "mind-cluster 26.1.0, component/ascend-device-plugin"
CLAIM = "rl-shared"
"""Volume of the examples."""


@dataclass(frozen=True)
class Hardware:
    """One kind of node."""

    name: str
    labels: dict[str, str]
    cores: int
    memory_gib: int
    resource: str = ""
    devices: int = 0
    source: str = ""

    def nodes(self, count: int) -> Iterator[Manifest]:
        """Yield nodes as their kubelets register them."""
        for number in range(count):
            yield self._node(f"{self.name}-{number:02d}")

    def _node(self, name: str) -> Manifest:
        devices = {self.resource: str(self.devices)} if self.resource else {}
        whole = {"cpu": str(self.cores), "memory": f"{self.memory_gib}Gi", "pods": "110", **devices}
        # Resources reserved by kubelet and system.
        left = whole | {"cpu": str(self.cores - SYSTEM_CORES), "memory": f"{self.memory_gib - SYSTEM_MEMORY_GIB}Gi"}
        own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": own | {"kubernetes.io/arch": "arm64", HARDWARE: self.name} | self.labels,
            },
            "status": registered(whole, left),
        }


HARDWARE = "test.rljob.dev/hardware"
"""Our own label, by which the test identifies a node."""
SYSTEM_CORES, SYSTEM_MEMORY_GIB = 4, 32
SUPER_POD = "huawei.com/topotree.superpodid"
DRIVER = {"huawei.com/driver.version": "25.5.0"}
NODE = {
    **DRIVER,
    "accelerator": "huawei-Ascend910",
    "node.kubernetes.io/npu.chip.name": "910B3",
    "mind-cluster/npu-chip-memory": "64G",
    "workerselector": "dls-worker-node",
    "node-role.kubernetes.io/worker": "worker",
    "host-arch": "huawei-arm",
}
A2 = Hardware(
    "a2",
    {"servertype": "Ascend910B-20", "accelerator-type": "module-910b-8", **NODE},
    192,
    1536,
    "huawei.com/Ascend910",
    8,
    f"{MC}: labels, one device an NPU; vllm-ascend, CPU binding: 4 Kunpeng 920 of 48 cores",
)
A3 = Hardware(
    "a3",
    {"servertype": "Ascend910A3-24", "accelerator-type": "module-a3-16", **NODE},
    320,
    1536,
    "huawei.com/Ascend910",
    16,
    f"{MC}: labels, one device a die; vllm-ascend, CPU binding: the smaller of two hosts",
)
A3_SUPERPOD = Hardware(
    "a3-superpod",
    A3.labels | {"accelerator-type": "module-a3-16-super-pod", SUPER_POD: "0"},
    640,
    1536,
    "huawei.com/Ascend910",
    16,
    f"{MC}: labels where the driver knows a super-pod; vllm-ascend, CPU binding: 8 NUMA nodes of 80 cores",
)
CCE_A3 = Hardware(
    "cce-a3",
    {"accelerator/huawei-npu": "ascend-1980"},
    320,
    1536,
    "huawei.com/ascend-1980",
    16,
    "Huawei Cloud CCE, AI Suite (Ascend NPU): name of the resource and label of the nodes",
)
PLAIN = Hardware("plain", {}, 64, 512, source="a node without NPU, for the heads")


@dataclass(frozen=True)
class Shape:
    """A job of the examples and its expected placement."""

    what: str
    path: str
    hardware: Hardware
    nodes: int
    on_host: bool = False

    @property
    def manifest(self) -> Manifest:
        """The RLJob, as a user applies it."""
        (job,) = (each for each in yaml.safe_load_all((EXAMPLES / self.path).read_text()) if each["kind"] == "RLJob")
        job["metadata"]["namespace"] = NAMESPACE
        found: Manifest = job
        return found

    @property
    def name(self) -> str:
        """The name of the job."""
        return str(self.manifest["metadata"]["name"])


SEPARATE = Shape("A3 SuperPoD 8x16 and 8x16, Qwen3-235B", "qwen3-235b-separate.yaml", A3_SUPERPOD, 16)
AHEAD = Shape("A3 SuperPoD 2x16, Qwen3-32B generating ahead", "qwen3-32b-async.yaml", A3_SUPERPOD, 2)
SHAPES = (
    Shape("A2 1x8", "ascend/a2-one-node.yaml", A2, 1),
    Shape("A2 4x8", "ascend/a2-four-nodes.yaml", A2, 4),
    Shape("A3 1x16", "ascend/a3-one-node.yaml", A3, 1),
    Shape("A3 SuperPoD 8x16, Qwen3-235B", "qwen3-235b.yaml", A3_SUPERPOD, 8),
    Shape("A3 SuperPoD 16x16, DeepSeek-V3", "deepseek-v3.yaml", A3_SUPERPOD, 16),
    Shape("A3 SuperPoD 8x16, host network", "ascend/a3-superpod-host-network.yaml", A3_SUPERPOD, 8, on_host=True),
    SEPARATE,
    AHEAD,
    Shape("CCE 8x16, ascend-1980", "ascend/cce-a3.yaml", CCE_A3, 8),
)


def nodes() -> Iterator[Manifest]:
    """Yield as many NPU nodes of each kind as the jobs need, and a small node for each head."""
    for hardware in (A2, A3, A3_SUPERPOD, CCE_A3):
        wanted = sum(shape.nodes for shape in SHAPES if shape.hardware is hardware)
        # The class atlas-a3 also accepts a SuperPoD's node, so that the A3 server may stay unused.
        yield from hardware.nodes(wanted + (1 if hardware is A3_SUPERPOD else 0))
    yield from PLAIN.nodes(len(SHAPES))


def surroundings() -> Iterator[tuple[str, Manifest]]:
    """Yield the objects that the examples' jobs need, and the paths to create them: a bound claim."""
    name = {"name": CLAIM}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    server = {"server": "nfs.example", "path": "/shared"}
    yield (
        "/api/v1/persistentvolumes",
        {
            "metadata": name,
            "spec": {
                **common,
                "capacity": {"storage": "1Ti"},
                "nfs": server,
                "claimRef": {"namespace": NAMESPACE, **name},
            },
        },
    )
    # No controller binds claims here; the scheduler only reads the annotation.
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    yield (
        f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims",
        {
            "metadata": name | bound,
            "spec": {**common, "volumeName": CLAIM, "resources": {"requests": {"storage": "1Ti"}}},
        },
    )
