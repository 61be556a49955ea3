"""Ask about requests of one Ray and two replicas of vLLM; print the answers as JSON: `REQUESTS FOLDER`.

First a rollout of given lengths by late binding, then one replica that holds many requests until they are aborted. A
process of its own, because verl chooses its platform when it is imported.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path
from typing import Any

import late_binding_process as rollouts  # type: ignore[import-not-found] # beside this file
import patient_ray  # type: ignore[import-not-found] # beside this file
import ray
import replica_process  # type: ignore[import-not-found] # beside this file
from verl.workers.rollout.llm_server import LLMServerManager

from rljob_runtime.verl_plugin.platform import cpu_defaults
from rljob_runtime.verl_plugin.router import replica


async def ask(config: Any, requests: int) -> None:
    """Print one line for each part."""
    manager = await LLMServerManager.create(config=config)
    await rollouts.measure(manager, config, ["late"], ["skewed"], range(1), math.inf)
    print(json.dumps({"replica": await replica_process.measure(manager.rollout_replicas[0], requests)}), flush=True)


def main() -> None:
    """Start a private Ray."""
    requests, folder = int(sys.argv[1]), Path(sys.argv[2])
    replica_process.write_model(folder / "model")
    config = rollouts.of_two(replica_process.configuration(folder / "model"))
    replica.register(lambda: requests)
    patient_ray.install()
    ray.init(
        num_cpus=4,
        resources={"NPU": rollouts.REPLICAS},
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(folder / "r"),
        runtime_env={"env_vars": cpu_defaults.ENVIRONMENT},
    )
    try:
        asyncio.run(ask(config, requests))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
