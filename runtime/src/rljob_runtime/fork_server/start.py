"""The launcher's and the plug-ins' side: begin to import early, and have Ray and vLLM start the client."""

from __future__ import annotations

import multiprocessing.spawn
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rljob_runtime.contract import AttemptVariable, JobConfig, Platform
from rljob_runtime.fork_server import client, preload

VARIABLE = client.VARIABLE
CLIENT = (sys.executable, "-I", "-S", str(Path(client.__file__).resolve()))
BEGIN_SECONDS = 30.0
OWN_PYTHON = frozenset({"pip", "uv", "conda", "py_executable", "container", "image_uri", "nsight", "rocprof-sys"})
"""Fields of Ray's runtime environment that choose an interpreter (ray/runtime_env/runtime_env.py, 2.60)."""


def environment(job: JobConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that makes every process of the attempt use the server; none on devices (see the package)."""
    name = f"{job.cluster_name}-attempt-{environ.get(AttemptVariable.ATTEMPT, '')}"
    return {VARIABLE: name} if job.platform is Platform.CPU else {}


def begin_early(environ: Mapping[str, str]) -> None:
    """Start this node's server before the job is connected to Ray: it imports what needs no Ray, and waits."""
    # A launcher that was submitted to Ray has the id of another job, the submission's.
    begin({name: value for name, value in environ.items() if name != preload.JOB_ID})


def begin(environ: Mapping[str, str]) -> None:
    """Start this node's server beside what the caller does next; without one, processes start as they always did."""
    if not environ.get(VARIABLE):
        return
    # A process of its own: this one has threads, which do not go with a fork.
    subprocess.run([*CLIENT, client.BEGIN], env=dict(environ), timeout=BEGIN_SECONDS, check=False)


def interpreter(runtime_env: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return what Ray is to start in place of the interpreter; None where the job chooses one, or without a server."""
    own = OWN_PYTHON & {name for name, value in runtime_env.items() if value}
    return shlex.join(CLIENT) if environ.get(VARIABLE) and not own else None


def install_spawn(environ: Mapping[str, str] = os.environ) -> None:
    """Have multiprocessing start the client for the children that this process spawns."""
    run = environ.get(VARIABLE)
    path = client.executable(run) if run else None
    if path is not None:
        multiprocessing.spawn.set_executable(str(path))
