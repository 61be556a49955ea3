"""What the server imports before it forks: the libraries that the processes of a run import anyway.

No module here starts a thread, opens a device or connects to anything as it is imported; the server refuses to fork if
one of them does (`server.py`), and runtime/tests/upstream imports them all.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Mapping

from rljob_runtime.node import core_binding

LIBRARIES = ("numpy", "pandas", "torch", "tensordict", "transformers")
"""They read nothing of Ray's."""
LIBRARIES_READ = re.compile(
    r"PYTHON(?!BREAKPOINT).*|LD_.*|(OMP|MKL|OPENBLAS|KMP|GOMP|NUMEXPR|TORCH|PYTORCH|HF|TRANSFORMERS|ASCEND|CUDA)_.*|"
    r"TMPDIR|HOME"
)
"""Variables that they may read as they are imported."""
PARTS = (
    "transfer_queue",
    "verl.trainer.main_ppo",
    "verl.trainer.ppo.v1",
    "verl.workers.engine_workers",
    "verl.experimental.agent_loop",
    "verl.experimental.reward_loop",
    "rljob_runtime.verl_plugin.trainer.sync_trainer",
    "rljob_runtime.verl_plugin.trainer.colocate_trainer",
    "rljob_runtime.verl_plugin.trainer.separate_trainer",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
)
"""They import Ray, whose C++ part reads RAY_JOB_ID and RAY_RAYLET_PID as it is loaded; a worker of the job has both."""
JOB_ID, RAYLET_PID = "RAY_JOB_ID", core_binding.RAYLET_PID
ARROW = "JE_ARROW_MALLOC_CONF"
"""pyarrow's allocator keeps a thread otherwise (jemalloc's background_thread)."""


def import_all(names: Iterable[str]) -> None:
    """Import modules; one that is not there, or fails, is left to the processes that need it."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever an import raises, the process itself will raise it again
            print(f"rljob: fork server: {name} is not preloaded: {error!r}", file=sys.stderr, flush=True)  # noqa: T201


def import_libraries() -> None:
    """Import what needs no Ray."""
    os.environ[ARROW] = "background_thread:false"
    # As raylet has it: setproctitle would write titles over the environment, by which processes are found.
    os.environ["SPT_NOENV"] = "1"
    import_all(("setproctitle",))
    if (titles := sys.modules.get("setproctitle")) is not None:
        # It finds the command line beside the environment, which must be where the kernel put it (spt_setup.c, 1.3).
        titles.getproctitle()
    import_all(LIBRARIES)


def take_over(environ: Mapping[str, str], own: Iterable[str]) -> list[str]:
    """Take a worker's environment, without the variables `own` of its process; return those that were set too late."""
    late = {
        name
        for name in os.environ.keys() | environ.keys()
        if LIBRARIES_READ.fullmatch(name) and os.environ.get(name) != environ.get(name)
    }
    os.environ.clear()
    os.environ.update({name: value for name, value in environ.items() if name not in own})
    return sorted(late)


def import_parts() -> None:
    """Import Ray, verl and vLLM."""
    import_all(PARTS)
