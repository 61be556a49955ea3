"""Manifests and small worlds for tests.

Each helper returns a complete, working object, changed as the test requests.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from rljob.api.recipes import RecipeLayer
from rljob.api.status import RLJobStatus
from rljob.api.texts import read_texts, write_texts
from rljob.api.v1alpha1 import API_VERSION, RLJobSpec
from rljob.core.derived import Derived
from rljob.core.observed import Manifest, Observed, RayJob, RayJobState
from rljob.core.plan import Plan
from rljob.core.reconcile import reconcile, required
from rljob.core.requirements import Requirements
from rljob.core.spec.recipes import Recipes, recipe_id
from rljob.core.validation import validate as validation
from rljob.core.validation.validate import Checked
from rljob.core.watched import Watched
from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from rljob_runtime.contract import Phase, Progress

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
UID = "0a1b2c3d-0000-4000-8000-000000000001"
IDENTITY = JobIdentity(namespace="team", name="sums", uid=UID)
CLUSTER_NAME = "sums-0a1b2-1"
SUBMISSION_ID = "sums-0a1b2-1-1"
IDLE = Progress(pod_uid="head-uid", phase=Phase.IDLE)
"""Answer of a new head's exporter."""

Json = dict[str, Any]


_MADE: dict[str, Json] = {}


def _kept(key: str, make: Callable[[], Json]) -> Json:
    """Return a copy of what was made for a key, so that a test which changes it changes no other one's."""
    if key not in _MADE:
        _MADE[key] = make()
    return copy.deepcopy(_MADE[key])


def at(seconds: float) -> datetime:
    """Return the time that many seconds after NOW."""
    return NOW + timedelta(seconds=seconds)


def merged(base: Mapping[str, Any], *changes: Mapping[str, Any]) -> Json:
    """Return a copy of base with changes merged over it, the last on top; None removes a key."""
    result = copy.deepcopy(dict(base))
    for key, value in (item for change in changes for item in change.items()):
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def requests(job: Manifest, clusters: tuple[Manifest, ...], head_pod: Manifest | None, now: datetime) -> Requirements:
    """Return the requests that the next decision about a job depends on, whichever step they stop at."""
    return replace(required(Watched(job, clusters, head_pod, now)), stops_here=False)


def small_spec(change: Mapping[str, Any] | None = None) -> Json:
    """Return the spec of a job on one CPU node: the smallest one that a user can write."""
    spec: Json = {
        "runtime": {"image": "registry.example/rljob/runtime:cpu"},
        "accelerator": {"class": "cpu"},
        "workerGroups": [{"name": "trainer", "nodes": 1, "devicesPerNode": 2}],
        "model": {"path": "/data/model"},
        "data": {"train": ["/data/train.parquet"]},
        "reward": {"path": "/code/reward.py"},
        "trainer": {"steps": 40, "globalBatchSize": 32},
    }
    return merged(spec, change or {})


def group(change: Mapping[str, Any]) -> Json:
    """Return the change of a spec that alters its only worker group."""
    return {"workerGroups": [merged({"name": "trainer", "nodes": 1, "devicesPerNode": 2}, change)]}


def apart(trainer: Mapping[str, Any] | None = None, rollout: Mapping[str, Any] | None = None) -> Json:
    """Return the change of a spec that lets one group train and another one generate."""
    groups = [
        merged({"name": "train", "roles": ["Trainer"], "nodes": 1, "devicesPerNode": 2}, trainer or {}),
        merged({"name": "generate", "roles": ["Rollout"], "nodes": 1, "devicesPerNode": 2}, rollout or {}),
    ]
    return {"workerGroups": groups, "trainer": {"mode": "SeparateAsync"}}


def judged(judge: Mapping[str, Any] | None = None, group: Mapping[str, Any] | None = None, *others: Json) -> Json:
    """Return the change of a spec that lets the reward function ask a judge; `others` are the other groups."""
    own = merged({"name": "judge", "roles": ["Judge"], "nodes": 1, "devicesPerNode": 2}, group or {})
    trains = others or ({"name": "trainer", "nodes": 1, "devicesPerNode": 2},)
    return {
        "workerGroups": [*trains, own],
        "reward": {"path": "/code/reward.py", "judge": {"path": "/judge", "maxTokens": 4096, **(judge or {})}},
    }


