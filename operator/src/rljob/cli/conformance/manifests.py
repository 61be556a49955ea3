"""The objects of a run: the quickstart with other names, checkpoints, and the sizes of the class.

quickstart.yaml is a generated copy of examples/quickstart.yaml: a model is made on the volume, nothing is downloaded.
"""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from importlib import resources
from typing import Any

import yaml

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.quantity import quantity
from rljob.cli.conformance.facts import ConformancePlan
from rljob.render import labels

LABEL = "rljob.dev/conformance"
"""Label of every object that a run creates; its value identifies the run."""
FILE = "quickstart.yaml"
CHECKPOINTS = "/data/checkpoints"
KEPT_CHECKPOINTS = 3
HEAD_OF_NPU_CLASS = {"cpu": "4", "memory": "16Gi"}
"""Ours: the driver and Ray of a small model."""
GRACE_SECONDS = 120
START_SECONDS = 900


def read_quickstart() -> list[dict[str, Any]]:
    """Return the documents of the quickstart."""
    text = (resources.files(__package__) / FILE).read_text(encoding="utf-8")
    return [document for document in yaml.safe_load_all(text) if document]


def samples_per_step() -> int:
    """Return the responses of a step, which the devices share in equal parts."""
    trainer = next(one for one in read_quickstart() if one["kind"] == "RLJob")["spec"]["trainer"]
    return int(trainer["globalBatchSize"]) * int(trainer["samplesPerPrompt"])


def manifests(plan: ConformancePlan, facts: AcceleratorFacts) -> list[dict[str, Any]]:
    """Return the objects to create, the RLJob last."""
    made = {document["kind"]: copy.deepcopy(document) for document in read_quickstart()}
    names = {"RLJob": plan.name, "PersistentVolumeClaim": plan.name, "ConfigMap": f"{plan.name}-code"}
    for kind, manifest in made.items():
        manifest["metadata"] = {"name": names[kind], "labels": {LABEL: plan.run}}
    _place_volume(made["PersistentVolumeClaim"]["spec"], plan)
    _set_job(made["RLJob"]["spec"], plan, facts, names)
    return sorted(made.values(), key=lambda manifest: manifest["kind"] == "RLJob")


def _place_volume(spec: dict[str, Any], plan: ConformancePlan) -> None:
    spec["accessModes"] = [plan.access_mode]
    if plan.storage_class is not None:
        spec["storageClassName"] = plan.storage_class


def _set_job(spec: dict[str, Any], plan: ConformancePlan, facts: AcceleratorFacts, names: dict[str, str]) -> None:
    (group,) = spec["workerGroups"]
    template, head = group["template"], spec["head"]["template"]
    spec["runtime"] = {"image": plan.image}
    if plan.pull_secrets:
        spec["runtime"]["imagePullSecrets"] = list(plan.pull_secrets)
    spec["accelerator"] = {"class": plan.accelerator}
    group["devicesPerNode"] = plan.devices
    template["volumes"][0]["persistentVolumeClaim"]["claimName"] = names["PersistentVolumeClaim"]
    spec["code"]["configMap"]["name"] = names["ConfigMap"]
    if plan.is_npu:
        for field in ("cpu", "memory", "sharedMemory"):
            del template[field]
        template.update(_part_of_node(plan.devices, facts))
        head.update(HEAD_OF_NPU_CLASS)
    if plan.node is not None:
        for place in (template, head):
            place["nodeSelector"] = {labels.HOSTNAME: plan.node}
    if scheduling := {key: value for key, value in (("queueName", plan.queue), ("gang", plan.gang)) if value}:
        spec["scheduling"] = scheduling
    spec["trainer"]["steps"] = plan.steps
    spec["checkpoint"] = {"path": CHECKPOINTS, "everySteps": plan.save_every, "keep": KEPT_CHECKPOINTS}
    spec["restart"] = {"maxInfrastructureRestarts": 2, "backoffSeconds": 1}
    spec["stop"] = {"graceSeconds": GRACE_SECONDS}
    spec["deadlines"] = {"startSeconds": START_SECONDS}


def _part_of_node(devices: int, facts: AcceleratorFacts) -> dict[str, str]:
    """Return the share of a node's pod that goes with some of its devices; a whole node has the class's defaults."""
    if facts.pod is None or devices >= facts.devices_per_node:
        return {}
    share, pod = Fraction(devices, facts.devices_per_node), facts.pod
    sizes = {}
    if pod.cpu is not None:
        sizes["cpu"] = str(math.floor(quantity(pod.cpu) * share))
    for field, size in (("memory", pod.memory), ("sharedMemory", pod.shared_memory)):
        if size is not None:
            sizes[field] = f"{math.floor(quantity(size) * share / 2**30)}Gi"
    return sizes
