"""Watch and wait: every change of jobs, through lost connections and expired versions, until a goal or a deadline.

A watch begins with a list and continues at its version. If the connection ends, it continues where it was; if the
version has expired (410), the list is read again, and what is different is reported as changes. Events of the same
object are in order; changes that follow each other fast may be seen as one, as in every watch of Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any

from rljob.api.status import State
from rljob.client import errors, objects
from rljob.client.connection import Connection
from rljob.client.job import EventType, Job, JobEvent, read_job
from rljob.client.lines import lines
from rljob.client.objects import Scope, Target
from rljob.client.refusals import ApiRequest, Expired, refusal
from rljob.cluster.kinds import RLJOB

Until = State | Collection[State] | Callable[[Job], bool]
"""When a wait is over: a state, one of several, or a function of the job."""
SERVER_SECONDS = 300
"""After this time the server ends a watch, and it begins again: a connection that was lost unseen is found then."""
SILENT_SECONDS = SERVER_SECONDS + 30.0
PATIENCE_SECONDS = 300.0
"""Seconds that the API server may be unreachable before a watch gives up."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0
DELETED_SECONDS = 1.0
"""Between two looks at a job that is being deleted."""
EVENT_BYTES = 16 << 20
"""A job has at most 1.5 MiB (etcd's --max-request-bytes)."""


def scope_of(target: Target) -> Scope:
    """Return the scope with a single job."""
    return Scope(RLJOB, target.namespace, fields=f"metadata.name={target.name}")


class Watch:
    """What a watch knows: the objects, and the version that it has reached."""

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self._connection, self._scope = connection, scope
        self._known: dict[str, Job] = {}
        self._version = ""

    async def events(self) -> AsyncGenerator[JobEvent]:
        """Yield what exists as Added, and then every change. Raise Unreachable after minutes without the server."""
        reached, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            try:
                async for event in self._session():
                    reached, pause = time.monotonic(), FIRST_PAUSE_SECONDS
                    yield event
                reached = time.monotonic()
            except Expired:
                self._version = ""
            except errors.Unreachable:
                if time.monotonic() - reached > PATIENCE_SECONDS:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _session(self) -> AsyncIterator[JobEvent]:
        """Yield events until the connection ends."""
        if not self._version:
            items, version = await objects.listed(self._connection, self._scope)
            for event in self._differences([read_job(item) for item in items]):
                yield event
            self._version = version
        query = {"watch": "1", "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        options = (*query.items(), ("timeoutSeconds", str(SERVER_SECONDS)), *self._scope.query)
        path = self._scope.kind.path(self._scope.namespace)
        request = ApiRequest("GET", path, str(self._scope), options)
        async with self._connection.stream(request, SILENT_SECONDS) as answer:
            async for line in lines(answer.content.iter_any(), EVENT_BYTES):
                for event in await self._read(request, line):
                    yield event

    async def _read(self, request: ApiRequest, line: bytes) -> list[JobEvent]:
        try:
            event = json.loads(line)
            kind, found = event["type"], event["object"]
        except (ValueError, TypeError, KeyError) as error:
            raise errors.Unreachable(f"{self._scope}: the watch sent a line that is no event") from error
        if kind == "ERROR":
            raise refusal(
                request, await self._connection.login(), int(found.get("code", 500)), json.dumps(found).encode()
            )
        self._version = found["metadata"]["resourceVersion"]
        return [] if kind == "BOOKMARK" else self._changes(kind, found)

    def _changes(self, kind: str, found: dict[str, Any]) -> list[JobEvent]:
        job = read_job(found)
        if kind == "DELETED":
            self._known.pop(job.uid, None)
            return [JobEvent(EventType.DELETED, job)]
        change = EventType.MODIFIED if job.uid in self._known else EventType.ADDED
        self._known[job.uid] = job
        return [JobEvent(change, job)]

    def _differences(self, jobs: list[Job]) -> list[JobEvent]:
        """Return what has changed since the last event."""
        before, self._known = self._known, {job.uid: job for job in jobs}
        gone = [JobEvent(EventType.DELETED, job) for uid, job in before.items() if uid not in self._known]
        changed = [
            JobEvent(EventType.MODIFIED if job.uid in before else EventType.ADDED, job)
            for job in jobs
            if job.uid not in before or _version(before[job.uid]) != _version(job)
        ]
        return gone + changed


def _version(job: Job) -> str:
    return str(job.manifest["metadata"]["resourceVersion"])


async def wait(connection: Connection, target: Target, until: Until | None, seconds: float) -> AsyncGenerator[Job]:
    """Yield the job and its changes, last the one that is waited for.

    Raise Timeout, JobEnded, JobFailed or Deleted.
    """
    # The watch would wait for a job that does not exist.
    first = target.check(read_job(await objects.get(connection, RLJOB, target.namespace, target.name)))
    deadline = time.monotonic() + seconds
    meant = Target(first.namespace, first.name, first.uid)
    events = Watch(connection, scope_of(meant)).events()
    last = first
    try:
        while True:
            try:
                event = await asyncio.wait_for(anext(events), max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                raise errors.Timeout(
                    f"{meant} was not {_words(until)} within {seconds:g} s; last seen: {last}", last
                ) from error
            if event.type is EventType.DELETED and event.job.uid == meant.uid:
                raise errors.Deleted(f"{meant} was deleted while it was waited for; its last state: {event.job}")
            last = meant.check(event.job)
            yield last
            if is_reached(last, until):
                return
    finally:
        await events.aclose()


async def wait_deleted(connection: Connection, target: Target, seconds: float) -> None:
    """Wait until a job is gone. Raise Timeout if it still exists after these seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            last = target.check(read_job(await objects.get(connection, RLJOB, target.namespace, target.name)))
        except errors.NotFound:
            return
        if time.monotonic() > deadline:
            raise errors.Timeout(f"{target} was not deleted within {seconds:g} s; last seen: {last}", last)
        await asyncio.sleep(DELETED_SECONDS)


def is_reached(job: Job, until: Until | None) -> bool:
    """Return whether the wait is over. Raise JobFailed or JobEnded if it cannot be reached any more."""
    if callable(until):
        reached = until(job)
    elif until is None:
        reached = job.ended and not job.failed
    else:
        reached = job.state in ({until} if isinstance(until, State) else until)
    if reached:
        return True
    if job.failed:
        raise errors.JobFailed(f"rljob {job}", job)
    if job.ended:
        raise errors.JobEnded(f"rljob {job}; it ended before it was {_words(until)}", job)
    return False


def _words(until: Until | None) -> str:
    if until is None:
        return "at its end"
    if isinstance(until, State):
        return until.value
    return "as wanted" if callable(until) else " or ".join(sorted(state.value for state in until))
