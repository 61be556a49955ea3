"""How long each process of a run pauses for garbage, without `optimizations.gcFreeze` and with it.

`make garbage` runs it in the runtime image: twice six real steps of a tiny model (runtime/tests/upstream), the first of
which warms up and is left out. Every process starts by itself, as on NPUs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rljob_runtime.verl_plugin.platform import cpu_defaults

UPSTREAM = Path(os.environ.get("RLJOB_UPSTREAM", "runtime/tests/upstream"))
PROCESSES = ("RLJobTaskRunner", "WorkerDict", "VLLM::Worker", "VLLM::EngineCore")
LONG = {"data.max_response_length": 128, "actor_rollout_ref.rollout.max_model_len": 256}
STEPS, SECONDS = 6, 600.0


def run(folder: Path, *, freezes: bool) -> None:
    """Train, and print the pauses of each process."""
    log = folder / f"processes-{freezes}"
    log.mkdir()
    shutil.copy(UPSTREAM / "process_log.py", log / "sitecustomize.py")
    path = os.pathsep.join((str(log), os.environ.get("PYTHONPATH", "")))
    wish: dict[str, Any] = {"name": f"freeze-{freezes}", "steps": STEPS, "overrides": LONG, "forks": False}
    wish["optimizations"] = {"gc_freeze": freezes}
    words = [sys.executable, str(UPSTREAM / "real_training.py"), str(folder), json.dumps(wish)]
    variables = {**os.environ, **cpu_defaults.ENVIRONMENT, "PYTHONPATH": path, "PROCESS_LOG": str(log)}
    done = subprocess.run(words, env=variables, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True)
    steps = json.loads(done.stdout.splitlines()[-1])["steps"]
    since, until = steps[0]["time"], steps[-1]["time"]
    for process in (json.loads(file.read_text()) for file in sorted(log.glob("*.json"))):
        name = next((name for name in PROCESSES if name in process["name"]), None)
        if name is None:
            continue
        pauses = [seconds for at, _, seconds in process["pauses"] if since <= at <= until]
        print(
            f"gcFreeze {freezes}: {name}: {sum(pauses):.3f} s of {until - since:.1f} s in {len(pauses)} collections, "
            f"the longest {max(pauses, default=0.0):.3f} s; {process['frozen']} objects frozen"
        )


def main() -> None:
    """Run both arms."""
    with tempfile.TemporaryDirectory() as folder:
        for freezes in (False, True):
            run(Path(folder), freezes=freezes)


if __name__ == "__main__":
    main()
