"""Judges of the claims about the cluster and the image, before anything runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import GROUP, VERSION
from rljob.cli.conformance.facts import ClusterFacts, ConformancePlan, Facts
from rljob.cli.conformance.verdict import Verdict, confirmed, failed, not_applicable, not_run
from rljob.cli.installation import arguments
from rljob.cli.volcano import BATCH_SCHEDULER_FIX, OTHER_GROUP, batch_scheduler
from rljob.core.observed import Manifest

CRDS = tuple(f"{plural}.{GROUP}" for plural in ("rljobs", "rlrecipes", "clusterrlrecipes"))
KUBERAY_MIN = (1, 5, 1)
"""docs/install.md; `make compat` tests it."""
LEASE_SECONDS = 60
"""The operator renews its Lease every few seconds; the rest is for clocks that differ."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass"""
INSTALL = "install the chart rljob-operator of this release (docs/install.md)"


def judge_crds(facts: Facts) -> Verdict:
    """Judge whether the API server serves the kinds of this release."""
    crds = _cluster(facts).crds
    if crds is None:
        return _unreadable("CustomResourceDefinitions")
    found = {crd["metadata"]["name"]: crd for crd in crds}
    missing = [name for name in CRDS if name not in found]
    if missing:
        return failed(f"the cluster has no {', '.join(missing)}", INSTALL)
    broken = [name for name in CRDS if not _serves(found[name])]
    if broken:
        return failed(f"{', '.join(broken)} does not serve {VERSION}", INSTALL)
    return confirmed(f"{', '.join(CRDS)} serve {VERSION}")


def _serves(crd: Manifest) -> bool:
    served = any(one["name"] == VERSION and one.get("served") for one in crd["spec"].get("versions") or ())
    return served and _condition(crd, "Established")


def judge_operator(facts: Facts) -> Verdict:
    """Judge whether one operator is available and holds its Lease."""
    cluster = _cluster(facts)
    if cluster.operators is None:
        return _unreadable("Deployments of other namespaces")
    if not cluster.operators:
        return failed("no Deployment of the operator in any namespace", INSTALL)
    available = [one for one in cluster.operators if _condition(one, "Available") and _ready(one)]
    if not available:
        return _unavailable(cluster.operators[0], "the operator")
    operator = available[0]
    if cluster.leases is None:
        return confirmed(f"{_named(operator)} is available ({image_of(operator)}); its Lease may not be read")
    lease = next((one for one in cluster.leases if _key(one) == _key(operator)), None)
    holder = (lease or {}).get("spec", {}).get("holderIdentity")
    if lease is None or not holder:
        return failed(
            f"{_named(operator)} is available, and nothing holds the Lease {operator['metadata']['name']}",
            "look into the operator's log",
        )
    age = cluster.now - _time(str(lease["spec"].get("renewTime", "")))
    if age > LEASE_SECONDS:
        return failed(
            f"the Lease {lease['metadata']['name']} was renewed {age:.0f} s ago by {holder}",
            "look into the operator's log, and compare the clock of this machine with the cluster's",
        )
    return confirmed(f"{_named(operator)} is available ({image_of(operator)}); {holder} holds its Lease")


def judge_kuberay(facts: Facts) -> Verdict:
    """Judge whether KubeRay runs in a release that this operator was made for."""
    deployments = _cluster(facts).kuberay
    if deployments is None:
        return _unreadable("Deployments of other namespaces")
    least = ".".join(map(str, KUBERAY_MIN))
    if not deployments:
        return failed("no Deployment of KubeRay in any namespace", f"install KubeRay {least} or newer")
    available = [one for one in deployments if _condition(one, "Available") and _ready(one)]
    if not available:
        return _unavailable(deployments[0], "KubeRay")
    kuberay = available[0]
    image = image_of(kuberay)
    found = re.search(r":v?(\d+)\.(\d+)(?:\.(\d+))?", image)
    if found is None:
        return confirmed(f"{_named(kuberay)} is available; its image {image} does not name a release")
    if tuple(int(number or 0) for number in found.groups()) < KUBERAY_MIN:
        return failed(f"{_named(kuberay)} runs {image}", f"upgrade KubeRay to {least} or newer")
    return confirmed(f"{_named(kuberay)} is available ({image})")


