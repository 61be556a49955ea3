"""The accelerator rows of a release, each value with its source.

The chart's files/accelerators.yaml is generated from here, so that operator, chart and command line have the same copy.
A value that hardware or upstream dictates cites the page or file; other values are marked as ours. MC stands for
mind-cluster 26.1.0, which contains the device plug-in, the Volcano plug-in and the container runtime.
"""

from __future__ import annotations

from typing import Any

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerator_table import AcceleratorTable, read_table

MC_PLUGIN = "MC, component/ascend-device-plugin"
MC_VOLCANO = "MC, component/ascend-for-volcano"
MC_LABELS = f"{MC_PLUGIN}: label servertype, chip family and AI cores, the only label that distinguishes A2 from A3"
RESOURCE = f"{MC_PLUGIN}: one device per die, the same name for A2 and A3"
CCE = "Huawei Cloud CCE, AI Suite (Ascend NPU); vllm-ascend's deployment pages use the name"
MEMORY = "vllm-ascend and verl, hardware pages: 64 GB per device"
OURS = "ours"

HOST_PATHS = [
    # Paths that Ascend Docker Runtime mounts itself (MC, component/ascend-docker-runtime, base.list).
    {"path": "/usr/local/dcmi", "type": "Directory", "use": "WithoutRuntime"},
    {"path": "/usr/local/bin/npu-smi", "type": "File", "use": "WithoutRuntime"},
    {"path": "/usr/local/Ascend/driver/lib64", "type": "Directory", "use": "WithoutRuntime"},
    {"path": "/usr/local/Ascend/driver/include", "type": "Directory", "use": "WithoutRuntime"},
    # Paths that it leaves out: hccn_tool, and the versions that preflight compares.
    {"path": "/usr/local/Ascend/driver/tools", "type": "Directory"},
    {"path": "/usr/local/Ascend/driver/version.info", "type": "File"},
    {"path": "/etc/ascend_install.info", "type": "File"},
    # Addresses of the NPUs' own network cards. The file may be missing on a node; preflight then reports it.
    {"path": "/etc/hccn.conf", "type": "FileOrCreate", "use": "SeveralNodes"},
]
ATLAS: dict[str, Any] = {
    "platform": "npu",
    "resource": "huawei.com/Ascend910",
    # Volcano's plug-in reads these from any task of the job, so they are the same on every pod.
    "labels": {"ring-controller.atlas": "ascend-910b", "fault-scheduling": "off"},
    "headAnnotations": {"huawei.com/skip-ascend-plugin": "enabled"},
    "runtimeClassName": "ascend",
    "hostPaths": HOST_PATHS,
    "hbmGiBPerDie": 64,
}
ATLAS_SOURCES = {
    "resource": RESOURCE,
    "labels": f"{MC_VOLCANO}: ascend-910b for A2 and A3; ours: off, because only this operator restarts pods",
    "headAnnotations": f"{MC_VOLCANO}: without it, a task without NPU is rejected",
    "nodeLabels": MC_LABELS,
    "runtimeClassName": "ours, after the handler that MC, component/ascend-docker-runtime/install/process/"
    "containerd_process.go:208-213, adds and makes containerd's default; it creates no RuntimeClass",
    "hostPaths": "MC, Ascend Docker Runtime: base.list, and what it leaves out; k8s examples of vllm-ascend",
    "hbmGiBPerDie": MEMORY,
}
A2 = {
    **ATLAS,
    "devicesPerNode": 8,
    "diesPerCard": 1,
    "imageSuffix": "910b",
    # 192 cores in 8 NUMA nodes; 23 cores per device leave 8 for kubelet and system.
    "pod": {"cpu": "184", "memory": "1400Gi", "sharedMemory": "256Gi"},
    "schedulePolicy": "chip8-node8",
    "nodeLabels": {"servertype": ["Ascend910B-20", "Ascend910B-24", "Ascend910B-25"]},
}
A2_SOURCES = {
    **ATLAS_SOURCES,
    "devicesPerNode": f"{MC_PLUGIN}: 8 devices on Atlas 800T A2 and 900 A2 PoD",
    "diesPerCard": "Atlas A2: one device per card",
    "imageSuffix": "tags of quay.io/ascend/cann and quay.io/ascend/verl",
    "schedulePolicy": f"{MC_VOLCANO}: 8 devices in one ring",
    "pod": f"{OURS}: hosts with 192 cores (4 Kunpeng 920) and 1.5 TiB; the same number of cores for each device",
}
A3 = {
    **ATLAS,
    "devicesPerNode": 16,
    "diesPerCard": 2,
    "imageSuffix": "a3",
    # Hosts have 320 or 640 cores: 19 cores per die fit the smaller one and leave 16 for kubelet and system.
    "pod": {"cpu": "304", "memory": "1400Gi", "sharedMemory": "512Gi"},
    "schedulePolicy": "chip2-node16",
    "nodeLabels": {"servertype": ["Ascend910A3-20", "Ascend910A3-24"]},
}
A3_SOURCES = {
    **ATLAS_SOURCES,
    "devicesPerNode": f"{MC_PLUGIN}: one device per die, 8 cards of 2 dies",
    "diesPerCard": "Atlas A3: two dies per card; the plug-in allocates pairs, or one",
    "imageSuffix": "tags of quay.io/ascend/cann and quay.io/ascend/verl",
    "schedulePolicy": f"{MC_VOLCANO}: modules of 2 dies, 16 per node; -sp: within one super-pod",
    "pod": f"{OURS}: hosts with 320 cores and 1.5 TiB, the smallest known ones (vllm-ascend, CPU binding)",
}
SUPER_POD = "huawei.com/topotree.superpodid"
"""Set by the device plug-in from MindCluster v26.0.0 on; v7.3.2 has no such label (22bb3d98,
component/ascend-device-plugin/pkg/server/manager.go:363-370)."""
CCE_NODE: dict[str, Any] = {
    "resource": "huawei.com/ascend-1980",
    "nodeLabels": {"accelerator/huawei-npu": []},
    "schedulePolicy": None,
}
CCE_SOURCES = {"resource": CCE, "nodeLabels": CCE}

