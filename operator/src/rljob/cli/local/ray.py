"""The private Ray of a local run: own ports, own temporary folder, 127.0.0.1 only, and a secret token.

One Ray node stands for the head and all workers of the manifest: the trainer creates a placement group for each, and
one node can hold them all. `ray start --block` keeps Ray's processes as children, so that they end with it.
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.local.processes import Child, Processes, wait_until
from rljob.cli.local.variables import LOOPBACK
from rljob.render.accelerators import facts_of
from rljob.render.raycluster import RAY_RESOURCE

START_SECONDS = 60.0
HEAD_CPUS = 1
"""CPUs of the head, as in the head pod (render.raycluster)."""
RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block")
"""Ray's command line without its script, which may not be on the PATH."""
ONLY_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray's switch for desktops (_private/services.py, get_node_ip_address). Without it, Ray 2.60 replaces 127.0.0.1 by an
address that the network can reach, and listens there."""


@dataclass(frozen=True)
class RayPlan:
    """What to start."""

    port: int
    client_port: int
    token: str
    devices: int
    cpus: int | None
    """None: Ray counts the machine's own CPUs."""

    @property
    def address(self) -> str:
        """Address of the head, as Ray's processes use it."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables for Ray and for all its clients."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, **ONLY_LOOPBACK}


def plan_ray(spec: RLJobSpec) -> RayPlan:
    """Choose free ports, and the resources of all pods together."""
    devices, per_device = spec.devices, facts_of(spec).ray_cpus_per_device
    port, client_port = free_ports(2)
    cpus = None if per_device is None else per_device * devices + HEAD_CPUS
    return RayPlan(port, client_port, secrets.token_hex(32), devices, cpus)


def command(plan: RayPlan, temporary: Path) -> list[str]:
    """Return the command. Ray chooses the ports that it leaves out, and the kernel chooses worker ports of 0."""
    return [
        *RAY,
        *("--node-ip-address", LOOPBACK, "--port", str(plan.port)),
        *("--ray-client-server-port", str(plan.client_port), "--min-worker-port", "0", "--max-worker-port", "0"),
        *("--temp-dir", str(temporary), "--include-dashboard", "false", "--no-monitor", "--disable-usage-stats"),
        *("--resources", json.dumps({RAY_RESOURCE: plan.devices})),
        *([] if plan.cpus is None else ["--num-cpus", str(plan.cpus)]),
    ]


def start_ray(plan: RayPlan, processes: Processes, environment: Mapping[str, str], temporary: Path, log: Path) -> None:
    """Start Ray and wait until it listens. Raise UsageError with Ray's own output if it does not."""
    child = processes.start(command(plan, temporary), {**environment, **plan.environment}, log, temporary)
    if not wait_until(lambda: child.exit_code is not None or listens(plan.port), START_SECONDS):
        raise UsageError(f"the private Ray does not listen after {START_SECONDS:.0f} s; {_last_words(child)}")
    if child.exit_code is not None:
        raise UsageError(f"the private Ray exited during its start; {_last_words(child)}")


def _last_words(child: Child) -> str:
    return f"{child.log} ends with\n{child.tail(15)}"


def listens(port: int) -> bool:
    """Return whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def free_ports(count: int) -> list[int]:
    """Return free ports. All are held until the last one is found, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for held in sockets:
            held.bind((LOOPBACK, 0))
        return [held.getsockname()[1] for held in sockets]
    finally:
        for held in sockets:
            held.close()
