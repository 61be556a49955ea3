"""Parse the output of npu-smi and hccn_tool. No other module knows these formats.

Supported are the layouts of npu-smi 24.1 to 26.0 (one pair of lines per chip; A3 shows two chips per card and a column
Phy-ID) and of hccn_tool as in the manuals of the Ascend driver. The node checks and topology.py use it on every worker
node. Every command has a time limit, and a missing tool always raises ToolMissingError.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from rljob_runtime.node.affinity import parse_cpus

TOOL_SECONDS = 15.0
"""npu-smi takes one to four seconds on a busy node with 16 dies."""
KILL_SECONDS = 2.0
"""A process that waits in the driver cannot be killed. It is left behind after this time."""
BUSY, NO_ADDRESS = "hccn_tool is busy", "no ip was preset"
"""Output of hccn_tool while another instance runs, and for a port without an address (tool_handle_dev_exe_err, the
error table in the driver's sources)."""
HCCN_PATHS = "/usr/local/Ascend/driver/tools:/usr/local/bin:/usr/local/sbin:/usr/local/Ascend/driver/bin"
"""Where the driver's tools are mounted. These folders are not on PATH."""

_CHIP_ROW = re.compile(
    r"^\|\s*(?P<card>\d+)\s+(?P<name>\S+)\s*\|\s*(?P<health>[A-Za-z]+)\s*\|",
)
_BUS_ROW = re.compile(
    r"^\|\s*(?P<chip>\d+)(?:\s+(?P<physical>\d+))?\s*\|\s*(?P<bus>[0-9A-Fa-f]{4}:[0-9A-Fa-f:.]+)\s*\|(?P<rest>.*)\|",
)
_HBM = re.compile(r"(?<!\d)(\d++)\s*+/\s*+(\d++)\s*+$")
_VERSION = re.compile(r"^\|\s*npu-smi\s+\S+\s+Version:\s*(?P<version>\S+)", re.MULTILINE)
_TOPOLOGY_ROW = re.compile(r"^\s*(?:NPU|Phy-ID)\s?(?P<device>\d+)\s.*?\s(?P<cpus>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\s*$")


class ToolError(RuntimeError):
    """A tool is missing, failed or did not finish in time."""


class ToolMissingError(ToolError):
    """A tool is not installed or not mounted."""


class ToolBusyError(ToolError):
    """Another instance of hccn_tool is running. Only one can run on a machine at a time."""


@dataclass(frozen=True)
class Device:
    """One chip (die) as listed by npu-smi."""

    logical: int
    """Number within the container, from 0, as Ray and torch_npu use it."""
    card: int
    chip: int
    name: str
    """`910B3` on A2, `Ascend910` on A3."""
    health: str
    """OK, Warning, Alarm, Critical or UNKNOWN."""
    bus: str
    hbm_mebibytes: int = 0


def run_tool(*command: str, seconds: float = TOOL_SECONDS, folder: str | None = None) -> str:
    """Run a tool, in a folder if it writes files to the current one, and return its output. Raises ToolError."""
    path = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:{HCCN_PATHS}")
    if path is None:
        raise ToolMissingError(f"{command[0]} is not in this container")
    words = " ".join(command)
    try:
        # Neither a context manager nor subprocess.run: both wait forever for a child that cannot be killed.
        child = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise ToolError(f"`{words}` cannot be run: {error}") from error
    try:
        printed, complained = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=KILL_SECONDS)
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()
        child.poll()
        raise ToolError(f"`{words}` did not answer within {seconds:g} s") from error
    if BUSY in printed + complained:
        raise ToolBusyError(f"`{words}`: another instance of the tool is running")
    if child.returncode != 0:
        said = " ".join(f"{complained} {printed}".split())[:200]
        raise ToolError(f"`{words}` failed with exit code {child.returncode}: {said}")
    return printed


def parse_devices(info: str, mapping: Mapping[tuple[int, int], int]) -> tuple[Device, ...]:
    """Parse `npu-smi info`. `mapping` comes from `npu-smi info -m`; without it, chips are numbered in order."""
    found: list[Device] = []
    first: re.Match[str] | None = None
    for line in info.splitlines():
        if "Process id" in line:
            break
        if row := _CHIP_ROW.match(line):
            first = row
        elif first is not None and (row := _BUS_ROW.match(line)):
            card, chip = int(first["card"]), int(row["chip"])
            memory = _HBM.search(row["rest"])
            found.append(
                Device(
                    logical=mapping.get((card, chip), len(found)),
                    card=card,
                    chip=chip,
                    name=first["name"],
                    health=first["health"],
                    bus=row["bus"].lower(),
                    hbm_mebibytes=int(memory[2]) if memory else 0,
                )
            )
            first = None
    return tuple(sorted(found, key=lambda device: device.logical))


def parse_tool_version(info: str) -> str | None:
    """Return the driver package's version from the header of `npu-smi info`."""
    found = _VERSION.search(info)
    return found["version"] if found else None


def parse_mapping(text: str) -> dict[tuple[int, int], int]:
    """Parse `npu-smi info -m` into (card, chip) -> logical id. Chips without compute units (Mcu) have no id."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return {}
    columns = [name.strip() for name in re.split(r"\s{2,}", lines[0].strip())]
    if "NPU ID" not in columns or "Chip Logic ID" not in columns:
        return {}
    card, logical = columns.index("NPU ID"), columns.index("Chip Logic ID")
    chip = columns.index("Chip ID") if "Chip ID" in columns else None
    found: dict[tuple[int, int], int] = {}
    for line in lines[1:]:
        words = line.split()
        if len(words) > max(card, logical) and words[card].isdigit() and words[logical].isdigit():
            found[int(words[card]), int(words[chip]) if chip is not None else 0] = int(words[logical])
    return found


def parse_topology(text: str, devices: tuple[Device, ...]) -> dict[int, frozenset[int]]:
    """Parse `npu-smi info -t topo` into logical id -> CPUs that the device is attached to.

    Rows are named by card on A2 and by die on A3. Rows without CPUs (A5) are skipped.
    """
    rows: dict[int, frozenset[int]] = {}
    for line in text.splitlines():
        if row := _TOPOLOGY_ROW.match(line):
            rows[int(row["device"])] = parse_cpus(row["cpus"])
    by_card = {device.card for device in devices} >= set(rows)
    if by_card and len({device.card for device in devices}) == len(rows):
        return {device.logical: rows[device.card] for device in devices if device.card in rows}
    return {device.logical: rows[device.logical] for device in devices if device.logical in rows}


def parse_board(text: str) -> dict[str, str]:
    """Parse `npu-smi info -t board -i <card>`: versions of the driver package and firmware."""
    names = {"Software Version": "driver", "Firmware Version": "firmware"}
    found = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator and (name := names.get(key.strip())) and value.strip() not in ("", "NA"):
            found[name] = value.strip()
    return found


def parse_link(text: str) -> str | None:
    """Parse `hccn_tool -i <id> -link -g`: UP or DOWN."""
    found = re.search(r"link status:\s*(\w+)", text)
    return found[1].upper() if found else None


def parse_address(text: str) -> str | None:
    """Parse `hccn_tool -i <id> -ip -g`; return None if the output contains no address."""
    found = re.search(r"ipaddr:\s*([0-9A-Fa-f.:]+)", text)
    return found[1] if found else None


def has_no_address(text: str) -> bool:
    """Return whether hccn_tool reports that a port has no address, as opposed to a failed query."""
    return NO_ADDRESS in text