def judge_storage(facts: Facts) -> Verdict:
    """Judge whether there is a StorageClass for the volume of model and checkpoints."""
    classes, wanted = _cluster(facts).storage_classes, facts.plan.storage_class
    if classes is None:
        return _unreadable("StorageClasses")
    names = sorted(one["metadata"]["name"] for one in classes)
    have = f"the cluster has {', '.join(names)}" if names else "the cluster has none"
    if wanted is not None:
        if wanted in names:
            return confirmed(f"StorageClass {wanted} exists{_modes_are_open(facts.plan)}")
        return failed(f"there is no StorageClass {wanted}; {have}", "name one of them with --storage-class")
    default = [
        one["metadata"]["name"]
        for one in classes
        if (one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    ]
    if not default:
        return failed(f"no StorageClass is the default; {have}", "name one with --storage-class")
    return confirmed(f"the default StorageClass is {default[0]}{_modes_are_open(facts.plan)}")


def _modes_are_open(plan: ConformancePlan) -> str:
    return f"; it does not state whether it has {plan.access_mode}, which `initializer` shows"


def judge_devices(facts: Facts) -> Verdict:
    """Judge whether a node offers the devices that the run requests."""
    plan, nodes = facts.plan, _cluster(facts).nodes
    if nodes is None:
        return _unreadable("nodes")
    offers = _offers(plan, nodes)
    fits = [f"{name} ({offers[name]})" for name in fitting_nodes(facts)]
    if fits:
        return confirmed(f"{plan.devices} {plan.resource} are offered by {_few(fits)}")
    if not any(offers.values()):
        where = f"node {plan.node}" if plan.node else "any schedulable node"
        return failed(
            f"{plan.resource} is not offered by {where}",
            "install the device plug-in and check its pods on the nodes, or choose another class with --class",
        )
    most = max(offers.values())
    return failed(
        f"the largest node offers {most} {plan.resource}, and {plan.devices} are requested",
        f"pass --devices {most}, or check the device plug-in",
    )


def fitting_nodes(facts: Facts) -> list[str]:
    """Return the nodes that offer as many devices as the run requests; none if nodes may not be read."""
    offers = _offers(facts.plan, _cluster(facts).nodes or ())
    return sorted(name for name, count in offers.items() if count >= facts.plan.devices)


def _offers(plan: ConformancePlan, nodes: Sequence[Manifest]) -> dict[str, int]:
    return {
        node["metadata"]["name"]: _offered(node, plan.resource)
        for node in nodes
        if not (node.get("spec") or {}).get("unschedulable")
        and plan.node in (None, node["metadata"]["name"])
        and _is_of_class(plan, node["metadata"].get("labels") or {})
    }


def _is_of_class(plan: ConformancePlan, labels: Mapping[str, str]) -> bool:
    return all(name in labels and (not v or labels[name] in v) for name, v in plan.node_labels.items())


def judge_image(facts: Facts) -> Verdict:
    """Judge what the image check found."""
    image = facts.image
    if image is None or image.skipped:
        return not_run(image.skipped if image else "the image was not checked")
    if image.verdict == "refused":
        return failed(image.seen, "use an image that has it (docs/guides/check-image.md)")
    return confirmed(image.seen)


def judge_queue(facts: Facts) -> Verdict:
    """Judge whether queue and gang let the job's pods start together."""
    plan, cluster = facts.plan, _cluster(facts)
    if plan.queue is None and plan.gang is None:
        have = [name for name, there in (("Kueue", bool(cluster.queues)), ("Volcano", cluster.volcano)) if there]
        hint = f"; the cluster has {' and '.join(have)}" if have else ""
        return not_applicable(f"no --queue and no --gang was passed{hint}")
    if plan.gang == "Volcano" and (argument := _batch_scheduler(cluster.kuberay or ())):
        return failed(f"KubeRay runs with {argument}, which {OTHER_GROUP}", BATCH_SCHEDULER_FIX)
    started = facts.started
    if started is None:
        return not_run("the job was not created")
    if "Admitted" not in started.conditions:
        return failed(started.why or "the condition Admitted was never True", "`rljob quota` shows what is free")
    return confirmed(f"admitted by {plan.queue or plan.gang}")


def _batch_scheduler(kuberay: Sequence[Manifest]) -> str:
    containers = (one["spec"]["template"]["spec"]["containers"][0] for one in kuberay)
    return next((text for each in containers if (text := batch_scheduler(arguments(each)))), "")


def _cluster(facts: Facts) -> ClusterFacts:
    if facts.cluster is None:
        raise ValueError("the cluster was not read")
    return facts.cluster


def _unreadable(what: str) -> Verdict:
    return not_run(f"you may not list {what}; ask an administrator for this permission, or to run the command")


def _unavailable(deployment: Manifest, subject: str) -> Verdict:
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    if not wanted:
        return failed(f"{_named(deployment)} is scaled to 0", f"scale {subject} to 1 with `kubectl scale`")
    found: Mapping[str, Any] = next(
        (one for one in (deployment.get("status") or {}).get("conditions") or () if one["type"] == "Available"), {}
    )
    said = f": {found['message']}" if found.get("message") else ""
    return failed(f"{_named(deployment)} is not available{said}", f"check the pods of {subject} and their events")


def _ready(deployment: Manifest) -> bool:
    # A Deployment that is scaled to 0 is Available.
    return int((deployment.get("status") or {}).get("readyReplicas") or 0) > 0


def _condition(manifest: Manifest, kind: str) -> bool:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def _offered(node: Manifest, resource: str) -> int:
    amount = quantity(str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")))
    return int(amount or 0)


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def _named(manifest: Manifest) -> str:
    return "Deployment {}/{}".format(*_key(manifest))


def image_of(deployment: Manifest) -> str:
    """Return the image of a Deployment."""
    return str(next(_images(deployment["spec"]), "unknown image"))


def _images(spec: Mapping[str, Any]) -> Iterator[str]:
    for container in spec["template"]["spec"]["containers"]:
        yield container["image"]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
