"""The accelerator table of this process, and the rows that come with a release, each value with its source.

The chart's files/accelerators.yaml is generated from here, so operator, chart and command line hold the same copy. A
value that hardware or upstream dictates names the page or file; a value that we chose says so. MC stands for
mind-cluster 26.1.0, the stack of device plug-in, Volcano plug-in and container runtime.
"""

from __future__ import annotations

from typing import Any

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerator_table import AcceleratorTable, read_table

MC_PLUGIN = "MC, component/ascend-device-plugin"
MC_VOLCANO = "MC, component/ascend-for-volcano"
MC_LABELS = f"{MC_PLUGIN}: label servertype, chip family and AI cores, is the one label that tells A2 from A3"
RESOURCE = f"{MC_PLUGIN}: one device a die, the same name for A2 and A3"
CCE = "Huawei Cloud CCE, AI Suite (Ascend NPU); vllm-ascend's deployment pages use the name"
MATRIX = "vllm-ascend's compatibility table: 0.23.0 goes with CANN 9.1.0; CANN 9.1.0 runs on drivers from 25.5 on"
MEMORY = "vllm-ascend and verl, hardware pages: 64 GB a device"
OURS = "ours"

HOST_PATHS = [
    # What Ascend Docker Runtime mounts by itself (MC, component/ascend-docker-runtime, base.list).
    {"path": "/usr/local/dcmi", "type": "Directory", "use": "WithoutRuntime"},
    {"path": "/usr/local/bin/npu-smi", "type": "File", "use": "WithoutRuntime"},
    {"path": "/usr/local/Ascend/driver/lib64", "type": "Directory", "use": "WithoutRuntime"},
    {"path": "/usr/local/Ascend/driver/include", "type": "Directory", "use": "WithoutRuntime"},
    # And what it leaves out: hccn_tool, and the versions that preflight compares.
    {"path": "/usr/local/Ascend/driver/tools", "type": "Directory"},
    {"path": "/usr/local/Ascend/driver/version.info", "type": "File"},
    {"path": "/etc/ascend_install.info", "type": "File"},
    # Addresses of the NPUs' own network cards. A node without it is not held up: preflight says what is missing.
    {"path": "/etc/hccn.conf", "type": "FileOrCreate", "use": "SeveralNodes"},
]
ATLAS: dict[str, Any] = {
    "platform": "npu",
    "resource": "huawei.com/Ascend910",
    # Volcano's plug-in reads them from any task of the job: the same on every pod.
    "labels": {"ring-controller.atlas": "ascend-910b", "fault-scheduling": "off"},
    "headAnnotations": {"huawei.com/skip-ascend-plugin": "enabled"},
    "runtimeClassName": "ascend",
    "hostPaths": HOST_PATHS,
    "minimum": {"driver": "25.5.0", "cann": "9.1.0"},
    "hbmGiBPerDie": 64,
}
ATLAS_SOURCES = {
    "resource": RESOURCE,
    "labels": f"{MC_VOLCANO}: ascend-910b for A2 and A3; ours: off, since restarts are this operator's alone",
    "headAnnotations": f"{MC_VOLCANO}: a task without NPU is refused without it",
    "nodeLabels": MC_LABELS,
    "runtimeClassName": "MC, Ascend Docker Runtime: name of its RuntimeClass in the installation guide",
    "hostPaths": "MC, Ascend Docker Runtime: base.list, and what it leaves out; k8s examples of vllm-ascend",
    "minimum": MATRIX,
    "hbmGiBPerDie": MEMORY,
}
A2 = {
    **ATLAS,
    "devicesPerNode": 8,
    "diesPerCard": 1,
    "imageSuffix": "910b",
    # 192 cores in 8 NUMA nodes; 23 for each device leave 8 to kubelet and system.
    "pod": {"cpu": "184", "memory": "1400Gi", "sharedMemory": "256Gi"},
    "schedulePolicy": "chip8-node8",
    "nodeLabels": {"servertype": ["Ascend910B-20", "Ascend910B-24", "Ascend910B-25"]},
}
A2_SOURCES = {
    **ATLAS_SOURCES,
    "devicesPerNode": f"{MC_PLUGIN}: 8 devices on Atlas 800T A2 and 900 A2 PoD",
    "diesPerCard": "Atlas A2: one device a card",
    "imageSuffix": "tags of quay.io/ascend/cann and quay.io/ascend/verl",
    "schedulePolicy": f"{MC_VOLCANO}: 8 devices in one ring",
    "pod": f"{OURS}: hosts with 192 cores (4 Kunpeng 920) and 1.5 TiB; the same number of cores for each device",
}
A3 = {
    **ATLAS,
    "devicesPerNode": 16,
    "diesPerCard": 2,
    "imageSuffix": "a3",
    # Hosts have 320 or 640 cores: 19 for each die fit the smaller one and leave 16 to kubelet and system.
    "pod": {"cpu": "304", "memory": "1400Gi", "sharedMemory": "512Gi"},
    "schedulePolicy": "chip2-node16",
    "nodeLabels": {"servertype": ["Ascend910A3-20", "Ascend910A3-24"]},
}
A3_SOURCES = {
    **ATLAS_SOURCES,
    "devicesPerNode": f"{MC_PLUGIN}: one device a die, 8 cards of 2 dies",
    "diesPerCard": "Atlas A3: two dies a card; the plug-in gives out pairs, or one",
    "imageSuffix": "tags of quay.io/ascend/cann and quay.io/ascend/verl",
    "schedulePolicy": f"{MC_VOLCANO}: modules of 2 dies, 16 a node; -sp: within one super-pod",
    "pod": f"{OURS}: hosts with 320 cores and 1.5 TiB, the smallest that are known (vllm-ascend, CPU binding)",
}
SUPER_POD = "huawei.com/topotree.superpodid"
CCE_NODE: dict[str, Any] = {
    "resource": "huawei.com/ascend-1980",
    "nodeLabels": {"accelerator/huawei-npu": []},
    "schedulePolicy": None,
}
CCE_SOURCES = {"resource": CCE, "nodeLabels": CCE}