DOCUMENT: dict[str, dict[str, Any]] = {
    "atlas-a2": {"description": "Atlas 800T A2, 900 A2 PoD: 8 NPUs per node, RoCE between nodes", **A2},
    "atlas-a3": {"description": "Atlas 800T A3 server: 8 cards, 16 dies per node, RoCE between nodes", **A3},
    "atlas-a3-superpod": {
        "description": "Atlas 900 A3 SuperPoD: 8 cards, 16 dies per node, HCCS between the nodes of a super-pod",
        **A3,
        "schedulePolicy": "chip2-node16-sp",
        "nodeLabels": A3["nodeLabels"] | {SUPER_POD: []},
        "superPodLabel": SUPER_POD,
    },
    "cce-a2": {"description": "Ascend 910B nodes of Huawei Cloud CCE: 8 NPUs per node", **A2, **CCE_NODE},
    "cce-a3": {"description": "Ascend 910_93 nodes of Huawei Cloud CCE: 8 cards, 16 dies per node", **A3, **CCE_NODE},
    "cpu": {
        "description": "The node's CPUs, offered as NPUs: the same code path without an NPU",
        "platform": "cpu",
        "resource": "huawei.com/Ascend910",
        "devicesPerNode": 16,
        "diesPerCard": 1,
        # verl uses 3 CPUs per device; agent loops, reward workers and TransferQueue need a few more.
        "rayCPUsPerDevice": 8,
    },
}
SOURCES: dict[str, dict[str, str]] = {
    "atlas-a2": A2_SOURCES,
    "atlas-a3": A3_SOURCES,
    "atlas-a3-superpod": A3_SOURCES
    | {
        "nodeLabels": f"{MC_LABELS}; {SUPER_POD} is set from 26.0 on if the driver reports a super-pod",
        "superPodLabel": f"{MC_PLUGIN}: the ID that the driver reports, equal on all nodes of a super-pod",
    },
    "cce-a2": A2_SOURCES | CCE_SOURCES,
    "cce-a3": A3_SOURCES | CCE_SOURCES,
    "cpu": {
        "resource": f"{RESOURCE}; the fake device plug-in of the local cluster offers the same",
        "devicesPerNode": f"{OURS}: as an A3 node",
        "diesPerCard": OURS,
        "rayCPUsPerDevice": "verl/single_controller/ray/base.py of 0.9.1: 3 per device; ours: room for helpers",
    },
}
VENDOR_RESOURCES = {
    "huawei.com/Ascend910": "MindCluster: 910A, A2 and A3, one device per die",
    "huawei.com/npu": "MindCluster: Atlas 350, 850 and 950 (A5); jobs must set a schedule policy",
    "huawei.com/ascend-1980": "Huawei Cloud CCE: A2 (8 per node) and A3 (16)",
    "huawei.com/Ascend910B2": "HAMi: A2",
    "huawei.com/Ascend910B3": "HAMi: A2",
    "huawei.com/Ascend910B4": "HAMi: A2 with 32 GB",
    "huawei.com/Ascend910B4-1": "HAMi: A2 with 64 GB",
}
"""Resource names of known device plug-ins. A row may use another one."""


def built_in_document() -> dict[str, dict[str, Any]]:
    """Return the rows of this release as the chart writes them."""
    rows = {}
    for name, row in DOCUMENT.items():
        kept = {field: value for field, value in row.items() if value is not None}
        rows[name] = kept | {"sources": {f: text for f, text in SOURCES[name].items() if f in kept}}
    return rows


BUILT_IN = AcceleratorTable(read_table(built_in_document()))
"""The table of this release, for wiring and tests. What serves a job reads the table that its spec was parsed with."""


def class_is_known(spec: RLJobSpec) -> bool:
    """Report whether the table has a row for the job's class; an administrator may have removed it."""
    return spec.accelerator.class_ in spec.accelerator.table


def facts_of(spec: RLJobSpec) -> AcceleratorFacts:
    """Return the row of a job whose class is known."""
    return spec.accelerator.table[spec.accelerator.class_]
