"""`rljob doctor`: check what the commands and jobs need of a cluster, one line each with the fix."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, command
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page

if TYPE_CHECKING:
    from rljob.cli.doctor import Finding
    from rljob.cli.installation import Installed

KUBERAY = ("app.kubernetes.io/name=kuberay-operator", "app.kubernetes.io/component=kuberay-operator")
"""kuberay v1.6.2, helm-chart/kuberay-operator/templates/_helpers.tpl, and ray-operator/config/manager/manager.yaml."""
KUEUE = ("app.kubernetes.io/name=kueue",)
"""kueue v0.15, charts/kueue/templates/_helpers.tpl and config/components/manager."""
LEASES = "kube-node-lease"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    command(
        commands,
        "doctor",
        "check versions, CRDs, operator, KubeRay, Kueue, rights, devices, storage and clocks; exit code 1 if one fails",
        _doctor,
        reads_spec=True,
        outputs=output.FORMS,
        namespace="namespace in which the rights are checked; default: the namespace of the context",
        exits={Exit.NEGATIVE: "a check failed"},
        examples=(
            ("doctor -n team-a", "check the cluster, and what you may do in a namespace"),
            ("doctor -o json", "the same for a program"),
        ),
    )


def _doctor(chosen: argparse.Namespace) -> int:
    from rljob.cli.doctor import Mark
    from rljob.cli.status import table

    found = list(_findings(chosen))
    if chosen.output in DATA:
        rows = [{"check": f.check, "result": f.mark.value, "message": f.message, "fix": f.fix} for f in found]
        print(data_page([{"checks": rows}], chosen.output, [f.check for f in found]))
    else:
        print(table([(f.mark.value, f.check, f"{f.message}; {f.fix}" if f.fix else f.message) for f in found]))
    return Exit.NEGATIVE if any(f.mark is Mark.FAILED for f in found) else Exit.SUCCESS


def _findings(chosen: argparse.Namespace) -> Iterator[Finding]:
    """Gather the facts of each check, and judge them. A cluster that does not answer raises UsageError."""
    from rljob.cli import doctor
    from rljob.cli.installation import SELECTOR, deployments
    from rljob.cli.version import own_version

    place = kubectl.Place(chosen.namespace, chosen.context)
    wide = kubectl.Place(context=chosen.context)
    told = json.loads(kubectl.run(["version", "--output", "json"], wide))
    yield doctor.versions(told["clientVersion"]["gitVersion"], told["serverVersion"]["gitVersion"])
    kinds = _kinds("rljob.dev", wide)
    yield doctor.crds(kinds, _has_stop(wide) if kinds else None)
    yield doctor.operator(deployments(SELECTOR, wide), own_version())
    absent = "no RayCluster is served, so no job can start"
    ray = [kind for kind in _kinds("ray.io", wide) if kind.startswith("rayclusters.")]
    yield doctor.controller("KubeRay", ray, installed(KUBERAY, wide), is_needed=True, absent=absent)
    absent = "not installed: jobs with scheduling.queueName cannot start, and all others start at once"
    kueue = _kinds("kueue.x-k8s.io", wide)
    yield doctor.controller("Kueue", kueue, installed(KUEUE, wide), is_needed=False, absent=absent)
    allowed = {(verb, what): _may(verb, what, place) for verb, what, _ in doctor.RIGHTS}
    yield doctor.rights(allowed, chosen.namespace or "of the context")
    nodes = kubectl.list_readable("nodes", wide)
    offers = None if nodes is None else [(node.get("status") or {}).get("allocatable") or {} for node in nodes]
    table = chosen.accelerators
    yield doctor.devices(offers, [table[name].resource for name in table if table[name].resource != "cpu"])
    classes = kubectl.list_readable("storageclasses.storage.k8s.io", wide)
    yield doctor.storage(None if classes is None else [_storage_class(each) for each in classes])
    leases = kubectl.list_readable("leases.coordination.k8s.io", kubectl.Place(LEASES, chosen.context))
    renewals = {lease["metadata"]["name"]: lease["spec"].get("renewTime") for lease in leases or ()}
    times = {name: datetime.fromisoformat(str(time)) for name, time in renewals.items() if time}
    yield doctor.clocks(times, datetime.now(UTC))


def installed(selectors: tuple[str, ...], place: kubectl.Place) -> list[Installed] | None:
    """Return the Deployments with the first of these labels that any has; None if the caller may not list them."""
    from rljob.cli.installation import deployments

    found: list[Installed] | None = []
    for selector in selectors:
        found = deployments(selector, place)
        if found != []:
            return found
    return found


def _kinds(group: str, place: kubectl.Place) -> list[str]:
    return kubectl.run(["api-resources", "--api-group", group, "--output", "name"], place).split()


def _has_stop(place: kubectl.Place) -> bool | None:
    """Return whether the schema has the field that `rljob stop` sets; None if it is not published."""
    try:
        told = kubectl.run(["explain", "rljobs.spec.stop", "--api-version", "rljob.dev/v1alpha1"], place)
    except UsageError:
        return None
    return "requested" in told


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
