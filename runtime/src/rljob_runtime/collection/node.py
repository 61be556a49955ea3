"""The part that runs on each node, as one Ray task: copy, ask the driver, let ascend-fd clean the logs.

Never raises for a missing tool, an unreadable file or a full volume: what is missing becomes a note.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.collection import diagnosis
from rljob_runtime.collection.copying import Budget, copy_sources
from rljob_runtime.collection.sources import ENVIRONMENT_CHECK, sources
from rljob_runtime.contract import NodeLogs
from rljob_runtime.node import ascend_tools
from rljob_runtime.node.ascend_tools import ToolError, ToolMissingError
from rljob_runtime.node.hccl import node_name
from rljob_runtime.stacks.gather import is_running

NODES, PARSED = "nodes", "parsed"
TOKEN = "request"  # noqa: S105 - the name of a file
"""File in NODES: a node that does not see it has another volume at this path."""
SETTLE_SECONDS = 3.0
"""For the processes of a failed run, which write their logs until they end. CANN waits 2 s for its devices' logs
(ASCEND_LOG_DEVICE_FLUSH_TIMEOUT)."""
SETTLE_POLL_SECONDS = 0.2
COPY_SHARE = 0.5
"""Share of the remaining time that copying may take; ascend-fd gets the rest."""
NOTES_MAX = 8
SAME_NODE_MAX = 32
"""Pods of a job on one node."""
CHECKS = ("-net_health", "-link", "-link_stat")
"""Of hccn_tool, for each device."""
EXPORT_TOOL = "msnpureport"
EXPORT_SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    """What to collect on each node."""

    run: str
    """Name of the run's processes (stacks/register.py)."""
    folder: str
    """Folder of the attempt on the log volume."""
    token: str
    begun: float
    """Unix time at which the attempt began."""
    seconds: float
    bytes: int
    live: bool = False
    """Whether the run continues, so that there is time to export the devices' logs."""
    settle: bool = True
    """Whether to wait for the end of the run's processes."""


def collect(request: Request) -> NodeLogs:
    """Copy this node's logs to `<folder>/nodes/<node>`, and clean them for the diagnosis."""
    deadline = time.monotonic() + request.seconds
    name, root = re.sub(r"[^0-9A-Za-z.-]", "-", node_name()), Path(request.folder)
    try:
        if (root / NODES / TOKEN).read_text() != request.token:
            raise FileNotFoundError
        target = _own_folder(root / NODES, name)
    except OSError as error:
        seen = "another volume" if isinstance(error, FileNotFoundError) else str(error)
        note = f"{root} is not the head's log volume here ({seen}); mount it in the workers too"
        return NodeLogs(name, 0, 0, notes=(note,))
    if request.settle:
        _settle(request.run, deadline)
    notes: list[str] = []
    checking = threading.Thread(target=_check_devices, args=(target, deadline, notes), daemon=True)
    checking.start()
    with _exported(request, deadline, notes) as exported:
        budget = Budget(request.bytes, time.monotonic() + COPY_SHARE * max(0.0, deadline - time.monotonic()))
        copied = copy_sources(sources(os.environ, request.begun, exported), target, budget)
    checking.join(max(0.0, COPY_SHARE * (deadline - time.monotonic())))
    if diagnosis.is_installed() and (problem := _parse(target, root / PARSED / target.name, deadline)):
        notes.append(problem)
    told = tuple((copied.notes + notes)[:NOTES_MAX])
    return NodeLogs(target.name, copied.files, copied.bytes, copied.left_out, told)


def _own_folder(nodes: Path, name: str) -> Path:
    """Create the folder of this pod: several may run on one node."""
    for number in range(1, SAME_NODE_MAX + 1):
        folder = nodes / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise OSError(f"{nodes}: {SAME_NODE_MAX} pods of node {name} have collected already")


def _settle(run: str, deadline: float) -> None:
    ends = min(deadline, time.monotonic() + SETTLE_SECONDS)
    while is_running(run) and time.monotonic() < ends:
        time.sleep(SETTLE_POLL_SECONDS)


def _parse(logs: Path, target: Path, deadline: float) -> str:
    try:
        return diagnosis.parse(logs, target, deadline - time.monotonic())
    except OSError as error:
        return f"{diagnosis.PROGRAM} parse: {error}"


def _check_devices(target: Path, deadline: float, notes: list[str]) -> None:
    """Write npu_info_after.txt as ascend-fd reads it: each command, and its output below it."""
    try:
        info = ascend_tools.run_tool("npu-smi", "info")
    except ToolMissingError:
        return  # a node without NPUs, or without the tool in the container
    except ToolError as error:
        notes.append(str(error))
        return
    paragraphs = [f"npu-smi info\n{info}"]
    devices = (str(device.logical) for device in ascend_tools.parse_devices(info, {}))
    for number, check in itertools.product(devices, CHECKS):
        words = ("hccn_tool", "-i", number, check, "-g")
        if (left := deadline - time.monotonic()) <= 0:
            notes.append("no time was left for the network ports of all devices")
            break
        try:
            said = ascend_tools.run_tool(*words, seconds=min(ascend_tools.TOOL_SECONDS, left))
        except ToolMissingError:
            break
        except ToolError as error:
            said = str(error)  # one port, or one check that the driver does not know
        paragraphs.append(f"{' '.join(words)}\n{said}")
    try:
        (target / ENVIRONMENT_CHECK).mkdir(exist_ok=True)
        (target / ENVIRONMENT_CHECK / "npu_info_after.txt").write_text("\n\n".join(paragraphs))
    except OSError as error:
        notes.append(f"npu_info_after.txt: {error}")


@contextlib.contextmanager
def _exported(request: Request, deadline: float, notes: list[str]) -> Iterator[Path | None]:
    """Export the devices' logs where msnpureport is present; yield the folder with slog and hisi_logs.

    It takes a minute for a node, so it only runs on request. It writes to a folder with the time as its name, in the
    current one (CANN log reference, msnpureport).
    """
    seconds = min(EXPORT_SECONDS, COPY_SHARE * (deadline - time.monotonic()))
    if not request.live or seconds <= 0:
        yield None
        return
    # Of a tool that could not be killed, files may still appear.
    with tempfile.TemporaryDirectory(prefix="rljob-msnpureport-", ignore_cleanup_errors=True) as folder:
        try:
            ascend_tools.run_tool(EXPORT_TOOL, seconds=seconds, folder=folder)
        except ToolMissingError:
            pass
        except ToolError as error:
            notes.append(f"{error}; the devices' logs are incomplete")
        yield max(Path(folder).iterdir(), key=lambda path: path.name, default=None)
