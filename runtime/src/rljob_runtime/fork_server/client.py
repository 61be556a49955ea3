"""Stands in for the Python interpreter: asks the node's server to fork the process, and lives and dies with it.

Ray runs it as `py_executable` of the job's runtime environment, multiprocessing as its executable. It passes on its
arguments, environment, working directory and open files. Signals that it gets go to the process, the exit status of the
process becomes its own, and when it is killed the server kills the process. Run as a script with `-I -S`, so it imports
little and nothing of ours.
"""

from __future__ import annotations

import array
import fcntl
import hashlib
import json
import os
import re
import resource
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

VARIABLE = "RLJOB_FORK_SERVER"
"""Name of the run; without it, or empty, nothing is forked."""
SERVER = "rljob_runtime.fork_server.server"
FILES_MAX = 200
"""SCM_RIGHTS carries 253 (SCM_MAX_FD, linux/net/scm.h)."""
FIRST_OWN_FILE = 256
"""Files of the server have numbers from here on, so that those of a forked process can keep theirs."""
REPLY_SECONDS = 120.0
"""For a server that still imports; on a slow machine that takes half a minute."""
HEADER, NUMBER = struct.Struct("=Q"), struct.Struct("=q")
YES, NO = b"Y", b"N"
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
BEGIN = "--begin"
"""Start the server, which imports what it can with this environment; no process is wanted."""
NO_BYTECODE = "-B"
"""multiprocessing passes it on from PYTHONDONTWRITEBYTECODE (subprocess._args_from_interpreter_flags)."""
SPAWNED = "from multiprocessing.spawn import spawn_main"
"""What multiprocessing has a spawned child run (multiprocessing/spawn.py, get_command_line, 3.11)."""
PER_PROCESS = re.compile(
    # Shells and service managers.
    r"_|PWD|OLDPWD|SHLVL|"
    # Ray's own, but for what its C++ part reads as it is loaded.
    r"(__)?RAY_(?!JOB_ID$|RAYLET_PID$).*|PYTHONBREAKPOINT|SPT_NOENV|"
    # Ours: applied to a process after it was forked.
    r"RLJOB_.*|CPU_AFFINITY_CONF|\w+_SOCKET_IFNAME|"
    # verl, of each worker (single_controller/ray/base.py:632-640, 0.9.1), and of each rollout server.
    r"WORLD_SIZE|RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|WG_PREFIX|WG_BACKEND|MASTER_ADDR|MASTER_PORT|\w+_VISIBLE_DEVICES|"
    # verl's rollout server (vllm_async_server.py:136-143) and vLLM (platforms/cpu.py:224-234, 0.23.0), for an engine's
    # processes; vLLM reads its own when it uses them (vllm/envs.py).
    r"VERL_REPLICA_RANK|VERL_RAY_JOB_ID|VLLM_WORKER_MULTIPROC_METHOD|VLLM_DISABLE_SHARED_EXPERTS_STREAM|VLLM_DP_\w+"
)
"""Variables that no library reads as it is imported; in all others a process must agree with the server."""


def folder(run: str) -> Path:
    """Return the folder of a run's server on this node; a short path, because a socket's has 107 bytes at most."""
    return Path(tempfile.gettempdir()) / f"rljob-fork-{hashlib.sha256(run.encode()).hexdigest()[:12]}"


def connect(run: str, environ: Mapping[str, str]) -> socket.socket:
    """Connect to the run's server, starting it where there is none; raises OSError."""
    place = folder(run)
    place.mkdir(mode=0o700, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(place / "socket"))
        except (FileNotFoundError, ConnectionRefusedError):
            _start(place, environ)
            connection.connect(str(place / "socket"))
    return connection


def _start(place: Path, environ: Mapping[str, str]) -> None:
    """Start the server with a socket that listens already: clients that connect during its imports are queued."""
    address = place / "socket"
    address.unlink(missing_ok=True)
    _write_executable(place)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(FILES_MAX)
        # Twice, so that it is nobody's child and nobody has to wait for it.
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                _become_server(place, listener, environ)
            os._exit(0)
        os.waitpid(child, 0)


