"""What a pod may take of a node: its driver's folders, NPUs, volumes and taints, in what the operator creates.

The objects are those of a job on Atlas A3 with the driver mounted from the node, each with one change, as a patch, a
recipe or a defect could make it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from builders import Json, group, merged, small_spec, typed
from contract.attacks import LIMITED, OPEN
from contract.conftest import KUBECONFIG
from contract.policy_site import OPERATOR, Site, cluster, identity, refuses

from rljob.core.validation.device_variables import CHOSEN, TAKEN
from rljob.render.initializer import build_initializer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
A3 = merged({"accelerator": {"class": "atlas-a3"}}, group({"nodes": 1, "devicesPerNode": 16}))
NPU = "huawei.com/Ascend910"
IMAGE = "registry.example/rljob/helper:1"
Edit = Callable[[Json, Json], None]
"""A change of the pods of head and worker."""


def edited(site: Site, edit: Edit, namespace: str = LIMITED) -> Json:
    """Return the RayCluster of the job with changed pods."""
    made = copy.deepcopy(cluster(site, A3))
    made["metadata"]["namespace"] = site.namespace(namespace)
    head, worker = made["spec"]["headGroupSpec"], made["spec"]["workerGroupSpecs"][0]
    edit(head["template"]["spec"], worker["template"]["spec"])
    return made


def ray(pod: Json) -> Json:
    """Return Ray's container of a pod."""
    containers: list[Json] = pod["containers"]
    (found,) = [one for one in containers if one["name"].startswith("ray-")]
    return found


def driver_mount(pod: Json) -> Json:
    """Return the first mount of the driver in the worker's container."""
    return named_driver(ray(pod)["volumeMounts"])


def driver_volume(pod: Json) -> Json:
    return named_driver(pod["volumes"])


def named_driver(entries: list[Json]) -> Json:
    (found,) = [entry for entry in entries if entry["name"] == "rljob-driver-0"]
    return found


def remounted(**fields: object) -> Edit:
    """Change the worker's own mount of the driver."""
    return lambda _, worker: driver_mount(worker).update(fields)


def helper(*, init: bool = False, **fields: object) -> Edit:
    """Add a container beside Ray's in the worker."""
    one = {"name": "helper", "image": IMAGE, **fields}
    return lambda _, worker: worker.setdefault("initContainers" if init else "containers", []).append(one)


def beside(**mount: object) -> Edit:
    """Mount the driver in a container beside Ray's."""
    folder = {"name": "rljob-driver-0", "mountPath": "/node", **mount}
    return helper(volumeMounts=[folder], securityContext={"runAsUser": 0})


def with_volume(**source: object) -> Edit:
    return lambda _, worker: worker["volumes"].append({"name": "added", **source})


DRIVER: dict[str, Edit] = {
    "writable in a sidecar, as root": beside(),
    "read-only in a sidecar": beside(readOnly=True, mountPath="/usr/local/dcmi"),
    "in an init container": helper(init=True, volumeMounts=[{"name": "rljob-driver-0", "mountPath": "/node"}]),
    "writable in the worker's container": remounted(readOnly=False),
    "at another path": remounted(mountPath="/usr/bin"),
    "a folder of it": remounted(subPath="../.."),
    "a folder of it by a variable": remounted(subPathExpr="$(WHERE)"),
    "with mounts that reach the node": remounted(mountPropagation="Bidirectional"),
    "as a device": helper(volumeDevices=[{"name": "rljob-driver-0", "devicePath": "/dev/x"}]),
    "another folder under its name": lambda _, worker: driver_volume(worker)["hostPath"].update(path="/etc"),
    "another type, which creates the folder": (
        lambda _, worker: driver_volume(worker)["hostPath"].update(type="DirectoryOrCreate")
    ),
    "one more volume with such a name": (
        lambda _, worker: worker["volumes"].append({"name": "rljob-driver-99", "hostPath": {"path": "/etc"}})
    ),
    "in the head": lambda head, worker: (
        head["volumes"].append(driver_volume(worker)), ray(head)["volumeMounts"].append(driver_mount(worker))
    )[0],
}  # fmt: skip
DEVICES: dict[str, Edit] = {
    "NPUs of a sidecar": helper(resources={"limits": {NPU: "2"}}),
    "NPUs of an init container": helper(init=True, resources={"limits": {NPU: "2"}}),
    "NPUs of the head": lambda head, _: ray(head)["resources"]["limits"].update({NPU: "2"}),
    "NPUs of another class": lambda _, worker: ray(worker)["resources"]["limits"].update(
        {"huawei.com/ascend-1980": "1"}
    ),
    "NPUs of no class": lambda _, worker: ray(worker)["resources"]["limits"].update({"huawei.com/Ascend310P": "1"}),
    "a negative number beside others": helper(resources={"limits": {NPU: "-16"}}),
    "the devices of others, by their numbers": (
        lambda _, worker: ray(worker)["env"].append({"name": "ASCEND_VISIBLE_DEVICES", "value": "0-15"})
    ),
    "folders of the node, by a list of the container runtime": helper(
        env=[{"name": "ASCEND_RUNTIME_MOUNTS", "value": "all"}]
    ),
}


def test_the_objects_themselves_pass(site: Site) -> None:
    for namespace in (OPEN, LIMITED):
        unchanged = edited(site, lambda *_: None, namespace)
        assert driver_mount(unchanged["spec"]["workerGroupSpecs"][0]["template"]["spec"])["readOnly"]
        assert site.refused(namespace, OPERATOR, {"unchanged": unchanged}) == {}


