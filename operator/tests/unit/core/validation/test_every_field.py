"""Every field of a spec has an effect: on what is rendered, or where the table below says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from builders import Json, apart, judged, merged, small_spec
from pydantic import ValidationError
from schema_samples import Path as FieldPath
from schema_samples import leaves, samples, text, with_value

from rljob.api.texts import read_texts
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.initializer import build_initializer, initializers
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster
from rljob.render.shared_services import build_shared_services

IDENTITY = JobIdentity("team", "sums", "0a1b2c3d")

READ_BY_THE_OPERATOR = {
    "managedBy": "core.context.is_ours",
    "recipeRef": "core.spec.recipes",
    "unset": "core.spec.merge",
    "model.layers": "core.spec.model_shape",
    "model.attentionHeads": "core.spec.model_shape",
    "model.experts": "core.spec.model_shape",
    "model.architecture": "core.spec.model_shape",
    "model.config": "core.spec.model_shape",
    "model.memoryCheck": "launchers.verl.checks.memory",
    "checkpoint.async": "launchers.verl.background_saves",
    "checkpoint.volume": "core.validation.lifecycle",
    "checkpoint.from.job": "core.spec.checkpoint_source",
    "suspend": "core.steps.stopping",
    "stop.requested": "core.steps.requests",
    "stop.mode": "core.transitions.stop_order",
    "stop.graceSeconds": "core.transitions.stop_order",
    "stop.requireCheckpoint": "core.steps.deleting",
    "restart.maxRestarts": "core.attempts.classify",
    "restart.maxInfrastructureRestarts": "core.attempts.classify",
    "restart.scope": "core.attempts.classify",
    "restart.backoffSeconds": "core.attempts.classify",
    "restart.rules[].name": "core.attempts.classify",
    "restart.rules[].onExitCodes": "core.attempts.classify",
    "restart.rules[].onLogPattern": "core.attempts.classify",
    "restart.rules[].onReason": "core.attempts.classify",
    "restart.rules[].onFault": "core.attempts.classify",
    "restart.rules[].action": "core.attempts.classify",
    "deadlines": "core.context.deadlines",
    "export": "core.steps.exporting",
    "evaluation": "core.steps.evaluating",
    "cleanup.clusterAfterSeconds": "core.steps.finishing",
    "cleanup.jobAfterSeconds": "core.steps.finishing",
    "cleanup.keepOnFailure": "core.steps.finishing",
    "runtime.packages.requirements": "render.packages.files",
    "code.configMap.name": "core.steps.freezing.freeze_code",
    "code.type": "core.validation.unions",
    "rollout.engine": "has one value",
    "launcher.type": "launchers.by_type",
    "trainer.offload.gradients": "launchers.verl.checks.limits",
}
"""Fields whose effect is not visible in the rendering, and where it is."""

NAME = {"name": "sample"}
KEY = NAME | {"key": "k"}
FROM = {"secretKeyRef": KEY, "configMapKeyRef": KEY, "fieldRef": {"fieldPath": "x"}}
ENV = [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": FROM}]
PROBE = {
    "exec": {"command": ["a"]},
    "httpGet": {"port": 1, "httpHeaders": [{"name": "a", "value": "b"}]},
    "tcpSocket": {"port": 1},
}
CONTAINER = {
    "image": "x",
    "env": ENV,
    "envFrom": [{"secretRef": NAME, "configMapRef": NAME}],
    "ports": [{"containerPort": 1}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "securityContext": {"seccompProfile": {"type": "Localhost"}},
    **{f"{name}Probe": PROBE for name in ("startup", "readiness", "liveness")},
}
TEMPLATE = {
    "initContainers": [CONTAINER | {"name": "warm"}],
    "sidecars": [CONTAINER | {"name": "proxy"}],
    "env": ENV,
    "envFrom": [{"secretRef": NAME, "configMapRef": NAME}],
    "volumes": [
        {
            "name": "data",
            "persistentVolumeClaim": {"claimName": "data"},
            "configMap": NAME,
            "hostPath": {"path": "/x"},
            "emptyDir": {},
            "nfs": {"server": "nfs", "path": "/x"},
        }
    ],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "tolerations": [{}],
    "securityContext": {},
    "sharedMemory": "1Gi",
}
INITIALIZER: dict[str, Json] = {
    "download": {"to": "/data/model", "claim": {"claimName": "models"}, "credentials": KEY},
    "conversion": {"from": "/data/fp8", "to": "/data/bf16"},
}
SHARED = small_spec(
    {
        "recipeRef": NAME,
        "workerGroups": [{"name": "trainer", "devicesPerNode": 16, "nodes": 4, "template": TEMPLATE}],
        "head": {"template": TEMPLATE},
        "services": [
            {"name": "sandbox", "image": "x", "port": 8999, "env": ENV},
            {"name": "judge", "image": "x", "port": 8999, "env": ENV, "placement": "Shared"},
        ],
        "initializers": [{"name": "prepare", "command": ["a"], "env": ENV, **INITIALIZER}],
        "secretRefs": [{"name": "hub", "items": [{"key": "k", "env": "K"}]}],
        "code": {
            "configMap": NAME,
            "persistentVolumeClaim": {"claimName": "code"},
            "git": {"url": "https://example.com/x.git", "revision": "a" * 40, "secretRef": NAME},
        },
        "checkpoint": {"path": "/data/ckpt", "everySteps": 5, "from": {"job": "other", "path": "/x"}},
        "stopRules": [{"name": "a", "metric": "m", "condition": "Above", "threshold": "1"}],
        "restart": {"rules": [{"name": "a", "onLogPattern": "x", "action": "Fail"}]},
        "critic": {},
        "observability": {"logPath": "/data/logs", "profile": {"steps": [2]}},
        "data": {"validation": ["/data/v.parquet"]},
    }
)
RICH: Json = json.loads(json.dumps(SHARED))
"""Without parts that are one object, in which a change of one would be a change of all."""
KNOWN: dict[str, list[object]] = {
    "accelerator.class": ["atlas-a2"],
    "scheduling.topology.nodesPerSuperPodBlock": [4],
    "initializers[].download.repository": ["Qwen/Qwen3-8B"],
    "initializers[].download.revision": ["main"],
    "initializers[].download.endpoint": ["https://mirror.example"],
    "initializers[].download.sha256": ["a" * 64],
}
"""Values that the schema cannot derive: names of the table, the size of the job."""
COMMAND: Json = {
    **dict.fromkeys(("model", "data", "reward", "critic")),
    "trainer": {"globalBatchSize": None},
    "checkpoint": {"everySteps": None},
    "launcher": {
        "type": "Command",
        "command": {
            "args": ["train"],
            "progress": {"source": "Pattern", "pattern": "(?P<step>1)"},
            "checkpoint": {"layout": "Verl"},
        },
    },
}
VARIANTS: tuple[Json, ...] = (
    {"code": {"type": "ConfigMap"}},
    {"code": {"type": "PVC", "configMap": None}, "algorithm": {"name": "PPO"}, "scheduling": {"queueName": "team"}},
    {
        "code": {"type": "Git", "configMap": None, "persistentVolumeClaim": None},
        "scheduling": {"topology": {"level": "example.com/rack"}},
    },
    {"algorithm": {"name": "DAPO", "groupFilter": {}}, "rollout": {"speculative": {"method": "NGram"}}},
    {
        "accelerator": {"class": "atlas-a3-superpod"},
        "trainer": {"backend": "MindSpeed", "maxTokensPerDevice": 4096},
        "algorithm": {"klCoefficient": "0.1"},
        "network": {"mode": "Host"},
    },
    {"trainer": {"mode": "Evaluate"}, "checkpoint": None},
    {"trainer": {"mode": "ColocateAsync", "async": {}}},
    apart(),
    judged(),
    {"trainer": {"lora": {"rank": 8}}},
    {"rollout": {"agent": {"tools": "/code/tools.py"}}},
    {"rollout": {"speculative": {"method": "Suffix", "history": "Enabled"}}},
    {"runtime": {"packages": {"requirements": [f"a==1 --hash=sha256:{'0' * 64}"]}}},
    {"initializers": [{"name": "a", "type": kind, **INITIALIZER} for kind in ("Model", "Conversion")]},
    {
        "initializers": [
            {"name": "a", "type": "Conversion", "conversion": INITIALIZER["conversion"] | {"format": "Checkpoint"}}
        ]
    },
    COMMAND,
)  # fmt: skip
"""Specs in which further fields take effect, because some require others."""


@cache
def base_of(variant: int) -> Json:
    return merged(RICH, VARIANTS[variant])


@cache
def rendered(variant: int) -> str:
    return show(base_of(variant))


def show(document: Mapping[str, object]) -> str:
    spec = RLJobSpec.model_validate(read_texts(document, "spec")[0], context=BUILT_IN)
    made = [build_raycluster(IDENTITY, spec, 1, ""), json.loads(LAUNCHER(spec).job_config(IDENTITY, spec, 1).to_json())]
    made += build_shared_services(IDENTITY, spec, 1)
    made += [build_initializer(IDENTITY, spec, initializer) for initializer in initializers(spec)]
    return json.dumps(made)


def without_effect() -> Iterator[str]:
    for path, schema in leaves():
        name = text(path)
        if not any(name == read or name.startswith(f"{read}.") for read in READ_BY_THE_OPERATOR):
            values = KNOWN.get(name) or samples(schema)
            assert values, f"no sample for {name}"
            if not has_effect_anywhere(path, values):
                yield name


def has_effect(variant: int, path: FieldPath, value: object) -> bool:
    base = base_of(variant)
    if path[0] == "checkpoint" and "checkpoint" not in base:
        return False
    first, last = (with_value(base, path, value, entry) for entry in (0, -1))
    return _differs(first, rendered(variant)) or (last != first and _differs(last, rendered(variant)))


def has_effect_anywhere(path: FieldPath, values: Sequence[object]) -> bool:
    """Try first the variant in which the field before it in the same section had an effect."""
    for variant in sorted(range(len(VARIANTS)), key=lambda number: number != _LAST.get(path[0], 0)):
        if any(has_effect(variant, path, value) for value in values):
            _LAST[path[0]] = variant
            return True
    return False


_LAST: dict[object, int] = {}


def _differs(document: Json, before: str) -> bool:
    try:
        return show(document) != before
    except ValidationError:
        return False  # the field belongs to another entry of the list


def test_every_field_has_an_effect() -> None:
    assert set(without_effect()) == set(), "implement them, or say in READ_BY_THE_OPERATOR what reads them"
