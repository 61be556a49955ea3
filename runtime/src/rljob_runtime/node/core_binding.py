"""Bind processes to the CPUs of the node's plan, and report which processes stay within it.

One task per node (node_checks/preflight.py) makes the plan and writes it to a file. Every process of the run reads it
at start: through Ray's setup hook (processes without a device), in verl's `Worker`
(verl_plugin/platform/worker_binding.py) and in the vLLM plug-in. A process that cannot be bound keeps running and logs
the reason. Masks never leave the container's cpuset: the plan is made from it and the kernel enforces it.
"""

from __future__ import annotations

import enum
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.files import write_atomically
from rljob_runtime.node.affinity import Locality, Plan, cpu_text, parse_cpus, torch_npu_setting
from rljob_runtime.stacks.register import start_ticks

VARIABLE = "RLJOB_BINDING"
"""Name of the run's folder below `root()`. If it is not set, nothing is bound."""
VISIBLE_DEVICES = "ASCEND_RT_VISIBLE_DEVICES"
"""verl sets it for each rollout engine, also on CPUs. vLLM splits it among the data-parallel parts of an engine."""
TORCH_NPU = "CPU_AFFINITY_CONF"
PLAN_FILE = "plan.json"
RECORD_SUFFIX = ".bound"
RAYLET = "raylet"
RAYLET_PID = "RAY_RAYLET_PID"
"""Set by Ray for its workers (ray/_private/process_watcher.py, 2.60). A forked worker is not a child of raylet."""
AGENTS = ("dashboard/agent.py", "runtime_env/agent/main.py")
"""Helper processes of raylet (ray/_private/services.py, 2.60)."""


class Role(enum.StrEnum):
    """The purpose of a process."""

    TRAINER = "trainer"
    ROLLOUT = "rollout"
    DATA = "data"
    SYSTEM = "system"


@dataclass(frozen=True)
class BoundProcess:
    """A bound process and the CPUs that the kernel allows its threads."""

    role: Role
    pid: int
    wanted: str
    """CPUs of the plan."""
    strayed: str
    """CPUs outside the plan that some thread may use; empty if the process is bound."""


def root() -> Path:
    """Return the folder of all runs on this node."""
    return Path(tempfile.gettempdir()) / "rljob-binding"


def write_plan(run: str, plan: Plan) -> None:
    """Write the plan to the file that the run's processes read."""
    document = {
        "devices": {str(device): cpu_text(cpus) for device, cpus in plan.devices.items()},
        "system": cpu_text(plan.system),
        "data": cpu_text(plan.data),
        "locality": plan.locality.value,
        "notes": list(plan.notes),
    }
    write_atomically(root() / run / PLAN_FILE, json.dumps(document).encode())


def read_plan(run: str) -> Plan | None:
    """Read the node's plan; return None if the node has none."""
    try:
        raw = json.loads((root() / run / PLAN_FILE).read_bytes())
        return Plan(
            {int(device): tuple(sorted(parse_cpus(cpus))) for device, cpus in raw["devices"].items()},
            tuple(sorted(parse_cpus(raw["system"]))),
            tuple(sorted(parse_cpus(raw["data"]))),
            Locality(raw["locality"]),
            tuple(raw["notes"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log(f"cannot read the plan of this node: {error!r}")
        return None


def bind_data_worker() -> None:
    """Bind a process without a device. Ray workers call it at start, before they may get a device."""
    if _record_file().exists():
        return  # a trainer process that imports verl again
    if (plan := _own_plan()) is not None:
        _bind(Role.DATA, plan.data)


def bind_device_worker(role: Role, devices: Sequence[int]) -> None:
    """Bind a process to the pools of its devices. Workers of verl and vLLM have one device each."""
    plan = _own_plan()
    if plan is None:
        return
    unknown = [device for device in devices if device not in plan.devices]
    if unknown or not devices:
        subject = f"device {unknown[0]}" if unknown else "a process without a device"
        _log(f"{subject} is not in the plan of this node (devices {', '.join(map(str, sorted(plan.devices)))})")
        return
    cpus = sorted({cpu for device in devices for cpu in plan.devices[device]})
    if len(devices) == 1 and not os.environ.get(TORCH_NPU):
        visible = os.environ.get(VISIBLE_DEVICES)
        count = len(visible.split(",")) if visible else len(plan.devices)
        # torch_npu reads the variable when the process first selects its device.
        os.environ[TORCH_NPU] = torch_npu_setting(cpus, count)
    _bind(role, cpus)


def visible_devices() -> list[int]:
    """Return the devices that verl and vLLM made visible to this process; empty if they set none."""
    words = os.environ.get(VISIBLE_DEVICES, "").split(",")
    return [int(word) for word in words if word.strip().isdigit()]


def bind_raylet(plan: Plan) -> None:
    """Keep raylet and its helpers off the devices' pools. Must run in a Ray worker."""
    parent = int(os.environ.get(RAYLET_PID) or os.getppid())
    if _read(f"/proc/{parent}/comm").strip() != RAYLET:
        return
    mask = frozenset(plan.system) | frozenset(plan.data)
    helpers = [pid for pid in _children(parent) if any(name in _read(f"/proc/{pid}/cmdline") for name in AGENTS)]
    for pid in (parent, *helpers):
        _set_threads(pid, mask)


def look(run: str) -> list[BoundProcess]:
    """Compare each live process of the run on this node with its plan."""
    found = []
    for file in sorted((root() / run).glob(f"*{RECORD_SUFFIX}")):
        try:
            pid, ticks = (int(word) for word in file.name.removesuffix(RECORD_SUFFIX).split("-"))
            if start_ticks(pid) != ticks:
                continue
            role, wanted = file.read_text().split(" ", 1)
            masks = frozenset().union(*(_mask(pid, thread) for thread in _threads(pid)))
            found.append(BoundProcess(Role(role), pid, wanted, cpu_text(masks - parse_cpus(wanted))))
        except (OSError, ValueError):
            continue  # the process has ended
    return found


def _own_plan() -> Plan | None:
    run = os.environ.get(VARIABLE)
    return read_plan(run) if run else None


def _bind(role: Role, cpus: Iterable[int]) -> None:
    mask = frozenset(cpus)
    try:
        # Libraries may already have started threads. Threads started later inherit the mask.
        _set_threads(os.getpid(), mask)
        write_atomically(_record_file(), f"{role.value} {cpu_text(mask)}".encode())
    except OSError as error:
        _log(f"this process ({role.value}) is not bound to {cpu_text(mask)}: {error}")


def _record_file() -> Path:
    run, pid = os.environ.get(VARIABLE, ""), os.getpid()
    return root() / run / f"{pid}-{start_ticks(pid)}{RECORD_SUFFIX}"


def _set_threads(pid: int, mask: frozenset[int]) -> None:
    for thread in _threads(pid):
        try:
            os.sched_setaffinity(thread, mask)
        except ProcessLookupError:
            continue  # the thread has ended


def _threads(pid: int) -> Iterator[int]:
    yield from (int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir())


def _children(pid: int) -> list[int]:
    return [int(word) for thread in _threads(pid) for word in _read(f"/proc/{pid}/task/{thread}/children").split()]


def _mask(pid: int, thread: int) -> frozenset[int]:
    for line in _read(f"/proc/{pid}/task/{thread}/status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return parse_cpus(line.partition(":")[2])
    return frozenset()


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _log(text: str) -> None:
    print(f"rljob: core binding: {text}", file=sys.stderr, flush=True)  # noqa: T201