def saving(change: Mapping[str, Any]) -> Json:
    """Return a change of a spec, and a volume at /data that all pods share, which checkpoints need."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    template = {"volumes": [volume], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    return merged(group({"template": template}), change)


def typed(spec: Mapping[str, Any] | None = None, accelerators: AcceleratorTable = BUILT_IN) -> RLJobSpec:
    """Return a spec as its type; its texts may be maps."""
    read, problems = read_texts(write_texts(copy.deepcopy(dict(small_spec() if spec is None else spec))), "spec")
    assert problems == ()
    return RLJobSpec.model_validate(read, context=accelerators)


def job(spec: Mapping[str, Any] | None = None, status: Mapping[str, Any] | None = None, **metadata: object) -> Json:
    """Return an RLJob as the API server stores it."""
    meta = {"namespace": "team", "name": "sums", "uid": UID, "generation": 1, "resourceVersion": "1"}
    result: Json = {
        "apiVersion": API_VERSION,
        "kind": "RLJob",
        "metadata": meta | metadata,
        "spec": small_spec() if spec is None else write_texts(copy.deepcopy(dict(spec))),
    }
    if status is not None:
        result["status"] = copy.deepcopy(dict(status))
    return result


def snapshot(
    spec: Mapping[str, Any] | None = None,
    *recipes: RecipeLayer,
    refresh: str | None = None,
    accelerators: AcceleratorTable = BUILT_IN,
) -> Json:
    """Return the ConfigMap with the merged spec and its recipes, which is the only one of a job that starts at once."""

    def make() -> Json:
        frozen = configmap.Snapshot(typed(spec, accelerators), recipes, refresh)
        return configmap.with_snapshot(config(spec, accelerators), frozen)

    plain = accelerators is BUILT_IN and not recipes and refresh is None
    return _kept(f"snapshot {json.dumps(spec, default=repr)}", make) if plain else make()


def config(spec: Mapping[str, Any] | None = None, accelerators: AcceleratorTable = BUILT_IN) -> Json:
    """Return the frozen rendering of the first cluster generation."""

    def make() -> Json:
        kind = typed(spec, accelerators)
        return configmap.build_cluster_config(IDENTITY, kind, 1, LAUNCHER(kind).job_config(IDENTITY, kind, 1))

    return _kept(f"config {json.dumps(spec, default=repr)}", make) if accelerators is BUILT_IN else make()


def cluster(ready: int = 0, **metadata: object) -> Json:
    """Return the RayCluster with KubeRay's status and that many ready workers."""
    made = _kept("cluster", lambda: configmap.read_raycluster(config()))
    created = (NOW - timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    made["metadata"] |= {"uid": "cluster-uid", "creationTimestamp": created, **metadata}
    made["status"] = {"readyWorkerReplicas": ready}
    return made


def pod(name: str = "head", uid: str = "head-uid", *, ready: bool = True, **status: object) -> Json:
    """Return a pod."""
    flag = "True" if ready else "False"
    state: Json = {"podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": flag}]} | status
    return {"metadata": {"name": name, "namespace": "team", "uid": uid}, "status": state}


def status_after(*plans: Plan) -> Json:
    """Return the last status that these plans write."""
    return copy.deepcopy(dict(next(plan.status for plan in reversed(plans) if plan.status is not None)))


def decide(observed: Observed, seconds: float = 0.0, accelerators: AcceleratorTable = BUILT_IN) -> Plan:
    """Reconcile that many seconds after NOW."""
    known = _derived(_inputs_of(observed)) if accelerators is BUILT_IN else None
    return reconcile(observed, at(seconds), LAUNCHER, accelerators, known)


@functools.lru_cache(maxsize=128)
def _derived(_: str) -> Derived:
    """Return what the tests of a process have derived from the same inputs, as the operator keeps it between rounds."""
    return Derived()


def _inputs_of(observed: Observed) -> str:
    """Return the inputs of `Derived` by their content: objects of tests have no versions."""
    metadata = observed.job["metadata"]
    facts = (
        metadata,
        observed.job.get("spec"),
        observed.snapshot,
        observed.base_snapshot,
        sorted(observed.recipes.items()),
    )
    return json.dumps(facts, default=repr)


