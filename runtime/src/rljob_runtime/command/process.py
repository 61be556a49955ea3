"""Run a command as a child in a process group of its own, forward its output, and stop it within a limit.

Standard output and standard error are one pipe, so their lines keep their order. The command waits while the launcher
does not read. Nothing here prints the command line, which may contain secrets.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rljob_runtime.command import guard
from rljob_runtime.command.lines import LINE_BYTES, Lines
from rljob_runtime.command.progress import CONTROL_SEQUENCE
from rljob_runtime.contract import CommandStop, ExitCode, quoted
from rljob_runtime.outcomes import RefusedError

CHUNK_BYTES = 64 * 1024
PENDING_LINES = 256
"""Lines that wait to be parsed, of at most `LINE_BYTES` each."""
GUARD_SECONDS = 60.0
"""For the start of the guard, on a busy node."""
DRAIN_SECONDS = 5.0
"""How long to read what is left of the output when the command has ended. A process outside its group may keep the
pipe open."""
KILL_SECONDS = 60.0
"""How long a killed process may take to end. One that waits for a device or a hanging volume may never end."""
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit status of a shell that cannot run a command: POSIX.1-2017, Shell Command Language, 2.8.2."""
LAST_CHARACTERS = 300
"""Of the last line, where the command has printed no exception."""
ERROR_LINE = re.compile(r"(?:\([^()]{0,200}\) )?([\w.]{1,200}(?:Error|Exception|Interrupt|Exit)(?::.{0,300})?)")
"""The last line of a traceback, possibly behind the prefix with which Ray forwards it."""


class CommandFailedError(RuntimeError):
    """The command has ended with a failure, or could not be ended."""


