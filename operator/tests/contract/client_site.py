"""What the tests of the Python client share: jobs that no operator runs, other credentials, and a proxy that is cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from builders import small_spec
from contract.conftest import KUBECONFIG

from rljob.client import (
    AsyncClient,
    EventType,
    Job,
    JobEvent,
    State,
)
from rljob.client.connection import MERGE
from rljob.client.refusals import ApiRequest
from rljob.cluster.kinds import RLJOB

NOBODY = "tests.rljob.dev/nobody"
"""Controller of the jobs, so that an operator that may run on this cluster ignores them."""


def manifest(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"name": name}, "spec": {**small_spec(), "managedBy": NOBODY, **more}}


async def set_state(client: AsyncClient, job: Job, state: State, **status: Any) -> None:  # noqa: ANN401 - JSON
    path = RLJOB.path(job.namespace, job.name, "status")
    body = {"status": {"state": state.value, **status}}
    await client._connection.send(ApiRequest("PATCH", path, job.name, (), body, MERGE))


class Gate:
    """A TCP proxy before the API server, whose connections the test cuts."""

    def __init__(self) -> None:
        address = urlsplit(server())
        self._host, self._port = str(address.hostname), int(address.port or 443)
        self._writers: set[asyncio.StreamWriter] = set()
        self.accepted = 0

    async def start(self, folder: Path) -> Path:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return kubeconfig(folder / "gate", server=f"https://127.0.0.1:{port}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        there_reader, there = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, there}

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, there), copy(there_reader, writer))

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.sleep(0)


def server() -> str:
    return str(cluster()["server"])


def kubeconfig(path: Path, *, server: str = "", user: dict[str, Any] | None = None) -> Path:
    """Write the test's kubeconfig with another server or user."""
    found = yaml.safe_load(Path(KUBECONFIG).read_text())
    if server:
        found["clusters"][0]["cluster"]["server"] = server
    if user is not None:
        found["users"][0]["user"] = user
    path.write_text(json.dumps(found))
    return path


def cluster() -> dict[str, Any]:
    """Return the entry of the cluster in the test's kubeconfig."""
    found: dict[str, Any] = yaml.safe_load(Path(KUBECONFIG).read_text())["clusters"][0]["cluster"]
    return found


async def token_of(client: AsyncClient, namespace: str, account: str) -> str:
    """Create a service account and return a token of it."""
    send, path = client._connection.send, f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await send(ApiRequest("POST", path, account, (), {"metadata": {"name": account}}))
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await send(ApiRequest("POST", f"{path}/{account}/token", account, (), asked))
    return str(answer["status"]["token"])


async def collect(events: AsyncGenerator[JobEvent], count: int) -> list[tuple[EventType, str]]:
    async with asyncio.timeout(30):
        return [((event := await anext(events)).type, event.job.name) for _ in range(count)]
