"""Where the logs of a node are, from the view of a container.

The folders have the names that ascend-fd expects (MindCluster, docs/en/faultdiag/user_guide/03_collecting_logs.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.stacks.gather import WORKER_LOG

PROCESS_LOG = "process_log"
"""plog-<pid>_<time>.log of the host and device-<pid>_<time>.log of the devices, below debug/ and run/."""
DEVICE_LOG = "device_log"
"""slog/ and hisi_logs/ of the devices' own systems."""
ENVIRONMENT_CHECK = "environment_check"
TRAIN_LOG = "train_log"
"""Any folder: ascend-fd recognizes the files by `worker-` in their names, and by .log or .txt at the end."""
DRIVER_LOGS = Path("/var/log/npu")
"""Where the driver exports the devices' logs on the host; a site may mount it."""
DRIVER_FOLDERS = ("slog", "hisi_logs")
RAY_LOGS = ("raylet.out", "raylet.err")
"""Ray's own logs on a worker node, beside those of its workers (ray/_private/node.py, 2.60)."""
MARGIN_SECONDS = 60.0
"""For clocks of nodes that differ."""


@dataclass(frozen=True)
class Source:
    """Files of one kind."""

    kind: str
    """Folder in the copy."""
    root: Path
    since: float = 0.0
    """Unix time: older files belong to something else."""
    suffix: str = ""
    """Appended to each name."""


def process_logs(environ: Mapping[str, str]) -> Path:
    """Return CANN's folder of application logs.

    CANN 9.0, environment variables, ASCEND_PROCESS_LOG_PATH: it comes before ASCEND_WORK_PATH, and that before the
    home folder.
    """
    if path := environ.get("ASCEND_PROCESS_LOG_PATH"):
        return Path(path)
    work = environ.get("ASCEND_WORK_PATH")
    return Path(work) / "log" if work else Path(environ.get("HOME") or "/root") / "ascend" / "log"


def sources(environ: Mapping[str, str], begun: float, exported: Path | None = None) -> Iterator[Source]:
    """Yield the sources of this node in the order of their worth. `exported` is what msnpureport wrote."""
    since = begun - MARGIN_SECONDS
    yield Source(PROCESS_LOG, process_logs(environ), since)
    if (ray := ray_logs()) is not None:
        yield Source(TRAIN_LOG, ray, since, ".log")
    for root in (exported, DRIVER_LOGS):
        # The devices' own logs explain a fault that began before the attempt.
        if root is not None:
            for name in DRIVER_FOLDERS:
                yield Source(f"{DEVICE_LOG}/{name}", root / name)


def ray_logs() -> Path | None:
    """Return the folder of Ray's logs on this node, if this process is one of Ray's workers: it holds its own log."""
    for number in (1, 2):
        try:
            path = Path(f"/proc/self/fd/{number}").readlink()
        except OSError:
            continue
        if WORKER_LOG.match(path.name):
            return path.parent
    return None


def is_wanted(source: Source, name: str) -> bool:
    """Return whether a file's name belongs to the source. Ray's folder also has logs of its own services."""
    return source.kind != TRAIN_LOG or name in RAY_LOGS or WORKER_LOG.match(name) is not None


def entries(root: Path, limit: int) -> Iterator[os.DirEntry[str]]:
    """Yield at most `limit` regular files below a folder, not following links and skipping what cannot be read."""
    pending, left = [str(root)], limit
    while pending:
        try:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry
                        left -= 1
                        if left <= 0:
                            return
        except OSError:
            continue