@pytest.mark.parametrize("namespace", [OPEN, LIMITED])
def test_the_driver_is_mounted_as_the_table_states_or_not_at_all(site: Site, namespace: str) -> None:
    answers = site.refused(namespace, OPERATOR, {key: edited(site, edit, namespace) for key, edit in DRIVER.items()})
    for key in DRIVER:
        assert refuses("pods'", answers.get(key, "passed")), (key, answers.get(key))
        assert "is not mounted as the accelerator table states" in answers[key], key


def test_only_the_worker_has_npus_in_any_namespace(site: Site) -> None:
    answers = site.refused(OPEN, OPERATOR, {key: edited(site, edit, OPEN) for key, edit in DEVICES.items()})
    for key in DEVICES:
        assert "only the container ray-worker of a class has NPUs" in answers.get(key, "passed"), key
    spec = typed(small_spec({"initializers": [{"name": "get", "command": ["x"]}]}))
    made = build_initializer(identity(site, OPEN), spec, spec.initializers[0])
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][NPU] = "1"
    assert "container initializer: only" in site.refused(OPEN, OPERATOR, {"job": made}).get("job", "passed")


def test_operator_and_policies_know_the_same_variables_and_annotations(site: Site) -> None:
    def annotated(name: str) -> Json:
        made = edited(site, lambda *_: None, OPEN)
        made["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["annotations"][name] = "Ascend910-0"
        return made

    objects = {name: edited(site, helper(env=[{"name": name, "value": "x"}]), OPEN) for name in TAKEN}
    objects |= {name: annotated(name) for name in (*CHOSEN, NPU)}
    answers = site.refused(OPEN, OPERATOR, objects)
    assert set(answers) == TAKEN | CHOSEN | {NPU}
    assert all("choose the NPUs of a pod" in answers[name] for name in (*CHOSEN, NPU))


def test_devices_of_all_containers_are_cards(site: Site) -> None:
    """The namespace allows 16 cards of two dies; the job has 8."""
    over: dict[str, Edit] = {
        "of sidecars": helper(resources={"limits": {NPU: "17"}}),
        "of the head": lambda head, _: ray(head)["resources"]["limits"].update({NPU: "17"}),
        "of thousands": helper(resources={"limits": {NPU: "1k"}}),
    }
    answers = site.refused(LIMITED, OPERATOR, {key: edited(site, edit) for key, edit in over.items()})
    for key, cards in zip(over, (17, 17, 508), strict=True):
        assert f"request {cards} cards of class atlas-a3" in answers.get(key, "passed"), key


CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
CLAIM = {"name": "npu", "resourceClaimTemplateName": "npus"}
LIMITED_ONLY: dict[str, tuple[Edit, str]] = {
    "devices by a claim": (lambda _, worker: worker.update(resourceClaims=[CLAIM]), "resourceClaims and devices of a"),
    "devices by a claim of a container": (
        helper(resources={"claims": [{"name": "npu"}]}), "resourceClaims and devices of a"
    ),
    "devices of a DeviceClass": (
        helper(resources={"limits": {"deviceclass.resource.kubernetes.io/npu": "8"}}), "resourceClaims and devices of a"
    ),
    "an image as a volume": (with_volume(image={"reference": "miner:1"}), "image miner:1"),
    "an inline CSI volume": (with_volume(csi={"driver": "secrets.example"}), "volume added (csi)"),
    "a claim for the pod's life": (
        with_volume(ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}),
        "volume added (ephemeral)",
    ),
    "a disk of a storage network": (
        with_volume(iscsi={"targetPortal": "192.0.2.1:3260", "iqn": "iqn.2001-04.com.example:x", "lun": 0}),
        "volume added (iscsi): namespace",
    ),
    "nodes of the control plane": (
        lambda head, _: head.update(tolerations=[{"key": CONTROL_PLANE, "operator": "Exists"}]),
        "tolerations of taint node-role.kubernetes.io/control-plane",
    ),
    "every node": (lambda head, _: head.update(tolerations=[{"operator": "Exists"}]), "tolerations of every taint"),
}  # fmt: skip


def test_what_has_no_limit_of_its_own_is_refused_where_there_is_a_limit(site: Site) -> None:
    made = {key: edited(site, edit) for key, (edit, _) in LIMITED_ONLY.items()}
    answers = site.refused(LIMITED, OPERATOR, made)
    for key, (_, said) in LIMITED_ONLY.items():
        assert said in answers.get(key, "passed"), key
    elsewhere = {key: edited(site, edit, OPEN) for key, (edit, _) in LIMITED_ONLY.items()}
    assert site.refused(OPEN, OPERATOR, elsewhere) == {}


def test_common_volumes_and_tolerations_pass(site: Site) -> None:
    good: dict[str, Edit] = {
        "an allowed image as a volume": with_volume(image={"reference": IMAGE}),
        "a claim": with_volume(persistentVolumeClaim={"claimName": "data"}),
        "an export": with_volume(nfs={"server": "nfs.example", "path": "/data"}),
        "the taint of the NPUs": lambda _, worker: worker.update(tolerations=[{"key": NPU, "operator": "Exists"}]),
        "a taint of a team": lambda _, worker: worker.update(tolerations=[{"key": "team", "operator": "Exists"}]),
        "a lost node for a while": lambda _, worker: worker.update(
            tolerations=[{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
        ),
    }
    assert site.refused(LIMITED, OPERATOR, {key: edited(site, edit) for key, edit in good.items()}) == {}
