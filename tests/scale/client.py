"""The test's own API client: a few verbs and a watch, many requests at a time.

It is separate from the operator's client, whose requests are counted, and from kubectl, because a thousand processes
would be a load of their own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp

Manifest = dict[str, Any]
PAGE = 500
AT_A_TIME = 8
REQUEST_SECONDS = 60.0
WATCH_SECONDS = 3600
AGAIN_SECONDS = 0.5
# One line of a watch with a RayCluster of many groups and its managed fields.
LINE_BYTES = 4 * 1024 * 1024


JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What is accepted: whole objects, or their metadata alone."""


class ApiError(AssertionError):
    """The API server rejected a request of the test."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status

    @property
    def is_of_a_busy_server(self) -> bool:
        """Whether the same request may succeed later; a list may also have taken too long to continue (410)."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in (
            HTTPStatus.TOO_MANY_REQUESTS,
            HTTPStatus.GONE,
        )


class Client:
    """Client for one API server, with admin rights."""

    def __init__(self, url: str, pki: Path) -> None:
        self._url, self._pki = url, pki

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cafile=str(self._pki / "ca.crt"))
        tls.load_cert_chain(self._pki / "admin.crt", self._pki / "admin.key")
        self._session = aiohttp.ClientSession(
            self._url,
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
            read_bufsize=LINE_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self, method: str, path: str, body: Manifest | str | None = None, kind: str = "json", accept: str = JSON
    ) -> Manifest:
        """Send one request. Raises ApiError for an unsuccessful response."""
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        headers = {"Content-Type": f"application/{kind}", "Accept": accept}
        async with self._session.request(method, path, data=data, headers=headers) as answer:
            text = await answer.text()
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise ApiError(answer.status, f"{method} {path}: {answer.status} {text[:500]}")
        found: Manifest = json.loads(text)
        return found

    async def apply(self, path: str, text: str) -> None:
        """Apply YAML or JSON server-side."""
        await self.ask("PATCH", f"{path}?fieldManager=scale&force=true", text, "apply-patch+yaml")

    async def create_all(self, path: str, manifests: Iterable[Manifest]) -> None:
        """Create many objects, several at a time."""
        waiting = iter(manifests)

        async def some() -> None:
            for manifest in waiting:
                await self.ask("POST", path, manifest)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(some())

    async def list(self, path: str, accept: str = JSON) -> tuple[list[Manifest], str]:
        """Return all objects, and the version at which a watch continues."""
        items: list[Manifest] = []
        token = ""
        accept = accept.replace("PartialObjectMetadata", "PartialObjectMetadataList")
        while True:
            answer = await self.ask("GET", f"{path}{_and(path)}limit={PAGE}&continue={token}", accept=accept)
            items += answer["items"] or ()
            token = answer["metadata"].get("continue", "")
            if not token:
                return items, answer["metadata"]["resourceVersion"]

    async def watch(
        self, path: str, accept: str = JSON, *, patient: bool = False
    ) -> AsyncIterator[tuple[str, Manifest]]:
        """Yield every object as ADDED and then every change, forever. A watch that the server ends starts again.

        A patient one starts again after errors of the connection and of a busy server too, and then also yields as
        DELETED what is gone.
        """
        known: dict[str, Manifest] = {}
        while True:
            try:
                async for event, item in self._watch_once(path, accept, known):
                    if patient and event == "DELETED":
                        known.pop(item["metadata"]["uid"], None)
                    elif patient:
                        known[item["metadata"]["uid"]] = {"metadata": item["metadata"]}
                    yield event, item
            except (aiohttp.ClientError, TimeoutError):
                if not patient:
                    raise
            except ApiError as error:
                if not patient or not error.is_of_a_busy_server:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    async def _watch_once(
        self, path: str, accept: str, known: dict[str, Manifest]
    ) -> AsyncIterator[tuple[str, Manifest]]:
        items, version = await self.list(path, accept)
        listed = {item["metadata"]["uid"] for item in items}
        for gone in [item for uid, item in known.items() if uid not in listed]:
            yield "DELETED", gone
        for item in items:
            yield "ADDED", item
        query = f"watch=1&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
        headers, timeout = {"Accept": accept}, aiohttp.ClientTimeout(total=None)
        async with self._session.get(f"{path}{_and(path)}{query}", headers=headers, timeout=timeout) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event.get("type", "ERROR") == "ERROR":
                    # A server that is busy or only starting to serve a kind sends a Status instead of an event.
                    return
                yield event["type"], event["object"]


def _and(path: str) -> str:
    return "&" if "?" in path else "?"
