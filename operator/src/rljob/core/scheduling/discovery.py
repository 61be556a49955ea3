"""Does the cluster have the hardware that a job requests? Reported when the job begins and when its pods find no node.

The check covers what the nodes offer in total, not what is free at the moment, which the scheduler handles: requests of
other pods are not subtracted, because such a pod may end. A cluster may grow, so nothing is refused. Where some nodes
cannot be read, nothing is reported.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.core.scheduling.node_faults import counts, is_ready
from rljob.core.scheduling.places import Site, places
from rljob.core.scheduling.pod_room import UNKNOWN, Offer, default_worker_unplaced, offer_of, unplaced
from rljob.core.validation.violation import Violation
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import SUPER_POD, VENDOR_RESOURCES, facts_of

FIELD = "spec.accelerator.class"
DRIVER_LABEL = "huawei.com/driver.version"
"""Written by MindCluster's device plug-in."""
NAMED = 3
"""Entries that a message lists."""
JUDGED_MAX = 256
"""Different jobs whose hardware was compared with the same nodes and is remembered."""


@dataclass(frozen=True)
class NodeFacts:
    """The part of a node that is kept."""

    labels: Mapping[str, str]
    """Labels that rows of the accelerator table use, and the driver's version."""
    devices: Mapping[str, int]
    """Allocatable devices by resource."""
    name: str = ""
    capacity: Mapping[str, int] = field(default_factory=dict)
    """The same, including faulty devices."""
    takes_pods: bool = True
    """Neither cordoned nor unreachable."""
    offer: Offer = UNKNOWN
    """CPUs, memory and taints."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of the cluster, as far as they were read."""

    items: tuple[NodeFacts, ...]
    complete: bool = True
    _judged: dict[bytes, tuple[Violation, ...]] = field(default_factory=dict, compare=False, repr=False)
    """What they lack for jobs, by the hardware that these ask for: a thousand jobs often ask for the same."""

    def judge(self, question: bytes, answer: Callable[[], tuple[Violation, ...]]) -> tuple[Violation, ...]:
        """Return the answer to a question about these nodes, which is computed once."""
        found = self._judged.get(question)
        if found is None:
            found = answer()
            # Large jobs ask in a thread.
            if len(self._judged) >= JUDGED_MAX:
                self._judged.clear()
            self._judged[question] = found
        return found


def node_facts(manifest: Mapping[str, Any], accelerators: AcceleratorTable) -> NodeFacts:
    """Return what discovery reads of a node; the rest of a thousand nodes would be megabytes."""
    labels = manifest["metadata"].get("labels") or {}
    wanted = {name for row in accelerators.values() for name in row.node_labels} | {DRIVER_LABEL}
    state, spec = manifest.get("status") or {}, manifest.get("spec") or {}
    resources = device_resources(accelerators)
    return NodeFacts(
        {name: str(labels[name]) for name in wanted if name in labels},
        counts(state.get("allocatable"), resources),
        str(manifest["metadata"].get("name", "")),
        counts(state.get("capacity"), resources),
        takes_pods=is_ready(spec) and spec.get("unschedulable") is not True,
        offer=offer_of(manifest),
    )


def device_resources(accelerators: AcceleratorTable) -> set[str]:
    """Return every resource by which nodes offer NPUs."""
    return {row.resource for row in accelerators.values()} | set(VENDOR_RESOURCES)


@dataclass(frozen=True)
class Room:
    """The nodes that match a job's class and size."""

    all: frozenset[str]
    """Whether or not they can be used now."""
    usable: frozenset[str]
    places: int
    """Workers of the job for which all of them have devices."""
    free: int
    """Workers of the job for which the usable ones have devices."""


def room_for(spec: RLJobSpec, nodes: Nodes, avoided: Iterable[str]) -> Room | None:
    """Return the nodes on which a job may run; None where that is not known."""
    if not nodes.items or not nodes.complete:
        return None
    groups, kept_off, site_of = spec.worker_groups, frozenset(avoided), _sites(spec)
    sites = [(node, site_of(node, node.capacity)) for node in nodes.items]
    whole = {node.name: site for node, site in sites if site.takes(groups)}
    now = [
        (node, site_of(node, node.devices))
        for node in nodes.items
        if node.name in whole and node.takes_pods and node.name not in kept_off
    ]
    usable = {node.name: site for node, site in now if site.takes(groups)}
    return Room(frozenset(whole), frozenset(usable), places(spec, whole.values()), places(spec, usable.values()))


