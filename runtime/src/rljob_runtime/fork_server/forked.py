"""What a forked process does first: take over its client's files, environment and limits, then run the program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_runtime.fork_server.client import FIRST_OWN_FILE

PLUGIN = "rljob_runtime.verl_plugin.plugin"


@dataclass(frozen=True)
class Forked:
    """What a forked process has to run."""

    asked: Mapping[str, Any]
    """See `client.request`."""
    files: list[int]
    """The client's files, in the order of `asked["files"]`."""
    changed: Mapping[str, str]
    """Variables that the imports set."""


def become(forked: Forked) -> None:
    """Take over the client's files, limits and environment, run the program, and end as it does."""
    asked = forked.asked
    _take_files(forked.files, asked["files"])
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    _take_limits(asked)
    take_environment(asked["environ"], forked.changed)
    _draw_new_numbers()
    plugin = sys.modules.get(PLUGIN)
    if plugin is not None:
        # The server left out what belongs to one process: stacks, network interface, CPUs.
        plugin.load(os.environ)
    run(asked["arguments"])


def _take_files(received: list[int], wanted: list[int]) -> None:
    """Give the files the numbers that they have in the client."""
    high = []
    for number in received:
        high.append(fcntl.fcntl(number, fcntl.F_DUPFD, FIRST_OWN_FILE))
        os.close(number)
    for number, target in zip(high, wanted, strict=True):
        os.dup2(number, target)
        os.close(number)


def _take_limits(asked: Mapping[str, Any]) -> None:
    """Take over the limits that the client has inherited; those that the kernel refuses stay unchanged."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, asked["affinity"])
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, asked["niceness"])
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(asked["oom"])
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(asked["open_files"]))


def take_environment(environ: Mapping[str, str], changed: Mapping[str, str]) -> None:
    """Replace the environment; what an import has set is set here too, unless the process has its own value."""
    os.environ.clear()
    os.environ.update({**changed, **environ})


def _draw_new_numbers() -> None:
    """Reseed numpy's global generator. Python's own is reseeded at a fork; torch's starts from a constant."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def run(arguments: list[str]) -> None:
    """Run a script or `-c CODE …` as the interpreter does."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    module.__dict__["__builtins__"] = __builtins__
    if arguments[0] == "-c":
        sys.argv, code = ["-c", *arguments[2:]], arguments[1]
        sys.path.insert(0, "")
        program = compile(code, "<string>", "exec")
    else:
        path = Path(arguments[0])
        sys.argv = list(arguments)
        module.__file__ = str(path)
        sys.path.insert(0, str(path.resolve().parent))
        program = compile(path.read_bytes(), str(path), "exec")
    exec(program, module.__dict__)  # noqa: S102 - as the interpreter does
