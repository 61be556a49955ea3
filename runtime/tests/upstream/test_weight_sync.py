"""Weights over TCP between a trainer and its replicas, and the copies of the policy that a step of several updates has.

The engines run in one process here; test_async_training.py has a run whose replicas get their weights by them.
"""

from __future__ import annotations

import asyncio
import socket
import types
from collections.abc import Iterator
from typing import Any

import pytest

WORKERS, LARGE = 2, 251
"""Bytes of the largest tensor, which no header has."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the engine's module, on the loopback."""
    from rljob_runtime.verl_plugin.weights import tcp_engine

    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(tcp_engine, "CONNECT_SECONDS", 10.0)
    return tcp_engine


def weights() -> list[tuple[str, Any]]:
    import torch

    numbers = torch.arange(12, dtype=torch.float32)
    return [
        ("whole", numbers.view(3, 4)),
        ("turned", numbers.view(3, 4).t()),
        ("half", numbers.to(torch.bfloat16)),
        ("one", torch.tensor(7.0)),
        ("none", torch.empty(0, 4)),
        ("large", torch.arange(LARGE, dtype=torch.uint8)),
    ]


class Sync:
    """One sync of a trainer of two ranks with two workers."""

    def __init__(self, module: Any) -> None:
        from verl.checkpoint_engine.base import CheckpointEngineRegistry

        def made(**options: bool) -> Any:
            return CheckpointEngineRegistry.new(module.NAME, bucket_size=1, **options)

        self.sender, self.second = made(is_master=True), made(is_master=False)
        self.workers = [made() for _ in range(WORKERS)]
        self.address = self.sender.prepare()

    async def connect(self, workers: int = WORKERS) -> None:
        kinds = type(self.sender).build_topology(2, workers, [self.address, *[None] * (workers + 1)])
        engines = ((self.sender, self.second), self.workers)
        calls = [
            asyncio.to_thread(one.init_process_group, **{name: values[number] for name, values in arguments.items()})
            for arguments, group in zip(kinds, engines, strict=True)
            for number, one in enumerate(group)
        ]
        await asyncio.gather(*calls)

    async def run(self) -> tuple[dict[str, float], list[Any]]:
        async def received(worker: Any) -> list[Any]:
            return [named async for named in worker.receive_weights()]

        sent, other, *got = await asyncio.gather(
            self.sender.send_weights(iter(weights())),
            self.second.send_weights(iter(weights())),
            *map(received, self.workers),
            return_exceptions=True,
        )
        assert other == {}
        return sent, got

    def close(self) -> None:
        for one in (self.sender, self.second, *self.workers):
            one.finalize()


@pytest.fixture
def sync(engine: Any) -> Iterator[Sync]:
    """Return one."""
    made = Sync(engine)
    yield made
    made.close()


def test_each_worker_gets_what_was_sent(engine: Any, sync: Sync) -> None:
    import torch

    async def both() -> tuple[Any, Any]:
        await sync.connect()
        return await sync.run()

    sent, got = asyncio.run(both())
    assert sent == {engine.BYTES: float(sum(tensor.nbytes for _, tensor in weights()))}
    for received in got:
        assert [name for name, _ in received] == [name for name, _ in weights()]
        for (_, tensor), (_, wanted) in zip(received, weights(), strict=True):
            assert (tensor.dtype, tensor.shape) == (wanted.dtype, wanted.shape)
            assert torch.equal(tensor, wanted)


def test_other_weights_end_the_sync_on_both_sides(engine: Any, sync: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    read = engine._read_into

    def changed(peer: socket.socket, data: memoryview) -> None:
        read(peer, data)
        if data.nbytes == LARGE:
            data[0] ^= 1

    monkeypatch.setattr(engine, "_read_into", changed)

    async def both() -> tuple[Any, Any]:
        await sync.connect()
        return await sync.run()

    sent, got = asyncio.run(both())
    assert isinstance(sent, engine.WeightSyncError)
    assert "were sent, and a worker has" in str(sent)
    assert all(isinstance(one, engine.WeightSyncError) and "has arrived" in str(one) for one in got)


def test_a_connection_without_the_token_is_closed(engine: Any, sync: Sync) -> None:
    stranger = socket.create_connection((sync.address.host, sync.address.port))
    stranger.sendall(bytes(engine.TOKEN_BYTES))

    async def both() -> tuple[Any, Any]:
        await sync.connect()
        return await sync.run()

    sent, _ = asyncio.run(both())
    assert sent[engine.BYTES] > 0
    with stranger:
        assert stranger.recv(1) == b""


def test_a_lost_worker_ends_the_wait_for_it(engine: Any, sync: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 0.2)
    with pytest.raises(engine.WeightSyncError, match=r"0 of 2 workers of the replicas connected in 0\.2 s"):
        sync.sender.init_process_group(0, WORKERS, sync.address)


@pytest.fixture
def module() -> Iterator[Any]:
    """Return a module of one weight, sharded by FSDP2 over this process alone."""
    import torch
    from torch.distributed.fsdp import fully_shard

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    made = torch.nn.Linear(1, 1, bias=False)
    fully_shard(made, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
    yield made
    torch.distributed.destroy_process_group()


def test_a_policy_that_is_kept_stays_as_it_was_while_the_weights_change(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from rljob_runtime.verl_plugin.trainer import kept_policy
    from rljob_runtime.verl_plugin.trainer.kept_policy import PolicyKeeper

    monkeypatch.setattr(kept_policy, "get_torch_device", lambda: torch.cpu)
    keeper = object.__new__(PolicyKeeper)
    keeper._strategy_handlers = None
    keeper.config = types.SimpleNamespace(actor=types.SimpleNamespace(strategy="fsdp2"))
    keeper.actor = types.SimpleNamespace(engine=types.SimpleNamespace(module=module))
    weight = module.weight._local_tensor
    with torch.no_grad():
        weight.fill_(0.0)
        seen = []
        # As verl's _compute_old_log_prob does it in a step of four updates.
        keeper.save_model_to_cpu(0)
        for update in range(4):
            if update:
                keeper.save_model_to_cpu(update)
                keeper.restore_model_from_cpu(0)
            seen.append(float(weight))
            if update:
                keeper.restore_model_from_cpu(update)
                keeper.clear_cpu_model(update)
            weight.add_(1.0)
    assert seen == [0.0] * 4, "old log-probabilities are those of the policy before the first update"
    assert float(weight) == 4.0, "no update is lost"
