"""A process of a run: binds itself as test_core_binding.py requests, prints its masks, and waits to be ended."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from rljob_runtime.node import core_binding
from rljob_runtime.vllm_plugin.engine_binding import bind_by_rank


def main() -> None:
    """Bind as `data`, as `trainer <device>` or as `rollout <local rank>`."""
    waiting = threading.Thread(target=threading.Event().wait, daemon=True)
    waiting.start()
    match sys.argv[1:]:
        case ["data"]:
            core_binding.bind_data_worker()
        case ["trainer", device]:
            core_binding.bind_data_worker()
            core_binding.bind_device_worker(core_binding.Role.TRAINER, [int(device)])
        case ["rollout", rank]:
            bind_by_rank(int(rank))
    names = [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    threads = {name: sorted(os.sched_getaffinity(name)) for name in names}
    print(json.dumps({"threads": threads, "setting": os.environ.get(core_binding.TORCH_NPU)}), flush=True)
    sys.stdin.read(1)


main()