def _sites(spec: RLJobSpec) -> Callable[[NodeFacts, Mapping[str, int]], Site]:
    """Return what a node with so many devices is for a job; a thousand nodes ask."""
    facts = facts_of(spec)
    groups = [(each.name, each.template.node_selector) for each in spec.worker_groups]

    def site_of(node: NodeFacts, devices: Mapping[str, int]) -> Site:
        # The template's node selector replaces the label of the class, as in the pods.
        mine = frozenset(name for name, selector in groups if _has_labels(facts, node, selector))
        return Site(devices.get(facts.resource, 0), mine)

    return site_of


def workers_in_all(spec: RLJobSpec, nodes: Nodes) -> int | None:
    """Return how many of a job's workers the nodes of its class could hold if they were empty; None if not known."""
    if not nodes.items or not nodes.complete:
        return None
    site_of = _sites(spec)
    return places(spec, (site_of(node, node.capacity) for node in nodes.items))


def devices_in_all(spec: RLJobSpec, nodes: Nodes) -> int:
    """Return the devices of all nodes of a job's class, regardless of its node selector."""
    facts = facts_of(spec)
    return sum(node.capacity.get(facts.resource, 0) for node in nodes.items if _has_labels(facts, node, {}))


def missing_hardware(spec: RLJobSpec, nodes: Nodes) -> tuple[Violation, ...]:
    """Return what the cluster lacks for a job's class; nothing where it is not known."""
    if not nodes.items or not nodes.complete:
        return ()
    return nodes.judge(_question(spec), lambda: _missing(spec, nodes))


def _question(spec: RLJobSpec) -> bytes:
    """Return a value that differs for jobs of which `missing_hardware` reads different fields."""
    patched = (spec.pod_spec_patch.workers is None, spec.pod_spec_patch.head is None)
    read = [
        *(part.model_dump_json() for part in (spec.accelerator, spec.head, *spec.worker_groups)),
        repr((facts_of(spec), patched, spec.scheduling.queue_name, spec.network.mode)),
    ]
    return hashlib.sha256("\0".join(read).encode(errors="surrogatepass")).digest()


def _missing(spec: RLJobSpec, nodes: Nodes) -> tuple[Violation, ...]:
    found = [_fitting(spec, group, nodes) for group in spec.worker_groups]
    if lacking := tuple(dict.fromkeys(problem for _, problem in found if problem is not None)):
        return lacking
    fitting = [nodes.items[at] for at in sorted({at for here, _ in found for at in here})]
    site_of = _sites(spec)
    held, name = places(spec, (site_of(node, node.devices) for node in fitting)), spec.accelerator.class_
    if held < spec.nodes:
        wanted = " and ".join(f"{each.nodes} of {each.devices_per_node} devices" for each in spec.worker_groups)
        text = f"{len(fitting)} nodes of class {name} have devices for {held} workers, but the job needs {wanted}"
        return (Violation(FIELD, text),)
    return (
        *_old_drivers(name, facts_of(spec), fitting),
        *unplaced(spec, [node.offer for node in nodes.items], [here for here, _ in found]),
    )


def _fitting(spec: RLJobSpec, group: WorkerGroup, nodes: Nodes) -> tuple[list[int], Violation | None]:
    """Return the places in the list of the nodes with devices for a group's workers, and why they are too few."""
    facts, site_of, chosen = facts_of(spec), _sites(spec), group.template.node_selector
    # The template's node selector replaces the label of the class, as in the pods.
    labelled = [node for node in nodes.items if _has_labels(facts, node, chosen)]
    whole = [node for node in nodes.items if node.devices.get(facts.resource, 0) >= group.devices_per_node]
    fitting = [at for at, node in enumerate(nodes.items) if site_of(node, node.devices).room(group)]
    name, amount = spec.accelerator.class_, f"{group.devices_per_node} {facts.resource}"
    if not fitting:
        seen, most = (
            _seen(facts, labelled, whole, amount),
            max((n.devices.get(facts.resource, 0) for n in labelled), default=0),
        )
        hint = _hint(spec, nodes, labelled, whole)
        if 0 < most < group.devices_per_node:
            hint = f"the largest offers {most}; lower workerGroups[{group.name}].devicesPerNode"
        text = f"no node of the cluster fits class {name}: of {len(nodes.items)} nodes {seen}; {hint}"
        return fitting, Violation(FIELD, text)
    if len(fitting) < group.nodes:
        who = "the job" if len(spec.worker_groups) == 1 else f"group {group.name}"
        text = f"{len(fitting)} nodes of class {name} offer {amount}, but {who} needs {group.nodes}"
        return fitting, Violation(FIELD, text)
    return fitting, None


