"""Send responses of given lengths to two replicas of verl by several routers; print each step's figures as JSON.

`ARMS SHAPES FIRST STEPS SECONDS FOLDER`: arms and shapes with commas between, number of the first step, most steps, and
the time after which no step begins. The arms share the replicas and take turns, each with the same lengths. A process
of its own, because verl chooses its platform when it is imported.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import patient_ray  # type: ignore[import-not-found] # beside this file
import ray
from omegaconf import open_dict
from replica_process import configuration, write_model  # type: ignore[import-not-found] # beside this file
from verl.workers.rollout.llm_server import LLMServerClient, LLMServerManager

from rljob_runtime.verl_plugin.platform import cpu_defaults
from rljob_runtime.verl_plugin.router import late_router, replica
from rljob_runtime.verl_plugin.router.late_client import LengthClient
from rljob_runtime.verl_plugin.router.late_router import LateBindingRouter
from rljob_runtime.verl_plugin.router.replica_times import from_plain
from rljob_runtime.verl_plugin.router.router import TimedRouter

REPLICAS, SEQUENCES = 2, 8
PROMPTS, SAMPLES = 16, 8
SIGMA, RHO = 0.95, 0.8
"""Of the published lengths: a log-normal distribution, and the correlation within a group."""
MEDIAN, LONGEST, EVEN = 12, 95, 95
"""Tokens."""
STEPS = re.compile(r"^vllm:iteration_tokens_total_count\{.*\} (\S+)$", re.MULTILINE)


def lengths(shape: str, groups: random.Random, step: random.Random) -> list[list[int]]:
    """Return the length of each response, by prompt. The groups' draws may be those of an earlier step."""
    if shape == "uniform":
        return [[EVEN] * SAMPLES] * PROMPTS
    found = []
    for _ in range(PROMPTS):
        of_group = groups.gauss(0, 1)
        draws = [math.sqrt(RHO) * of_group + math.sqrt(1 - RHO) * step.gauss(0, 1) for _ in range(SAMPLES)]
        found.append([int(min(LONGEST, max(3, MEDIAN * math.exp(SIGMA * draw)))) for draw in draws])
    return found


def engine_steps(addresses: list[str]) -> list[int]:
    """Return the forward passes of each replica so far, by its own metrics."""
    pages = [urllib.request.urlopen(f"http://{address}/metrics", timeout=30).read().decode() for address in addresses]
    return [sum(int(float(value)) for value in STEPS.findall(page)) for page in pages]


class Oracle(LateBindingRouter):
    """Knows each length before it is generated: the bound of what an order can gain."""

    async def acquire_server(self, request_id: str, group: str | None = None) -> tuple[str, Any]:  # noqa: ARG002
        """Take the length for what an earlier step had."""
        length = request_id.partition("-")[0]
        self._requests._history[request_id] = float(length)
        return await super().acquire_server(request_id, request_id)


class InOrder(LateBindingRouter):
    """Holds requests back, and sends them on in the order of arrival."""

    async def acquire_server(self, request_id: str, group: str | None = None) -> tuple[str, Any]:  # noqa: ARG002
        """Take no group."""
        return await super().acquire_server(request_id, None)


class Arm:
    """A router, and a client that asks it."""

    def __init__(self, name: str, servers: dict[str, Any], config: Any, requests: int) -> None:
        limits = late_router.limits_of(config.actor_rollout_ref.rollout, requests)
        late = {"late": LateBindingRouter, "oracle": Oracle, "in-order": InOrder, "second-epoch": LateBindingRouter}
        made = late_router.actor_class(limits, late[name]) if name in late else ray.remote(TimedRouter)
        self.router = made.remote(servers, {})
        client = LengthClient if name in late else LLMServerClient
        self.client = client(config=config, load_balancer_handle=self.router)

    async def run(self, wanted: list[list[int]]) -> tuple[float, float]:
        """Return the seconds of a rollout, and the share of the time that the first replica was idle."""
        before = time.monotonic()
        outputs = await asyncio.gather(
            *(
                self.client.generate(
                    f"{tokens}-{uuid.uuid4().hex}",
                    prompt_ids=[2 + prompt % 26, 2 + prompt // 26, 3],
                    sampling_params={"temperature": 1.0, "ignore_eos": True, "max_tokens": tokens},
                )
                for prompt, samples in enumerate(wanted)
                for tokens in samples
            )
        )
        seconds = time.monotonic() - before
        assert [len(output.token_ids) for output in outputs] == [tokens for samples in wanted for tokens in samples]
        window = from_plain(await self.router.take_window.remote())
        assert sum(times.requests for times in window.replicas.values()) == len(outputs)
        return seconds, window.first_dp_idle_ratio or 0.0


async def measure(
    manager: LLMServerManager, config: Any, arms: list[str], shapes: list[str], steps: range, deadline: float
) -> None:
    """Print of each step and arm the passes of the replica that made the most, the seconds, and the idle share."""
    servers = dict(zip(manager.server_addresses, manager.server_handles, strict=True))
    count = PROMPTS * SAMPLES
    await Arm("least", servers, config, count).run([[8] * SAMPLES] * PROMPTS)  # warm
    for step, shape in ((step, shape) for step in steps for shape in shapes):
        if time.monotonic() > deadline:
            break
        found: dict[str, Any] = {}
        for name in arms if step % 2 else reversed(arms):
            arm = Arm(name, servers, config, count)
            if name == "second-epoch":  # its router has seen these prompts, and the same groups with other draws
                await arm.run(lengths(shape, random.Random(step), random.Random(f"before {step}")))  # noqa: S311
            before = await asyncio.to_thread(engine_steps, manager.server_addresses)
            seconds, idle = await arm.run(lengths(shape, random.Random(step), random.Random(f"in {step}")))  # noqa: S311
            after = await asyncio.to_thread(engine_steps, manager.server_addresses)
            passes = max(done - begun for begun, done in zip(before, after, strict=True))
            found[name] = {"passes": passes, "seconds": round(seconds, 3), "idle": round(idle, 4)}
            ray.kill(arm.router)
        print(json.dumps({"shape": shape, "step": step, **found}), flush=True)


def of_two(config: Any) -> Any:
    """Return the configuration for two replicas that run few requests each."""
    with open_dict(config):
        config.actor_rollout_ref.rollout.update({"nnodes": 1, "n_gpus_per_node": REPLICAS, "max_num_seqs": SEQUENCES})
    return config


async def compare(config: Any, *wish: Any) -> None:
    """Start the replicas and measure."""
    await measure(await LLMServerManager.create(config=config), config, *wish)


def main() -> None:
    """Start a private Ray."""
    arms, shapes = (text.split(",") for text in sys.argv[1:3])
    first, count, seconds = map(int, sys.argv[3:6])
    folder, deadline = Path(sys.argv[6]), time.monotonic() + seconds
    write_model(folder / "model")
    config = of_two(configuration(folder / "model"))
    replica.register(lambda: PROMPTS * SAMPLES)
    patient_ray.install()
    ray.init(
        num_cpus=4,
        resources={"NPU": REPLICAS},
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(folder / "r"),
        runtime_env={"env_vars": cpu_defaults.ENVIRONMENT},
    )
    try:
        asyncio.run(compare(config, arms, shapes, range(first, first + count), deadline))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
