"""What `rljob doctor` checks, one line each with the fix.

Functions that judge a fact are pure; those before them gather the facts.
"""

from __future__ import annotations

import argparse
import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rljob.api.accelerators import DriverMounts
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit
from rljob.cli.installation import SELECTOR, UNKNOWN, Installed, deployments
from rljob.cli.verbs.version import own_version
from rljob.cli.volcano import BATCH_SCHEDULER_FIX, OTHER_GROUP, TESTING, batch_scheduler, field_notes, release_note
from rljob.cluster.kinds import POD_GROUP
from rljob.cluster.manifests import spec_fields
from rljob.core.scheduling.discovery import NodeFacts, classes_with_nodes, default_workers_unplaced, node_facts
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.podgroup import NEWEST_FIELDS

KUBERAY = ("app.kubernetes.io/name=kuberay-operator", "app.kubernetes.io/component=kuberay-operator")
"""kuberay v1.6.2, helm-chart/kuberay-operator/templates/_helpers.tpl, and ray-operator/config/manager/manager.yaml."""
KUEUE = ("app.kubernetes.io/name=kueue",)
"""kueue v0.15, charts/kueue/templates/_helpers.tpl and config/components/manager."""
VOLCANO = ("app=volcano-scheduler",)
"""volcano v1.14.1, installer/helm/chart/volcano/templates/scheduler.yaml; MindCluster's YAML has the same."""
LEASES = "kube-node-lease"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
SKEW_MINORS = 1
"""kubectl supports servers within one minor version (https://kubernetes.io/releases/version-skew-policy/#kubectl)."""
SHARED = "ReadWriteMany"
CLOCK_SECONDS = 40.0
"""Duration of a node's Lease (kubernetes v1.36, kubelet default nodeLeaseDurationSeconds); it is renewed every 10 s."""
NAMES = 4
"""Names that a line lists."""
KINDS = ("rljobs", "rlrecipes", "clusterrlrecipes")
RIGHTS: tuple[tuple[str, str, str], ...] = (
    ("create", "rljobs.rljob.dev", "apply"),
    ("list", "rljobs.rljob.dev", "list, top"),
    ("patch", "rljobs.rljob.dev", "suspend, resume, stop, restart"),
    ("delete", "rljobs.rljob.dev", "delete"),
    ("list", "pods", "logs, exec, dashboard"),
    ("get", "pods/log", "logs"),
    ("create", "pods/exec", "logs, steps, exec"),
    ("create", "pods/portforward", "dashboard"),
    ("list", "events.events.k8s.io", "events"),
)
"""Verb, resource, and the commands that need it."""


def findings(chosen: argparse.Namespace) -> Iterator[Finding]:
    """Gather the facts of each check, and judge them. A cluster that does not answer raises UsageError."""
    place = kubectl.Place(chosen.namespace, chosen.context)
    wide = kubectl.Place(context=chosen.context)
    answer = json.loads(kubectl.run(["version", "--output", "json"], wide))
    yield versions(answer["clientVersion"]["gitVersion"], answer["serverVersion"]["gitVersion"])
    kinds = _kinds("rljob.dev", wide)
    yield crds(kinds, _has_stop(wide) if kinds else None)
    yield operator(deployments(SELECTOR, wide), own_version())
    absent = "no RayCluster is served, so no job can start"
    ray = [kind for kind in _kinds("ray.io", wide) if kind.startswith("rayclusters.")]
    kuberay = installed(KUBERAY, wide)
    yield controller("KubeRay", ray, kuberay, is_needed=True, absent=absent)
    absent = "not installed: jobs with scheduling.queueName cannot start, and all others start at once"
    kueue = _kinds("kueue.x-k8s.io", wide)
    yield controller("Kueue", kueue, installed(KUEUE, wide), is_needed=False, absent=absent)
    if f"{POD_GROUP.plural}.{POD_GROUP.group}" in _kinds(POD_GROUP.group, wide):
        yield volcano(installed(VOLCANO, wide), _pod_group_fields(wide), kuberay or ())
    else:
        yield Finding("Volcano", Mark.OK, "not installed: jobs with scheduling.gang Volcano cannot start")
    allowed = {(verb, what): _may(verb, what, place) for verb, what, _ in RIGHTS}
    yield rights(allowed, chosen.namespace or "of the context")
    nodes = kubectl.list_readable("nodes", wide)
    table = chosen.accelerators
    facts = None if nodes is None else [node_facts(node, table) for node in nodes]
    yield from addresses(nodes or ())
    yield devices(facts, table)
    yield from runtime_classes(facts or (), table, wide)
    classes = kubectl.list_readable("storageclasses.storage.k8s.io", wide)
    claims = kubectl.list_readable("persistentvolumeclaims", place)
    yield storage(None if classes is None else [_storage_class(each) for each in classes], claims)
    leases = kubectl.list_readable("leases.coordination.k8s.io", kubectl.Place(LEASES, chosen.context))
    renewals = {lease["metadata"]["name"]: lease["spec"].get("renewTime") for lease in leases or ()}
    times = {name: datetime.fromisoformat(str(time)) for name, time in renewals.items() if time}
    yield clocks(times, datetime.now(UTC))