def _has_labels(facts: AcceleratorFacts, node: NodeFacts, chosen: Mapping[str, str]) -> bool:
    return all(
        node.labels.get(name) == chosen[name]
        if name in chosen
        else name in node.labels and (not v or node.labels[name] in v)
        for name, v in facts.node_labels.items()
    )


def _seen(facts: AcceleratorFacts, labelled: list[NodeFacts], whole: list[NodeFacts], amount: str) -> str:
    if not facts.node_labels:
        return f"none offers {amount}"
    return f"{len(labelled)} have its labels ({_labels_text(facts)}) and {len(whole)} offer {amount}"


def _labels_text(facts: AcceleratorFacts) -> str:
    texts = (f"{name} {' or '.join(values)}" if values else name for name, values in facts.node_labels.items())
    return ", ".join(texts)


def _hint(spec: RLJobSpec, nodes: Nodes, labelled: list[NodeFacts], whole: list[NodeFacts]) -> str:
    """Return what to do, preferably with the hardware that the nodes do have."""
    others = [
        name for name in classes_with_nodes(spec.accelerator.table, nodes.items) if name != spec.accelerator.class_
    ]
    has = f"there are nodes of class {', '.join(others[:NAMED])}" if others else ""
    if whole and not labelled:
        label = facts_of(spec).super_pod_label
        if label == SUPER_POD and not any(label in node.labels for node in whole):
            return "; ".join(
                filter(None, (f"none has {label}, which MindCluster sets from 26.0 on in super-pods", has))
            )
        return has or (
            "label the nodes, set this label in the template's nodeSelector, or change nodeLabels in the chart value "
            "accelerators"
        )
    if has:
        return has
    offered = Counter(name for node in nodes.items for name, count in node.devices.items() if count > 0)
    if offered:
        listed = ", ".join(f"{name} ({count} nodes)" for name, count in offered.most_common(NAMED))
        return f"nodes offer {listed}; add a class for them in the chart value accelerators"
    return "no node offers any NPU; is the device plug-in running?"


def classes_with_nodes(table: Mapping[str, AcceleratorFacts], nodes: Iterable[NodeFacts]) -> list[str]:
    """Return the NPU classes of which there is a whole node."""
    seen = tuple(nodes)
    return sorted(name for name, row in table.items() if row.is_npu and any(_fits(row, node) for node in seen))


def default_workers_unplaced(table: Mapping[str, AcceleratorFacts], nodes: Iterable[NodeFacts]) -> list[str]:
    """Return for which classes no whole node takes a worker of the class's default size, and why."""
    seen = tuple(nodes)
    offers = {
        name: [node.offer for node in seen if _fits(table[name], node)] for name in classes_with_nodes(table, seen)
    }
    return [text for name, found in offers.items() if (text := default_worker_unplaced(name, table[name], found))]


def _fits(facts: AcceleratorFacts, node: NodeFacts) -> bool:
    return _has_labels(facts, node, {}) and node.devices.get(facts.resource, 0) >= facts.devices_per_node


def _old_drivers(name: str, facts: AcceleratorFacts, nodes: Iterable[NodeFacts]) -> Iterable[Violation]:
    least = facts.minimum.driver
    found = Counter(version for node in nodes if (version := node.labels.get(DRIVER_LABEL)))
    old = {version: count for version, count in found.items() if least and _number(version) < _number(least)}
    if old:
        listed = ", ".join(f"{version} ({count} nodes)" for version, count in sorted(old.items())[:NAMED])
        yield Violation(FIELD, f"nodes with NPU drivers {listed} are older than {least}, which class {name} requires")


def _number(version: str) -> tuple[int, ...]:
    """Parse 25.5.0 or 26.0.rc1; a release candidate precedes its release."""
    parts = version.lower().split(".")
    return tuple(int(part) if part.isdecimal() else -1 for part in parts)
