"""Train a step with each of many settings of the transformer, on the same imports: `MODELS ROWS RESULTS`.

ROWS has a JSON list of objects with `model`, and what the JSON of trainer_process.py has. Each is tried in forks of
this process, because imports are most of a start, and MindSpeed keeps what it patched. RESULTS gets a list of what
became of each: `trains`, or the first line of the error.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import trainer_process

PORT = 29700
TRAINS = "trains"


def attempt(models: str, row: dict[str, Any], rank: int, processes: int, port: int) -> str:
    """Return what became of a row in one process."""
    import torch.distributed as dist
    from verl.utils.device import get_device_name, get_nccl_backend, get_torch_device

    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
    os.environ |= {"MASTER_ADDR": "localhost", **{name: str(value) for name, value in places.items()}}
    try:
        get_torch_device().set_device(rank)
        dist.init_process_group(f"cpu:gloo,{get_device_name()}:{get_nccl_backend()}")
        engine = trainer_process.make(f"{models}/{row['model']}/model", {"strategy": "megatron", **row})
        trainer_process.train(engine, 0)
    except BaseException as error:  # noqa: BLE001 - whatever ends a start is the result
        traceback.print_exc()
        return f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return TRAINS


def forked(models: str, row: dict[str, Any], index: int, folder: Path) -> str:
    """Return what became of a row: of the rank that failed first, if one did."""
    processes = math.prod(row.get(name, 1) for name in ("tensor", "pipeline", "context"))
    results = {}
    for rank in range(processes):
        result = folder / f"{index}-{rank}"
        child = os.fork()
        if not child:
            result.write_text(attempt(models, row, rank, processes, PORT + index))
            os._exit(0)
        results[child] = result
    found = TRAINS
    while results:
        child, status = os.wait()
        result = results.pop(child)
        ended = result.read_text() if result.exists() else f"ended with status {status}"
        if found == TRAINS and ended != TRAINS:
            found = ended
            for other in results:
                os.kill(other, signal.SIGKILL)  # It waits for the one that failed.
    return found


def main(models: str, rows: str, results: str) -> None:
    """Run it."""
    import verl.workers.engine_workers  # noqa: F401 - before the forks

    folder = Path(results).parent
    found = []
    for index, row in enumerate(json.loads(Path(rows).read_text())):
        found.append(forked(models, row, index, folder))
        print(json.dumps(row), "->", found[-1], file=sys.stderr, flush=True)
        Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