def installed(selectors: tuple[str, ...], place: kubectl.Place) -> list[Installed] | None:
    """Return the Deployments with the first of these labels that any has; None if the caller may not list them."""
    found: list[Installed] | None = []
    for selector in selectors:
        found = deployments(selector, place)
        if found != []:
            return found
    return found


def _kinds(group: str, place: kubectl.Place) -> list[str]:
    return kubectl.run(["api-resources", "--api-group", group, "--output", "name"], place).split()


def _pod_group_fields(place: kubectl.Place) -> frozenset[str] | None:
    """Return the fields of a PodGroup as the operator reads them; None if they are not published."""
    try:
        answer = kubectl.run(["get", "--raw", f"/openapi/v3/apis/{POD_GROUP.api_version}"], place)
    except UsageError:
        return None
    return spec_fields(POD_GROUP, json.loads(answer))


def runtime_classes(nodes: Sequence[NodeFacts], table: AcceleratorTable, place: kubectl.Place) -> Iterator[Finding]:
    """Judge the RuntimeClasses that workers get by their class, where a node has such a class."""
    wanted = {
        own: name
        for name in classes_with_nodes(table, nodes)
        if table[name].driver_mounts is DriverMounts.RUNTIME_CLASS and (own := table[name].runtime_class_name)
    }
    there = kubectl.list_readable("runtimeclasses.node.k8s.io", place) if wanted else []
    if there is not None:
        names = {str(each["metadata"]["name"]) for each in there}
        yield from (runtime_class(name, of) for name, of in sorted(wanted.items()) if name not in names)


def _has_stop(place: kubectl.Place) -> bool | None:
    """Return whether the schema has the field that `rljob stop` sets; None if it is not published."""
    try:
        output = kubectl.run(["explain", "rljobs.spec.stop", "--api-version", "rljob.dev/v1alpha1"], place)
    except UsageError:
        return None
    return "requested" in output


def _may(verb: str, resource: str, place: kubectl.Place) -> bool:
    name, _, below = resource.partition("/")
    words = ["auth", "can-i", verb, name, *(["--subresource", below] if below else []), "--quiet"]
    try:
        kubectl.run(words, place)
    except UsageError as error:
        if error.code in (Exit.UNREACHABLE, Exit.DENIED):
            raise
        return False
    return True


def _storage_class(manifest: dict[str, Any]) -> tuple[str, bool]:
    marks = manifest["metadata"].get("annotations") or {}
    return str(manifest["metadata"]["name"]), marks.get(DEFAULT_CLASS) == "true"


