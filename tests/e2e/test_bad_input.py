"""Invalid manifests never hold NPUs: the API server rejects them, or the operator sets Validated=False with reasons."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import quickstart
from tests.kube import Kube, KubectlError, Manifest, condition, wait_for

pytestmark = pytest.mark.e2e

REJECTED = {
    "a name too long": ("x" * 41, {}, "metadata.name is longer than 40 characters"),
    "a name with a dot": ("a.b", {}, "metadata.name must consist of lower-case"),
    "an unknown field": ("bad", {"trainer__stps": 4}, 'unknown field "spec.trainer.stps"'),
    "no steps": ("bad", {"trainer__steps": 0}, "spec.trainer.steps"),
    "a negative batch": ("bad", {"trainer__globalBatchSize": -32}, "spec.trainer.globalBatchSize"),
    "no nodes": ("bad", {"workerGroups__0__nodes": 0}, "spec.workerGroups[0].nodes"),
    "a learning rate that is not a number": ("bad", {"trainer__learningRate": "fast"}, "spec.trainer.learningRate"),
    "code without a ConfigMap": ("bad", {"code": {"type": "ConfigMap"}}, "configMap goes with type ConfigMap"),
    "a volume with two sources": (
        "bad",
        {"head": {"template": {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/tmp"}}]}}},
        "exactly one of persistentVolumeClaim",
    ),
}


@pytest.mark.parametrize(("name", "fields", "message"), REJECTED.values(), ids=REJECTED)
def test_the_api_server_rejects_it(kube: Kube, name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(KubectlError, match=r"(?i)error|invalid") as caught:
        kube.apply(quickstart.variant(name, **fields))
    assert message in str(caught.value)


INVALID = {
    "accelerator": ({"accelerator__class": "h100"}, "spec.accelerator.class: class h100 does not exist"),
    "batch": ({"trainer__globalBatchSize": 33, "trainer__samplesPerPrompt": 3}, "spec.trainer.globalBatchSize: 33"),
    "devices": ({"rollout": {"parallelism": {"tensor": 3}}}, "spec.rollout.parallelism.tensor: 3 does not divide"),
    "mini-batch": (
        {"trainer__miniBatchSize": 64},
        "spec.trainer.miniBatchSize: 64 is more than trainer.globalBatchSize",
    ),
    "typed-key": (
        {"verl": {"overrides": {"trainer.total_training_steps": 3}}},
        "spec.verl.overrides[trainer.total_training_steps]: is set by spec.trainer.steps",
    ),
    "missing-model": ({"model": {}}, "spec.model.path: is required"),
}


@pytest.mark.parametrize(("name", "fields", "message"), [(k, *v) for k, v in INVALID.items()], ids=INVALID)
def test_the_operator_rejects_it(kube: Kube, name: str, fields: dict[str, Any], message: str) -> None:
    name = f"invalid-{name}"
    kube.apply(quickstart.variant(name, **fields))

    def validated() -> Manifest | None:
        return condition(kube.get("rljob", name), "Validated")

    found = wait_for("the condition Validated", validated, 30)
    assert found["status"] == "False"
    assert found["reason"] == "InvalidSpec"
    assert message in found["message"]
    wide = kube.run("get", "rljob", name, "-o", "wide")
    assert "Invalid" in wide
    assert message in wide
    assert message in kube.run("describe", "rljob", name)
    wait_for("an event", lambda: [e for e in kube.events(name) if message in e.get("note", "")], 30)
    assert not kube.find("rayclusters", f"rljob.dev/job={name}")
    kube.delete("rljob", name)


def test_an_invalid_job_that_is_fixed_continues(kube: Kube) -> None:
    name = "fixed"
    image = "rljob.local/no-such-image:1"
    fields = quickstart.BARE | {"runtime__image": image}
    kube.apply(quickstart.variant(name, **fields, trainer__miniBatchSize=64))
    wait_for("the condition Validated", lambda: condition(kube.get("rljob", name), "Validated"), 30)
    kube.apply(quickstart.variant(name, **fields))

    def valid() -> bool:
        return (condition(kube.get("rljob", name), "Validated") or {}).get("status") == "True"

    wait_for("Validated=True after the edit", valid, 30)
    kube.delete("rljob", name)
