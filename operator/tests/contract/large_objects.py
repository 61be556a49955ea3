"""Objects that were stored before the CRDs had bounds, and the memory that they may cost an operator."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from builders import Json
from contract.conftest import CRDS
from contract.test_bad_manifests import kubectl

from rljob.api.v1alpha1 import API_VERSION

if TYPE_CHECKING:
    from contract.operator_process import Process

ROOT = Path(__file__).parents[3]
NUMBER = 12
BYTES = 1_400_000
"""Of an object: etcd stores at most 1.5 MiB."""


def memory_limit_mib() -> float:
    """Return the limit of the operator's container, as the chart sets it."""
    values = yaml.safe_load((ROOT / "charts/rljob-operator/values.yaml").read_text())
    found = re.fullmatch(r"(\d+)Mi", values["resources"]["limits"]["memory"])
    assert found is not None
    return float(found[1])


def peak_mib(process: Process) -> float:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@contextlib.contextmanager
def unbounded_crds() -> Iterator[None]:
    """Install CRDs whose specs take anything."""
    for path in sorted(CRDS.glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        apply("-", json.dumps(crd))
    try:
        yield
    finally:
        apply(str(CRDS))


def apply(source: str, text: str = "") -> None:
    done = kubectl("apply", "--server-side", "--force-conflicts", "-f", source, text=text)
    assert done.returncode == 0, done.stderr


def manifest(kind: str, name: str, spec: Json, namespace: str, **metadata: Any) -> Json:  # noqa: ANN401 - JSON
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def empty_objects() -> Json:
    """Return what takes most memory of its size: an empty object has 3 bytes in a list, and 72 in Python."""
    return {"head": {"x": [{}] * (BYTES // 3)}}


def create_all(manifests: list[Json]) -> None:
    for each in manifests:
        done = kubectl("create", "-f", "-", text=json.dumps(each))
        assert done.returncode == 0, done.stderr
