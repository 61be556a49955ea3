"""A thousand Ray heads in one process: Ray's job API and our exporter's API, at the address of every head pod.

Pods have addresses of 127.64.0.0 and up (kubelets.py), which all belong to the loopback device. A watch of the head
pods opens the two ports of a head at its pod's address when the pod is ready and closes them when it is gone. The
operator therefore sends the same requests as in a real cluster: to the pod's IP and the real ports, with the cluster's
token. On the host network the address is the node's and the ports are those of the job's block. Responses equal those
of `rljob_runtime`: the contract's types, pod uid and submission id, and steps that advance with time (plays.py).
"""

from __future__ import annotations

import hmac
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from rljob.cluster.token import TokenKey
from rljob.core.manifest_facts import port_block
from rljob.render import labels
from rljob.render.ports import DASHBOARD_PORT
from rljob_runtime.contract import AttemptVariable, ContractError, Phase, Port, Progress, StopRequest
from tests.scale.client import Client, Manifest
from tests.scale.plays import ENDLESS, Book, Play, Run

HEADS = f"?labelSelector={labels.RAY_NODE_TYPE}=head,{labels.JOB_UID}"
BACKLOG = 8


@dataclass
class Head:
    """One head pod."""

    address: str
    pod_uid: str
    token: str
    ports: tuple[int, int] = (DASHBOARD_PORT, int(Port.API))
    """Ports of Ray's job API and of the exporter."""
    listeners: list[web.SockSite] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    """By submission id."""
    play: Play = field(default_factory=lambda: Play(ENDLESS, 1.0))
    book: Book = field(default_factory=Book)
    polls: int = 0

    def progress(self, now: float) -> Progress:
        """Return the progress that this pod's exporter reports at a time."""
        if not self.runs:
            return Progress(pod_uid=self.pod_uid, phase=Phase.IDLE)
        return self.run.progress(now)

    @property
    def run(self) -> Run:
        """The latest run."""
        return next(reversed(self.runs.values()))


