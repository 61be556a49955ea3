"""Gather one node's facts: the part of the checks that runs on each node, as one Ray task.

Every probe has a time limit and fails on its own, so a failed probe does not hide the results of others.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rljob_runtime.node import affinity, ascend_tools, core_binding, hccl, topology
from rljob_runtime.node.ascend_tools import Device, ToolBusyError, ToolError, ToolMissingError
from rljob_runtime.node_checks import model_files
from rljob_runtime.node_checks.facts import NodeFacts, Request, SharedFolder

T = TypeVar("T")

LINKS_SECONDS = 20.0
"""Time for the network ports of all devices, which are queried one by one because hccn_tool cannot run concurrently."""
LINK_SECONDS = 5.0
"""For one query, which takes some tenths of a second."""
BUSY_TRIES, BUSY_SECONDS = 3, 0.5
BASE_PORT, PORT_RANGE = "HCCL_IF_BASE_PORT", "HCCL_HOST_SOCKET_PORT_RANGE"
HCCL_PORTS = 32
"""Number of ports from HCCL_IF_BASE_PORT that root-info mode uses (CANN 8.2 and later)."""
PORTS_MAX = 4096
SHARED_SECONDS = 10.0
"""Maximum age of attributes that another node may see for a folder on a network file system."""
SHARED_POLL_SECONDS = 0.5
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the mount itself
ASCEND_ROOT = "/usr/local/Ascend"
CANN_FILES = (
    "{home}/{arch}-linux/ascend_toolkit_install.info",
    "{root}/ascend-toolkit/latest/{arch}-linux/ascend_toolkit_install.info",
    "{root}/cann/{arch}-linux/ascend_toolkit_install.info",
    "{home}/version.cfg",
    "{root}/ascend-toolkit/latest/version.cfg",
)
"""Where CANN's installer records its release (CANN installation guide); `home` is ASCEND_TOOLKIT_HOME."""


@dataclass(frozen=True)
class Npus:
    """Facts about the devices from the driver and the image."""

    devices: tuple[Device, ...] | None = None
    error: str = ""
    tools_missing: bool = False
    near: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Device -> CPUs that it is attached to."""
    versions: dict[str, str] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)
    addresses: dict[int, str | None] = field(default_factory=dict)
    unasked: dict[int, str] = field(default_factory=dict)
    links_error: str = ""


@dataclass
class _Ports:
    """Facts about the devices' own network ports."""

    links: dict[int, str] = field(default_factory=dict)
    addresses: dict[int, str | None] = field(default_factory=dict)
    unasked: dict[int, str] = field(default_factory=dict)
    """Device -> why a fact about its port is unknown."""


def gather(request: Request, *, is_head: bool = False) -> NodeFacts:
    """Check this node and, if requested, plan its CPUs."""
    now = time.time()
    allowed = topology.usable_cpus()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(read_npus) if request.with_npus and not is_head else None
        model = pool.submit(model_files.read, Path(request.model), deep=is_head) if request.model else None
        unshared = {folder.path: why for folder in request.folders if (why := _unshared(folder))}
    npus = asked.result() if asked else Npus()
    chosen, interface_error = _interface()
    binds = request.bind_cpus_min is not None and not is_head
    plan, notes = plan_node(request, allowed, npus.near) if binds else (None, ())
    return NodeFacts(
        node=hccl.node_name(),
        time=now,
        is_head=is_head,
        devices=npus.devices,
        devices_error=npus.error,
        tools_missing=npus.tools_missing,
        versions=npus.versions,
        links=npus.links,
        addresses=npus.addresses,
        unasked=npus.unasked,
        links_error=npus.links_error,
        busy_ports=() if is_head else busy_ports(os.environ),
        interface=chosen,
        interface_error=interface_error,
        cpus=len(allowed),
        shared_memory_bytes=_or_none(lambda: shutil.disk_usage(SHARED_MEMORY).total),
        open_files=_open_files(),
        free_bytes=_or_none(lambda: shutil.disk_usage(tempfile.gettempdir()).free),
        missing_paths=tuple(path for path in request.paths if not Path(path).exists()),
        unshared=unshared,
        model=model.result() if model else None,
        plan=plan,
        plan_notes=notes,
    )


def read_npus() -> Npus:
    """Query the driver's tools and the image. Facts that a tool does not report are absent."""
    versions = {"cann": cann_version(), "torch_npu": _installed("torch-npu")}
    try:
        info = ascend_tools.run_tool("npu-smi", "info")
    except ToolError as error:
        missing = isinstance(error, ToolMissingError)
        return Npus(error=str(error), tools_missing=missing, versions=_known(versions))
    versions["driver"] = ascend_tools.parse_tool_version(info)
    if not ascend_tools.parse_devices(info, {}):
        # Each further query could wait for its full time limit: a driver without devices responds slowly.
        return Npus((), versions=_known(versions))
    mapping: dict[tuple[int, int], int] = {}
    with contextlib.suppress(ToolError):
        mapping = ascend_tools.parse_mapping(ascend_tools.run_tool("npu-smi", "info", "-m"))
    devices = ascend_tools.parse_devices(info, mapping)
    near = topology.near_by_bus(devices)
    with contextlib.suppress(ToolError):
        near |= ascend_tools.parse_topology(ascend_tools.run_tool("npu-smi", "info", "-t", "topo"), devices)
    for device in devices[:1]:
        with contextlib.suppress(ToolError):
            board = ascend_tools.run_tool("npu-smi", "info", "-t", "board", "-i", str(device.card))
            versions |= ascend_tools.parse_board(board)
    try:
        ports = _ask_ports(devices)
    except ToolMissingError as error:
        return Npus(devices, near=near, versions=_known(versions), links_error=str(error))
    return Npus(
        devices,
        near=near,
        versions=_known(versions),
        links=ports.links,
        addresses=ports.addresses,
        unasked=ports.unasked,
    )


