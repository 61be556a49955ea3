"""Reads and writes of single objects and lists, as the client needs them: paths, pages and names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from rljob.client import errors
from rljob.client.connection import MERGE, Connection
from rljob.client.job import Job
from rljob.client.refusals import ApiRequest, Expired
from rljob.cluster.kinds import RLJOB, Kind
from rljob.core.observed import Manifest

PAGE = 50
"""Objects of a page. An RLJob has at most 1.5 MiB (etcd's --max-request-bytes), and usually 20 kB."""
WRITE = (("fieldManager", "rljob-client"), ("fieldValidation", "Strict"))
"""An unknown field is refused, as by kubectl, and not dropped."""


@dataclass(frozen=True)
class Target:
    """One job: by its name, and by its UID where a job of the same name would be another one."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        """Return how messages name it."""
        return f"rljob {self.namespace}/{self.name}"

    def check(self, job: Job) -> Job:
        """Return the job if it has the UID of the target, or the target has none."""
        if self.uid and job.uid != self.uid:
            raise self.replaced()
        return job

    def replaced(self) -> errors.Deleted:
        """Return the exception where another job has the name."""
        return errors.Deleted(f"{self} was deleted, and another job of this name was created; get() returns it")


@dataclass(frozen=True)
class Scope:
    """Which objects to list or watch."""

    kind: Kind
    namespace: str | None
    """None: all namespaces."""
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """Return the selectors."""
        return tuple((n, v) for n, v in (("labelSelector", self.labels), ("fieldSelector", self.fields)) if v)

    def __str__(self) -> str:
        """Return how messages name it."""
        return f"{self.kind.plural} of {self.namespace or 'all namespaces'}"


async def get(connection: Connection, kind: Kind, namespace: str, name: str) -> Manifest:
    """Read an object."""
    subject = f"{kind.kind.lower()} {namespace}/{name}" if kind.namespaced else f"{kind.kind.lower()} {name}"
    return await connection.send(ApiRequest("GET", kind.path(namespace, name), subject))


async def create(
    connection: Connection, kind: Kind, namespace: str, manifest: Manifest, *, dry_run: bool = False
) -> Manifest:
    """Create an object."""
    metadata = manifest["metadata"]
    subject = f"{kind.kind.lower()} {namespace}/{metadata.get('name') or metadata.get('generateName')}"
    query = (*WRITE, *((("dryRun", "All"),) if dry_run else ()))
    return await connection.send(ApiRequest("POST", kind.path(namespace), subject, query, manifest))


async def patch(connection: Connection, target: Target, change: Manifest) -> Manifest:
    """Merge a change into a job, of the same UID if that is known."""
    if target.uid:
        change = {**change, "metadata": {**change.get("metadata", {}), "uid": target.uid}}
    path = RLJOB.path(target.namespace, target.name)
    try:
        return await connection.send(ApiRequest("PATCH", path, str(target), WRITE, change, MERGE))
    except errors.Invalid as error:
        if target.uid and any(violation.field == "metadata.uid" for violation in error.violations):
            raise target.replaced() from error
        raise


async def delete(connection: Connection, kind: Kind, namespace: str, name: str, uid: str = "") -> None:
    """Delete an object, of this UID if that is known."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    options = {**body, "preconditions": {"uid": uid}} if uid else body
    subject = f"{kind.kind.lower()} {namespace}/{name}"
    await connection.send(ApiRequest("DELETE", kind.path(namespace, name), subject, body=options))


async def pages(connection: Connection, scope: Scope) -> AsyncIterator[Manifest]:
    """Yield the pages of a list."""
    token = ""
    while True:
        query = (("limit", str(PAGE)), *scope.query, *((("continue", token),) if token else ()))
        page = await connection.send(ApiRequest("GET", scope.kind.path(scope.namespace), str(scope), query))
        yield page
        token = str(page["metadata"].get("continue") or "")
        if not token:
            return


async def listed(connection: Connection, scope: Scope) -> tuple[list[Manifest], str]:
    """Return the objects of a list, and the version at which a watch continues."""
    try:
        return await _listed(connection, scope)
    except Expired:
        # The rest of the list is older than what etcd keeps; only a list from the start is consistent.
        return await _listed(connection, scope)


async def _listed(connection: Connection, scope: Scope) -> tuple[list[Manifest], str]:
    items: list[Manifest] = []
    version = ""
    async for page in pages(connection, scope):
        items += page["items"]
        version = page["metadata"]["resourceVersion"]
    return items, version