class Heads:
    """All heads of one namespace, or of all namespaces."""

    def __init__(self, key: TokenKey, step_seconds: float, plays: Mapping[str, Play] | None = None) -> None:
        """Create the heads. `plays` contains the course of jobs by name; all other jobs train forever."""
        self._key = key
        self._endless = Play(ENDLESS, step_seconds)
        self._plays = plays or {}
        self._books: dict[str, Book] = {}
        """By the job's uid."""
        self._frozen: float | None = None
        self._by_pod: dict[str, Head] = {}
        self._by_place: dict[tuple[str, int], Head] = {}
        """By address and port, because pods on a node's network share its address."""
        self.refusals: list[str] = []
        """Requests with a wrong token, to a wrong path, or repeated submissions. The operator must not send any."""

    @property
    def refused(self) -> int:
        """Number of rejected requests."""
        return len(self.refusals)

    async def serve(self, client: Client, namespace: str = "") -> None:
        """Watch the head pods of one namespace, or of all, and serve their APIs until cancelled."""
        app = web.Application()
        app.router.add_get("/v1/progress", self._progress)
        app.router.add_post("/v1/stop", self._stop)
        app.router.add_get("/api/jobs/{id}", self._job)
        app.router.add_get("/api/jobs/{id}/logs", self._logs)
        app.router.add_post("/api/jobs/", self._submit)
        app.middlewares.append(self._guard)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            space = f"/namespaces/{namespace}" if namespace else ""
            async for event, pod in client.watch(f"/api/v1{space}/pods{HEADS}"):
                await self._follow(event, pod)
        finally:
            await self._runner.cleanup()

    def freeze(self) -> None:
        """Stop the progress of all runs, so that nothing new is written."""
        self._frozen = time.time()

    def thaw(self) -> None:
        """Continue all runs at the current time."""
        self._frozen = None

    def steps(self) -> dict[str, int]:
        """Return the last step of each run, by pod uid."""
        return {head.pod_uid: head.progress(self._now()).step for head in self._by_pod.values()}

    def polls(self) -> dict[str, int]:
        """Return how often each head was asked for its progress, by pod uid."""
        return {head.pod_uid: head.polls for head in self._by_pod.values()}

    def submissions(self) -> list[int]:
        """Return the number of submissions to each head."""
        return [len(head.runs) for head in self._by_pod.values()]

    def _now(self) -> float:
        return time.time() if self._frozen is None else self._frozen

    async def _follow(self, event: str, pod: Manifest) -> None:
        address = (pod.get("status") or {}).get("podIP")
        if not address:
            return
        uid = pod["metadata"]["uid"]
        if event == "DELETED":
            if (gone := self._by_pod.pop(uid, None)) is not None:
                # Saved steps are kept.
                gone.progress(self._now())
                await self._close(gone)
            return
        if uid in self._by_pod:
            return
        marks, block = pod["metadata"]["labels"], port_block(pod)
        head = Head(address, uid, self._key.token(marks[labels.JOB_UID], marks[labels.RAY_CLUSTER]))
        head.play = self._plays.get(marks[labels.JOB], self._endless)
        head.book = self._books.setdefault(marks[labels.JOB_UID], head.book)
        if block is not None:
            head.ports = (block.dashboard, block.api)
        self._by_pod[uid] = head
        for port in head.ports:
            # An address may be assigned to a new pod before the deletion of the old one is observed.
            if (old := self._by_place.get((address, port))) is not None:
                await self._close(old)
            site = web.SockSite(self._runner, _listener(address, port), backlog=BACKLOG)
            await site.start()
            head.listeners.append(site)
            self._by_place[address, port] = head

    async def _close(self, head: Head) -> None:
        for site in head.listeners:
            await site.stop()
        head.listeners.clear()
        for port in head.ports:
            if self._by_place.get((head.address, port)) is head:
                del self._by_place[head.address, port]

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:  # noqa: ANN401 - aiohttp's Handler
        head = self._head(request)
        given = request.headers.get("Authorization")
        if given is None and (request.method, request.path) == ("GET", "/api/jobs/"):
            # The operator asks whether anybody may submit.
            raise web.HTTPUnauthorized
        given = given or ""
        if not hmac.compare_digest(given, f"Bearer {head.token}"):
            self.refusals.append(f"wrong token: {request.method} {request.path}")
            raise web.HTTPUnauthorized
        try:
            found: web.StreamResponse = await handler(request)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
            self.refusals.append(f"no such path: {request.method} {request.path}")
            raise
        return found

    def _head(self, request: web.Request) -> Head:
        """Return the head for the called address and port."""
        if request.transport is None:
            raise web.HTTPServiceUnavailable
        found = self._by_place.get(request.transport.get_extra_info("sockname"))
        if found is None:
            # The request came while its pod was being deleted.
            raise web.HTTPServiceUnavailable
        return found

    async def _progress(self, request: web.Request) -> web.Response:
        head = self._head(request)
        head.polls += 1
        return web.Response(body=head.progress(self._now()).to_json(), content_type="application/json")

    async def _stop(self, request: web.Request) -> web.Response:
        head = self._head(request)
        try:
            asked = StopRequest.from_json(await request.read())
        except ContractError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        if not head.runs or head.run.attempt != asked.attempt:
            raise web.HTTPConflict(text=f"attempt {asked.attempt} does not run here")
        head.run.stop(self._now())
        return web.Response(status=202)

    async def _job(self, request: web.Request) -> web.Response:
        head, submission_id = self._head(request), request.match_info["id"]
        if submission_id not in head.runs:
            return web.Response(status=404, text=f"Job {submission_id} does not exist")
        run = head.runs[submission_id]
        outcome = run.progress(self._now()).outcome
        state = "RUNNING" if outcome is None else "FAILED" if outcome.exit_code else "SUCCEEDED"
        info = {"submission_id": submission_id, "status": state, "start_time": int(run.came * 1000), "message": state}
        return web.json_response(
            {**info, "type": "SUBMISSION", "driver_exit_code": None if outcome is None else outcome.exit_code}
        )

    async def _logs(self, request: web.Request) -> web.Response:
        head, submission_id = self._head(request), request.match_info["id"]
        if submission_id not in head.runs:
            return web.Response(status=404, text=f"Job {submission_id} does not exist")
        outcome = head.runs[submission_id].progress(self._now()).outcome
        return web.Response(
            text=json.dumps({"logs": outcome.to_json().decode() if outcome else ""}), content_type="application/json"
        )

    async def _submit(self, request: web.Request) -> web.Response:
        head, body = self._head(request), await request.json()
        submission_id = body["submission_id"]
        if submission_id in head.runs:
            self.refusals.append(f"sent twice: {submission_id}")
            # As Ray 2.60.0 answers (ray/dashboard/modules/job/job_manager.py:554).
            return web.Response(status=500, text=f"Job with submission_id {submission_id} already exists.")
        attempt = int(body["runtime_env"]["env_vars"][AttemptVariable.ATTEMPT])
        head.runs[submission_id] = Run(head.pod_uid, submission_id, attempt, time.time(), head.play, head.book)
        return web.json_response({"job_id": submission_id, "submission_id": submission_id})


def _listener(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    return listener
