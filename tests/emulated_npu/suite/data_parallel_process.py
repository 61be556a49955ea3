"""One replica of two data-parallel ranks on emulated NPUs, and on which rank its requests run: `MODEL`.

Each rank runs two requests. The first four fill both; those of rank 1 are short, and each that ends is replaced at
once, as the router does it. Prints a line of JSON: the ranks in the order of the requests, and how many short
responses ended before a long one did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from unittest import mock

LONG, SHORT = 100, 4
"""Tokens."""
REPLACED = 4
"""How often each short request is."""


async def measure(model: str) -> dict[str, object]:
    """Run the requests."""
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    from rljob_runtime.verl_plugin.router.vllm_replica import PromptServer

    arguments = AsyncEngineArgs(
        model,
        data_parallel_size=2,
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=2,
        max_num_batched_tokens=128,
        gpu_memory_utilization=0.3,
        dtype="bfloat16",
        additional_config={"weight_nz_mode": 0, "enable_cpu_binding": False},
    )
    engine = AsyncLLM.from_engine_args(arguments)
    server = object.__new__(PromptServer)
    server.engine = engine  # what verl's server starts
    with mock.patch.object(vLLMHttpServer, "run_server"):
        await server.run_server(argparse.Namespace())
    client = engine.engine_core
    ranks: list[int] = []
    ended: list[str] = []
    sent_by_vllm = client.get_core_engine_for_request

    def noted(request: object) -> bytes:
        chosen: bytes = sent_by_vllm(request)
        ranks.append(client.core_engines.index(chosen))
        return chosen

    client.get_core_engine_for_request = noted

    async def ask(name: str, tokens: int) -> None:
        chosen = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0)
        async for _ in engine.generate({"prompt_token_ids": [2, 20, 21, 3]}, chosen, name):
            pass
        ended.append(name)

    async def replace(name: str) -> None:
        for turn in range(1 + REPLACED):
            await ask(f"short {name} {turn}", SHORT)

    try:
        await ask("first", SHORT)  # both ranks have computed once
        ranks.clear()
        await asyncio.sleep(1)
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(ask(f"long {number}", LONG))
                await asyncio.sleep(0)
                group.create_task(replace(str(number)))
                await asyncio.sleep(0)
    finally:
        engine.shutdown()
    before = next(number for number, name in enumerate(ended[1:]) if name.startswith("long"))
    return {"ranks": ranks, "before": before}


if __name__ == "__main__":  # vLLM spawns the engines.
    print(json.dumps(asyncio.run(measure(sys.argv[1]))), flush=True)