class Mark(enum.StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    """Not as usual, and fine if it is meant."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The caller may not read it."""


@dataclass(frozen=True)
class Finding:
    """One line."""

    check: str
    mark: Mark
    message: str
    fix: str = ""


def versions(client: str, server: str) -> Finding:
    """Judge whether kubectl fits the server."""
    both = f"kubectl {client}, server {server}"
    minors = [re.match(r"v?(\d+)\.(\d+)", text) for text in (client, server)]
    if None in minors:
        return Finding("kubernetes", Mark.UNKNOWN, both)
    ours, theirs = (int(found[2]) for found in minors if found)
    if abs(ours - theirs) > SKEW_MINORS:
        fix = f"install kubectl 1.{theirs}, which supports this server"
        return Finding("kubernetes", Mark.NOTE, f"{both} are {abs(ours - theirs)} minor versions apart", fix)
    return Finding("kubernetes", Mark.OK, both)


def crds(served: Iterable[str], has_stop: bool | None) -> Finding:  # noqa: FBT001 - a fact
    """Judge the kinds that the server serves, and whether the schema is as new as this command."""
    missing = sorted({f"{kind}.rljob.dev" for kind in KINDS} - set(served))
    fix = "install or upgrade the chart rljob-operator (docs/install.md)"
    if missing:
        return Finding("crds", Mark.FAILED, f"{', '.join(missing)} not served", fix)
    if has_stop is False:
        return Finding("crds", Mark.FAILED, "the CRD has no spec.stop.requested: it is older than this command", fix)
    return Finding("crds", Mark.OK, f"{', '.join(KINDS)} served")


def operator(found: Sequence[Installed] | None, own: str) -> Finding:
    """Judge the installed operator."""
    if found is None:
        fix = "ask an administrator, or for the permission to list Deployments"
        return Finding("operator", Mark.UNKNOWN, "Deployments may not be listed", fix)
    if not found:
        fix = "install the chart rljob-operator (docs/install.md)"
        return Finding("operator", Mark.FAILED, "no operator is installed", fix)
    text = ", ".join(f"{each.namespace}/{each.name} {each.version}" for each in found[:NAMES])
    idle = [each for each in found if each.ready < 1]
    if idle:
        where = f"kubectl -n {idle[0].namespace} describe deployment {idle[0].name}"
        return Finding("operator", Mark.FAILED, f"{text}: no replica is ready", f"`{where}` says why")
    if any(each.version not in (own, UNKNOWN) for each in found):
        return Finding("operator", Mark.NOTE, f"{text}; this command is {own}", "install the rljob of that release")
    return Finding("operator", Mark.OK, text)


def controller(
    check: str, kinds: Sequence[str], found: Sequence[Installed] | None, *, is_needed: bool, absent: str
) -> Finding:
    """Judge KubeRay or Kueue: its kinds, and its controller."""
    fix = f"install {check}" if is_needed else ""
    if not kinds:
        return Finding(check, Mark.FAILED if is_needed else Mark.NOTE, absent, fix)
    if not found:
        # Some installations use other labels, and some callers may not list Deployments.
        return Finding(check, Mark.OK, f"{len(kinds)} kinds served; its controller is not visible")
    if all(each.ready < 1 for each in found):
        where = f"kubectl -n {found[0].namespace} describe deployment {found[0].name}"
        return Finding(
            check, Mark.FAILED, "its controller is installed, and no replica is ready", f"`{where}` says why"
        )
    text = ", ".join(f"{each.namespace}/{each.name} {each.image.rpartition(':')[2]}" for each in found[:NAMES])
    return Finding(check, Mark.OK, text)


def volcano(found: Sequence[Installed] | None, fields: frozenset[str] | None, kuberay: Sequence[Installed]) -> Finding:
    """Judge an installed Volcano: its scheduler, its PodGroups, and whether KubeRay uses it too."""
    ours = next((text for each in kuberay if (text := batch_scheduler(each.arguments))), "")
    if ours:
        return Finding("Volcano", Mark.FAILED, f"KubeRay runs with {ours}, which {OTHER_GROUP}", BATCH_SCHEDULER_FIX)
    seen = controller("Volcano", [POD_GROUP.plural], found, is_needed=False, absent="")
    if seen.mark is not Mark.OK:
        return seen
    release = release_note(found[0].image) if found else ""
    notes = [*([release] if release else []), *field_notes(fields if fields is not None else NEWEST_FIELDS)]
    if not notes:
        return seen
    return Finding("Volcano", Mark.NOTE, "; ".join([seen.message, *notes]), TESTING if release else "")


def runtime_class(name: str, of: str) -> Finding:
    """Report a RuntimeClass that a class refers to, and that does not exist."""
    fix = f"create it with the handler of Ascend Docker Runtime, or set accelerators.{of}.driverMounts to HostPath"
    text = f"RuntimeClass {name} of class {of} does not exist, so the API server refuses its workers"
    return Finding("runtime class", Mark.NOTE, text, fix)


def addresses(nodes: Sequence[kubectl.Manifest]) -> Iterator[Finding]:
    """Report nodes whose pods get no IPv4 address, by the ranges of their pods, otherwise by their own addresses.

    KubeRay 1.6.2 has no support of IPv6 alone (kuberay pull request 5215 is open).
    """
    without = [str(node["metadata"]["name"]) for node in nodes if (found := _ip_versions(node)) and 4 not in found]
    if without:
        named = ", ".join(without[:NAMES]) + (", …" if len(without) > NAMES else "")
        fix = "give the cluster IPv4 or both families (docs/compatibility.md)"
        yield Finding("addresses", Mark.FAILED, f"nodes with IPv6 only, which KubeRay does not support: {named}", fix)


def _ip_versions(node: kubectl.Manifest) -> set[int]:
    """Return the IP versions of a node; empty if it states none."""
    ranges = [str(text).partition("/")[0] for text in (node.get("spec") or {}).get("podCIDRs") or ()]
    own = [each for each in (node.get("status") or {}).get("addresses") or () if each.get("type") == "InternalIP"]
    return {6 if ":" in text else 4 for text in ranges or [str(each.get("address")) for each in own]}


def rights(allowed: Mapping[tuple[str, str], bool], namespace: str) -> Finding:
    """Judge what the caller may do in a namespace."""
    missing = [(f"{verb} {resource}", used) for verb, resource, used in RIGHTS if not allowed.get((verb, resource))]
    if not missing:
        return Finding("rights", Mark.OK, f"all that the commands need in namespace {namespace}")
    text = "; ".join(f"{what} (for {used})" for what, used in missing)
    fix = "ask an administrator for the role rljob edit of the chart, or for these permissions"
    return Finding("rights", Mark.FAILED, f"not allowed in namespace {namespace}: {text}", fix)


def devices(nodes: Sequence[NodeFacts] | None, table: AcceleratorTable) -> Finding:
    """Judge whether nodes offer NPUs, which only a device plug-in makes known, and of which classes they are."""
    if nodes is None:
        fix = "ask an administrator for the permission to list nodes"
        return Finding("devices", Mark.UNKNOWN, "nodes may not be listed", fix)
    resources = sorted({row.resource for row in table.values()})
    offered = ", ".join(text for resource in resources if (text := _offered(nodes, resource)))
    if not offered:
        fix = "install the Ascend device plug-in (docs/guides/ascend-nodes.md), unless all jobs have class cpu"
        return Finding("devices", Mark.NOTE, f"no node offers {' or '.join(resources)}", fix)
    if classes := classes_with_nodes(table, nodes):
        text = f"{offered}; whole nodes of class {', '.join(classes)}"
        small = default_workers_unplaced(table, nodes)
        return Finding("devices", Mark.NOTE if small else Mark.OK, "; ".join([text, *small]))
    fix = "compare labels and devices of the nodes with the classes (docs/reference/accelerators.md)"
    return Finding("devices", Mark.NOTE, f"{offered}; no whole node has the labels of an NPU class", fix)


def _offered(nodes: Sequence[NodeFacts], resource: str) -> str:
    """Return how many devices there are and how many a pod can have at most; empty if there is none."""
    having = [count for node in nodes if (count := node.devices.get(resource, 0))]
    if not having:
        return ""
    many = f"{len(having)} nodes, {max(having)} at most on one" if len(having) > 1 else "1 node"
    return f"{sum(having)} {resource} on {many}"


def storage(classes: Sequence[tuple[str, bool]] | None, claims: Sequence[kubectl.Manifest] | None) -> Finding:
    """Judge the claims of the namespace, and the StorageClasses of which others can be made: name, and whether default.

    Only a claim that is bound shows ReadWriteMany, which head and workers on several nodes need.
    """
    shared = [each for each in claims or () if SHARED in (each["spec"].get("accessModes") or ())]
    bound = [str(each["metadata"]["name"]) for each in shared if (each.get("status") or {}).get("phase") == "Bound"]
    if bound:
        return Finding("storage", Mark.OK, f"bound with {SHARED}: {', '.join(bound[:NAMES])}")
    missing = f"no claim of the namespace is bound with {SHARED}" if claims is not None else "claims may not be listed"
    if waiting := ", ".join(str(each["metadata"]["name"]) for each in shared[:NAMES]):
        missing = f"{missing} ({waiting} is not)"
    fix = f"create one with accessModes [{SHARED}], and `kubectl describe pvc` says whether its class has them"
    if classes is None:
        fix = f"{fix}; ask an administrator which StorageClass has {SHARED}"
        return Finding("storage", Mark.UNKNOWN, f"{missing}, and StorageClasses may not be listed", fix)
    if not classes:
        fix = f"install a provisioner with {SHARED}, or create volumes by hand"
        return Finding("storage", Mark.NOTE, f"{missing}, and there is no StorageClass to provision one", fix)
    names = ", ".join(f"{name} (default)" if default else name for name, default in classes[:NAMES])
    if not any(default for _, default in classes):
        fix = f"{fix}; none is the default: name storageClassName in each claim"
    return Finding("storage", Mark.NOTE, f"{missing}; a StorageClass does not state its modes: {names}", fix)


def clocks(renewals: Mapping[str, datetime] | None, now: datetime) -> Finding:
    """Judge clocks by the Leases that every node renews by its own clock."""
    if not renewals:
        return Finding("clocks", Mark.UNKNOWN, "Leases of nodes may not be read, or there are none")
    newest = max(renewals.values())
    behind = (now - newest).total_seconds()
    if abs(behind) > CLOCK_SECONDS:
        side = "ahead of" if behind > 0 else "behind"
        fix = "set the time of this machine, or that of the nodes, by NTP"
        return Finding("clocks", Mark.FAILED, f"this machine is {abs(behind):.0f} s {side} all nodes", fix)
    late = sorted(name for name, time in renewals.items() if (newest - time).total_seconds() > CLOCK_SECONDS)
    if late:
        named = ", ".join(late[:NAMES]) + (", …" if len(late) > NAMES else "")
        fix = "check whether these nodes run, and their NTP"
        return Finding("clocks", Mark.FAILED, f"{named} renewed its Lease more than {CLOCK_SECONDS:.0f} s ago", fix)
    return Finding("clocks", Mark.OK, f"{len(renewals)} nodes within {CLOCK_SECONDS:.0f} s")