class Child:
    """The running command."""

    def __init__(self, args: Sequence[str], folder: str | None, environ: Mapping[str, str], *, reads: bool) -> None:
        """Start it. With `reads`, its lines are kept for `lines`. Raises RefusedError (exit 64) if it cannot run."""
        if folder is not None and not Path(folder).is_dir():
            raise _refused("workingDir", f"{quoted(folder)} is not a folder of the head pod")
        self._guard = _start_guard()
        try:
            self._process = subprocess.Popen(
                list(args),
                cwd=folder,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=self._guard.pid,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            self._end_guard()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise _refused("args[0]", f"the command cannot be started: {reason}") from None
        self._reads = reads
        self._pending: queue.Queue[str] = queue.Queue(PENDING_LINES)
        self._error: str | None = None
        self._last = ""
        self._killed_at: float | None = None
        self._stop_by: float | None = None
        self._over = threading.Event()
        """Set when nobody takes lines any more."""
        self._reader = threading.Thread(target=self._forward, daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the command runs.

        Kills the command if it has not stopped in time. Raises CommandFailedError if it then does not end.
        """
        status = self._process.poll()
        if status is None and self._stop_by is not None and time.monotonic() >= self._stop_by:
            self.kill()
        if status is None and self._killed_at is not None and time.monotonic() > self._killed_at + KILL_SECONDS:
            raise CommandFailedError(f"the command has not ended within {KILL_SECONDS:g} s after SIGKILL")
        return status

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield the lines that wait, after waiting up to `seconds` for the first one."""
        with contextlib.suppress(queue.Empty):
            yield self._pending.get(timeout=seconds)
            for _ in range(PENDING_LINES):
                yield self._pending.get_nowait()

    def stop(self, how: CommandStop, file: Path | None, seconds: float) -> None:
        """Ask the command to stop, and have it killed after `seconds`. Further calls have no effect."""
        if self._stop_by is not None:
            return
        asked = how is not CommandStop.NONE
        if how is CommandStop.SIGNAL:
            self._signal(signal.SIGTERM)
        elif how is CommandStop.FILE:
            asked = file is not None and _create(file)
        self._stop_by = time.monotonic() + (seconds if asked else 0.0)

    def kill(self) -> None:
        """Kill the process group."""
        self._killed_at = self._killed_at or time.monotonic()
        self._signal(signal.SIGKILL)

    def close(self) -> Iterator[str]:
        """Kill what is left of the group, and yield the rest of the lines."""
        self._end_guard()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._reader.is_alive() and time.monotonic() < deadline:
            yield from self.lines(0.05)
        self._over.set()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._pending.get_nowait()

    def require_started(self, status: int) -> None:
        """Raise RefusedError (exit 64) for the exit status of a shell that cannot run a command."""
        if status in (NOT_EXECUTABLE, NOT_FOUND):
            what = "was not found" if status == NOT_FOUND else "is not executable"
            raise _refused("args", f"exit status {status}: a command {what} in the image")

    def failure(self, status: int) -> CommandFailedError:
        """Return the error for a failed end, with the last exception that the command has printed, or its last line."""
        why = self._error
        if status >= 0:
            end = f"exit status {status}"
            why = why or self._last
        elif -status == signal.SIGKILL and self._killed_at is None:
            end = "killed by SIGKILL, which the launcher did not send; the usual cause is that memory ran out"
        else:
            end = f"ended by {_signal_name(-status)}"
        return CommandFailedError(f"the command failed: {end}{f'; {why}' if why else ''}")

    def _signal(self, number: signal.Signals) -> None:
        # The group's number stays reserved until the guard is waited for, even if another process has killed the guard.
        if self._guard.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._guard.pid, number)

    def _end_guard(self) -> None:
        """Kill the group, and release its number."""
        if self._guard.returncode is None:
            os.killpg(self._guard.pid, signal.SIGKILL)
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                pipe.close()
        self._guard.wait()

    def _forward(self) -> None:
        """Forward the output in whole lines, and in parts if a line is long."""
        lines, waiting = Lines(), b""
        with self._process.stdout or contextlib.nullcontext() as source:
            while source is not None and (chunk := os.read(source.fileno(), CHUNK_BYTES)):
                waiting += chunk
                end = max(waiting.rfind(b"\n"), waiting.rfind(b"\r")) + 1
                if end == 0 and len(waiting) >= LINE_BYTES:
                    end = len(waiting)
                _write(waiting[:end])
                waiting = waiting[end:]
                for line in lines.feed(chunk):
                    self._keep(line)
            _write(waiting)
            if last := lines.rest():
                self._keep(last)

    def _keep(self, line: str) -> None:
        plain = CONTROL_SEQUENCE.sub("", line[:1024]).strip()
        self._last = plain[:LAST_CHARACTERS] or self._last
        if match := ERROR_LINE.fullmatch(plain):
            self._error = match[1]
        while self._reads and not self._over.is_set():
            with contextlib.suppress(queue.Full):
                self._pending.put(line, timeout=0.5)
                return


def _start_guard() -> subprocess.Popen[bytes]:
    words = [sys.executable, "-I", "-S", guard.__file__]
    started = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, bufsize=0, cwd="/"
    )
    if started.stdout is None:
        raise AssertionError("a pipe was asked for")
    ready, _, _ = select.select([started.stdout], [], [], GUARD_SECONDS)
    if not ready or started.stdout.read(1) != guard.READY:
        started.kill()
        started.wait()
        raise TimeoutError(f"the process that guards the command did not start within {GUARD_SECONDS:g} s")
    return started


def _create(file: Path) -> bool:
    """Create a file, and return whether that worked."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        message = f"rljob: launcher.command.stop.file: {file} cannot be created, so the command is ended: {error}"
        print(message, file=sys.stderr, flush=True)  # noqa: T201
        return False
    return True


def _write(data: bytes) -> None:
    rest = memoryview(data)
    with contextlib.suppress(OSError):  # a full disk must not stop the command
        while rest:
            rest = rest[os.write(1, rest) :]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _refused(field: str, what: str) -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, "CommandInvalid", f"launcher.command.{field}: {what}")
