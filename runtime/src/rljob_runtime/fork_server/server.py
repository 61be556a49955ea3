"""The process that has imported everything and forks the others: `python -m rljob_runtime.fork_server.server FD`.

There is one per node and run, started by the first process that needs it: the launcher on the head, a worker elsewhere.
It imports what needs no Ray, waits for the first worker of the job, imports the rest with that worker's environment,
and then forks one process for each client. It has a single thread and ends after the raylet does. A forked process
leaves `serve` with a `Forked` and continues in `main`, so that it ends as any Python process does.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime.fork_server import preload
from rljob_runtime.fork_server.asked import REQUEST_SECONDS, Asked, read, tell
from rljob_runtime.fork_server.client import FIRST_OWN_FILE, NUMBER, PER_PROCESS, VARIABLE, YES
from rljob_runtime.fork_server.forked import Forked, become
from rljob_runtime.node import core_binding
from rljob_runtime.stacks import register as stack_register

IDLE_SECONDS = 300.0
"""A server without a child ends after this time; the next client starts another one."""
ORPHAN_SECONDS = 5.0
"""How long the server stays after the raylet has ended; Ray's workers end by themselves in this time."""


PLAIN_ENGINE = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCH_COMPILE_DISABLE": "1"}
TUNING = ("LD_PRELOAD", "NUMEXPR_MAX_THREADS", "TORCHINDUCTOR_CPP_DYNAMIC_THREADS")
"""What vLLM sets for the processes of an engine on CPUs (platforms/cpu.py:226-305, 0.23.0): OpenMP's library, for
engines that bind their threads; an allocator; limits of threads and of compiled code. An engine with `PLAIN_ENGINE`,
the launcher's default, has one thread and compiles nothing: it computes the same without them."""


@dataclass
class Child:
    """A forked process and the client that stands for it."""

    pid: int
    client: socket.socket
    owner: int | None
    """File of the process that it must not outlive (pidfd)."""


