"""`AsyncClient`: everything that the client can do, as coroutines. `blocking.Client` is the same without `await`."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from rljob.api import patches
from rljob.api.v1alpha1 import RLJobSpec
from rljob.client import checks, errors, objects, watching
from rljob.client.checks import Validated
from rljob.client.connection import Connection
from rljob.client.job import Job, JobEvent, LogRole, Rows, read_job
from rljob.client.objects import Scope, Target
from rljob.client.runs import LogQuery, Runs
from rljob.client.watching import Until, Watch
from rljob.cluster.kinds import RLJOB
from rljob.core.observed import Manifest


class RLJobWarning(UserWarning):
    """A field of a job that has no effect in this release, or a setting that is doubtful."""


class AsyncClient:
    """A client for the RLJobs of one cluster, for one event loop.

    Without arguments it uses what kubectl uses: `KUBECONFIG`, `~/.kube/config` with its current context, or in a pod
    the service account. Credential plug-ins of clouds are run as kubectl runs them, again when their token expires.

    A job is named by `NAME`, by `NAMESPACE/NAME`, or by a `Job`, which also means that no other job of that name
    is touched. Close the client with `async with` or `aclose`.

    Args:
        namespace: Namespace of names that state none. Defaults to that of the context or of the pod.
        kubeconfig: File to use instead.
        context: Context of the file. Defaults to the current one.
        accelerators: Files with accelerator classes of your site, which `validate` then knows.
    """

    def __init__(
        self,
        namespace: str | None = None,
        *,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        accelerators: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self._connection = Connection(kubeconfig, context)
        self._given_namespace = namespace
        self._accelerators = checks.read_accelerators(accelerators)
        self._runs = Runs(self._connection, self._accelerators)

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def create(
        self,
        job: Mapping[str, Any] | RLJobSpec,
        *,
        name: str | None = None,
        validate: bool = True,
        dry_run: bool = False,
    ) -> Job:
        """Create a job from a manifest or a spec, and return it.

        Args:
            job: A manifest as `yaml.safe_load` returns it, or an `RLJobSpec`.
            name: Name of the job; a manifest may state it instead.
            validate: Check the job first, as `rljob validate` does. Warnings become Python warnings.
            dry_run: Let the API server check it as well, and create nothing.

        Raises:
            Invalid: The job is refused; `violations` lists every field with its fix.
            AlreadyExists: The name is in use.
        """
        document = checks.document_of(job, name, await self._namespace())
        if validate:
            for warning in (await checks.validate(self._connection, document, self._accelerators)).warnings:
                warnings.warn(str(warning), RLJobWarning, stacklevel=2)
        namespace = document["metadata"]["namespace"]
        return read_job(await objects.create(self._connection, RLJOB, namespace, document, dry_run=dry_run))

    async def validate(self, job: Mapping[str, Any] | RLJobSpec, *, name: str | None = None) -> Validated:
        """Check a job without creating it, and return the spec with recipes and defaults applied.

        Recipes are read from the cluster.

        Raises:
            Invalid: `violations` lists every field with its fix.
        """
        document = checks.document_of(job, name, await self._namespace())
        return await checks.validate(self._connection, document, self._accelerators)

    async def get(self, job: str | Job) -> Job:
        """Return a job as it is now.

        Raises:
            NotFound: There is no such job.
            Deleted: It was a `Job`, and another one has its name now.
        """
        target = await self._target(job)
        return target.check(read_job(await objects.get(self._connection, RLJOB, target.namespace, target.name)))

    async def list(self, *, all_namespaces: bool = False, label_selector: str = "") -> list[Job]:
        """Return the jobs of the namespace, or of all namespaces.

        Args:
            all_namespaces: List every namespace that the account may list.
            label_selector: Labels that the jobs have, such as `team=vision`.
        """
        scope = Scope(RLJOB, None if all_namespaces else await self._namespace(), label_selector)
        items, _ = await objects.listed(self._connection, scope)
        return [read_job(item) for item in items]

    async def watch(
        self, job: str | Job | None = None, *, all_namespaces: bool = False, label_selector: str = ""
    ) -> AsyncGenerator[JobEvent]:
        """Yield the jobs that exist, and then every change, until the caller stops.

        Lost connections and expired versions are handled: what changed in the meantime is reported afterwards.

        Args:
            job: A single job. Defaults to all jobs of the namespace.
            all_namespaces: Watch every namespace.
            label_selector: Labels that the jobs have.

        Raises:
            Unreachable: The API server was unreachable for five minutes.
        """
        if job is None:
            scope = Scope(RLJOB, None if all_namespaces else await self._namespace(), label_selector)
        else:
            scope = watching.scope_of(await self._target(job))
        async with aclosing(Watch(self._connection, scope).events()) as events:
            async for event in events:
                yield event

    async def wait(
        self,
        job: str | Job,
        *,
        timeout: float,  # noqa: ASYNC109 - its exception has the job
        until: Until | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        """Wait for the end of a job, or for a state, and return the job.

        Args:
            job: The job.
            timeout: Seconds to wait at most.
            until: A state, several states, or a function of the job. Defaults to the end in Succeeded or Stopped.
            on_change: Called with the job at first and after every change, for example `print`.

        Raises:
            JobFailed: The job ended in Failed or Invalid.
            JobEnded: It ended before `until` was reached.
            Timeout: The time has passed.
            Deleted: The job was deleted.
        """
        last = None
        async with aclosing(self._wait(job, until, timeout)) as changes:
            async for last in changes:
                if on_change is not None:
                    on_change(last)
        if last is None:
            raise AssertionError("a wait without a job")
        return last

    async def logs(
        self,
        job: str | Job,
        *,
        role: LogRole | str = LogRole.DRIVER,
        attempt: int | None = None,
        worker: int = 0,
        tail: int | None = None,
        follow: bool = False,
        raw: bool = False,
    ) -> AsyncGenerator[str]:
        """Yield the lines of a log.

        The driver's log of an attempt whose pods are gone is read from the volume of `observability.logPath`, by a pod
        that exists only for that. What controls a terminal is left out (colours) or written as escapes.

        Args:
            job: The job.
            role: `driver` (the trainer, with the lines of its workers), `head` or `worker` (the containers of Ray).
            attempt: Number of the attempt. Defaults to the newest one.
            worker: Which worker pod, counted from 0 in the order of their names.
            tail: Lines from the end to begin with. Defaults to the whole log.
            follow: Continue until the attempt has ended.
            raw: Yield lines as they were written, with all control characters.

        Raises:
            NotAvailable: There is no log yet, or it was not kept.
        """
        found = await self.get(job)
        query = LogQuery(LogRole(role), attempt, worker, tail, follow, raw)
        async with aclosing(self._runs.logs(found, query)) as lines:
            async for line in lines:
                yield line

    async def metrics(self, job: str | Job, *, repeated: bool = False) -> Rows:
        """Return the metrics of every step as rows: `pandas.DataFrame(client.metrics("sums"))`.

        Each row has attempt, step, time and the metrics that the trainer recorded. They are read from the head pod, or
        from the volume of `observability.logPath` when that is gone.

        Args:
            job: The job.
            repeated: Include steps that a later attempt repeated from a checkpoint.

        Raises:
            NotAvailable: There are no records yet, or they were not kept.
        """
        return await self._runs.metrics(await self.get(job), repeated=repeated)

    async def samples(self, job: str | Job, *, step: int | None = None) -> Rows:
        """Return recorded answers of the model as rows: `pandas.DataFrame(client.samples("sums"))`.

        Each row has attempt, step, source (`rollout` or `validation`), prompt, answer, score and what else was
        recorded; `observability.samples` says how many. They are read from the volume of `observability.logPath`;
        without one, the head pod has the newest ones.

        Args:
            job: The job.
            step: Only those of this step. Defaults to all.

        Raises:
            NotAvailable: There are no records yet, or they were not kept.
        """
        return await self._runs.samples(await self.get(job), step)

    async def suspend(self, job: str | Job) -> Job:
        """Save a checkpoint, stop the run and release its NPUs, until `resume`."""
        return await self._patch(job, patches.suspend())

    async def resume(self, job: str | Job) -> Job:
        """Continue a suspended job from its last checkpoint."""
        return await self._patch(job, patches.resume())

    async def stop(self, job: str | Job, *, now: bool = False) -> Job:
        """End a job for good, in the state Stopped, after a checkpoint.

        Args:
            job: The job.
            now: Do not save a checkpoint.
        """
        return await self._patch(job, patches.stop(now=now))

    async def restart(self, job: str | Job) -> Job:
        """Save a checkpoint and start again with a new cluster, for example to adopt an edited spec."""
        return await self._patch(job, patches.restart(datetime.now(UTC).isoformat()))

    async def delete(self, job: str | Job, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as `wait`
        """Delete a job and all that belongs to it, except for checkpoints and logs on its volumes.

        Args:
            job: The job.
            timeout: Wait at most these seconds until it is gone. Defaults to returning at once.

        Raises:
            NotFound: There is no such job.
            Timeout: It still exists, for example because it saves a checkpoint.
        """
        found = await self.get(job)
        await objects.delete(self._connection, RLJOB, found.namespace, found.name, found.uid)
        if timeout is not None:
            await watching.wait_deleted(self._connection, Target(found.namespace, found.name, found.uid), timeout)

    async def _wait(self, job: str | Job, until: Until | None, seconds: float) -> AsyncGenerator[Job]:
        """Yield what a wait sees; for the blocking client, which calls `on_change` in the thread of its caller."""
        async with aclosing(watching.wait(self._connection, await self._target(job), until, seconds)) as changes:
            async for change in changes:
                yield change

    async def _namespace(self) -> str:
        return self._given_namespace or (await self._connection.login()).namespace

    async def _target(self, job: str | Job) -> Target:
        if isinstance(job, Job):
            return Target(job.namespace, job.name, job.uid)
        place, _, name = job.rpartition("/")
        if not name:
            raise errors.NotFound(f"{job!r} names no job; pass its name, or namespace/name")
        return Target(place or await self._namespace(), name)

    async def _patch(self, job: str | Job, change: Manifest) -> Job:
        return read_job(await objects.patch(self._connection, await self._target(job), change))
