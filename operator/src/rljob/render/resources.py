"""Requests and limits of cpu and memory of every container that the operator creates, with their defaults.

A namespace with a ResourceQuota on `limits.cpu` or on memory accepts only pods whose containers all have these values:
https://kubernetes.io/docs/concepts/policy/resource-quotas/. What the job states takes precedence. A default request is
small, so that it keeps no pod from a node; a default limit is generous, so that it is no bound in practice, because
the operator cannot know what the user's program needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from rljob.api.quantity import quantity

Container = dict[str, Any]
MEBIBYTE = 2**20


@dataclass(frozen=True)
class Size:
    """What a container gets where the job states nothing."""

    cpu: str
    memory: str
    cpu_limit: str
    memory_limit: str


RAY = Size(cpu="100m", memory="256Mi", cpu_limit="4", memory_limit="64Gi")
RAY_CPUS_PER_DEVICE = 8
"""Default CPU limit of a worker per device. KubeRay passes the limit to Ray as its CPUs, and verl reserves three per
device (verl 0.9.1, verl/single_controller/ray/base.py); the rest is room for helpers, as in the class `cpu`."""
EXPORTER = Size(cpu="20m", memory="96Mi", cpu_limit="1", memory_limit="512Mi")
COPY_RUNTIME = Size(cpu="100m", memory="64Mi", cpu_limit="2", memory_limit="256Mi")
INSTALL_PACKAGES = Size(cpu="100m", memory="128Mi", cpu_limit="2", memory_limit="4Gi")
CHECK_IMAGE = Size(cpu="100m", memory="128Mi", cpu_limit="2", memory_limit="1Gi")
CHECK_IMAGE_DEEP = Size(cpu="100m", memory="1Gi", cpu_limit="4", memory_limit="8Gi")
"""torch, vLLM and verl have 1.0 GiB once they are imported on CPUs."""
FETCH_CODE = Size(cpu="100m", memory="128Mi", cpu_limit="2", memory_limit="2Gi")
INITIALIZER = Size(cpu="100m", memory="256Mi", cpu_limit="4", memory_limit="64Gi")
EXPORT = Size(cpu="100m", memory="1Gi", cpu_limit="4", memory_limit="64Gi")
SERVICE = Size(cpu="100m", memory="256Mi", cpu_limit="4", memory_limit="16Gi")
CPU_LIMIT_MIN = "4"
"""Lowest CPU limit of a container whose request the job states: a request of 500m does not ask for half speed."""


def worker_size(devices: int) -> Size:
    """Return the default size of the Ray container of a worker."""
    return replace(RAY, cpu_limit=str(RAY_CPUS_PER_DEVICE * devices))


def whole(size: Size) -> Container:
    """Return the resources of a helper that no field of the job sizes."""
    limits = {"cpu": size.cpu_limit, "memory": size.memory_limit}
    return {"requests": {"cpu": size.cpu, "memory": size.memory}, "limits": limits}


def complete(container: Container, size: Size, shared_memory: str | None = None) -> None:
    """Add the requests and limits that a container lacks. /dev/shm counts as memory of the container."""
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    if "cpu" not in requests:
        requests["cpu"], limits["cpu"] = size.cpu, size.cpu_limit
    if "memory" not in requests:
        requests["memory"], limits["memory"] = size.memory, _with_shared(size.memory_limit, shared_memory)
    limits.setdefault("cpu", max(requests["cpu"], CPU_LIMIT_MIN, key=quantity))


def whole_cpus(cpu: str) -> str:
    """Return the number of CPUs that KubeRay derives from a request: it rounds up (v1.6.2, common/pod.go)."""
    return str(math.ceil(quantity(cpu)))


def _with_shared(memory: str, shared_memory: str | None) -> str:
    if shared_memory is None:
        return memory
    return f"{math.ceil((quantity(memory) + quantity(shared_memory)) / MEBIBYTE)}Mi"
