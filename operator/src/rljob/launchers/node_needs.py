"""What every worker node must offer, and whether processes are bound to CPUs; the launcher checks it on the nodes."""

from __future__ import annotations

from collections.abc import Iterable

from rljob.api.base import Switch
from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer, Question
from rljob.render.accelerators import facts_of
from rljob.render.hardware import sized
from rljob_runtime.contract import MinimumVersion, NodeNeeds

CHIPS = {"910b": ("910B",), "a3": ("Ascend910",)}
"""Image suffix of a class -> names of its devices in npu-smi (MindCluster, ascend-device-plugin; 24.1 to 26.0)."""


def binds_cores(spec: RLJobSpec) -> bool:
    """Report whether the runtime binds processes to CPUs; without NPUs only on request."""
    asked = spec.optimizations.core_binding
    npu = facts_of(spec).is_npu
    return asked is Switch.ENABLED or (asked is Switch.AUTO and npu)


def node_needs(spec: RLJobSpec) -> NodeNeeds:
    """Return what each worker node must offer; what neither the manifest nor the class states is not checked.

    All nodes are checked alike, so that of groups with different sizes the smaller one counts.
    """
    facts, groups = facts_of(spec), spec.worker_groups
    templates = [sized(spec, group) for group in groups]
    return NodeNeeds(
        # Millicores are a share of CPU time; there is no number of cores to check.
        cpus=_least(None if (each.cpu or "m").endswith("m") else _whole(each.cpu) or None for each in templates),
        whole_node=facts.is_npu and all(group.devices_per_node == facts.devices_per_node for group in groups),
        shared_memory_bytes=_least(_whole(each.shared_memory) for each in templates),
        chips=CHIPS.get(facts.image_suffix or "", ()),
        versions=tuple(MinimumVersion(part, text) for part, text in facts.minimum if text is not None),
    )


def _least(numbers: Iterable[int | None]) -> int | None:
    """Return the smallest number; None if one is not stated."""
    listed = list(numbers)
    return None if None in listed else min(number for number in listed if number is not None)


def _whole(text: str | None) -> int | None:
    return None if text is None else int(quantity(text))


def _core_binding(spec: RLJobSpec) -> Answer:
    if spec.optimizations.core_binding is not Switch.AUTO:
        return Answer(spec.optimizations.core_binding.value, SET)
    if not binds_cores(spec):
        return Answer("Disabled", f"class {spec.accelerator.class_} has no devices to bind cores to")
    return Answer("Enabled", "each device gets CPUs close to it, chosen on its node; /v1/progress shows the plan")


CORE_BINDING = Question("optimizations.coreBinding", _core_binding)
