"""Carries out a Plan, one write at a time; the process may end after any of them.

Every write is safe to repeat: names are deterministic, creation adopts what an earlier process created, deletion names
a uid, a submission has an id, and a status names the version that it was decided on. Answers of the server go into the
store, so that the next round sees our own writes before any watch delivers them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rljob.cluster import errors
from rljob.cluster.kinds import CONFIG_MAP, POD, RAY_CLUSTER, RLJOB, SECRET, WATCHED, kind_named, kind_of
from rljob.cluster.manifests import annotation, controller_uid, same_json, without_nulls
from rljob.cluster.port import Cluster, RayApi
from rljob.cluster.token import TokenKey
from rljob.control.generations import delete_generations
from rljob.control.head_writes import HeadWrites
from rljob.control.job_memory import JobMemories
from rljob.control.store import Store
from rljob.control.try_request import labelled
from rljob.core.observed import Manifest, Observed, Refusal, RefusalCause
from rljob.core.plan import (
    CreateObject,
    CreateToken,
    DeleteGenerations,
    DeleteObject,
    Effect,
    KeepEvidence,
    Plan,
    SetFinalizers,
    ShortenGracePeriod,
    StopRun,
    SubmitJob,
    WriteAllocations,
)
from rljob.core.status import MESSAGE_LIMIT
from rljob.core.transitions.children import REFUSED
from rljob.render.labels import CLUSTER_GENERATION, INTENT, JOB_UID
from rljob.render.raycluster import TOKEN_KEY
from rljob.telemetry.events import EventRecorder
from rljob.telemetry.log import Log, redact
from rljob.telemetry.metrics import Metrics

_ADMISSION = re.compile(r': 400 admission webhook "[^"]*" denied the request|failed calling webhook')
"""A webhook that denies without a code of its own, or that does not answer: k8s.io/apiserver,
pkg/admission/plugin/webhook/errors/statuserror.go and pkg/admission/plugin/webhook/mutating/dispatcher.go."""
_WATCHED_KINDS = frozenset(watch.kind for watch in WATCHED)

log = Log(__name__)

AfterWrite = Callable[[str], None]
"""Called with a description of each committed write; an exception that it raises stops the executor there."""
Doubt = Callable[[], None]
"""Called when a job has a status that this process did not write: another process may be the leader."""


@dataclass(frozen=True)
class Hooks:
    """Callbacks of the executor."""

    after_write: AfterWrite = lambda _: None
    doubt: Doubt = lambda: None


class StaleError(Exception):
    """The world has changed since it was observed; this is normal, and the round runs again."""


class DeniedError(errors.ClusterError):
    """A quota, a permission or an admission policy refuses a child: tried again with backoff, reported by the core."""

    transient = True

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def reason(self) -> str:
        """The reason in the job's status."""
        return REFUSED[self.kind].value


