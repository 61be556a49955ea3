"""The pod of `rljob check-image`: restricted, without a device, and started as the Ray containers of a job."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rljob.render import injection
from rljob.render.accelerators import BUILT_IN
from rljob.render.image_check import NO_PYTHON, OLD_PYTHON, SCRIPT, ImageCheck, build_pod

CHECK = ImageCheck("x.example/verl:1", "x.example/operator:1", seconds=300, user=65532, pull_secrets=("registry",))
ROOT = Path(__file__).resolve().parents[4]


def test_the_runtime_comes_from_the_operators_image() -> None:
    spec = build_pod(CHECK, "check")["spec"]
    (copies,), (checks,) = spec["initContainers"], spec["containers"]
    assert (copies["image"], checks["image"]) == (CHECK.runtime_image, CHECK.image)
    assert copies["command"][-2:] == ["copy-runtime", "/rljob"]
    assert checks["volumeMounts"] == [{"name": "rljob-runtime", "mountPath": "/rljob", "readOnly": True}]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_a_deep_check_has_verl_and_room_for_what_imports_write() -> None:
    spec = build_pod(dataclasses.replace(CHECK, deep=True), "check")["spec"]
    (copies,), (checks,) = spec["initContainers"], spec["containers"]
    assert "--with-verl" in copies["command"]
    assert {"name": "scratch", "mountPath": "/tmp"} in checks["volumeMounts"]
    assert {"name": "HOME", "value": "/tmp"} in checks["env"]
    assert checks["securityContext"]["readOnlyRootFilesystem"] is True
    assert checks["resources"]["limits"]["memory"] == "8Gi"


def test_the_pod_is_restricted_bounded_and_has_no_token_and_no_device() -> None:
    spec = build_pod(CHECK, "check")["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 300)
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert set(container["resources"]["requests"]) == set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_root_is_possible_on_request() -> None:
    spec = build_pod(dataclasses.replace(CHECK, user=0), "check")["spec"]
    assert spec["securityContext"]["runAsUser"] == 0
    assert all("runAsNonRoot" not in each["securityContext"] for each in (*spec["initContainers"], *spec["containers"]))


def test_a_class_chooses_the_node() -> None:
    assert not {"affinity", "tolerations"} & build_pod(CHECK, "check")["spec"].keys()
    accelerator = BUILT_IN["atlas-a3"]
    spec = build_pod(dataclasses.replace(CHECK, accelerator=accelerator), "check")["spec"]
    assert spec["tolerations"] == [{"key": "huawei.com/Ascend910", "operator": "Exists"}]
    node = spec["affinity"]["nodeAffinity"]
    (term,) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {each["key"] for each in term["matchExpressions"]} == set(accelerator.node_labels)


def start(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a program `python` that is this text; empty: none."""
    if program:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "python").chmod(0o755)
    text = SCRIPT.replace(injection.CODE, str(ROOT / "runtime/src"))
    environ = {"PATH": str(tmp_path), "BASH_ENV": ""}
    return subprocess.run(["/bin/bash", "-c", "--", text], env=environ, capture_output=True, text=True, check=False)


def test_the_script_runs_the_runtimes_check(tmp_path: Path) -> None:
    done = start(tmp_path, f'exec {sys.executable} -S "$@"')
    assert done.returncode == 64, done.stderr
    found = json.loads(done.stdout)
    assert found["launchers"]["Verl"]["verdict"] == "refused"
    assert "ray: jobs run as Ray jobs; install ray[" in " ".join(found["launchers"]["Command"]["reasons"])


@pytest.mark.parametrize(
    ("program", "code", "told"),
    [
        ("", NO_PYTHON, ""),
        (f'[ "$1" = -c ] && exit {OLD_PYTHON}; echo Python 3.8.18', OLD_PYTHON, "Python 3.8.18\n"),
    ],
)
def test_the_script_names_what_keeps_the_check_from_starting(
    tmp_path: Path, program: str, code: int, told: str
) -> None:
    done = start(tmp_path, program)
    assert (done.returncode, done.stdout) == (code, told)
