"""Ports of the pods: the defaults on a network of their own, or a block of ports on the node's network.

On the host's network all pods of a node share one set of ports. Each job then gets a block of consecutive ports that no
other job of the cluster has (`core.scheduling.port_blocks`), with separate ports for head and worker, so that both may
run on one node. The operating system chooses other ports of Ray (port 0), HCCL (`auto`) and vLLM from its ephemeral
ports, which are outside the block (net.ipv4.ip_local_port_range, 32768 to 60999).
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
    """Owner of a port."""

    HEAD = "head"
    WORKER = "worker"
    EXPORTER = "exporter"


class RayVariable(enum.StrEnum):
    """Variables that set a port of Ray for which `ray start` has no argument."""

    AUTOSCALER_METRICS = "AUTOSCALER_METRIC_PORT"
    DASHBOARD_METRICS = "DASHBOARD_METRIC_PORT"


@dataclass(frozen=True)
class PortRow:
    """One port."""

    role: Role
    place: int
    """Offset within the block."""
    default: int | None
    """Port on the pod's own network; None: any."""
    source: str
    flag: str | None = None
    """Argument of `ray start`. KubeRay passes rayStartParams on, and derives probes and Service from them."""
    container_port: str | None = None
    """Name of the port in the head's Service. KubeRay adds missing ones with their defaults."""
    variable: PodVariable | RayVariable | None = None
    """Variable by which our own processes or Ray's get the port."""


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
"""Ports that the operating system chooses for Ray's worker processes (ray/_private/parameter.py: 0 is allowed)."""


@dataclass(frozen=True)
class PortBlock:
    """The consecutive ports of one job on the nodes' network."""

    first: int

    def port(self, row: PortRow) -> int:
        """Return the port of a row."""
        return self.first + row.place

    @property
    def dashboard(self) -> int:
        """Port of Ray's job API."""
        return next(self.port(row) for row in PORTS if row.flag == "dashboard-port")

    @property
    def api(self) -> int:
        """Port of the exporter's API."""
        return next(self.port(row) for row in PORTS if row.variable is PodVariable.API_PORT)

    @property
    def all_ports(self) -> frozenset[int]:
        """Return every port that pods of the job listen on."""
        return frozenset(self.port(row) for row in PORTS)


def start_params(role: Role, block: PortBlock | None) -> dict[str, str]:
    """Return the arguments of `ray start`; without a block, the defaults of Ray and KubeRay apply."""
    if block is None:
        return {}
    return {row.flag: str(block.port(row)) for row in PORTS if row.role is role and row.flag} | ANY_PORT


def container_ports(role: Role, block: PortBlock | None) -> list[dict[str, Any]]:
    """Return the ports that a container declares.

    Ray's ports are declared only with a block: on the node's network each is a host port, so that the scheduler does
    not place a second pod with the same port there (https://kubernetes.io/docs/reference/scheduling/config/,
    NodePorts).
    """
    rows = [row for row in PORTS if row.role is role and row.container_port]
    if block is None and role is not Role.EXPORTER:
        return []
    return [
        {"name": row.container_port, "containerPort": row.default if block is None else block.port(row)} for row in rows
    ]


def port_variables(role: Role, block: PortBlock | None) -> list[dict[str, Any]]:
    """Return the variables with a container's ports.

    These are Ray's own ports and the exporter's, which the hooks of every container call.
    """
    if block is None:
        return []
    rows = [row for row in PORTS if row.role in (role, Role.EXPORTER)]
    return [{"name": row.variable.value, "value": str(block.port(row))} for row in rows if row.variable is not None]
