"""A Python file of the user's, imported in a process of its own as a worker of verl imports it minutes later.

A failure there would be found after the models are loaded. The file runs at this import: it may exit, hang, print
without end, start threads or change the process, so it runs in a child first. The child (a module such as
reward_probe.py) writes one JSON object to a pipe; what it prints is bounded and shown only if it failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any, ClassVar, Protocol

from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError

IMPORT_SECONDS = 300.0
"""A function that imports verl and torch from a slow volume takes a minute."""
OUTPUT_BYTES = 16 * 1024
"""The end of the child's output that is kept."""
ANSWER_BYTES = 64 * 1024
INVALID, UNREADABLE = "Invalid", "Unreadable"


class UserFile(Protocol):
    """Which file is imported, and what it must have."""

    PROBE: ClassVar[str]
    """Module of the child; it gets the dataclass as JSON."""
    FIELD: ClassVar[str]
    REASON: ClassVar[str]
    """Beginning of the reason, before Invalid or Unreadable."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def path(self) -> str:
        """Return the path of the file."""


@dataclass
class ImportCheck:
    """A check that is under way, so that the launcher can do something else meanwhile."""

    settings: UserFile
    seconds: float = IMPORT_SECONDS
    _process: subprocess.Popen[bytes] = field(init=False)
    _answer: bytearray = field(default_factory=bytearray, init=False)
    _output: bytearray = field(default_factory=bytearray, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)
    _ends: float = field(init=False)
    _stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Start the child, in a process group of its own."""
        self._ends = time.monotonic() + self.seconds
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.settings.PROBE, json.dumps(asdict(self.settings)), str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        if self._process.stdout is None:
            raise AssertionError("the child's output is a pipe")
        self._follow(os.fdopen(reading, "rb", buffering=0), self._answer, ANSWER_BYTES)
        self._follow(self._process.stdout, self._output, OUTPUT_BYTES)

    def _follow(self, stream: IO[bytes], kept: bytearray, limit: int) -> None:
        """Read a stream to its end and keep the last bytes."""

        def read() -> None:
            with stream, contextlib.suppress(OSError, ValueError):
                while part := os.read(stream.fileno(), 64 * 1024):
                    kept.extend(part)
                    del kept[:-limit]

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self._threads.append(thread)

    def require(self) -> None:
        """Wait for the child. Raises RefusedError: exit 64 for a file that verl cannot use, 65 for a volume."""
        try:
            self._process.wait(max(0.0, self._ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            problem = (
                f"its import has not ended after {self.seconds:g} s; look at the volume, and at what the file does at "
                "its import"
            )
            raise _refused(self.settings, UNREADABLE, problem) from None
        finally:
            self.stop()
        self._judge(self._said())

    def stop(self) -> None:
        """End the child with everything that it has started. Only once, because its pid may be used again."""
        if self._stopped:
            return
        self._stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(1.0)

    def _said(self) -> Mapping[str, Any] | None:
        try:
            said = json.loads(bytes(self._answer))
        except ValueError:
            return None
        return said if isinstance(said, dict) else None

    def _judge(self, said: Mapping[str, Any] | None) -> None:
        if said is not None and not said.get("problem"):
            return
        self._show_output()
        if said is not None:
            if said.get("volume"):
                raise _refused(self.settings, UNREADABLE, str(said["problem"]))
            raise _refused(self.settings, INVALID, str(said["problem"]))
        code = self._process.returncode
        if code == -signal.SIGKILL:
            killed = "its import was killed; look at the memory of the head pod"
            raise _refused(self.settings, UNREADABLE, killed)
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        exits = f"its import ends the process ({ended}); a file that is imported must not exit"
        raise _refused(self.settings, INVALID, exits)

    def _show_output(self) -> None:
        if self._output:
            text = bytes(self._output).decode(errors="replace")
            print(f"rljob: output of the import of {self.settings.path}:\n{text}", file=sys.stderr, flush=True)  # noqa: T201


def _refused(settings: UserFile, kind: str, problem: str) -> RefusedError:
    """Return the error; another attempt may find a volume in a better state."""
    code = ExitCode.ENVIRONMENT if kind == UNREADABLE else ExitCode.BAD_CONFIG
    return RefusedError(code, f"{settings.REASON}{kind}", f"{settings.FIELD} {settings.path}: {problem}")
