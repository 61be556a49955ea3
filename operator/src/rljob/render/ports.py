"""Ports of the pods: the defaults on a network of their own, a block of the job's own on the network of the node.

On the host's network all pods of a node share one set of ports. Each job then gets a block of consecutive ports that
no other job of the cluster has (`core.scheduling.port_blocks`), with ports for the head and others for a worker, so
that both may run on one node. Further ports of Ray (port 0), HCCL (`auto`) and vLLM are chosen by the operating system
from its ephemeral ports, which lie outside the block (net.ipv4.ip_local_port_range, 32768 to 60999).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from rljob_runtime.contract import PodVariable, Port

DASHBOARD_PORT = 8265
"""https://docs.ray.io/en/latest/ray-core/configure.html#ports-configurations"""
BLOCK_SIZE = 32
RAY_PORTS = "https://docs.ray.io/en/latest/ray-core/configure.html#ports-configurations"
KUBERAY_NAMES = "KubeRay v1.6.2, ray-operator/controllers/ray/utils/constant.go"
RAY_METRICS = (
    "Ray 2.60, autoscaler/_private/constants.py and dashboard/consts.py: fixed, unless these variables say more"
)
CONTRACT = "rljob_runtime.contract.Port"


class Role(enum.StrEnum):
    """Whose port it is."""

    HEAD = "head"
    WORKER = "worker"
    EXPORTER = "exporter"


class RayVariable(enum.StrEnum):
    """Variables by which Ray is told of a port for which `ray start` has no argument."""

    AUTOSCALER_METRICS = "AUTOSCALER_METRIC_PORT"
    DASHBOARD_METRICS = "DASHBOARD_METRIC_PORT"


@dataclass(frozen=True)
class PortRow:
    """One port."""

    role: Role
    place: int
    """Within the block."""
    default: int | None
    """On a network of the pod's own; None: any."""
    source: str
    flag: str | None = None
    """Of `ray start`; KubeRay passes rayStartParams on, and builds probes and Service from these."""
    container_port: str | None = None
    """Name under which KubeRay puts it into the head's Service; it adds those that are missing at their defaults."""
    variable: PodVariable | RayVariable | None = None
    """By which our own processes, or Ray's, hear of it."""


PORTS: tuple[PortRow, ...] = (
    PortRow(Role.HEAD, 0, 6379, KUBERAY_NAMES, "port", "gcs-server"),
    PortRow(Role.HEAD, 1, DASHBOARD_PORT, KUBERAY_NAMES, "dashboard-port", "dashboard"),
    PortRow(Role.HEAD, 2, 10001, KUBERAY_NAMES, "ray-client-server-port", "client"),
    PortRow(Role.HEAD, 3, 8080, KUBERAY_NAMES, "metrics-export-port", "metrics"),
    PortRow(Role.HEAD, 4, 52365, RAY_PORTS, "dashboard-agent-listen-port"),
    PortRow(Role.HEAD, 5, None, RAY_PORTS, "dashboard-agent-grpc-port"),
    PortRow(Role.HEAD, 6, None, RAY_PORTS, "runtime-env-agent-port"),
    PortRow(Role.HEAD, 7, None, RAY_PORTS, "node-manager-port"),
    PortRow(Role.HEAD, 8, None, RAY_PORTS, "object-manager-port"),
    PortRow(Role.EXPORTER, 9, Port.METRICS.value, CONTRACT, None, "rljob-metrics", PodVariable.METRICS_PORT),
    PortRow(Role.EXPORTER, 10, Port.API.value, CONTRACT, None, "rljob-api", PodVariable.API_PORT),
    PortRow(Role.HEAD, 11, 44217, RAY_METRICS, None, "as-metrics", RayVariable.AUTOSCALER_METRICS),
    PortRow(Role.HEAD, 12, 44227, RAY_METRICS, None, "dash-metrics", RayVariable.DASHBOARD_METRICS),
    PortRow(Role.WORKER, 16, 8080, KUBERAY_NAMES, "metrics-export-port", "metrics"),
    PortRow(Role.WORKER, 17, 52365, RAY_PORTS, "dashboard-agent-listen-port"),
    PortRow(Role.WORKER, 18, None, RAY_PORTS, "dashboard-agent-grpc-port"),
    PortRow(Role.WORKER, 19, None, RAY_PORTS, "runtime-env-agent-port"),
    PortRow(Role.WORKER, 20, None, RAY_PORTS, "node-manager-port"),
    PortRow(Role.WORKER, 21, None, RAY_PORTS, "object-manager-port"),
)
ANY_PORT = {"min-worker-port": "0", "max-worker-port": "0"}
"""Ray's worker processes bind to what the operating system gives (ray/_private/parameter.py: 0 is allowed)."""


@dataclass(frozen=True)
class PortBlock:
    """The consecutive ports of one job on the nodes' network."""

    first: int

    def port(self, row: PortRow) -> int:
        """Give the port of a row."""
        return self.first + row.place

    @property
    def dashboard(self) -> int:
        """Ray's job API."""
        return next(self.port(row) for row in PORTS if row.flag == "dashboard-port")

    @property
    def api(self) -> int:
        """The exporter's API."""
        return next(self.port(row) for row in PORTS if row.variable is PodVariable.API_PORT)

    @property
    def all_ports(self) -> frozenset[int]:
        """Every port that pods of the job listen on."""
        return frozenset(self.port(row) for row in PORTS)


def start_params(role: Role, block: PortBlock | None) -> dict[str, str]:
    """Arguments of `ray start`; without a block Ray's and KubeRay's own defaults stand."""
    if block is None:
        return {}
    return {row.flag: str(block.port(row)) for row in PORTS if row.role is role and row.flag} | ANY_PORT


def container_ports(role: Role, block: PortBlock | None) -> list[dict[str, Any]]:
    """Ports that a container declares.

    Ray's are declared only with a block: on the node's network each is the node's too, so that the scheduler puts no
    second pod with the same one there (https://kubernetes.io/docs/reference/scheduling/config/, NodePorts).
    """
    rows = [row for row in PORTS if row.role is role and row.container_port]
    if block is None and role is not Role.EXPORTER:
        return []
    return [
        {"name": row.container_port, "containerPort": row.default if block is None else block.port(row)} for row in rows
    ]


def port_variables(role: Role, block: PortBlock | None) -> list[dict[str, Any]]:
    """Variables by which a container knows ports: Ray its own, and everybody the exporter's, whom the hooks ask."""
    if block is None:
        return []
    rows = [row for row in PORTS if row.role in (role, Role.EXPORTER)]
    return [{"name": row.variable.value, "value": str(block.port(row))} for row in rows if row.variable is not None]
