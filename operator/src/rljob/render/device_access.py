"""Containers without devices state that they have none, whatever their images and ConfigMaps set.

Ascend Docker Runtime gives a container the devices that ASCEND_VISIBLE_DEVICES names, and none if it is `void`
(MindCluster 26.1, Ascend Docker Runtime, "Usage on the Containerd client", table 1). The device plug-in sets it in a
container that requests devices; in others an `envFrom` or the image could. A variable in `env` takes precedence over
both: kubernetes v1.36.2, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
"""

from __future__ import annotations

from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import facts_of

NO_DEVICES = {"name": "ASCEND_VISIBLE_DEVICES", "value": "void"}


def deny_devices(spec: RLJobSpec, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with the variable in each container that requests no devices."""
    resource = facts_of(spec).resource
    lists = {
        name: [_denied(container, resource) for container in pod[name]]
        for name in ("initContainers", "containers")
        if name in pod
    }
    return pod | lists


def _denied(container: dict[str, Any], resource: str) -> dict[str, Any]:
    if resource in ((container.get("resources") or {}).get("limits") or {}):
        return container
    others = [entry for entry in container.get("env") or () if entry["name"] != NO_DEVICES["name"]]
    return container | {"env": [*others, dict(NO_DEVICES)]}
