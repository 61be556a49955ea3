"""The checks of `rljob doctor`: one line each, with the fix. Pure: judges facts that `verbs/doctor.py` gathers."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rljob.api.quantity import quantity
from rljob.cli.installation import UNKNOWN, Installed

SKEW_MINORS = 1
"""kubectl supports servers within one minor version (https://kubernetes.io/releases/version-skew-policy/#kubectl)."""
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
    told = f"kubectl {client}, server {server}"
    minors = [re.match(r"v?(\d+)\.(\d+)", text) for text in (client, server)]
    if None in minors:
        return Finding("kubernetes", Mark.UNKNOWN, told)
    ours, theirs = (int(found[2]) for found in minors if found)
    if abs(ours - theirs) > SKEW_MINORS:
        fix = f"install kubectl 1.{theirs}, which supports this server"
        return Finding("kubernetes", Mark.NOTE, f"{told} are {abs(ours - theirs)} minor versions apart", fix)
    return Finding("kubernetes", Mark.OK, told)


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
    told = ", ".join(f"{each.namespace}/{each.name} {each.version}" for each in found[:NAMES])
    idle = [each for each in found if each.ready < 1]
    if idle:
        where = f"kubectl -n {idle[0].namespace} describe deployment {idle[0].name}"
        return Finding("operator", Mark.FAILED, f"{told}: no replica is ready", f"`{where}` says why")
    if any(each.version not in (own, UNKNOWN) for each in found):
        return Finding("operator", Mark.NOTE, f"{told}; this command is {own}", "install the rljob of that release")
    return Finding("operator", Mark.OK, told)


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
    told = ", ".join(f"{each.namespace}/{each.name} {each.image.rpartition(':')[2]}" for each in found[:NAMES])
    return Finding(check, Mark.OK, told)


def rights(allowed: Mapping[tuple[str, str], bool], namespace: str) -> Finding:
    """Judge what the caller may do in a namespace."""
    missing = [(f"{verb} {resource}", used) for verb, resource, used in RIGHTS if not allowed.get((verb, resource))]
    if not missing:
        return Finding("rights", Mark.OK, f"all that the commands need in namespace {namespace}")
    told = "; ".join(f"{what} (for {used})" for what, used in missing)
    fix = "ask an administrator for the role rljob edit of the chart, or for these permissions"
    return Finding("rights", Mark.FAILED, f"not allowed in namespace {namespace}: {told}", fix)


def devices(allocatable: Sequence[Mapping[str, object]] | None, resources: Iterable[str]) -> Finding:
    """Judge whether nodes offer NPUs, which only a device plug-in makes known."""
    if allocatable is None:
        fix = "ask an administrator for the permission to list nodes"
        return Finding("devices", Mark.UNKNOWN, "nodes may not be listed", fix)
    told = ", ".join(text for resource in sorted(set(resources)) if (text := _offered(allocatable, resource)))
    if told:
        return Finding("devices", Mark.OK, told)
    fix = "install the Ascend device plug-in (docs/guides/ascend-nodes.md), unless all jobs have class cpu"
    return Finding("devices", Mark.NOTE, f"no node offers {' or '.join(sorted(set(resources)))}", fix)


def _offered(allocatable: Sequence[Mapping[str, object]], resource: str) -> str:
    """Return how many devices there are and how many a pod can have at most; empty if there is none."""
    counts = [int(quantity(str(node.get(resource) or 0))) for node in allocatable]
    having = [count for count in counts if count]
    if not having:
        return ""
    many = f"{len(having)} nodes, {max(having)} at most on one" if len(having) > 1 else "1 node"
    return f"{sum(having)} {resource} on {many}"


def storage(classes: Sequence[tuple[str, bool]] | None) -> Finding:
    """Judge the StorageClasses: name, and whether it is the default."""
    if classes is None:
        fix = "ask an administrator which StorageClass has ReadWriteMany"
        return Finding("storage", Mark.UNKNOWN, "StorageClasses may not be listed", fix)
    if not classes:
        fix = "install a provisioner with ReadWriteMany, or create volumes by hand"
        return Finding("storage", Mark.NOTE, "there is no StorageClass, so no claim is provisioned", fix)
    names = ", ".join(f"{name} (default)" if default else name for name, default in classes[:NAMES])
    if not any(default for _, default in classes):
        return Finding("storage", Mark.NOTE, f"{names}: none is the default", "name storageClassName in each claim")
    return Finding("storage", Mark.OK, names)


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
