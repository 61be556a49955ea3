"""A checkpoint engine of verl's that sends weights over TCP, for trainers and replicas on CPUs.

verl 0.9.1 has engines for devices only (checkpoint_engine/), so that trainer and rollout could not stand apart on CPUs.
verl imports this module by `rollout.checkpoint_engine.custom_backend_module`. In each sync, rank 0 of the trainer
listens, every worker of every replica connects, and each tensor is sent to all of them in turn; the hash of all that
was sent ends the stream. A worker compares it with the hash of what it has received and sends back its own, so that no
replica generates with other weights than those that were trained.

The port is open to the pods' network only during a sync. Ray carries its address and a token, without which a
connection is closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from rljob_runtime.contract import parse_foreign_json

NAME = "rljob_tcp"
CONNECT_SECONDS = 120.0
"""For all workers together. They have the address by then, so that only a lost node takes so long."""
IO_SECONDS = 600.0
"""Without a byte in this time, the other side has stopped."""
TOKEN_SECONDS = 5.0
"""A worker sends its token with the connection."""
TOKEN_BYTES = 32
HEADER = struct.Struct("!I")
HEADER_BYTES_MAX = 1 << 16
BYTES = f"{NAME}/sync_bytes"
"""Metric of a sync: bytes of the weights, which each worker gets."""


class WeightSyncError(RuntimeError):
    """A sync has failed; the replicas have weights of no version."""


@dataclass(frozen=True)
class Address:
    """Where rank 0 listens in one sync."""

    host: str
    port: int
    token: bytes


class Digest:
    """The hash of a sequence of named tensors."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.bytes = 0

    def add(self, header: bytes, data: memoryview) -> None:
        """Add a tensor; its header has name, shape and type."""
        self._hash.update(header)
        self._hash.update(data)
        self.bytes += data.nbytes

    def hex(self) -> str:
        """Return the hash of what was added."""
        return self._hash.hexdigest()


