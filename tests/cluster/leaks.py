"""Find everything of the cluster on this machine, and remove it.

`leaks` must find what a killed cluster left, without help from pid files. Therefore it uses marks that cannot be lost:
the environment that our processes inherit, our cgroups, paths below our folders, and names of interfaces. Only what
carries such a mark is ever touched.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import mounts, network, processes
from tests.cluster.errors import ClusterError
from tests.cluster.paths import MARK_VARIABLE, State
from tests.cluster.processes import Process
from tests.cluster.shell import run, succeeds

REMOVE_DEADLINE_SECONDS = 20.0


@dataclass(frozen=True)
class Leftovers:
    """Everything of the cluster on this machine, by kind."""

    processes: tuple[Process, ...]
    mounts: tuple[Path, ...]
    namespaces: tuple[str, ...]
    links: tuple[str, ...]
    cgroups: tuple[Path, ...]
    tables: tuple[str, ...]
    files: tuple[Path, ...]

    def lines(self) -> list[str]:
        """Return one line for each item, for people."""
        named = [f"process {process.pid}: {command_line(process.pid)}" for process in self.processes]
        for kind, things in (
            ("mount", self.mounts),
            ("network namespace", self.namespaces),
            ("interface", self.links),
            ("cgroup", self.cgroups),
            ("nftables table", self.tables),
            ("file", self.files),
        ):
            named += [f"{kind} {thing}" for thing in things]
        return named


def find(state: State) -> Leftovers:
    """Find everything of the cluster."""
    return Leftovers(
        processes=tuple(find_processes(state)),
        mounts=tuple(mounts_below(Path("/proc/self/mountinfo").read_text(), (state.folder, state.run))),
        namespaces=tuple(network.namespaces()),
        links=tuple(network.links()),
        cgroups=tuple(network.cgroups()),
        tables=tuple(network.tables()),
        files=tuple(path for path in (state.run, state.etcd, state.pids) if path.exists()),
    )


def find_processes(state: State) -> list[Process]:
    """Return processes with our mark in their environment, and all processes in our cgroups (those of the pods)."""
    mark = f"{MARK_VARIABLE}={state.folder}".encode()
    pids = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    pids.add(int(folder.name))
    for group in network.cgroups():
        with contextlib.suppress(OSError):
            pids.update(int(line) for line in (group / "cgroup.procs").read_text().split())
    pids.discard(os.getpid())
    return [Process(pid, ticks) for pid in sorted(pids) if (ticks := processes.start_ticks(pid)) is not None]


def mounts_below(mountinfo: str, folders: tuple[Path, ...]) -> list[Path]:
    """Return the mount points below folders, the last mounted first, which is the order to unmount them."""
    found = []
    for line in mountinfo.splitlines():
        # The kernel writes a space within a path as its octal number.
        path = Path(line.split()[4].replace("\\040", " "))
        if any(path.is_relative_to(folder) for folder in folders):
            found.append(path)
    return found[::-1]


def command_line(pid: int) -> str:
    """Return the command of a process, shortened."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return "(gone)"
    return words.decode(errors="replace")[:120]


def sweep(state: State, *, grace_seconds: float = 5.0) -> None:
    """Remove everything of the cluster; images, keys, logs and compiled programs are kept."""
    _end_processes(state, grace_seconds)
    sockets = _shim_sockets(state)
    _unmount(state)
    for name in network.namespaces():
        run(["ip", "netns", "delete", name])
    for link in network.links():
        # The other end of a pair disappears with the first.
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)
    for table in network.tables():
        succeeds(["nft", "delete", "table", *table.split()])
    _remove_cgroups()
    for path in [state.run, state.etcd, state.pids, state.volumes, *_node_folders(state)]:
        shutil.rmtree(path, ignore_errors=True)
    for path in sockets:
        path.unlink(missing_ok=True)
    for path in (mounts.DEVICE_PLUGINS, mounts.DEVICE_PLUGINS.parent):
        # Remove only an empty folder: on a machine with its own kubelet it does not belong to the cluster.
        with contextlib.suppress(OSError):
            path.rmdir()


def _end_processes(state: State, grace_seconds: float) -> None:
    # A process that was killed may have just started another one (a shim, a container), so search again.
    deadline = time.monotonic() + REMOVE_DEADLINE_SECONDS
    while (found := find_processes(state)) and time.monotonic() < deadline:
        processes.end(found, grace_seconds=grace_seconds)
        grace_seconds = 0.0


def _shim_sockets(state: State) -> list[Path]:
    """Return sockets of shims. containerd keeps them outside its state folder, but records their paths."""
    found = []
    for note in state.run.glob("*/containerd/io.containerd.runtime.v2.task/*/*/bootstrap.json"):
        with contextlib.suppress(OSError, ValueError):
            address = str(json.loads(note.read_text()).get("address", ""))
            found.append(Path(address.removeprefix("unix://")))
    return [path for path in found if path.is_socket()]


def _unmount(state: State) -> None:
    for path in mounts_below(Path("/proc/self/mountinfo").read_text(), (state.folder, state.run)):
        # Lazily, because a process of another user that uses the folder must not prevent it.
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)
    left = mounts_below(Path("/proc/self/mountinfo").read_text(), (state.folder, state.run))
    if left:
        # Continuing would delete what is mounted there.
        raise ClusterError(f"cannot unmount {left[0]} (and {len(left) - 1} more); see `fuser -vm {left[0]}`")


def _remove_cgroups() -> None:
    deadline = time.monotonic() + REMOVE_DEADLINE_SECONDS
    while (groups := network.cgroups()) and time.monotonic() < deadline:
        for group in groups:
            # The kernel needs a moment after the last process of a group has ended.
            with contextlib.suppress(OSError):
                group.rmdir()
        if network.cgroups():
            time.sleep(processes.POLL_SECONDS)


def _node_folders(state: State) -> list[Path]:
    return [path for path in state.folder.glob("nodes/*/*") if path.name != "containerd"]