@dataclass
class Server:
    """The state of the event loop."""

    expected: Mapping[str, str]
    """The environment with which everything was imported."""
    changed: Mapping[str, str]
    """Variables that the imports have set in the environment."""
    refuses: str | None = None
    """Why nothing may be forked."""
    children: dict[int, Child] = field(default_factory=dict)
    raylet: int | None = None
    """pidfd."""
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    ends: float | None = None
    idle_since: float = field(default_factory=time.monotonic)

    def serve(self, listener: socket.socket, first: Asked) -> Forked | None:
        """Fork processes until no longer needed. In a forked process, return what it has to run."""
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.settimeout(0)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno())
        self.selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        self.selector.register(woken, selectors.EVENT_READ, lambda: self._reap(woken))
        if (raylet := self.raylet) is not None:
            self.selector.register(raylet, selectors.EVENT_READ, lambda: self._raylet_ended(raylet))
        forked = self._answer(first)
        while forked is None and not self._is_over():
            for key, _ in self.selector.select(timeout=1.0):
                forked = key.data()
                if forked is not None:
                    break
        if forked is not None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._close_all((listener, woken, wake))
        return forked

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self.ends is not None and now >= self.ends:
            for child in self.children.values():
                _kill(-child.pid, signal.SIGKILL)
            return True
        if self.children:
            self.idle_since = now
        return (self.ends is not None and not self.children) or now - self.idle_since > IDLE_SECONDS

    def _raylet_ended(self, raylet: int) -> None:
        self.selector.unregister(raylet)
        self.ends = time.monotonic() + ORPHAN_SECONDS

    def _close_all(self, own: tuple[socket.socket, ...]) -> None:
        """Close the files of the server in a forked process."""
        self.selector.close()
        for one in (*own, *(child.client for child in self.children.values())):
            one.close()
        for number in (self.raylet, *(child.owner for child in self.children.values())):
            if number is not None:
                os.close(number)

    # Clients.

    def _accept(self, listener: socket.socket) -> Forked | None:
        client, _ = listener.accept()
        asked = read(client)
        if asked is None:
            client.close()
            return None
        return self._answer(asked)

    def _answer(self, asked: Asked) -> Forked | None:
        if asked.wants_process:
            refused = self.refuses or self._differs(asked.environ)
            if refused is None and not asked.has_gone():
                return self._fork(asked)
            if refused is not None:
                asked.refuse(refused)
        asked.close()
        return None

    def _differs(self, environ: Mapping[str, str]) -> str | None:
        """Return the variables in which a process differs and that an import may have read; None if there are none."""
        tolerated = TUNING if all(environ.get(name) == value for name, value in PLAIN_ENGINE.items()) else ()
        names = {
            name
            for name in environ.keys() | self.expected.keys()
            if environ.get(name) not in (self.expected.get(name), self.changed.get(name))
            and not PER_PROCESS.fullmatch(name)
            and name not in tolerated
        }
        return f"it differs in {', '.join(sorted(names))}" if names else None

    def _fork(self, asked: Asked) -> Forked | None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            asked.client.close()
            return Forked(asked.request, asked.files, self.changed)
        client, owner = asked.client, asked.request["owner"]
        asked.close_files()
        watched = None if owner is None else _watch(owner)
        child = self.children[pid] = Child(pid, client, watched)
        with contextlib.suppress(OSError):  # a client that has gone is seen by the loop
            client.sendall(YES + NUMBER.pack(pid))
        client.settimeout(0)
        self.selector.register(client, selectors.EVENT_READ, lambda: self._hear(child))
        if watched is not None:
            self.selector.register(watched, selectors.EVENT_READ, lambda: self._owner_ended(child, watched))
        return None

    def _hear(self, child: Child) -> None:
        """Pass on a client's signals; kill the process of one that has gone."""
        try:
            numbers = child.client.recv(64)
        except BlockingIOError:
            return
        except OSError:
            numbers = b""
        for number in numbers:
            _kill(child.pid, number)
        if not numbers:
            self.selector.unregister(child.client)
            _kill(child.pid, signal.SIGKILL)

    def _owner_ended(self, child: Child, owner: int) -> None:
        self.selector.unregister(owner)
        _kill(child.pid, signal.SIGKILL)

    def _reap(self, woken: socket.socket) -> None:
        """Send the exit status of processes that have ended to their clients."""
        with contextlib.suppress(BlockingIOError):
            woken.recv(4096)
        for pid in _ended():
            # What raylet does for the processes that it starts (RAY_process_group_cleanup_enabled, 2.60).
            _kill(-pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            child = self.children.pop(pid, None)
            if child is None:
                continue
            for file in (child.client, child.owner):
                if file is not None:
                    with contextlib.suppress(KeyError):
                        self.selector.unregister(file)
            with contextlib.suppress(OSError):
                child.client.settimeout(REQUEST_SECONDS)
                child.client.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
            child.client.close()
            if child.owner is not None:
                os.close(child.owner)


def _ended() -> Iterator[int]:
    """Yield children that have ended. Until the caller waits for a child, the kernel does not reuse its process ID."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        yield found.si_pid


def _kill(pid: int, number: int) -> None:
    """Signal a child. It has not been waited for, so its process ID is not in use by another process."""
    with contextlib.suppress(ProcessLookupError, ValueError):
        os.kill(pid, number)


def _watch(pid: int) -> int | None:
    """Return a file that becomes readable when a process ends; None where the kernel has none (pidfd, Linux 5.3)."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


@contextlib.contextmanager
def _low_files_reserved() -> Iterator[None]:
    """Have libraries open their files above the numbers that forked processes bring along."""
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < FIRST_OWN_FILE - 1:
        held.append(os.dup(held[0]))
    try:
        yield
    finally:
        for number in held:
            if number < FIRST_OWN_FILE:
                os.close(number)


def first_of_job(listener: socket.socket) -> Asked | None:
    """Wait for the first worker of the job; None if none comes."""
    listener.settimeout(IDLE_SECONDS)
    while True:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            return None
        asked = read(client)
        if asked is not None and {preload.JOB_ID, preload.RAYLET_PID} <= asked.environ.keys():
            listener.settimeout(None)
            return asked
        if asked is None:
            client.close()
        else:
            asked.refuse("Ray did not start it")
            asked.close()


def prepare(first: Asked) -> Server:
    """Import the rest with the environment of the first worker."""
    given = dict(first.environ)
    # They belong to a process, and verl's plug-ins act on them as they are imported.
    late = preload.take_over(given, own=(stack_register.VARIABLE, core_binding.VARIABLE))
    preload.import_parts()
    changed = {name: value for name, value in os.environ.items() if given.get(name) != value}
    changed.pop(preload.ARROW, None)
    threads = len(list(Path("/proc/self/task").iterdir()))
    refuses = None
    if threads > 1:
        refuses = f"an import has started {threads - 1} threads, which a fork would lose"
    if late:
        refuses = f"libraries were imported with another {', '.join(late)}"
    return Server(given, changed, refuses, raylet=_watch(int(given[preload.RAYLET_PID])))


def main() -> None:
    """Run the server until it is no longer needed. A forked process returns from `serve` and runs its program."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    # Where it was started from; a forked process puts its own first.
    del sys.path[0]
    begun = time.monotonic()
    with _low_files_reserved():
        preload.import_libraries()
        tell(f"{os.environ.get(VARIABLE)}: libraries after {time.monotonic() - begun:.1f} s")
        first = first_of_job(listener)
        if first is None:
            return
        begun = time.monotonic()
        server = prepare(first)
    tell(f"ready after {time.monotonic() - begun:.1f} s, {len(sys.modules)} modules")
    # What is here now stays: no collection writes into pages that all share.
    gc.collect()
    gc.freeze()
    forked = server.serve(listener, first)
    if forked is not None:
        del server, listener, first
        become(forked)


if __name__ == "__main__":
    main()