@CheckpointEngineRegistry.register(NAME)
class TCPEngine(CheckpointEngine):  # type: ignore[misc] # verl ships no types
    """One side: rank 0 of the trainer sends, its other ranks take part in gathering, and ranks above 0 receive."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - verl's signature
        """Create one. Tensors are sent whole: on CPUs, models are small."""
        self._is_master = is_master
        self._rank = -1
        self._listener: socket.socket | None = None
        self._token = b""
        self._peers: list[socket.socket] = []

    def prepare(self) -> Address | None:
        """Listen, on rank 0 of the trainer, and return the address."""
        if not self._is_master:
            return None
        host = ray.util.get_node_ip_address().strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        return Address(host, self._listener.getsockname()[1], self._token)

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return the arguments of `init_process_group` for the trainer's ranks and for the replicas' workers."""
        sender = metadata[0]
        return (
            {
                "rank": [0] + [-1] * (actor_wg_world_size - 1),
                "workers": [rollout_world_size] * actor_wg_world_size,
                "address": [sender] * actor_wg_world_size,
            },
            {
                "rank": list(range(1, rollout_world_size + 1)),
                "workers": [rollout_world_size] * rollout_world_size,
                "address": [sender] * rollout_world_size,
            },
        )

    def init_process_group(self, rank: int, workers: int, address: Address) -> None:
        """Connect every worker with rank 0. Raises WeightSyncError if one does not connect in time."""
        self._rank = rank
        if rank == 0:
            self._accept(workers)
        elif rank > 0:
            peer = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
            peer.settimeout(IO_SECONDS)
            peer.sendall(address.token)
            self._peers = [peer]

    def _accept(self, workers: int) -> None:
        if self._listener is None:
            raise AssertionError("init_process_group before prepare")
        deadline = time.monotonic() + CONNECT_SECONDS
        while len(self._peers) < workers:
            self._listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                peer, _ = self._listener.accept()
            except TimeoutError as error:
                raise WeightSyncError(
                    f"{len(self._peers)} of {workers} workers of the replicas connected in {CONNECT_SECONDS:g} s"
                ) from error
            # Anybody may connect and send nothing, and the workers wait behind it.
            peer.settimeout(TOKEN_SECONDS)
            if _has_token(peer, self._token):
                peer.settimeout(IO_SECONDS)
                self._peers.append(peer)
            else:
                peer.close()

    def finalize(self) -> None:
        """Close the connections and the port."""
        for one in (*self._peers, self._listener):
            if one is not None:
                one.close()
        self._peers, self._listener = [], None

    async def send_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,  # noqa: ARG002 - verl's signature
    ) -> dict[str, float]:
        """Send all weights. Raises WeightSyncError if a worker has received others; returns the metrics of the sync."""
        if self._rank != 0:
            # Each tensor is gathered from all ranks.
            for _ in weights:
                pass
            return {}
        digest = Digest()
        with self._closed_by_errors():
            for name, tensor in weights:
                flat = tensor.detach().cpu().contiguous().view(-1)
                header = _header(name=name, shape=list(tensor.shape), dtype=str(flat.dtype).removeprefix("torch."))
                data = memoryview(flat.view(torch.uint8).numpy())
                digest.add(header, data)
                await asyncio.to_thread(self._send, header, data)
            await asyncio.to_thread(self._finish, digest.hex())
        return {BYTES: float(digest.bytes)}

    @contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        """Close the connections when this side fails, so that the other does not wait for it."""
        try:
            yield
        except BaseException:
            self.finalize()
            raise

    def _send(self, header: bytes, data: memoryview) -> None:
        for peer in self._peers:
            peer.sendall(HEADER.pack(len(header)) + header)
            peer.sendall(data)

    def _finish(self, digest: str) -> None:
        end = _header(end=digest)
        for peer in self._peers:
            peer.sendall(HEADER.pack(len(end)) + end)
        for peer in self._peers:
            seen = bytes(_read(peer, len(digest))).decode(errors="replace")
            if seen != digest:
                raise WeightSyncError(f"weights with sha256 {digest} were sent, and a worker has {seen}")

    async def receive_weights(
        self,
        global_steps: int | None = None,  # noqa: ARG002 - verl's signature
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield the weights. Raises WeightSyncError at the end if they are not those that were sent."""
        (peer,), digest = self._peers, Digest()
        with self._closed_by_errors():
            while True:
                header, fields = await asyncio.to_thread(_read_header, peer)
                if "end" in fields:
                    break
                tensor = torch.empty(fields["shape"], dtype=getattr(torch, fields["dtype"]))
                data = memoryview(tensor.view(-1).view(torch.uint8).numpy())
                await asyncio.to_thread(_read_into, peer, data)
                digest.add(header, data)
                yield str(fields["name"]), tensor
            await asyncio.to_thread(peer.sendall, digest.hex().encode())
        if digest.hex() != fields["end"]:
            raise WeightSyncError(f"weights with sha256 {fields['end']} were sent, and {digest.hex()} has arrived")


def _header(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _has_token(peer: socket.socket, token: bytes) -> bool:
    try:
        return hmac.compare_digest(bytes(_read(peer, len(token))), token)
    except (OSError, WeightSyncError):
        return False


def _read_header(peer: socket.socket) -> tuple[bytes, dict[str, Any]]:
    (length,) = HEADER.unpack(_read(peer, HEADER.size))
    if length > HEADER_BYTES_MAX:
        raise WeightSyncError(f"a header of {length} bytes; at most {HEADER_BYTES_MAX} are sent")
    header = bytes(_read(peer, length))
    return header, parse_foreign_json(header)


def _read(peer: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    _read_into(peer, memoryview(data))
    return data


def _read_into(peer: socket.socket, data: memoryview) -> None:
    while data.nbytes:
        count = peer.recv_into(data)
        if count == 0:
            raise WeightSyncError("the other side has closed the connection in the middle of a sync")
        data = data[count:]
