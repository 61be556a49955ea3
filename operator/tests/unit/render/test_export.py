"""The Job of an export has the volumes of the workers, no NPU, and no Secret but that of its target."""

from __future__ import annotations

from typing import Any

import pytest
from builders import IDENTITY, Json, merged, saving, small_spec, typed

from rljob.render.accelerator_table import OPERATOR_IMAGE
from rljob.render.export import build_export, shown_path, target_text
from rljob.render.names import export_name
from rljob_runtime.contract import ExportPlace, ExportRequest

HUB = {"repository": "team/sums", "secretRef": {"name": "hub"}}
HUGGING_FACE = {"type": "HuggingFace", "huggingFace": HUB}
CLAIM = {"type": "PVC", "persistentVolumeClaim": {"claimName": "models", "subPath": "team"}}


def spec_of(target: Json, change: Json | None = None) -> Json:
    fields: Json = {
        "checkpoint": {"path": "/data/ckpt", "everySteps": 2},
        "export": {"to": target},
        "secretRefs": [{"name": "tracker"}],
    }
    return merged(small_spec(saving(fields)), change or {})


def built(target: Json, change: Json | None = None, memory: int | None = None) -> Json:
    spec = typed(spec_of(target, change))
    assert spec.export is not None
    return build_export(IDENTITY, spec, spec.export, export_name(IDENTITY, 2, "x"), 2, memory)


def pod(manifest: Json) -> Json:
    found: Json = manifest["spec"]["template"]["spec"]
    return found


def container(manifest: Json) -> Json:
    found: Json = pod(manifest)["containers"][0]
    return found


def test_an_export_needs_no_device_and_no_token() -> None:
    change = {
        "accelerator": {"class": "atlas-a2"},
        "workerGroups": [{**spec_of({"path": "/data/m"})["workerGroups"][0], "devicesPerNode": 8}],
    }
    manifest = built({"path": "/data/m"}, change)
    assert set(container(manifest)["resources"]["requests"]) == {"cpu", "memory"}
    assert pod(manifest)["automountServiceAccountToken"] is False
    assert [volume["name"] for volume in pod(manifest)["volumes"]] == ["data", "rljob-runtime"]


@pytest.mark.parametrize(
    ("target", "secrets"),
    [({"path": "/data/m"}, []), (CLAIM, []), (HUGGING_FACE, ["hub"])],
    ids=["path", "claim", "hub"],
)
def test_an_export_gets_only_the_secret_of_its_target(target: Json, secrets: list[str]) -> None:
    found = container(built(target))
    assert "envFrom" not in found
    references = [variable["valueFrom"]["secretKeyRef"] for variable in found["env"] if "valueFrom" in variable]
    assert [reference["name"] for reference in references] == secrets


def test_a_server_gets_the_variables_of_its_secret() -> None:
    mlflow = {"trackingUrl": "https://mlflow.example", "experiment": "sums", "secretRef": {"name": "mlflow"}}
    found = container(built({"type": "MLflow", "mlflow": mlflow}))
    assert found["envFrom"] == [{"secretRef": {"name": "mlflow"}}]
    assert request(found).address == "https://mlflow.example"


def request(found: Json) -> ExportRequest:
    return ExportRequest.from_json(found["command"][-1])


def test_a_claim_is_mounted_at_a_place_of_its_own() -> None:
    manifest = built(CLAIM)
    assert pod(manifest)["volumes"][-1] == {"name": "rljob-export", "persistentVolumeClaim": {"claimName": "models"}}
    mount = {"name": "rljob-export", "mountPath": "/rljob-export", "subPath": "team"}
    assert container(manifest)["volumeMounts"][-1] == mount
    assert (request(container(manifest)).place, request(container(manifest)).folder) == (
        ExportPlace.FOLDER,
        "/rljob-export",
    )


def test_the_place_in_a_claim_is_shown_by_the_claim() -> None:
    export = typed(spec_of(CLAIM)).export
    assert export is not None
    assert shown_path(export.to, "/rljob-export/global_step_2") == "pvc models:/team/global_step_2"
    assert target_text(export.to) == "pvc models:/team"


def test_the_runtime_is_injected_and_found_by_the_shell() -> None:
    manifest = built({"path": "/data/m"})
    (copy,) = pod(manifest)["initContainers"]
    assert copy["image"] == OPERATOR_IMAGE
    assert "--with-verl" in copy["command"]
    words: list[str] = container(manifest)["command"]
    assert words[:2] == ["bash", "-c"]
    assert "/rljob/code" in words[2]
    own: dict[str, Any] = pod(built({"path": "/data/m"}, {"runtime": {"injection": "Never"}}))
    assert "initContainers" not in own
    assert "PYTHONPATH" not in own["containers"][0]["command"][2]


def test_no_other_try_follows_a_request_that_cannot_be_met() -> None:
    rules = built({"path": "/data/m"})["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["values"] == [64]
    assert rules[1]["action"] == "Ignore"


def test_memory_that_is_known_is_requested() -> None:
    assert container(built({"path": "/data/m"}, memory=(3 << 30) + 1))["resources"]["limits"]["memory"] == "3073Mi"
    assert container(built({"path": "/data/m"}))["resources"]["limits"]["memory"] == "64Gi"