def _become_server(place: Path, listener: socket.socket, environ: Mapping[str, str]) -> NoReturn:
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        # Raylet kills the whole process group of a worker that has ended, and the first client's was this one's.
        os.setpgid(0, 0)
        log = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        number = fcntl.fcntl(listener, fcntl.F_DUPFD, FIRST_OWN_FILE)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, number)
        command = [sys.executable, "-m", SERVER, str(number)]
        os.execve(sys.executable, command, dict(environ))  # noqa: S606 - no shell is wanted
    finally:
        os._exit(1)


def _write_executable(place: Path) -> None:
    """Write the program that multiprocessing starts in place of the interpreter; it takes one word, not a command."""
    path, fresh = place / "python", place / ".python"
    fresh.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{Path(__file__).resolve()}" "$@"\n')
    fresh.chmod(0o700)
    fresh.replace(path)


def executable(run: str) -> Path | None:
    """Return the program that stands in for the interpreter; None where the run has no server."""
    path = folder(run) / "python"
    return path if path.exists() else None


def can_be_forked(arguments: Sequence[str]) -> bool:
    """Report whether the server knows how to run this: a script, or a child that multiprocessing spawns."""
    if not arguments:
        return False
    return arguments[1].startswith(SPAWNED) if arguments[0] == "-c" else not arguments[0].startswith("-")


def request(arguments: Sequence[str], files: Sequence[int]) -> bytes:
    """Describe this process, which the forked one is to resemble."""
    return json.dumps(
        {
            "arguments": list(arguments),
            "environ": dict(os.environ),
            "folder": str(Path.cwd()),
            "files": list(files),
            "umask": _umask(),
            "affinity": sorted(os.sched_getaffinity(0)),
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
            "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
            "open_files": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            # Who started a child of multiprocessing: an engine's worker must not outlive its engine.
            "owner": os.getppid() if arguments[0] == "-c" else None,
        }
    ).encode()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def ask(connection: socket.socket, arguments: Sequence[str]) -> int | None:
    """Ask for the process; return its id, or None if the server will not fork it."""
    own = connection.fileno()
    files = [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if int(entry.name) != own]
    files = [number for number in files if _is_open(number)]
    if len(files) > FILES_MAX or max(files, default=0) >= FIRST_OWN_FILE:
        return None
    connection.settimeout(REPLY_SECONDS)
    send(connection, arguments, files)
    if connection.recv(1) != YES:
        return None
    connection.settimeout(None)
    return read_number(connection)


def send(connection: socket.socket, arguments: Sequence[str], files: Sequence[int]) -> None:
    """Send a request with its files."""
    payload = request(arguments, files)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([HEADER.pack(len(payload))], rights)
    connection.sendall(payload)


def _is_open(number: int) -> bool:
    """Report whether a file is open. The file of the directory listing itself was open, and is closed now."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def read_number(connection: socket.socket) -> int | None:
    """Read a number; None if the other side has gone."""
    data = b""
    while len(data) < NUMBER.size:
        more = connection.recv(NUMBER.size - len(data))
        if not more:
            return None
        data += more
    return int(NUMBER.unpack(data)[0])


def stand_for(connection: socket.socket) -> NoReturn:
    """Pass on signals until the process has ended, and end as it did."""
    own = connection.fileno()
    for number in FORWARDED:
        signal.signal(number, lambda signum, _: connection.sendall(bytes([signum])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    # What it holds open would never end for those who read from the other side.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.closerange(3, own)
    os.closerange(own + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    status = read_number(connection)
    if status is None:
        os._exit(1)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def main() -> None:
    """Have the process forked, or become an ordinary interpreter."""
    arguments, run = sys.argv[1:], os.environ.get(VARIABLE)
    if arguments[:2] == [NO_BYTECODE, "-c"]:
        # The environment says it too, or the server would have written some.
        arguments = arguments[1:]
    wanted = arguments != [BEGIN]
    # Until it is known who is to get them, the process or an ordinary interpreter in its place.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    if run and (not wanted or can_be_forked(arguments)):
        try:
            with connect(run, os.environ) as connection:
                if not wanted:
                    send(connection, arguments, [])
                elif ask(connection, arguments) is not None:
                    stand_for(connection)
        except OSError as error:
            print(f"rljob: no process is forked here: {error}", file=sys.stderr, flush=True)  # noqa: T201
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    if wanted:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
