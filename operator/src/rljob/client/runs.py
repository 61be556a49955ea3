"""Logs and step records of a job's attempts: in its pods while they run, afterwards on the volume of logPath.

What is in a head pod is read by running `tail` in it, as `rljob report` does, and what only a volume has by a pod that
is created for that and deleted again (`reading.kept_records`). Nothing is read from a pod that a RayCluster of the job
does not control, since anyone may give a pod the job's labels.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from rljob.api.printing import printable, without_colours
from rljob.api.status import Attempt
from rljob.api.v1alpha1 import RLJobSpec
from rljob.client import errors, objects
from rljob.client.connection import Connection
from rljob.client.job import Job, LogRole, Rows, read_job
from rljob.client.lines import lines, until_over
from rljob.client.objects import Scope
from rljob.client.refusals import ApiRequest
from rljob.client.watching import PATIENCE_SECONDS
from rljob.cluster.kinds import CONFIG_MAP, POD, RLJOB
from rljob.core.observed import Manifest
from rljob.reading import UnreadableError, kept_records, samples
from rljob.reading.frozen import snapshot_name, snapshot_of
from rljob.reading.job_pods import (
    CONTAINERS,
    DRIVER,
    HEAD,
    KEPT,
    RAY_LOGS,
    is_of_cluster,
    is_running,
    newest_first,
    selector,
)
from rljob.reading.records import Record, kept
from rljob.render import labels
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.names import JobIdentity

LINE_BYTES = 1 << 20
RECORDS_BYTES = 256 << 20
"""Most bytes of step records or samples: 100,000 steps with 60 metrics have half of that."""
AGAIN_SECONDS = 1.0
SILENT_SECONDS = 60.0
"""For a log that is not followed."""
DRIVER_LOG = f"{RAY_LOGS}/job-driver-{{}}.log"
"""ray 2.60.0, python/ray/dashboard/modules/job/job_log_storage_client.py: JOB_LOGS_PATH."""
KEPT_LOG = f"{{folder}}/{{cluster}}/attempt-{{number}}/{KEPT[DRIVER]}"
_TAIL = """
[ -r "$1" ] || { echo "$1: No such file" >&2; exit 1; }
if [ -n "$2" ]; then
  end=$(wc -c < "$1") && from=$((end - $(head -c "$end" "$1" | tail -n "$2" | wc -c))) || exit 1
else
  from=$3
