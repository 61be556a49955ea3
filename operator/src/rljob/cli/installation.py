"""What is installed in the cluster beside the jobs, read by `rljob version` and `rljob doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rljob.cli import kubectl

SELECTOR = "app.kubernetes.io/part-of=rljob,app.kubernetes.io/component=operator"
"""Labels of the operator's Deployment (charts/rljob-operator/templates/_helpers.tpl)."""
VERSION = "app.kubernetes.io/version"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Installed:
    """A Deployment of a controller."""

    namespace: str
    name: str
    version: str
    image: str
    ready: int
    wanted: int
    arguments: tuple[str, ...] = ()
    """Words of the command line of its first container."""


def deployments(selector: str, place: kubectl.Place) -> list[Installed] | None:
    """Return the Deployments with these labels in all namespaces; None if the caller may not list them."""
    found = kubectl.list_readable("deployments.apps", place, kubectl.EVERYWHERE, "--selector", selector)
    return None if found is None else list(_installed(found))


def _installed(found: list[kubectl.Manifest]) -> Iterator[Installed]:
    for deployment in found:
        metadata, spec = deployment["metadata"], deployment["spec"]
        container = spec["template"]["spec"]["containers"][0]
        yield Installed(
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            version=str((metadata.get("labels") or {}).get(VERSION) or UNKNOWN),
            image=str(container["image"]),
            ready=int((deployment.get("status") or {}).get("readyReplicas") or 0),
            wanted=int(spec.get("replicas", 1)),
            arguments=arguments(container),
        )


def arguments(container: kubectl.Manifest) -> tuple[str, ...]:
    """Return the words of a container's command line; a shell's command is one argument with several."""
    return tuple(
        word
        for part in (*(container.get("command") or ()), *(container.get("args") or ()))
        for word in str(part).split()
    )
