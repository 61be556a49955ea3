"""Every field of the API that names a Secret is known to the policy that judges which Secrets an author may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
POLICY = (ROOT / "charts/rljob-operator/templates/policies/authors.yaml").read_text()
KNOWN = {
    "secretRefs": "spec.?secretRefs",
    "runtime.imagePullSecrets": "runtime.?imagePullSecrets",
    "code.git.secretRef": "code.?git.?secretRef",
    "export.to.huggingFace.secretRef": "'huggingFace', 'modelScope', 'mlflow'",
    "export.to.modelScope.secretRef": "'huggingFace', 'modelScope', 'mlflow'",
    "export.to.mlflow.secretRef": "'huggingFace', 'modelScope', 'mlflow'",
    "initializers[].download.credentials": "download.?credentials",
}
"""Field -> how the policy reads it."""
ANYWHERE = ("env[].valueFrom.secretKeyRef", "envFrom[].secretRef")
"""Of every container and template, which the policy reads as `holders`."""


def named(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of fields that name a Secret."""
    field = path.rpartition(".")[2].removesuffix("[]")
    if "secret" in field.lower() or field == "credentials":
        yield path
        return
    for name, below in schema.get("properties", {}).items():
        yield from named(below, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from named(schema["items"], f"{path}[]")


def test_each_is_read_by_the_policy_on_authors() -> None:
    crd = yaml.safe_load((ROOT / "crds/rljobs.rljob.dev.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert {path for path in named(spec) if not path.endswith(ANYWHERE)} == set(KNOWN)
    for field, read in KNOWN.items():
        assert read in POLICY, field