fi
echo "$from" && exec tail -c +$((from + 1)) $4 "$1"
"""
"""Prints the byte at which the last $2 lines of the file $1 begin, or $3, then the file from there; $4 may be -f."""


@dataclass(frozen=True)
class LogQuery:
    """Which log to read, and which part of it."""

    role: LogRole = LogRole.DRIVER
    attempt: int | None = None
    worker: int = 0
    tail: int | None = None
    follow: bool = False
    raw: bool = False


@dataclass(frozen=True)
class Place:
    """A container."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        """Return how messages name it."""
        return f"container {self.container} of pod {self.namespace}/{self.pod}"


@dataclass
class Tail:
    """A file that is read in a container, and how far it has been read."""

    path: str
    lines: int | None
    """Lines from the end to begin with, until the first read has found their beginning."""
    follow: bool
    offset: int = 0
    begun: bool = False
    reached: float = field(default_factory=time.monotonic)

    def advance(self, size: int) -> None:
        """Record that this much was read."""
        self.offset, self.begun, self.reached = self.offset + size, True, time.monotonic()

    @property
    def silent_seconds(self) -> float:
        """Return the time since something was read."""
        return time.monotonic() - self.reached


class Runs:
    """Reads what the attempts of a job have left."""

    def __init__(self, connection: Connection, accelerators: AcceleratorTable) -> None:
        self._connection, self._accelerators = connection, accelerators

    async def metrics(self, job: Job, *, repeated: bool) -> Rows:
        """Return the metrics of every step, in order."""
        text = await self._read_records(job, kept_records.LIST_RECORDS, "{between}")
        records: Iterable[Record] = kept_records.parse_listing(text)
        return [
            {"attempt": record.attempt, "step": record.step, "time": record.time, **record.metrics}
            for record in (records if repeated else kept(records))
        ]

    async def samples(self, job: Job, step: int | None) -> Rows:
        """Return the recorded answers, by step."""
        text = await self._read_records(job, samples.READ_SAMPLES, f"{{between}}{samples.pattern(step)}")
        return [samples.row(each) for each in samples.newest_attempts(samples.parse_samples(text))]

    async def _read_records(self, job: Job, script: str, word: str) -> str:
        """Return what a script prints that reads the records of all attempts."""
        identity, spec = _identity(job), await self._frozen_spec(job)
        head = _newest(await self._pods(selector(identity, HEAD), job), identity)
        folder, between = kept_records.record_folders(identity, spec)
        command = (script, folder, word.format(between=between))
        if head is not None:
            return await self._collect(Place(job.namespace, head, CONTAINERS[HEAD]), command)
        if spec.observability.log_path is None:
            raise errors.NotAvailable(
                f"rljob {job.namespace}/{job.name} has no head pod, and kept no records: set observability.logPath for "
                "the next run, or cleanup.clusterAfterSeconds to keep its cluster for a while"
            )
        async with self._reader(job, spec) as name:
            return await self._collect(Place(job.namespace, name, kept_records.READER), command)

    async def logs(self, job: Job, query: LogQuery) -> AsyncGenerator[str]:
        """Yield the lines of a log."""
        attempt = _attempt(job, query.attempt)
        driver = query.role is LogRole.DRIVER
        chunks = self._driver(job, attempt, query) if driver else self._container(job, attempt, query)
        async with aclosing(chunks):
            async for line in lines(chunks, LINE_BYTES):
                text = line.decode(errors="replace")
                yield text if query.raw else printable(without_colours(text))

    async def _driver(self, job: Job, attempt: Attempt, query: LogQuery) -> AsyncGenerator[bytes]:
        """Yield the driver's log; if the connection is lost while it is followed, continue at the same byte."""
        head = await self._head_of(job, attempt.cluster_name)
        if head is None:
            async with aclosing(self._kept_log(job, attempt, query)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        tail = Tail(DRIVER_LOG.format(attempt.submission_id), query.tail, query.follow)
        place = Place(job.namespace, head, CONTAINERS[HEAD])

        async def is_over() -> bool:
            return await self._is_over(job, attempt, head)

        while True:
            try:
                async with aclosing(until_over(self._read(place, tail), is_over)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except (errors.Unreachable, errors.NotAvailable):
                gone = await self._is_gone(job.namespace, head)
                if gone and tail.begun and query.follow:
                    return  # With its cluster, at the end of the run.
                if gone or not query.follow or not tail.begun or tail.silent_seconds > PATIENCE_SECONDS:
                    raise
                # After the end of the attempt, the rest is read.
                tail.follow = not await is_over()
            else:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _kept_log(self, job: Job, attempt: Attempt, query: LogQuery) -> AsyncGenerator[bytes]:
        """Yield the copy of the driver's log on the volume of logPath."""
        spec = await self._frozen_spec(job)
        if spec.observability.log_path is None:
            raise errors.NotAvailable(
                f"rljob {job.namespace}/{job.name}: attempt {attempt.number} has no head pod any more, and its log was "
                "not kept: set observability.logPath for the next run, or cleanup.clusterAfterSeconds"
            )
        path = KEPT_LOG.format(folder=spec.observability.log_path, cluster=attempt.cluster_name, number=attempt.number)
        async with self._reader(job, spec) as name:
            place = Place(job.namespace, name, kept_records.READER)
            async with aclosing(self._read(place, Tail(path, query.tail, follow=False))) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _container(self, job: Job, attempt: Attempt, query: LogQuery) -> AsyncGenerator[bytes]:
        """Yield the log of a container of Ray, as the kubelet has it."""
        selector = f"{labels.RAY_CLUSTER}={attempt.cluster_name},{labels.RAY_NODE_TYPE}={query.role}"
        names = sorted(pod["metadata"]["name"] for pod in await self._pods(selector, job))
        index = query.worker if query.role is LogRole.WORKER else 0
        if index not in range(len(names)):
            raise errors.NotAvailable(
                f"rljob {job.namespace}/{job.name}: RayCluster {attempt.cluster_name} has {len(names)} {query.role} "
                f"pods, so there is no log of number {index}; those of pods that are gone are not kept"
            )
        name = names[index]
        options = {"container": CONTAINERS[query.role.value], "follow": str(query.follow).lower()}
        options |= {"tailLines": str(query.tail)} if query.tail is not None else {}
        path = POD.path(job.namespace, name, "log")
        request = ApiRequest("GET", path, f"log of pod {job.namespace}/{name}", tuple(options.items()))

        async def is_over() -> bool:
            return await self._is_over(job, attempt, name)

        async def chunks() -> AsyncGenerator[bytes]:
            async with self._connection.stream(request, None if query.follow else SILENT_SECONDS) as answer:
                async for chunk in answer.content.iter_any():
                    yield chunk

        async with aclosing(until_over(chunks(), is_over)) as found:
            async for chunk in found:
                yield chunk

    async def _read(self, place: Place, tail: Tail) -> AsyncGenerator[bytes]:
        """Yield a file of a container from where the last read ended."""
        words = (tail.path, "" if tail.lines is None else str(tail.lines), str(tail.offset), "-f" * tail.follow)
        first: bytes | None = b""
        """The beginning of the output, until its first line is complete."""
        async with aclosing(self._execute(place, "sh", "-c", _TAIL, "tail", *words)) as chunks:
            async for data in chunks:
                chunk = data
                if first is not None:
                    number, end, chunk = (first + data).partition(b"\n")
                    if not end:
                        first = number
                        continue
                    first, tail.offset, tail.lines = None, int(number), None
                tail.advance(len(chunk))
                if chunk:
                    yield chunk

    async def _collect(self, place: Place, command: tuple[str, str, str]) -> str:
        """Return what a script prints, with its two arguments."""
        parts: list[bytes] = []
        size = 0
        async with aclosing(self._execute(place, "sh", "-c", *command)) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > RECORDS_BYTES:
                    raise errors.NotAvailable(
                        f"{place}: the records have more than {RECORDS_BYTES >> 20} MiB; read them from the volume of "
                        "observability.logPath"
                    )
                parts.append(chunk)
        return b"".join(parts).decode(errors="replace")

    def _execute(self, place: Place, *command: str) -> AsyncGenerator[bytes]:
        path = POD.path(place.namespace, place.pod, "exec")
        return self._connection.execute(path, str(place), place.container, command)

    async def _is_over(self, job: Job, attempt: Attempt, pod: str) -> bool:
        """Return whether the attempt has ended or its pod is gone, so that its log does not grow any more."""
        try:
            now = read_job(await objects.get(self._connection, RLJOB, job.namespace, job.name))
            found = next((each for each in now.status.attempts if each.number == attempt.number), None)
            ended = now.uid != job.uid or found is None or found.end_time is not None
        except errors.NotFound:
            return True
        except errors.Unreachable:
            return False
        return ended or await self._is_gone(job.namespace, pod)

    async def _is_gone(self, namespace: str, pod: str) -> bool:
        """Return whether no command can run in the pod any more."""
        try:
            return not is_running(await objects.get(self._connection, POD, namespace, pod))
        except errors.NotFound:
            return True
        except errors.Unreachable:
            return False

    async def _head_of(self, job: Job, cluster: str) -> str | None:
        identity = _identity(job)
        pods = await self._pods(f"{selector(identity, HEAD)},{labels.RAY_CLUSTER}={cluster}", job)
        return _newest(pods, identity)

    async def _pods(self, selector: str, job: Job) -> list[Manifest]:
        """Return the pods with these labels that a RayCluster of the job controls."""
        items, _ = await objects.listed(self._connection, Scope(POD, job.namespace, selector))
        return [pod for pod in items if is_of_cluster(pod, _identity(job))]

    async def _frozen_spec(self, job: Job) -> RLJobSpec:
        """Return the spec that the job runs with."""
        name = snapshot_name(job.manifest)
        if name is None:
            raise errors.NotAvailable(f"rljob {job} has not started, so there are neither logs nor metrics yet")
        found = await objects.get(self._connection, CONFIG_MAP, job.namespace, name)
        with _as_not_available(job):
            return snapshot_of(job.manifest, found, self._accelerators).spec

    @asynccontextmanager
    async def _reader(self, job: Job, spec: RLJobSpec) -> AsyncIterator[str]:
        """Create a pod with the volume of logPath, and delete it afterwards."""
        identity = _identity(job)
        name = f"{identity.prefix}-report-{secrets.token_hex(3)}"
        with _as_not_available(job):
            manifest = kept_records.reader_pod(identity, spec, name)
        await objects.create(self._connection, POD, job.namespace, manifest)
        try:
            await self._await_ready(job.namespace, name)
            yield name
        finally:
            # Also if the task is cancelled meanwhile; otherwise the pod ends by its own deadline.
            await asyncio.shield(objects.delete(self._connection, POD, job.namespace, name))

    async def _await_ready(self, namespace: str, name: str) -> None:
        deadline = time.monotonic() + kept_records.READY_SECONDS
        while True:
            pod = await objects.get(self._connection, POD, namespace, name)
            conditions = (pod.get("status") or {}).get("conditions") or ()
            if any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions):
                return
            if time.monotonic() > deadline:
                messages = "; ".join(str(entry["message"]) for entry in conditions if entry.get("message"))
                waited = f"does not run after {kept_records.READY_SECONDS} s"
                raise errors.NotAvailable(
                    f"pod {namespace}/{name}, which reads the records, {waited}: "
                    f"{messages or 'it waits for its volume or its image'}; check the state of the volume"
                )
            await asyncio.sleep(AGAIN_SECONDS)


def _identity(job: Job) -> JobIdentity:
    return JobIdentity(job.namespace, job.name, job.uid)


def _newest(pods: Iterable[Manifest], job: JobIdentity) -> str | None:
    """Return the name of the newest pod that runs."""
    return next((str(pod["metadata"]["name"]) for pod in newest_first(pods, job)), None)


def _attempt(job: Job, number: int | None) -> Attempt:
    """Return the attempt of this number, or the newest one."""
    attempts = job.status.attempts
    found = [attempt for attempt in attempts if number in (None, attempt.number)]
    if not found:
        listed = ", ".join(str(attempt.number) for attempt in attempts) or "none yet"
        wanted = "an attempt" if number is None else f"attempt {number}"
        raise errors.NotAvailable(
            f"rljob {job} has no log of {wanted}; its attempts are {listed}; wait until it trains"
        )
    return found[-1]


@contextmanager
def _as_not_available(job: Job) -> Iterator[None]:
    """Raise NotAvailable where what was read cannot be used."""
    try:
        yield
    except UnreadableError as error:
        raise errors.NotAvailable(f"rljob {job.namespace}/{job.name}: {error}") from error