def _ask_ports(devices: tuple[Device, ...]) -> _Ports:
    """Query each device's own network port. Failures are recorded per device. Raises ToolMissingError."""
    found, deadline = _Ports(), time.monotonic() + LINKS_SECONDS
    for device in devices:
        number = device.logical
        try:
            said = _ask_hccn(number, "-link", deadline)
            if link := ascend_tools.parse_link(said):
                found.links[number] = link
            else:
                found.unasked[number] = f"`hccn_tool -i {number} -link -g` printed no state"
            said = _ask_hccn(number, "-ip", deadline)
            if (address := ascend_tools.parse_address(said)) or ascend_tools.has_no_address(said):
                found.addresses[number] = address
            else:
                found.unasked[number] = f"`hccn_tool -i {number} -ip -g` printed no address"
        except ToolMissingError:
            raise
        except ToolError as error:
            if ascend_tools.has_no_address(str(error)):
                found.addresses[number] = None
            else:
                found.unasked[number] = str(error)
    return found


def _ask_hccn(number: int, what: str, deadline: float) -> str:
    """Query hccn_tool for one device; repeat while another instance runs. Raises ToolError."""
    command = ("hccn_tool", "-i", str(number), what, "-g")
    for _ in range(BUSY_TRIES - 1):
        with contextlib.suppress(ToolBusyError):
            return ascend_tools.run_tool(*command, seconds=_left(command, deadline))
        time.sleep(BUSY_SECONDS)
    return ascend_tools.run_tool(*command, seconds=_left(command, deadline))


def _left(command: tuple[str, ...], deadline: float) -> float:
    left = min(LINK_SECONDS, deadline - time.monotonic())
    if left <= 0:
        raise ToolError(f"`{' '.join(command)}` was not run: earlier queries took {LINKS_SECONDS:g} s")
    return left


def busy_ports(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ports that HCCL will use but that are in use. With `auto`, HCCL chooses free ports itself."""
    wanted: list[int] = []
    text, base = environ.get(PORT_RANGE, ""), environ.get(BASE_PORT, "")
    if text and text != "auto":
        with contextlib.suppress(ValueError):
            wanted = sorted(affinity.parse_cpus(text))  # the same syntax: 60000-60050,61000
    elif not text and base.isdigit():
        wanted = list(range(int(base), int(base) + HCCL_PORTS))
    return tuple(port for port in wanted[:PORTS_MAX] if not _is_free(port))


def cann_version(environ: Mapping[str, str] = os.environ, root: str = ASCEND_ROOT) -> str | None:
    """Return the release of the CANN toolkit in this image."""
    arch = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    home = environ.get("ASCEND_TOOLKIT_HOME", f"{root}/ascend-toolkit/latest")
    for name in CANN_FILES:
        text = _or_none(Path(name.format(home=home, root=root, arch=arch)).read_text) or ""
        if found := re.search(r"version\s*=\s*\[?(?:[\d.]+:)?(?P<version>\d[\w.]*)", text, re.IGNORECASE):
            return found["version"]
    return None


def plan_node(
    request: Request, allowed: frozenset[int], near: Mapping[int, frozenset[int]]
) -> tuple[str | None, tuple[str, ...]]:
    """Plan the node's CPUs, write the plan for the run's processes, and bind this process and raylet."""
    wanted = request.exclusive_cpus
    if wanted is not None and len(allowed) != wanted:
        note = (
            f"nothing is bound: the cpuset has {len(allowed)} CPUs, but the pod requests {wanted}, so other pods may "
            "run on them; an exclusive cpuset needs the kubelet's static CPU manager, whole CPUs, and requests that "
            "equal limits"
        )
        return None, (note,)
    try:
        read = topology.read_topology(tuple(range(request.devices)), allowed, near)
        plan = affinity.make_plan(read, request.bind_cpus_min or 1)
        core_binding.write_plan(request.run, plan)
    except (affinity.PlanError, OSError) as error:
        return None, (f"nothing is bound: {error}",)
    core_binding.bind_data_worker()
    notes = list(plan.notes)
    try:
        core_binding.bind_raylet(plan)
    except OSError as error:
        notes.append(f"raylet is not bound: {error}")
    return plan.describe(), tuple(notes)


def _unshared(folder: SharedFolder) -> str:
    """Return the problem of a shared folder on this node; empty if it is the head's folder and writable."""
    token, deadline = Path(folder.path) / folder.token_name, time.monotonic() + SHARED_SECONDS
    while (found := _or_none(token.read_text)) is None:
        if time.monotonic() >= deadline:
            return "another volume is mounted here: the file that the head has just written is missing"
        time.sleep(SHARED_POLL_SECONDS)
    if found != folder.token:
        return "another volume is mounted here: the file that the head has just written has other content"
    try:
        descriptor, own = tempfile.mkstemp(prefix=f"{folder.token_name}-", dir=folder.path)
        os.close(descriptor)
        Path(own).unlink()
    except OSError as error:
        return f"it is not writable: {error.strerror}"
    return ""


def _interface() -> tuple[str | None, str]:
    try:
        chosen = hccl.choose(os.environ, hccl.read_interfaces())
    except (hccl.InterfaceError, OSError) as error:
        return None, str(error)
    return chosen.get(hccl.GLOO) or os.environ.get(hccl.GLOO), ""


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError:
            return False
    return True


def _open_files() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _known(versions: Mapping[str, str | None]) -> dict[str, str]:
    return {part: version for part, version in versions.items() if version}


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except OSError:
        return None
