"""What every worker node must offer, and whether processes are bound there: for job.json, checked on the nodes."""

from __future__ import annotations

import re

from rljob.api.base import Switch
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import facts_of
from rljob.render.hardware import sized
from rljob_runtime.contract import NodeNeeds

CHIPS = {"910b": ("910B",), "a3": ("Ascend910",)}
"""Image suffix of a class -> names of its devices in npu-smi (MindCluster, ascend-device-plugin; 24.1 to 26.0)."""
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(k|[KMGT]i|[MGT])?$")


def binds_cores(spec: RLJobSpec) -> bool:
    """Tell whether the runtime binds processes to CPUs; without NPUs only if asked for."""
    asked = spec.optimizations.core_binding
    npu = facts_of(spec).is_npu
    return asked is Switch.ENABLED or (asked is Switch.AUTO and npu)


def node_needs(spec: RLJobSpec) -> NodeNeeds:
    """Give what each worker node must offer; what manifest and class leave open is not checked."""
    (group,) = spec.worker_groups[:1]
    facts = facts_of(spec)
    template = sized(spec, group.template)
    cpus = _amount(template.cpu)
    return NodeNeeds(
        cpus=int(cpus) if cpus is not None and cpus >= 1 else None,
        whole_node=facts.is_npu and group.devices_per_node == facts.devices_per_node,
        shared_memory_bytes=None if (size := _amount(template.shared_memory)) is None else int(size),
        chips=CHIPS.get(facts.image_suffix or "", ()),
    )


def _amount(quantity: str | None) -> float | None:
    found = QUANTITY.match(quantity or "")
    return float(found[1]) * UNITS[found[2] or ""] if found else None