DOCUMENT: dict[str, dict[str, Any]] = {
    "atlas-a2": {"description": "Atlas 800T A2, 900 A2 PoD: 8 NPUs a node, RoCE between nodes", **A2},
    "atlas-a3": {"description": "Atlas 800T A3 server: 8 cards, 16 dies a node, RoCE between nodes", **A3},
    "atlas-a3-superpod": {
        "description": "Atlas 900 A3 SuperPoD: 8 cards, 16 dies a node, HCCS between the nodes of a super-pod",
        **A3,
        "schedulePolicy": "chip2-node16-sp",
        "nodeLabels": A3["nodeLabels"] | {SUPER_POD: []},
        "superPodLabel": SUPER_POD,
    },
    "cce-a2": {"description": "Ascend 910B nodes of Huawei Cloud CCE: 8 NPUs a node", **A2, **CCE_NODE},
    "cce-a3": {"description": "Ascend 910_93 nodes of Huawei Cloud CCE: 8 cards, 16 dies a node", **A3, **CCE_NODE},
    "cpu": {
        "description": "The node's processors, offered as NPUs: the same path without an NPU",
        "platform": "cpu",
        "resource": "huawei.com/Ascend910",
        "devicesPerNode": 16,
        "diesPerCard": 1,
        # verl takes 3 CPUs a device, and agent loops, reward workers and TransferQueue a handful more.
        "rayCPUsPerDevice": 8,
    },
}
SOURCES: dict[str, dict[str, str]] = {
    "atlas-a2": A2_SOURCES,
    "atlas-a3": A3_SOURCES,
    "atlas-a3-superpod": A3_SOURCES
    | {
        "nodeLabels": f"{MC_LABELS}; {SUPER_POD} is set where the driver knows a super-pod",
        "superPodLabel": f"{MC_PLUGIN}: the id that the driver gives, equal on all nodes of a super-pod",
    },
    "cce-a2": A2_SOURCES | CCE_SOURCES,
    "cce-a3": A3_SOURCES | CCE_SOURCES,
    "cpu": {
        "resource": f"{RESOURCE}; the fake device plug-in of the local cluster offers the same",
        "devicesPerNode": f"{OURS}: as an A3 node",
        "diesPerCard": OURS,
        "rayCPUsPerDevice": "verl/single_controller/ray/base.py of 0.9.1: 3 a device; ours: room for the helpers",
    },
}
VENDOR_RESOURCES = {
    "huawei.com/Ascend910": "MindCluster: 910A, A2 and A3, one device a die",
    "huawei.com/npu": "MindCluster: Atlas 350, 850 and 950 (A5); jobs must name a schedule policy",
    "huawei.com/ascend-1980": "Huawei Cloud CCE: A2 (8 a node) and A3 (16)",
    "huawei.com/Ascend910B2": "HAMi: A2",
    "huawei.com/Ascend910B3": "HAMi: A2",
    "huawei.com/Ascend910B4": "HAMi: A2 with 32 GB",
    "huawei.com/Ascend910B4-1": "HAMi: A2 with 64 GB",
}
"""Names that device plug-ins are known to give; a row may name another one all the same."""


def built_in_document() -> dict[str, dict[str, Any]]:
    """Give the rows of this release as the chart writes them."""
    rows = {}
    for name, row in DOCUMENT.items():
        kept = {field: value for field, value in row.items() if value is not None}
        rows[name] = kept | {"sources": {f: text for f, text in SOURCES[name].items() if f in kept}}
    return rows


ACCELERATORS = AcceleratorTable(read_table(built_in_document()))


def facts_of(spec: RLJobSpec) -> AcceleratorFacts:
    """Give the row of a job whose class is known."""
    return ACCELERATORS[spec.accelerator.class_]
