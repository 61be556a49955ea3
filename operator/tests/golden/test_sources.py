"""Every value of the manifests of Ascend clusters has a source: the job, the class's row, or a table.

The test fails for a leaf of the rendered RayCluster that no row of SOURCES explains, and for a row that explains
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from builders import BUILT_IN_RECIPES, EXAMPLES, validate
from rendered import render

from rljob.render.accelerators import facts_of
from rljob.render.device_access import NO_DEVICES
from rljob.render.env import NO_AUTOLOAD, VARIABLES
from rljob.render.ports import PORTS, RayVariable
from rljob.render.stopping import worker_env

JOBS = sorted([*(EXAMPLES / "ascend").glob("*.yaml"), EXAMPLES / "qwen3-235b.yaml", EXAMPLES / "deepseek-v3.yaml"])
POD = r"\.spec\.(headGroupSpec|workerGroupSpecs\[trainer\])\.template\.spec"
WORKER_POD = r"\.spec\.workerGroupSpecs\[trainer\]\.template\.spec"
META = r"(\.spec\.(headGroupSpec|workerGroupSpecs\[trainer\])\.template)?\.metadata"
GROUP = r"\.spec\.(headGroupSpec|workerGroupSpecs\[trainer\])"
RAY = r"\.containers\[ray-(head|worker)\]"
KUBERAY = "KubeRay v1.6.2, ray-operator/apis/ray/v1/raycluster_types.go"

SOURCES: dict[str, str] = {
    r"\.(apiVersion|kind)": KUBERAY,
    r"\.metadata\.(name|namespace)": "docs/reference: names carry the job's uid",
    r"\.metadata\.ownerReferences\[.*": "design: the RLJob controls its children",
    rf"{META}\.labels\[rljob\.dev/.*": "labels.py",
    rf"{META}\.annotations": "none: the class has no policy",
    rf"{META}\.annotations\[rljob\.dev/.*": "labels.py",
    rf"{META}\.annotations\[huawei\.com/schedule_policy\]": "row: schedulePolicy",
    r"\.spec\.headGroupSpec\.template\.metadata\.annotations\[huawei\.com/skip-ascend-plugin\]": "row: headAnnotations",
    rf"{META}\.labels\[(ring-controller\.atlas|fault-scheduling)\]": "row: labels",
    r"\.spec\.(rayVersion|authOptions\.mode)": "spec.runtime.rayVersion; KubeRay: token mode",
    rf"{GROUP}\.(groupName|replicas|minReplicas|maxReplicas|numOfHosts)": "spec.workerGroups",
    rf"{GROUP}\.rayStartParams\.(dashboard-host|num-cpus)": "raycluster.py: the head's Service",
    rf"{GROUP}\.rayStartParams\.resources": "spec.workerGroups.devicesPerNode, quoted as kuberay issue 1984 asks",
    rf"{GROUP}\.rayStartParams\.[-a-z]*port": "ports",
    rf"{GROUP}\.rayStartParams\.node-ip-address": "raycluster.py: the node's address in Kubernetes",
    rf"{POD}\.restartPolicy": "raycluster.py: a Ray process that restarts has lost its state",
    rf"{POD}\.(hostNetwork|dnsPolicy)": "spec.network.mode",
    rf"{POD}\.terminationGracePeriodSeconds": "spec.stop.graceSeconds and 30 s (docs/design/0006)",
    rf"{POD}\.automountServiceAccountToken": "design: no pod of a job needs the API server",
    rf"{POD}\.(nodeSelector|tolerations)": "spec: template",
    rf"{WORKER_POD}\.affinity\.nodeAffinity\..*": "row: nodeLabels",
    r"\.spec\.headGroupSpec\.template\.spec\.affinity\.nodeAffinity\.preferred.*": "nodeLabels of all NPU rows",
    rf"{POD}\.volumes\[(rljob-spool|rljob-config)\].*": "contract: head_paths",
    rf"{POD}\.volumes\[rljob-runtime\].*": "injection.py: the copy of the runtime",
    rf"{WORKER_POD}\.volumes\[rljob-driver-.*": "row: hostPaths",
    rf"{POD}\.volumes\[shared-memory\].*": "spec: template.sharedMemory, or row: pod",
    rf"{POD}\.volumes\[shared\].*": "spec: template.volumes",
    rf"{POD}{RAY}\.(name|image|imagePullPolicy)": "KubeRay: containers[0] is Ray's; spec.runtime",
    rf"{POD}{RAY}\.terminationMessagePolicy": "pods.py: a failed container's last lines in its status",
    rf"{POD}{RAY}\.lifecycle\..*": "docs/design/0006",
    rf"{POD}{RAY}\.env\[.*": "variables",
    rf"{POD}{RAY}\.ports\[.*": "ports",
    rf"{POD}{RAY}\.resources\.(limits|requests)\.(cpu|memory)": "spec: template, or row: pod; resources.py",
    rf"{WORKER_POD}{RAY}\.resources\.(limits|requests)\.huawei\.com/.*": "row: resource; devicesPerNode",
    rf"{POD}{RAY}\.volumeMounts\[/(var/run/rljob|etc/rljob)\].*": "contract: head_paths",
    rf"{POD}{RAY}\.volumeMounts\[/rljob\].*": "contract: INJECTED_FOLDER",
    rf"{POD}{RAY}\.volumeMounts\[/dev/shm\].*": "raycluster.py",
    rf"{POD}{RAY}\.volumeMounts\[/shared\].*": "spec: template.volumeMounts",
    rf"{WORKER_POD}{RAY}\.volumeMounts\[/(usr/local|etc/(hccn\.conf|ascend_install\.info)).*": "row: hostPaths",
    rf"{POD}\.initContainers\[rljob-runtime\]\..*": "injection.py: the operator's image",
    rf"{POD}\.initContainers\[exporter\]\..*": "raycluster.py: our own sidecar; contract",
}
KEYS = ("name", "mountPath", "groupName", "containerPort", "key", "uid")


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Return every scalar with its path; entries of lists by their identifying field."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            step = f"[{name}]" if path.endswith((".labels", ".annotations")) else f".{name}"
            yield from leaves(member, path + step)
    elif isinstance(value, list) and value:
        for index, entry in enumerate(value):
            named = entry if isinstance(entry, dict) else {}
            # A mount is identified by its path, because its name is that of the volume.
            keys = ("mountPath", *KEYS) if path.endswith("volumeMounts") else KEYS
            word = next((named[key] for key in keys if key in named), index)
            yield from leaves(entry, f"{path}[{word}]")
    else:
        yield path, value


@cache
def clusters() -> dict[str, dict[str, Any]]:
    found = {}
    for path in JOBS:
        documents = render(yaml.safe_load(path.read_text()))
        (found[path.stem],) = (each for each in documents if each.get("kind") == "RayCluster")
    return found


@pytest.mark.parametrize("name", [path.stem for path in JOBS])
def test_every_value_has_a_source(name: str) -> None:
    orphans = [path for path, _ in leaves(clusters()[name]) if not any(re.fullmatch(row, path) for row in SOURCES)]
    assert orphans == []


def test_every_source_explains_something() -> None:
    paths = {path for cluster in clusters().values() for path, _ in leaves(cluster)}
    assert [row for row in SOURCES if not any(re.fullmatch(row, path) for path in paths)] == []


@pytest.mark.parametrize("name", [path.stem for path in JOBS])
def test_every_variable_stands_in_a_table_or_in_the_job(name: str) -> None:
    (job,) = (path for path in JOBS if path.stem == name)
    spec = validate(name, yaml.safe_load(job.read_text())["spec"], BUILT_IN_RECIPES).spec
    assert spec is not None
    tables = {row.name for row in VARIABLES} | set(RayVariable) | set(facts_of(spec).env)
    tables |= {row["name"] for row in (*worker_env(spec), NO_AUTOLOAD, NO_DEVICES)}
    own = {
        variable.name for template in (spec.head.template, spec.worker_groups[0].template) for variable in template.env
    }
    groups = (clusters()[name]["spec"]["headGroupSpec"], *clusters()[name]["spec"]["workerGroupSpecs"])
    for group in groups:
        for variable in group["template"]["spec"]["containers"][0]["env"]:
            assert variable["name"].startswith("RLJOB_") or variable["name"] in tables | own


@pytest.mark.parametrize("name", [path.stem for path in JOBS])
def test_values_of_the_class_are_those_of_its_row(name: str) -> None:
    (job,) = (path for path in JOBS if path.stem == name)
    spec = validate(name, yaml.safe_load(job.read_text())["spec"], BUILT_IN_RECIPES).spec
    assert spec is not None
    row, made = facts_of(spec), clusters()[name]
    (worker,) = made["spec"]["workerGroupSpecs"]
    limits = worker["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits[row.resource] == str(row.devices_per_node)
    assert made["metadata"]["annotations"].get("huawei.com/schedule_policy") == row.schedule_policy
    mounted = [v["hostPath"]["path"] for v in worker["template"]["spec"]["volumes"] if "hostPath" in v]
    assert mounted == [path.path for path in row.host_paths if path.path in mounted]


def test_on_the_nodes_network_every_port_is_of_the_block() -> None:
    made = clusters()["a3-superpod-host-network"]
    first = int(made["metadata"]["annotations"]["rljob.dev/port-block"])
    expected = {first + row.place for row in PORTS}
    found = [int(str(value)) for path, value in leaves(made) if re.search(r"(port|ports\[\w+\]\.containerPort)$", path)]
    assert {port for port in found if port} <= expected
    shown = {int(port) for port in re.findall(r"\b2\d{4}\b", yaml.safe_dump(made["spec"]))} - {first}
    assert shown | {first} == expected


def test_the_shapes_that_users_have_are_covered() -> None:
    shapes = set()
    for cluster in clusters().values():
        (worker,) = cluster["spec"]["workerGroupSpecs"]
        limits = worker["template"]["spec"]["containers"][0]["resources"]["limits"]
        (devices,) = (int(count) for name, count in limits.items() if name.startswith("huawei.com/"))
        shapes.add((worker["replicas"], devices))
    assert shapes == {(1, 8), (4, 8), (1, 16), (8, 16), (16, 16)}
