"""The device plug-in without devices: its manifest agrees with the program, and its devices can be made unhealthy."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import ROOT, Manifest, pick
from tests.cluster import programs

SOURCE = ROOT / "tests/cluster/programs/fakenpu"
READY_SECONDS = 30


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return list(yaml.safe_load_all((ROOT / "deploy/fakenpu.yaml").read_text()))


def pod_of(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the spec of the pods."""
    spec: dict[str, Any] = pick(manifests, "DaemonSet", "fakenpu")["spec"]["template"]["spec"]
    return spec


def test_its_arguments_are_flags_of_the_program(manifests: list[Manifest]) -> None:
    flags = set(re.findall(r'flag\.\w+\("([\w-]+)"', (SOURCE / "main.go").read_text()))
    (container,) = pod_of(manifests)["containers"]
    given = {argument.removeprefix("--").partition("=")[0] for argument in container["args"]}
    # Its own ServiceAccount and the usual folder of the kubelet.
    assert given == flags - {"kubeconfig", "kubelet-root"}


def test_its_role_allows_what_it_does_and_nothing_else(manifests: list[Manifest]) -> None:
    text = "".join(path.read_text() for path in SOURCE.glob("*.go"))
    called = {("nodes", verb.lower()) for verb in re.findall(r"\.Nodes\(\)\.(\w+)\(", text)}
    called |= {("pods", verb.lower()) for verb in re.findall(r"\bpods\.(\w+)\(", text)}
    rules = pick(manifests, "ClusterRole", "fakenpu")["rules"]
    assert called == {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    binding = pick(manifests, "ClusterRoleBinding", "fakenpu")
    account = pick(manifests, "ServiceAccount", "fakenpu")["metadata"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "fakenpu", "namespace": account["namespace"]}]
    assert pod_of(manifests)["serviceAccountName"] == "fakenpu"


def test_it_mounts_the_folders_of_the_kubelet_that_it_uses(manifests: list[Manifest]) -> None:
    text = "".join(path.read_text() for path in SOURCE.glob("*.go"))
    (root,) = re.findall(r'flag\.String\("kubelet-root", "([^"]+)"', text)
    used = {f"{root}/{folder}" for folder in re.findall(r'kubeletRoot, "([\w-]+)"', text)}
    assert len(used) == 2
    pod = pod_of(manifests)
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    folders = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    assert {path: folders[mounts[path]] for path in used} == {path: path for path in used}


def test_nodes_of_a_real_plug_in_are_left_alone(manifests: list[Manifest]) -> None:
    text = (SOURCE / "reporter.go").read_text()
    labels = re.findall(r'^\t"([^"]+)": +"', text, re.MULTILINE)
    assert {"accelerator", "rljob.dev/fake-npus"} <= set(labels)
    affinity = pod_of(manifests)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [term["matchExpressions"] for term in affinity["nodeSelectorTerms"]]
    assert terms == [
        [{"key": "accelerator", "operator": "DoesNotExist"}],
        [{"key": "rljob.dev/fake-npus", "operator": "Exists"}],
    ]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[str]]:
    """Run the plug-in without a kubelet and an API server; return the words of its client."""
    programs.build(["fakenpu"])
    program, control = str(programs.binary("fakenpu")), tmp_path / "control.sock"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": ""}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    flags = ["--node=n", "--npus=2", f"--kubeconfig={tmp_path}/kubeconfig", f"--kubelet-root={tmp_path}"]
    process = subprocess.Popen([program, *flags, f"--control={control}"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not control.exists():
            assert time.monotonic() < deadline, "no control socket"
            assert process.poll() is None, "the plug-in ended"
            time.sleep(0.05)
        yield [program, f"--control={control}"]
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


def test_a_device_is_made_unhealthy_by_the_program_itself(running: list[str]) -> None:
    def ask(*words: str) -> tuple[int, str]:
        done = subprocess.run([*running, *words], capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stdout + done.stderr

    assert ask("list") == (0, "Ascend910-0 Healthy\nAscend910-1 Healthy\n")
    assert ask("unhealthy", "Ascend910-1") == (0, "ok\n")
    assert ask("list") == (0, "Ascend910-0 Healthy\nAscend910-1 Unhealthy\n")
    code, said = ask("unhealthy", "Ascend910-7")
    assert code == 1
    assert "it has Ascend910-0 to Ascend910-1" in said
