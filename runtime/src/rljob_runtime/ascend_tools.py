"""What npu-smi and hccn_tool print, as data: the only place that knows their layouts.

Layouts of npu-smi 24.1 to 26.0 (one line pair a chip; A3 shows two chips a card and a column Phy-ID) and of hccn_tool
as in the Ascend driver's manuals. Used by the checks of a node and by the reader of its topology; both run on every
worker node. Commands are bounded, and a tool that is not there is told as such, never raised as something else.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from rljob_runtime.affinity import parse_cpus

TOOL_SECONDS = 15.0
"""npu-smi takes one to four seconds on a node with 16 dies that is busy."""
KILL_SECONDS = 2.0
"""A process that waits in the driver cannot be killed; it is left behind."""
BUSY, NO_ADDRESS = "hccn_tool is busy", "no ip was preset"
"""What hccn_tool says while another one runs, and of a port without an address: hccn_tool's own table of errors
(tool_handle_dev_exe_err of the driver's sources)."""
HCCN_PATHS = "/usr/local/Ascend/driver/tools:/usr/local/bin:/usr/local/sbin:/usr/local/Ascend/driver/bin"
"""Where the driver's tools are mounted; they are on nobody's PATH."""

_CHIP_ROW = re.compile(
    r"^\|\s*(?P<card>\d+)\s+(?P<name>\S+)\s*\|\s*(?P<health>[A-Za-z]+)\s*\|",
)
_BUS_ROW = re.compile(
    r"^\|\s*(?P<chip>\d+)(?:\s+(?P<physical>\d+))?\s*\|\s*(?P<bus>[0-9A-Fa-f]{4}:[0-9A-Fa-f:.]+)\s*\|(?P<rest>.*)\|",
)
_HBM = re.compile(r"(\d+)\s*/\s*(\d+)\s*$")
_VERSION = re.compile(r"^\|\s*npu-smi\s+\S+\s+Version:\s*(?P<version>\S+)", re.MULTILINE)
_TOPOLOGY_ROW = re.compile(r"^\s*(?:NPU|Phy-ID)\s?(?P<device>\d+)\s.*?\s(?P<cpus>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\s*$")


class ToolError(RuntimeError):
    """A tool is missing, failed or did not answer in time."""


class ToolMissingError(ToolError):
    """A tool is not installed or not mounted."""


class ToolBusyError(ToolError):
    """hccn_tool runs once at a time on a machine, and somebody else runs it."""


@dataclass(frozen=True)
class Device:
    """One chip (die) as npu-smi shows it."""

    logical: int
    """Counted from 0 in the container: what Ray and torch_npu use."""
    card: int
    chip: int
    name: str
    """`910B3` on A2, `Ascend910` on A3."""
    health: str
    """OK, Warning, Alarm, Critical or UNKNOWN."""
    bus: str
    hbm_mebibytes: int = 0


def run_tool(*command: str, seconds: float = TOOL_SECONDS) -> str:
    """Run a tool and give what it prints; raises ToolError."""
    path = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:{HCCN_PATHS}")
    if path is None:
        raise ToolMissingError(f"{command[0]} is not in this container")
    words = " ".join(command)
    try:
        # Not as a context manager, nor by subprocess.run: both wait without end for a child that cannot be killed.
        child = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
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
        raise ToolBusyError(f"`{words}` was busy")
    if child.returncode != 0:
        said = " ".join(f"{complained} {printed}".split())[:200]
        raise ToolError(f"`{words}` failed with exit code {child.returncode}: {said}")
    return printed


def parse_devices(info: str, mapping: Mapping[tuple[int, int], int]) -> tuple[Device, ...]:
    """Read `npu-smi info`; `mapping` is that of `npu-smi info -m`, and without it chips are counted as they come."""
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
    """Read the driver package's version from the head of `npu-smi info`."""
    found = _VERSION.search(info)
    return found["version"] if found else None


def parse_mapping(text: str) -> dict[tuple[int, int], int]:
    """Read `npu-smi info -m`: (card, chip) -> logical id. Chips that compute nothing (Mcu) have none."""
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
    """Read `npu-smi info -t topo`: logical id -> CPUs that the device is attached to.

    Rows are named by card on A2 and by die on A3; a row without CPUs (A5) says nothing.
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
    """Read `npu-smi info -t board -i <card>`: versions of driver package and firmware."""
    names = {"Software Version": "driver", "Firmware Version": "firmware"}
    found = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator and (name := names.get(key.strip())) and value.strip() not in ("", "NA"):
            found[name] = value.strip()
    return found


def parse_link(text: str) -> str | None:
    """Read `hccn_tool -i <id> -link -g`: UP or DOWN."""
    found = re.search(r"link status:\s*(\w+)", text)
    return found[1].upper() if found else None


def parse_address(text: str) -> str | None:
    """Read `hccn_tool -i <id> -ip -g`; None if the device has no address."""
    found = re.search(r"ipaddr:\s*([0-9A-Fa-f.:]+)", text)
    return found[1] if found else None


def has_no_address(text: str) -> bool:
    """Tell whether hccn_tool says that a port has no address, rather than that it cannot tell."""
    return NO_ADDRESS in text