def validate(
    name: str,
    raw_spec: Mapping[str, Any],
    recipes: Recipes | None = None,
    accelerators: AcceleratorTable = BUILT_IN,
) -> Checked:
    """Merge, parse and check a spec for the launcher of this version; maps may stand in place of texts."""
    known = {recipe: written_recipe(manifest) for recipe, manifest in (recipes or {}).items()}
    return validation.validate(name, write_texts(raw_spec), known, launcher=LAUNCHER, accelerators=accelerators)


def written_recipe(manifest: Manifest) -> Manifest:
    """Return a recipe with texts in place of maps, as the API server stores it."""
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(spec.get("template"), Mapping):
        return manifest
    return {**manifest, "spec": {**spec, "template": write_texts(spec["template"])}}


def wrote(plan: Plan) -> RLJobStatus:
    """Return the status that a plan writes, as its type."""
    assert plan.status is not None
    return RLJobStatus.model_validate(plan.status)


def reasons(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return status and reason of every condition that a plan writes."""
    return {entry.type: (entry.status.value, entry.reason) for entry in wrote(plan).conditions}


def answer(change: Mapping[str, Any] | None = None) -> Progress:
    """Return the exporter's answer after three steps."""
    told: Json = {"pod_uid": "head-uid", "phase": Phase.TRAINING, "attempt": 1, "submission_id": SUBMISSION_ID}
    figures: Json = {"step": 3, "total_steps": 40, "observed_time": NOW.timestamp(), "start_time": NOW.timestamp() - 60}
    return Progress(**(told | figures | dict(change or {})))


def seen(subject: Mapping[str, Any], **facts: Any) -> Observed:  # noqa: ANN401 - fields of Observed
    """Return the observation of a job that started with the small spec."""
    return Observed(subject, **({"snapshot": snapshot()} | facts))


def running(**facts: Any) -> Observed:  # noqa: ANN401 - fields of Observed
    """Return the observation of a job whose submission is recorded."""
    world: Json = {
        "job": facts.pop("job", None) or job(status=status_submitted()),
        "clusters": (cluster(ready=1),),
        "head_pod": pod(),
        "ray_job": RayJob(SUBMISSION_ID, RayJobState.RUNNING),
        "snapshot": snapshot(),
    }
    return Observed(**(world | facts))


def status_begun(spec: Mapping[str, Any] | None = None, accelerators: AcceleratorTable = BUILT_IN) -> Json:
    """Return the status with names and numbers, before any object is created."""
    return status_after(decide(Observed(job(spec), snapshot=None), accelerators=accelerators))


def status_initialized(spec: Mapping[str, Any] | None = None, accelerators: AcceleratorTable = BUILT_IN) -> Json:
    """Return the status from which the cluster is created."""
    begun = status_begun(spec, accelerators)
    made = snapshot(spec, accelerators=accelerators)
    plan = decide(Observed(job(spec, begun), snapshot=made), accelerators=accelerators)
    # A job without initializers is initialized as soon as it has started.
    return status_after(plan) if plan.status is not None else begun


def status_recorded() -> Json:
    """Return the status that contains the cluster's UID and reports what its pods wait for."""
    waits = (pod(ready=False),)
    return status_after(decide(seen(job(status=status_initialized()), clusters=(cluster(),), pods=waits), 900))


def status_intended() -> Json:
    """Return the status that contains the intended submission."""
    return status_after(
        decide(seen(job(status=status_recorded()), clusters=(cluster(ready=1),), head_pod=pod(), progress=IDLE))
    )


def status_submitted() -> Json:
    """Return the status of a job that Ray has accepted."""
    return _kept("submitted", lambda: status_after(decide(running(job=job(status=status_intended())))))


def status_training() -> Json:
    """Return the status after three steps."""
    return _kept("training", lambda: status_after(decide(running(progress=answer()))))


def status_finished() -> Json:
    """Return the status of a job that failed."""
    told = answer({"phase": Phase.ENDED, "step": 0})
    return status_after(decide(running(progress=told, ray_job=RayJob(SUBMISSION_ID, RayJobState.FAILED))))


REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"
BUILT_IN_RECIPES = {
    recipe_id(manifest): manifest
    for path in sorted((REPOSITORY / "charts/rljob-operator/recipes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
}
"""The recipes of the chart."""
SPECS_OF_EXAMPLES = sorted(
    (*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("ascend/*.yaml"), *EXAMPLES.glob("recipes/*.yaml"))
)