@dataclass(frozen=True)
class Executor:
    """Writes to the cluster and to heads."""

    cluster: Cluster
    ray: RayApi
    store: Store
    memories: JobMemories
    recorder: EventRecorder
    key: TokenKey
    metrics: Metrics
    hooks: Hooks = Hooks()
    head_writes: HeadWrites = field(default_factory=lambda: HeadWrites.of_workers(1))

    async def execute(self, observed: Observed, plan: Plan) -> bool:
        """Carry out a plan; report whether the world may have changed. Raise StaleError and errors of requests."""
        if plan.status is not None:
            return await self._write_status(observed.job, plan)
        for effect in plan.effects:
            await self._carry_out(observed.job, effect)
        # A request to stop shows later in the head's answers, so there is nothing to look at now.
        return any(not isinstance(effect, StopRun) for effect in plan.effects)

    async def _write_status(self, job: Manifest, plan: Plan) -> bool:
        desired = without_nulls(dict(plan.status or {}))
        if same_json(desired, job.get("status", {})):
            return False
        written = await self._written(job, self.cluster.apply_status({**_same(job), "status": desired}))
        if desired != written.get("status", {}):
            # The CRD's schema lacks a field, or another writer owns one: a round would never settle.
            self.metrics.status_differs.inc()
            log.warning("The API server stored another status than was sent", **_name(job))
        self.hooks.after_write("status")
        for note in plan.events:
            await self.recorder.record(written, note)
        changed: bool = written["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"]
        return changed

    async def _set_finalizers(self, job: Manifest, effect: SetFinalizers) -> None:
        wanted = _same(job)
        wanted["metadata"]["finalizers"] = list(effect.finalizers)
        written = await self._written(job, self.cluster.set_finalizers(wanted))
        if "deletionTimestamp" in written["metadata"] and not effect.finalizers:
            # The object is deleted with its last finalizer.
            self.store.vanished(RLJOB, job["metadata"]["uid"])
        self.hooks.after_write("finalizers")

    async def _written(self, job: Manifest, write: Awaitable[Manifest]) -> Manifest:
        """Await a write of the job itself; raise StaleError if the job changed or disappeared meanwhile."""
        with self.store.answer_first(job["metadata"]["uid"]):
            try:
                written = await write
            except errors.Conflict as error:
                await self._refresh_job(job)
                raise StaleError(str(error)) from error
            except errors.NotFound as error:
                self.store.vanished(RLJOB, job["metadata"]["uid"])
                raise StaleError(str(error)) from error
            self.store.learn(RLJOB, written)
        return written

    async def _carry_out(self, job: Manifest, effect: Effect) -> None:
        match effect:
            case CreateObject() | CreateToken():
                await self._make(job, effect)
            case DeleteObject():
                await self._delete(job, effect)
            case ShortenGracePeriod():
                await self._shorten(job, effect)
            case SubmitJob():
                await self._submit(job, effect)
            case StopRun():
                await self._stop(job, effect)
            case KeepEvidence(manifest):
                await self._keep_evidence(manifest)
            case WriteAllocations(manifest):
                await self._write_allocations(manifest)
            case SetFinalizers():
                await self._set_finalizers(job, effect)
            case DeleteGenerations():
                await delete_generations(self.cluster, job, effect, self.hooks.after_write)

    async def _make(self, job: Manifest, effect: CreateObject | CreateToken) -> None:
        if isinstance(effect, CreateToken):
            await self._create_token(job, effect)
        else:
            await self._create(job, effect.manifest)

    async def _write_allocations(self, manifest: Manifest) -> None:
        """Write if nobody else did meanwhile."""
        try:
            if "resourceVersion" in manifest["metadata"]:
                await self.cluster.replace(manifest)
            else:
                await self.cluster.create(manifest)
        except (errors.AlreadyExists, errors.Conflict, errors.NotFound) as error:
            raise StaleError("another process changed the port blocks") from error
        self.hooks.after_write("ports")

    async def _submit(self, job: Manifest, effect: SubmitJob) -> None:
        try:
            with self.head_writes.under_way(job["metadata"]["namespace"]):
                await self.ray.submit(effect)
        except errors.HeadOpen as error:
            self._refuse(job, Refusal(RAY_CLUSTER.kind, effect.cluster_name, str(error), RefusalCause.OPEN))
        self.hooks.after_write("submit")

    async def _stop(self, job: Manifest, run: StopRun) -> None:
        """Request the stop; if the head does not answer, the deadline applies and the next round is not delayed."""
        try:
            with self.head_writes.under_way(job["metadata"]["namespace"]):
                await self.ray.stop(run)
        except errors.RayError as error:
            log.info("The request to stop did not reach the head", reason=error.reason, error=str(error))
        else:
            self.hooks.after_write("stop")

    async def _keep_evidence(self, manifest: Manifest) -> None:
        """Write the evidence if it is still as it was read."""
        found = "resourceVersion" in manifest["metadata"]
        # Readers of ConfigMaps may not be trusted with everything that a container printed.
        shown = {**manifest, "data": {key: _without_secrets(text) for key, text in manifest["data"].items()}}
        try:
            await (self.cluster.replace(shown) if found else self.cluster.create(shown))
        except (errors.AlreadyExists, errors.Conflict, errors.NotFound) as error:
            raise StaleError(str(error)) from error
        self.hooks.after_write("evidence")

    async def _create(self, job: Manifest, manifest: Manifest) -> None:
        kind, metadata = kind_of(manifest), manifest["metadata"]
        if kind is RAY_CLUSTER:
            await self._expect_alone(job, manifest)
        try:
            made = await self._post(job, manifest)
        except errors.AlreadyExists:
            made = await self._adopt(job, manifest)
        except errors.Invalid as error:
            self._refuse(job, Refusal(kind.kind, metadata["name"], str(error), RefusalCause.INVALID))
        # What is learned of an object wakes no job: the watch delivers the evaluation that is to begin.
        if kind in _WATCHED_KINDS and kind is not RLJOB:
            self.store.learn(kind, made)
        if kind is CONFIG_MAP:
            self.memories.of(job).add_config_map(made)
        self.hooks.after_write(f"create {kind.kind}")

    async def _post(self, job: Manifest, manifest: Manifest) -> Manifest:
        """Create a child. A refusal that may be temporary is remembered until the child has been created."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        try:
            made = await self.cluster.create(manifest)
        except errors.ClusterError as error:
            if not is_denied(error):
                raise
            if await self._is_there(manifest):
                # A used-up quota is checked before the name.
                raise errors.AlreadyExists(str(error)) from error
            self.memories.of(job).refuse(job, Refusal(kind, name, str(error), RefusalCause.DENIED))
            raise DeniedError(kind, str(error)) from error
        self.memories.of(job).permit(kind, name)
        return made

    async def _is_there(self, manifest: Manifest) -> bool:
        """Report whether the name is taken; False for a Secret, which this operator may not read."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        if kind is SECRET:
            return False
        try:
            await self.cluster.get(kind, metadata["namespace"], metadata["name"])
        except errors.NotFound:
            return False
        return True

    async def _expect_alone(self, job: Manifest, cluster: Manifest) -> None:
        """Raise StaleError if an earlier generation still has a cluster that no watch delivered.

        A leader that was paused in the middle of a create sends it when it resumes; a watch may have ended unnoticed.
        """
        metadata, uid = cluster["metadata"], job["metadata"]["uid"]
        if metadata.get("labels", {}).get(CLUSTER_GENERATION) == "1":
            # There is no earlier one, and a thousand new jobs would each make this request.
            return
        found = await labelled(self.cluster, RAY_CLUSTER, metadata["namespace"], f"{JOB_UID}={uid}")
        others = [o for o in found if controller_uid(o) == uid and o["metadata"]["name"] != metadata["name"]]
        for other in others:
            self.store.learn(RAY_CLUSTER, other)
        if others:
            raise StaleError("a cluster of an earlier generation exists")

    async def _adopt(self, job: Manifest, manifest: Manifest) -> Manifest:
        """Return the object with the name, if an earlier process created it for the same intent."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        try:
            found = await self.cluster.get(kind, metadata["namespace"], metadata["name"])
        except errors.NotFound as error:
            raise StaleError(f"{kind.kind} {metadata['name']} existed and is gone") from error
        if controller_uid(found) != controller_uid(manifest):
            self._refuse(job, Refusal(kind.kind, metadata["name"], "the name belongs to an object of another owner"))
        if annotation(found, INTENT) != annotation(manifest, INTENT):
            self._refuse(job, Refusal(kind.kind, metadata["name"], f"it was created for another intent ({INTENT})"))
        if found["metadata"].get("deletionTimestamp"):
            raise errors.Conflict(f"{kind.kind} {metadata['name']} is being deleted; waiting for its name")
        return found

    async def _create_token(self, job: Manifest, effect: CreateToken) -> None:
        token = self.key.token(effect.job_uid, effect.cluster_name)
        data = {TOKEN_KEY: base64.b64encode(token.encode()).decode()}
        try:
            await self._post(job, {**effect.manifest, "data": data})
        except errors.AlreadyExists:
            # The token is derived from our key, or from the one before it: one that an earlier process created works.
            return
        self.hooks.after_write("create Secret")

    async def _delete(self, job: Manifest, effect: DeleteObject) -> None:
        """Delete after a live read of the job: nothing is deleted by an outdated observation."""
        await self._confirm(job)
        kind = kind_named(effect.api_version, effect.kind)
        try:
            await self.cluster.delete(kind, effect.namespace, effect.name, effect.uid)
        except (errors.NotFound, errors.Conflict):
            log.info("Already gone", object_kind=effect.kind, name=effect.name, uid=effect.uid)
        if kind in _WATCHED_KINDS:
            await self._refresh(effect)
        self.hooks.after_write(f"delete {effect.kind}")

    async def _shorten(self, job: Manifest, effect: ShortenGracePeriod) -> None:
        await self._confirm(job)
        try:
            await self.cluster.delete(POD, effect.namespace, effect.name, effect.uid, grace_seconds=1)
        except (errors.NotFound, errors.Conflict):
            log.info("Already gone", object_kind=POD.kind, name=effect.name, uid=effect.uid)
        self.hooks.after_write("delete Pod")

    async def _confirm(self, job: Manifest) -> None:
        seen = job["metadata"]
        try:
            live = await self.cluster.get(RLJOB, seen["namespace"], seen["name"])
        except errors.NotFound as error:
            self.store.vanished(RLJOB, seen["uid"])
            raise StaleError("the job is gone; its children go with it") from error
        if live["metadata"]["resourceVersion"] != seen["resourceVersion"]:
            self._learn_changed(job, live)
            raise StaleError("the job has changed since it was observed")

    async def _refresh(self, effect: DeleteObject) -> None:
        """Update the store after a deletion, or the next round would delete the object again."""
        kind = kind_named(effect.api_version, effect.kind)
        try:
            live = await self.cluster.get(kind, effect.namespace, effect.name)
        except errors.NotFound:
            self.store.vanished(kind, effect.uid)
            return
        if live["metadata"]["uid"] != effect.uid:
            self.store.vanished(kind, effect.uid)
        self.store.learn(kind, live)

    async def _refresh_job(self, job: Manifest) -> None:
        seen = job["metadata"]
        try:
            self._learn_changed(job, await self.cluster.get(RLJOB, seen["namespace"], seen["name"]))
        except errors.NotFound:
            self.store.vanished(RLJOB, seen["uid"])

    def _learn_changed(self, job: Manifest, live: Manifest) -> None:
        """Store a job that has changed since it was observed.

        A leader that was paused would continue with the new job and its outdated memory of everything else.
        """
        same = live["metadata"]["uid"] == job["metadata"]["uid"]
        if same and not same_json(live.get("status", {}), job.get("status", {})):
            self.hooks.doubt()
        self.store.learn(RLJOB, live)

    def _refuse(self, job: Manifest, refusal: Refusal) -> NoReturn:
        self.memories.of(job).refuse(job, refusal)
        log.warning("A child cannot be created", object_kind=refusal.kind, name=refusal.name, why=refusal.why)
        raise StaleError(refusal.why)


def is_denied(error: errors.ClusterError) -> bool:
    """Report whether a permission, a quota or an admission policy refuses a child, and not its own content."""
    return isinstance(error, errors.Forbidden) or _ADMISSION.search(str(error)) is not None


def _without_secrets(text: str) -> str:
    """Redact what looks like a secret in a JSON text."""

    def shown(value: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            return {name: shown(member) for name, member in value.items()}
        if isinstance(value, list):
            return [shown(member) for member in value]
        return redact(value, MESSAGE_LIMIT) if isinstance(value, str) else value

    try:
        return json.dumps(shown(json.loads(text)), indent=1, ensure_ascii=False)
    except ValueError:
        # Somebody edited it by hand, so it is no entry of ours.
        return ""


def _same(job: Manifest) -> dict[str, Any]:
    """Return the identity of the job at the observed version: the preconditions of a write."""
    metadata = {name: job["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {"apiVersion": RLJOB.api_version, "kind": RLJOB.kind, "metadata": metadata}


def _name(job: Manifest) -> dict[str, str]:
    return {"job": f"{job['metadata']['namespace']}/{job['metadata']['name']}"}
