"""What becomes of requests that are not answered, in the router that holds them back, as a line of JSON: `SIZE FOLDER`.

The replicas are small actors that answer on command. A process with a Ray of its own, as its tests' other processes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import patient_ray  # type: ignore[import-not-found] # beside this file
import ray
from verl.workers.rollout.replica import TokenOutput

from rljob_runtime.verl_plugin.router import late_router
from rljob_runtime.verl_plugin.router.late_binding import Limits
from rljob_runtime.verl_plugin.router.late_client import LengthClient

GROUP = 8
SEQUENCES = 8
SECONDS = 600.0
"""Most that a scenario takes."""
ROLLOUT = SimpleNamespace(name="vllm", full_determinism=False)
CONFIG = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=ROLLOUT))


@ray.remote(max_concurrency=100)
class Replica:
    """Answers all requests after `answer`, and later ones immediately."""

    def __init__(self) -> None:
        self._answers = asyncio.Event()
        self.asked = 0

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> TokenOutput:
        """Return as many tokens as the parameters say."""
        self.asked += 1
        await self._answers.wait()
        if sampling_params.get("fails"):
            raise ValueError("this request fails")
        return TokenOutput(token_ids=prompt_ids * sampling_params["max_tokens"], stop_reason="completed")

    async def answer(self) -> None:
        """Answer."""
        self._answers.set()

    async def hold(self) -> None:
        """Answer nothing until `answer`."""
        self._answers.clear()

    async def count(self) -> int:
        """Return the number of requests so far."""
        return self.asked


@cache
def replicas() -> dict[str, Any]:
    """Return the two replicas. All scenes have the same, because what costs time is that each imports verl."""
    actor: Any = Replica
    return {"a": actor.remote(), "b": actor.remote()}


class Scene:
    """Two replicas that run one request each, a router and its client."""

    def __init__(self) -> None:
        self.replicas = dict(replicas())
        ray.get([replica.hold.remote() for replica in self.replicas.values()])
        self.router = late_router.actor_class(Limits(1, 1, 100)).remote(self.replicas, {})
        self.client = LengthClient(config=CONFIG, load_balancer_handle=self.router)

    def send(self, name: str, prompt: int = 1, **parameters: Any) -> asyncio.Task[TokenOutput]:
        """Send a request."""
        sampling = {"max_tokens": 3, **parameters}
        return asyncio.create_task(self.client.generate(name, prompt_ids=[prompt], sampling_params=sampling))

    async def until(self, **wanted: int) -> None:
        """Wait until so many requests wait in the router, of so many that have arrived.

        Either number alone is passed while the requests of a step are still arriving.
        """
        while True:
            status = await self.router.get_status.remote()
            if all(status[name] == count for name, count in wanted.items()):
                return
            await asyncio.sleep(0.02)

    async def answer(self) -> None:
        """Let the replicas that live answer."""
        for replica in self.replicas.values():
            await replica.answer.remote()


async def many(requests: int, limit: int) -> dict[str, int]:
    """Return how many requests were answered, and the most that a replica had; so many of them may wait."""
    router = late_router.actor_class(Limits(SEQUENCES, 1, limit)).remote({"a": 1, "b": 2}, {})
    load, most = {"a": 0, "b": 0}, 0

    async def request(number: int) -> None:
        nonlocal most
        server, _ = await router.acquire_server.remote(str(number), str(number // GROUP))
        load[server] += 1
        most = max(most, load[server])
        await asyncio.sleep(0.001)
        load[server] -= 1
        router.release_server.remote(server, str(number), 1 + number % 97)

    answered = await asyncio.gather(*(request(number) for number in range(requests)))
    return {"answered": len(answered), "most": most}


async def abandoned() -> dict[str, Any]:
    """Return how requests end that wait when the rollout is abandoned, and one of the next rollout."""
    scene = Scene()
    sent = [scene.send(f"request-{number}") for number in range(9)]
    await scene.until(waiting=3, total_inflight=9)
    ended = await scene.router.end_waiting.remote()
    early = await asyncio.gather(*itertools.islice(asyncio.as_completed(sent), ended))
    late = await scene.send("late")
    await scene.answer()
    rest = await asyncio.gather(*sent)
    await scene.router.take_window.remote()
    after = await scene.send("next")
    await scene.until(total_inflight=0)
    return {
        "ended": ended,
        "early": [(output.stop_reason, len(output.token_ids)) for output in early],
        "late": late.stop_reason,
        "completed": [output.stop_reason for output in rest].count("completed"),
        "next": after.stop_reason,
    }


async def lost() -> dict[str, Any]:
    """Return how requests end when one of two replicas dies."""
    scene = Scene()
    sent = [scene.send(f"request-{number}") for number in range(20)]
    await scene.until(waiting=14, total_inflight=20)
    given = (await scene.router.get_status.remote())["servers"]["a"]
    ray.kill(scene.replicas.pop("a"))
    await scene.answer()
    ends = await asyncio.gather(*sent, return_exceptions=True)
    status = await scene.router.get_status.remote()
    return {
        "given": given,
        "failed": sum(isinstance(end, ray.exceptions.ActorDiedError) for end in ends),
        "completed": sum(isinstance(end, TokenOutput) for end in ends),
        "left": status["registered_handles"],
    }


async def failed_and_cancelled() -> dict[str, Any]:
    """Return how requests end of which some fail or are cancelled while they wait or run."""
    scene = Scene()
    sent = [scene.send(f"request-{number}", fails=number == 0) for number in range(12)]
    await scene.until(waiting=6, total_inflight=12)
    sent[1].cancel()  # runs
    sent[11].cancel()  # waits
    await scene.answer()
    ends = await asyncio.gather(*sent, return_exceptions=True)
    await scene.until(total_inflight=0)
    return {
        "cancelled": sum(isinstance(end, asyncio.CancelledError) for end in ends),
        "failed": sum(isinstance(end, ValueError) for end in ends),
        "completed": sum(isinstance(end, TokenOutput) for end in ends),
    }


SCENES: dict[str, dict[str, Callable[[], Coroutine[Any, Any, dict[str, Any]]]]] = {
    # The one that ends a replica is the last.
    "few": {"abandoned": abandoned, "failed and cancelled": failed_and_cancelled, "lost": lost},
    "many": {"many": lambda: many(10_000, 10_000), "too many": lambda: many(3_000, 300)},
}


async def scenes(size: str) -> dict[str, Any]:
    """Return what was seen in all scenes of a size."""
    return {name: await asyncio.wait_for(scene(), SECONDS) for name, scene in SCENES[size].items()}


def main() -> None:
    """Start a private Ray."""
    size, folder = sys.argv[1], Path(sys.argv[2])
    patient_ray.install()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder / "r"))
    try:
        print(json.dumps(asyncio.run(scenes(size))), flush=True)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
