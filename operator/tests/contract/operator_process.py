"""One real operator process on the API server of a contract test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from contract.place import Place

PATIENCE_SECONDS = 600.0 * int(os.environ.get("RLJOB_HOSTILE", "1"))
"""`make hostile` sends ten times as much."""


class Process:
    """One operator process, limited to the test's namespace."""

    def __init__(self, place: Place, folder: Path, port: int, lease: str) -> None:
        self.place, self.folder, self.port, self.lease = place, folder, port, lease

    async def start(self, **more: str) -> None:
        key = self.folder / "key"
        key.write_bytes(b"k" * 32)
        arguments = {
            "--kubeconfig": os.environ["RLJOB_TEST_KUBECONFIG"],
            "--token-key-file": str(key),
            "--http-port": str(self.port),
            "--lease-namespace": self.place.namespace,
            "--lease-name": self.lease,
            "--namespace": self.place.namespace,
            "--resync-seconds": "5",
        } | {f"--{name.replace('_', '-')}": value for name, value in more.items()}
        flat = [word for pair in arguments.items() for word in pair]
        self.log = (self.folder / f"{self.port}.log").open("wb")
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-m", "rljob", *flat, stderr=self.log)

    async def stop(self) -> int:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
        self.log.close()
        return code

    async def probe(self, path: str) -> int:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def ready(self) -> bool:
        return await self.probe("/readyz") == 200

    async def samples(self) -> dict[str, float]:
        """Return the process's own metrics, by name and labels as they are exposed."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            pairs = (line.rpartition(" ") for line in (await answer.text()).splitlines() if not line.startswith("#"))
            return {name: float(value) for name, _, value in pairs}

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.log.name).read_text().splitlines()]

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - another process has no event for us
            await asyncio.sleep(0.1)
