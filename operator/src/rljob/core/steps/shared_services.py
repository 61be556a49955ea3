"""Services with placement Shared: available before any NPU is requested, deleted when the job ends or is suspended.

Their names are in the status before they exist, until they are gone. They outlive a restart: the next cluster finds
them running, and only an edited spec gets others. Kubernetes restarts what ends in them, so a running job does not
look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rljob.api.status import ConditionType
from rljob.core import status, times
from rljob.core.attempts.start_diagnosis import PROBLEMS, Diagnosis, StartReason, diagnose, refusal
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted
from rljob.core.observed import Manifest, SharedServiceSeen, Unseen
from rljob.core.plan import CreateObject, DeleteObject, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS, POD_POLL_SECONDS_MIN
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, Pods, Requirements
from rljob.core.step import step
from rljob.core.transitions.children import create
from rljob.core.transitions.conclusions import give_up
from rljob.core.transitions.conditions import report_not_ready, with_cluster_begun
from rljob.core.watched import Watched
from rljob.render import labels

CONTROLLER = "the controller of Deployments"
STRAY_SECONDS = 600.0
"""A leader that was paused in the middle of a create may send it after its successor has deleted the object: strays are
looked for in the rounds of two resyncs."""
Part = Manifest | Unseen | None


def _objects(seen: Watched) -> Requirements:
    return Requirements(service_names=tuple(seen.status.services))


def _is_at_rest(seen: Watched) -> bool:
    """Report whether nothing uses the services any more. A cluster that is kept after the end keeps them."""
    if not seen.status.services or not all(map(is_deleted, seen.clusters)):
        return False
    return seen.finished or (seen.suspend and seen.between_generations)


@step(_objects, when=_is_at_rest)
def release_services(context: Context) -> Plan | None:
    """Delete the services of a job that has finished or is suspended, and look for strays before it forgets them."""
    if (plan := _remove(context, context.status.services)) is not None:
        return plan
    if context.now < times.after(_rests_since(context), STRAY_SECONDS):
        return None
    return _forget(context, context.status.services)


def _rests_since(context: Context) -> str:
    suspended = status.condition(context.status, ConditionType.SUSPENDED)
    known = context.status.finished_time or (None if suspended is None else suspended.last_transition_time)
    return known or times.to_text(context.now)


def _remove(context: Context, over: Iterable[str]) -> Plan | None:
    """Delete the objects of these services; None once they are gone."""
    parts = [part for name in over for part in _parts(context, name)]
    existing = [part for part in parts if isinstance(part, Mapping) and context.made(part)]
    doomed = tuple(_delete(part) for part in existing if not is_deleted(part))
    if existing or Unseen.UNSEEN in parts:
        return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    return None


def _forget(context: Context, over: Iterable[str]) -> Plan:
    gone = tuple(over)
    kept = [name for name in context.status.services if name not in gone]
    return context.write(context.status.model_copy(update={"services": kept}))


def _parts(context: Context, name: str) -> tuple[Part, ...]:
    return context.observed.services.get(name, SharedServiceSeen()).parts


def _delete(part: Manifest) -> DeleteObject:
    metadata = part["metadata"]
    return DeleteObject(part["apiVersion"], part["kind"], metadata["namespace"], metadata["name"], metadata["uid"])


def _before_cluster(seen: Watched) -> Requirements:
    """Require the services, and what their pods wait for once the wait is reported."""
    if not seen.status.services:
        return NOTHING
    waits = status.is_waiting_for(seen.status, Reason.WAITING_FOR_SERVICES)
    pods = Pods(f"{labels.JOB_UID}={seen.job.uid},{labels.SERVICE}", POD_POLL_SECONDS_MIN) if waits else None
    return _objects(seen) | Requirements(config_name=seen.intent.cluster_name, pods=pods)


@step(_before_cluster, when=lambda seen: seen.cluster is None)
def await_services(context: Context) -> Plan | None:
    """Create the services of this spec after those of an earlier one are gone, and wait until they are available."""
    wanted = {manifest["metadata"]["name"] for manifest in context.frozen_services}
    if over := [name for name in context.status.services if name not in wanted]:
        return _remove(context, over) or _forget(context, over)
    parts = [part for name in context.status.services for part in _parts(context, name)]
    if Unseen.UNSEEN in parts or any(isinstance(part, Mapping) and is_deleted(part) for part in parts):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    there = {_place(part) for part in parts if isinstance(part, Mapping) and context.made(part)}
    if missing := [manifest for manifest in context.frozen_services if _place(manifest) not in there]:
        return create(context, *map(CreateObject, missing))
    for name in context.status.services:
        deployment = context.observed.services[name].deployment
        if isinstance(deployment, Mapping) and _available(deployment) < _replicas(deployment):
            return _report(context, deployment)
    if status.is_waiting_for(context.status, Reason.WAITING_FOR_SERVICES):
        return context.write(with_cluster_begun(context, context.status))
    return None


def _place(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _available(deployment: Manifest) -> int:
    """Return how many pods accept connections, by a status of this version of the Deployment."""
    state = deployment.get("status") or {}
    if int(state.get("observedGeneration") or 0) < int(deployment["metadata"].get("generation") or 0):
        return 0
    return int(state.get("availableReplicas") or 0)


def _replicas(deployment: Manifest) -> int:
    """Return how many are wanted; somebody may have scaled the Deployment, but a job cannot begin with none."""
    return max(1, int(deployment["spec"].get("replicas", 1)))


def _report(context: Context, deployment: Manifest) -> Plan:
    """Report which service is waited for and why, until the start deadline."""
    wanted, reason = _replicas(deployment), Reason.WAITING_FOR_SERVICES
    place = _place(deployment)
    frozen = next(manifest for manifest in context.frozen_services if _place(manifest) == place)
    (container,) = frozen["spec"]["template"]["spec"]["containers"]
    verb = "pod is" if wanted == 1 else "pods are"
    counted = f"service {container['name']}: {_available(deployment)} of {wanted} {verb}"
    said = [f"{counted} available"]
    if (found := _diagnose(context, deployment)) is not None:
        said.append(f"{found.reason}: {found.message}")
    message = _first_words(context, said, found)
    if context.is_late:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, f"{reason}: {message}")
    problem = found is not None and found.reason in PROBLEMS
    return report_not_ready(context, context.status, reason.value, message, problem=problem)


def _first_words(context: Context, said: list[str], found: Diagnosis | None) -> str:
    """Return the message, or that of the status where nothing new is known: each try names another pod."""
    condition = status.condition(context.status, ConditionType.CLUSTER_READY)
    known = "" if condition is None else condition.message
    if found is None and known.startswith(said[0]):
        return known
    if found is not None and found.reason is StartReason.PODS_REFUSED:
        before = f"{said[0]}; {found.reason}"
        return known if known.startswith(before) else "; ".join(said)
    return "; ".join(said)


def _diagnose(context: Context, deployment: Manifest) -> Diagnosis | None:
    """Return what the pods of a service wait for; None if they were not listed."""
    if (refused := refusal(deployment, CONTROLLER)) is not None:
        return refused
    if isinstance(context.observed.pods, Unseen):
        return None
    name = deployment["metadata"]["name"]
    return diagnose(pod for pod in context.observed.pods if pod["metadata"]["labels"][labels.SERVICE] == name)
